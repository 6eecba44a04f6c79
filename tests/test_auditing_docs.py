"""Every snippet of docs/auditing.md runs, as its reader would run it."""

import pathlib
import re

import pytest

PAGE = (pathlib.Path(__file__).parents[1] / "docs/auditing.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.full
def test_snippets_run_one_after_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    statuses = []
    for snippet in SNIPPETS:
        exec(compile(snippet, "docs/auditing.md", "exec"), space)
        if "found" in space:
            statuses.append(space["found"].status)
    assert len(SNIPPETS) == 7
    assert statuses[0] == "consistent"
    assert statuses[-1] == "unproven"  # the account of a loop is conditional
