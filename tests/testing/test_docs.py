"""Every snippet of docs/testing.md runs, as its reader would run it."""

import pathlib
import re

import pytest

from tests.testing.mechanisms import CASES
from tests.testing.test_plugin import run_pytest
from tests.tiers import size

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_there_are_six():
    assert len(SNIPPETS) == 6


@pytest.mark.sampled(9)
@pytest.mark.sized
@pytest.mark.parametrize("at", range(len(SNIPPETS)))
def test_snippet(tmp_path, at):
    text = "".join(f"    {line}\n" for line in SNIPPETS[at].splitlines())
    text = text.replace("max_examples=20", f"max_examples={size(20, 2)}")
    shown = run_pytest(tmp_path, text, "-p", "no:randomly")
    if at:
        assert " passed" in shown
        assert "failed" not in shown
        return
    assert "1 failed, 1 passed" in shown
    assert "too_little_noise is not (1, 0)-DP." in shown
    for part in ("pair = ", "bound: ", "evidence: ", "repeat with:"):
        assert part in shown
        assert part in PAGE


def test_the_table_says_of_every_case_what_is_right():
    table = (ROOT / "reports/mechanisms/README.md").read_text().splitlines()
    for case in CASES:
        row = next(line for line in table if f"| {case.name} |" in line)
        right, found = row.split(" | ")[2:4]
        assert (right, found) == (("yes", "no") if case.right else ("no", "refuted"))
