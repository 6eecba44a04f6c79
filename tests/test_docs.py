"""Every Python snippet of README and docs runs, as its reader would run it.

A page's snippets share their names, from the first to the last. Pages that need more
have tests of their own.
"""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
ELSEWHERE = {
    "accounts.md": "tests/accounting/test_docs.py",
    "auditing.md": "tests/test_auditing_docs.py",
    "integrations.md": "tests/integrations/test_docs.py",
    "testing.md": "tests/testing/test_docs.py",
}
TRAIN = ("training.md", "tutorial.md")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "page",
    [
        # Those that train more than once; README trains once.
        pytest.param(p, marks=[pytest.mark.full] * (p.name in TRAIN), id=p.name)
        for p in PAGES
        if snippets(p) and p.name not in ELSEWHERE
    ],
)
def test_snippets_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for block in snippets(page):
        exec(compile(block, str(page), "exec"), space)
        assert capsys.readouterr().out or "print" not in block


def test_other_pages_are_tested_elsewhere():
    for name, test in ELSEWHERE.items():
        assert snippets(ROOT / "docs" / name)
        assert name in (ROOT / test).read_text()


def test_there_are_some():
    assert len(snippets(ROOT / "README.md")) >= 2


def test_every_page_is_on_the_site():
    index = (ROOT / "docs/index.md").read_text().split()
    pages = {page.stem for page in PAGES[1:]} - {"index"}
    assert pages <= set(index)
