"""`privaudit completion`: commands and options, completed by the shell."""

from __future__ import annotations

from typing import Literal

# The script defines a function of another name than the file, and calls it nowhere.
_ZSH = """
if [[ $funcstack[1] == _* ]]; then  # loaded from $fpath
  _cyclopts_privaudit "$@"
else  # sourced
  compdef _cyclopts_privaudit privaudit
fi
"""


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands and options.

    In bash, `source <(privaudit completion bash)`, also in ~/.bashrc. In zsh, `source
    <(privaudit completion zsh)` after compinit, or write it to a file _privaudit in a
    folder of $fpath; in fish, to ~/.config/fish/completions/privaudit.fish.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    from privaudit.cli import made

    script = made().generate_completion(shell=shell)
    print(f"{script}{_ZSH}" if shell == "zsh" else script)
