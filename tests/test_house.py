"""The structure of the code: layers, and no circles. `make house` prints it."""

from tests import house


def test_imports_go_down_and_nothing_goes_round(capsys):
    assert house.main() == 0, capsys.readouterr().out
