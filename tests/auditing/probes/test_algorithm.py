"""Every private trainer passes its probes; what promises nothing is refused."""

import json

import pytest
import torch

from privaudit.auditing.experiments.presets import training_named
from privaudit.auditing.probes import noise as law
from privaudit.auditing.probes.algorithm import PROBED, gives_gradients, probe
from privaudit.cli import main
from privaudit.figure_settings import ProbeSettings
from privaudit.release import RandomAllocation
from trainers.algorithms import ALGORITHMS
from trainers.oracles.oracle import Oracle

PRIVATE = [name for name, family in ALGORITHMS.items() if family.private]


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", PRIVATE)
def test_right_trainers_are_not_accused(name):
    training = training_named(name, [], **PROBED)
    checks = probe(training, ProbeSettings(runs=20))
    assert [check.findings for check in checks if check.findings] == []
    assert any(check.skipped for check in checks) != gives_gradients(training)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dp-mf", ["band=3", "parts=4"]),
        ("dp-mf", ["buffers=2", "parts=9"]),
        ("dp-mf-dsgd", []),
        ("dp-mf-butterfly", []),
        ("dp-fedavg", ["user_rate=0.3", "band=2"]),
    ],
)
def test_shared_noise_is_not_accused(name, settings):
    checks = probe(training_named(name, settings, **PROBED), ProbeSettings(runs=20))
    assert [check.findings for check in checks if check.findings] == []


def test_shared_noise_that_is_too_little_is(monkeypatch):
    real = Oracle._noisy

    def half(self, total, nodes, deviation, step):
        return real(self, total, nodes, deviation / 2, step)

    monkeypatch.setattr(Oracle, "_noisy", half)
    training = training_named("dp-mf", ["band=3", "parts=4"], **PROBED)
    checks = probe(training, ProbeSettings(runs=20))
    assert [check.name for check in checks if check.findings] == ["noise"]


def test_wrong_turns_are():
    generator = torch.Generator().manual_seed(0)
    part, drawn = torch.rand(2, 3, 400, generator=generator)
    own = part.argmax(0) == torch.arange(3)[:, None]  # (parts, runs)
    right = ((drawn[:2, None] < 0.5) & own).flatten(0, 1)  # two turns
    once, found = law.in_turns(right[:5], 3)
    assert once.shape == (1, 400)
    assert found == law.sampled(once, 0.5) == []
    assert "several of 3 parts" in law.in_turns(right.roll(1, 1) | right, 3)[1][0]
    assert law.sampled(law.in_turns(right, 3)[0], 0.3)
    assert law.sampled(law.in_turns(right[:2], 3)[0], 0.5) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sampling", ["random-allocation", "random-allocation:2"])
def test_allocated_batches_are_not_accused(sampling):
    training = training_named("dp-dsgd", [f"sampling={sampling}"], **PROBED)
    checks = probe(training, ProbeSettings(runs=20))
    assert [check.findings for check in checks if check.findings] == []


def test_wrong_allocations_are():
    how, runs = RandomAllocation(4, 1), 200
    places = torch.randint(4, (2, runs), generator=torch.Generator().manual_seed(0))
    right = torch.nn.functional.one_hot(places, 4).permute(0, 2, 1).reshape(8, runs) > 0
    assert law.allocated(right, how) == []
    missing, twice, alike, first = (right.clone() for _ in range(4))
    missing[:4, 7] = False
    twice[4:6, 3] = True
    alike[4:] = alike[:4]
    first[:] = False
    first[[0, 4]] = True
    for wrong, said in (
        (missing, "epoch 0 a record was in 0 to 1"),
        (twice, "epoch 1 a record was in 1 to"),
        (alike, "two epochs have the same"),
        (first, "batches of one place 0.000 to 1.000"),
    ):
        assert any(said in one for one in law.allocated(wrong, how))


def test_what_promises_nothing_is_refused():
    with pytest.raises(ValueError, match="promises nothing"):
        probe(training_named("dsgd", [], **PROBED))


@pytest.mark.parametrize(
    "more", [{"noise_multiplier": 0.0}, {"runs": 5}, {"search": 0}]
)
def test_numbers_out_of_range(more):
    with pytest.raises(ValueError, match="must be"):
        ProbeSettings(**more)


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
