"""`privaudit completion`: commands and options, completed by the shell."""

from __future__ import annotations

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands and options.

    In bash, `source <(privaudit completion bash)`, also in ~/.bashrc. In zsh, write it
    to a file _privaudit in a folder of $fpath; in fish, to
    ~/.config/fish/completions/privaudit.fish.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    from privaudit.cli import made

    print(made().generate_completion(shell=shell))
