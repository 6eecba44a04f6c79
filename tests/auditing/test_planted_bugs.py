"""Bugs that no ledger knows of, refuted by audits; the right code by the same is not.

Each is certified at a claim of (1, 1e-2), which the bug breaks; the number of runs in
both worlds together is what the test is given.
"""

import dataclasses
import functools

import pytest

from privaudit.auditing.experiment import run
from privaudit.folder import RunFolder
from tests.auditing.audits import audit
from tests.trainers import planted
from trainers.algorithms import ALGORITHMS
from trainers.algorithms.dinno import Dinno
from trainers.oracle import Oracle


def audited(path, monkeypatch, plan, door, **changes):
    """The result of ``plan``, its algorithm given ``door`` in the oracle's place."""
    name = plan.training.algorithm
    entry = dataclasses.replace(ALGORITHMS[name], door=door, **changes)
    monkeypatch.setitem(ALGORITHMS, name, entry)
    with RunFolder.opened(path) as folder:
        return run(plan, folder)


@pytest.mark.slow
class TestRefuted:
    @pytest.mark.parametrize(
        ("door", "status"),
        [(planted.FiveLots, "refuted"), (Oracle, "consistent")],
    )
    def test_five_lots_for_one_in_300_runs(self, tmp_path, monkeypatch, door, status):
        plan = audit(runs=300, adversary="noisy-gradients", estimator="rank-walk")
        result = audited(tmp_path, monkeypatch, plan, door)
        assert result.upper().epsilon <= 1
        assert result.status == status

    @pytest.mark.parametrize(
        ("make", "door", "status"),
        [
            (planted.TracksTheExact, planted.RemembersNoise, "refuted"),
            (ALGORITHMS["dp-dsgt"].make, Oracle, "consistent"),
        ],
    )
    def test_a_tracker_without_noise_in_300_runs(
        self, tmp_path, monkeypatch, make, door, status
    ):
        plan = audit("dp-dsgt", rounds=100, noise_multiplier=6.1, runs=300)
        result = audited(tmp_path, monkeypatch, plan, door, make=make)
        assert result.upper().epsilon <= 1
        assert result.status == status

    @pytest.mark.parametrize(
        ("inner", "door", "status"),
        [(30, planted.CountsOnce, "refuted"), (1, Oracle, "consistent")],
    )
    def test_inner_steps_counted_once_in_200_runs(
        self, tmp_path, monkeypatch, inner, door, status
    ):
        class Once(planted.CountsOnce):
            inner = 30

        door = Once if door is planted.CountsOnce else door
        plan = audit(
            "dp-dinno",
            rounds=5,
            noise_multiplier=1.7,
            runs=200,
            adversary="noisy-gradients",
            estimator="rank-walk",
        )
        make = functools.partial(Dinno, inner_steps=inner)
        result = audited(tmp_path, monkeypatch, plan, door, make=make)
        assert result.upper().epsilon <= 1
        assert result.status == status
