"""The examples run, and come out as they say."""

import pathlib
import runpy

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
    run = runpy.run_path(str(EXAMPLES / f"{name}.py"))["run"]
    assert run.result.accuracy > least
    upper = run.result.upper()
    assert (upper.unit, upper.standing) == (unit, "certified")
    assert 0.98 * epsilon < upper.epsilon <= epsilon
    assert "accuracy" in capsys.readouterr().out
