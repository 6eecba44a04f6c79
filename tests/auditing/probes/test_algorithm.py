"""Every private trainer passes its probes; what promises nothing is refused."""

import json

import pytest

from privaudit.auditing.experiments.presets import training_named
from privaudit.auditing.probes.algorithm import PROBED, gives_gradients, probe
from privaudit.cli import main
from trainers.algorithms import ALGORITHMS

PRIVATE = [name for name, family in ALGORITHMS.items() if family.private]


@pytest.mark.parametrize("name", PRIVATE)
def test_right_trainers_are_not_accused(name):
    training = training_named(name, [], **PROBED)
    checks = probe(training, runs=20)
    assert [check.findings for check in checks if check.findings] == []
    assert any(check.skipped for check in checks) != gives_gradients(training)


def test_what_promises_nothing_is_refused():
    with pytest.raises(ValueError, match="promises nothing"):
        probe(training_named("dsgd", [], **PROBED))


@pytest.mark.parametrize(
    "more", [{"noise_multiplier": 0.0}, {"runs": 5}, {"search": 0}]
)
def test_numbers_out_of_range(more):
    with pytest.raises(ValueError, match="must be"):
        probe(training_named("dp-dsgd", [], **PROBED), **more)


def test_the_command(capsys, tmp_path, monkeypatch):
    few = ["--runs", "20", "--search", "64"]
    assert main(["probe", "dp-dsgd", *few, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["findings"] == []
    assert {check["status"] for check in found["checks"]} == {"ok"}
    (tmp_path / "no_noise_of_ours.py").write_text(
        "def f(data, seed):\n    return data.sum(0)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["probe", "no_noise_of_ours:f", "--noise", "1"]) == 1
    assert "coordinate 0 of what is released has no noise" in capsys.readouterr().out
    assert main(["probe", "dp-dsgd", "--noise", "1"]) == 2
    assert main(["probe", "no_noise_of_ours:f", "--search", "64"]) == 2
