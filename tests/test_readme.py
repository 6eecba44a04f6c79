"""The README's Python, and that of docs/views.md, runs as it stands."""

import pathlib
import re

import pytest

README = pathlib.Path(__file__).parents[1] / "README.md"
PAGES = (README, README.parent / "docs/views.md")
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block, capsys):
    exec(compile(block, str(README), "exec"), {})
    assert capsys.readouterr().out


def test_there_are_some():
    assert len(BLOCKS) >= 3
