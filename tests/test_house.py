"""The structure of the code: layers, and no circles. `make house` prints it."""

from tests import house, words


def test_imports_go_down_and_nothing_goes_round(capsys):
    assert house.main() == 0, capsys.readouterr().out


def test_a_docstring_begins_with_a_verb_or_a_noun():
    told = (
        '"""Which is it?"""\ndef f():\n    """Return it."""\ndef g():\n    """Of it."""'
    )
    assert words.riddles(told) == [(1, "Which is it?"), (5, "Of it.")]
