"""Contract of privaudit.auditing.attacks.actions, and what audits refuse here."""

import dataclasses
import json

import pytest
import torch

from privaudit.auditing.attacks import actions
from privaudit.auditing.attacks.canaries import Canary
from privaudit.auditing.attacks.contract import Scene
from privaudit.auditing.experiments.experiment import attacker
from privaudit.auditing.experiments.plan import Audit
from privaudit.cli import BAD_USAGE, FINE, REFUTED, main
from privaudit.results import Claim
from trainers.algorithms import ALGORITHMS
from trainers.algorithms.collaborative.family import AUDITED
from trainers.data import Dataset
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Observers, Planted, Problem
from trainers.runs.training import training_from


def scene(noise=0.1, **more):
    values = {
        "algorithm": "deep-q",
        "policy": "deep-q",
        "data": "digits-pca",
        "digits": (0, 1),
        "train": 10,
        "nodes": 1,
        **AUDITED,
        "batch_size": 2,
        "rounds": 5,
        "gain": 3.0,
        **more,
    }
    problem = Problem.of(training_from(values, where="test"))
    test = problem.test
    own = int((test.targets == 0).nonzero()[0])
    record = Dataset(test.inputs[own : own + 1], torch.tensor([1]))
    return Scene(
        problem=problem,
        canary=Canary(record),
        noise_multiplier=noise,
        start=problem.start(0)[0, 0],
        replaces=True,
    )


def scores(adversary, runs=100, seed=5):
    """Scores of runs in both worlds, and which they were."""
    shown = adversary.scene
    planted = torch.rand(runs, generator=torch.Generator().manual_seed(seed)) < 0.5
    watcher = adversary.watch(runs, shown.problem.gradients())
    models, _ = shown.problem.train(
        shown.noise_multiplier,
        Streams(seed),
        runs=runs,
        start=shown.start.repeat(runs, 1, 1),
        planted=shown.canary.planted(planted),
        observers=Observers(watcher.observers),
    )
    return watcher.score(models), planted


def test_it_tells_what_choices_tell(monkeypatch):
    """Where a member's node always chooses one way, it knows every member."""
    from trainers.algorithms.collaborative import oracle as oracle

    class Telling(oracle.Participants):
        def choose(self, turn):
            member = (self._order[0] == self.sizes[0]).any(1)
            chosen = super().choose(turn)
            return chosen & member[:, None, None]

    monkeypatch.setattr(actions, "SHADOWS", 100)
    shown = scene()
    family = dataclasses.replace(shown.problem.training.family, oracle=Telling)
    monkeypatch.setitem(ALGORITHMS, "deep-q", family)
    found, member = scores(actions.Actions(shown))
    assert found[member].mean() > found[~member].mean() + 1
    right = ((found > found.median()) == member).double().mean()
    assert right > 0.9


def test_it_is_blind_to_a_table(monkeypatch):
    monkeypatch.setattr(actions, "SHADOWS", 100)
    found, _ = scores(actions.Actions(scene(policy="coin")))
    assert (found == found[0]).all()


def audit(policy="deep-q", adversary="final-loss"):
    training = scene(policy=policy).problem.training
    claim = Claim(epsilon=1.0, delta=1e-2, relation="replace-one", source="a test")
    plan = Audit(
        claim=claim,
        training=training,
        noise_multiplier=5.0,
        adversary=adversary,
        canary="mislabelled",
    )
    return attacker(plan, Problem.of(training))


def test_models_that_stay_home_are_not_read():
    with pytest.raises(ValueError, match="stay at their nodes"):
        audit(policy="never")
    with pytest.raises(ValueError, match="updates of a model, not gradients"):
        audit(adversary="all-models")
    with pytest.raises(ValueError, match="nobody hears the canary's node"):
        audit(policy="never", adversary="neighbour")


def test_nor_are_parts_that_do(tmp_path, capsys):
    """PartPSP's local parameters: its account is of messages, and so is its audit."""
    few = [
        "--runs",
        "16",
        "--block",
        "16",
        "--noise-multiplier",
        "20",
        "--workers",
        "1",
    ]
    few += ["--set", "rounds=2", "--out", str(tmp_path / "run")]
    refused = ["--adversary", "all-losses", *few[:-1], str(tmp_path / "refused")]
    assert main(["audit", "partpsp", *refused]) == BAD_USAGE
    assert "parts of them, stay at their nodes" in capsys.readouterr().err
    assert main(["audit", "partpsp", *few]) in (FINE, REFUTED)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["adversary"] == "neighbour"
    capsys.readouterr()
    whole = [*few[:-1], str(tmp_path / "whole")]
    assert main(["audit", "sgpdp", *whole]) in (FINE, REFUTED)
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["adversary"] == "final-loss"


def test_others_choose_nothing():
    with pytest.raises(ValueError, match="choose nothing that others see"):
        actions.ActionLog().messages(0, {"theta": torch.zeros(1, 1, 1)})


def test_a_crafted_gradient_cannot_be_planted():
    shown = scene()
    dims = len(shown.start)
    with pytest.raises(ValueError, match="crafted gradient cannot be planted"):
        shown.problem.train(
            1.0,
            Streams(0),
            planted=Planted(
                shown.canary.record,
                torch.ones(1, dtype=torch.bool),
                direction=torch.ones(dims) / dims**0.5,
            ),
        )
