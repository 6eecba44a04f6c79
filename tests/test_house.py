"""The structure of the code: layers, and no circles. `make house` prints it."""

import re

from tests import house, words

ROOT = house.PICTURE.parents[1]


def test_imports_go_down_and_nothing_goes_round(capsys, monkeypatch, tmp_path):
    kept = house.PICTURE.read_text()
    monkeypatch.setattr(house, "PICTURE", tmp_path / "drawn.svg")
    assert house.main() == 0, capsys.readouterr().out
    assert kept == house.PICTURE.read_text(), "run make house"


def test_what_the_tour_names_is_there():
    page = (ROOT / "docs/architecture.md").read_text()
    places = re.findall(r"`([\w/]+\.py)(?:: (\w+))?`", page)
    assert len(places) > 25
    for path, name in places:
        text = (ROOT / path).read_text()
        assert not name or re.search(rf"^(def|class) {name}\b", text, re.M), name
    for folder in re.findall(r"`([\w/]+/)`", page):
        assert (ROOT / folder).is_dir()


def test_a_docstring_begins_with_a_verb_or_a_noun():
    told = (
        '"""Which is it?"""\ndef f():\n    """Return it."""\ndef g():\n    """Of it."""'
    )
    assert words.riddles(told) == [(1, "Which is it?"), (5, "Of it.")]
