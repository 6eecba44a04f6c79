"""What `privaudit completion` prints is taken by the shell, and knows the commands."""

import shutil
import subprocess

import pytest

from privaudit.cli import BAD_USAGE, FINE, main

ASK = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={last}
_privaudit
printf '%s\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("shell") / "privaudit.bash"
    with pytest.MonkeyPatch.context() as patch:
        written = []
        patch.setattr("builtins.print", lambda *text, **more: written.append(*text))
        assert main(["completion", "bash"]) == FINE
    path.write_text(written[0])
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("privaudit tr", "train"),
        ("privaudit si", "site"),
        ("privaudit noise --eps", "--epsilon"),
        ("privaudit train --pub", "--public-seed"),
    ],
)
def test_bash_completes(script, words, expected):
    text = ASK.format(script=script, words=words, last=len(words.split()) - 1)
    shown = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert expected in shown.stdout.split(), shown.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes(tmp_path, capsys):
    assert main(["completion", "fish"]) == FINE
    (tmp_path / "privaudit.fish").write_text(capsys.readouterr().out)
    text = f"source {tmp_path}/privaudit.fish; complete -C 'privaudit noise --ep'"
    shown = subprocess.run(["fish", "-N", "-c", text], capture_output=True, text=True)
    assert shown.stdout.startswith("--epsilon"), shown.stderr


def test_for_fish(capsys):
    assert main(["completion", "fish"]) == FINE
    assert "complete" in capsys.readouterr().out


def test_in_zsh_the_function_is_called_or_bound(capsys):
    """A file of `$fpath` is a function's body: a definition alone does nothing."""
    assert main(["completion", "zsh"]) == FINE
    text = capsys.readouterr().out
    assert "#compdef" in text
    assert "\n_cyclopts_privaudit() {" in text
    end = text.partition("\n}\n")[2]
    assert '_cyclopts_privaudit "$@"' in end
    assert "compdef _cyclopts_privaudit privaudit" in end


def test_an_unknown_shell_is_one_line(capsys):
    assert main(["completion", "tcsh"]) == BAD_USAGE
    assert capsys.readouterr().err.count("\n") == 1
