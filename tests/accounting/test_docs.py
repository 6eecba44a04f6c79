"""docs/accounts.md: its snippets run, its commands are read, its names are there."""

import pathlib
import re
import shlex

import pytest

import privaudit as pa
from privaudit.accounting.pld.mechanisms import loss_of
from privaudit.cli import main
from privaudit.mechanisms import NAMES

PAGE = (pathlib.Path(__file__).parents[2] / "docs/accounts.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"`privaudit ([^`]*)`", PAGE)


def test_there_are_five():
    assert len(SNIPPETS) == 5


@pytest.mark.sampled(3)
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet(snippet, capsys):
    exec(compile(snippet, "docs/accounts.md", "exec"), {})
    for line in capsys.readouterr().out.splitlines():
        assert "nan" not in line


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, capsys):
    main(shlex.split(command))
    assert "epsilon" in capsys.readouterr().out


def test_every_mechanism_is_in_the_table():
    for kind in NAMES:
        assert f"`{kind.__name__}`" in PAGE
    assert loss_of.__module__ == "privaudit.accounting.pld.mechanisms"


def test_every_option_is_one():
    options = set(re.findall(r"`(--[a-z-]+)", PAGE))
    text = pathlib.Path(pa.__file__).parent / "figure_settings.py"
    known = text.read_text() + (text.parent / "cli/accounts.py").read_text()
    for option in options:
        assert option[2:].replace("-", "_") in known, option
