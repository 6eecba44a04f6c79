"""The examples' notebooks run, cell by cell, and come out as they say."""

import json
import pathlib

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "unit", "epsilon", "least"),
    [
        ("phones", "user", 4, 0.85),
        pytest.param("sentences", "record", 4, 0.85, marks=pytest.mark.full),
        pytest.param("hospitals", "record", 2, 0.85, marks=pytest.mark.full),
    ],
)
def test_an_example_runs(name, unit, epsilon, least, capsys):
    space: dict = {"__name__": "__main__"}
    for cell in json.loads((EXAMPLES / f"{name}.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), space)
    run = space["run"]
    assert run.result.accuracy > least
    upper = run.result.upper()
    assert (upper.unit, upper.standing) == (unit, "certified")
    assert 0.98 * epsilon < upper.epsilon <= epsilon
    assert "accuracy" in capsys.readouterr().out
