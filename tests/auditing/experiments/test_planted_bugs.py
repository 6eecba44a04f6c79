"""Bugs that no ledger knows of, refuted by audits; the right code by the same is not.

Each run is certified at a claim of (1, 1e-2), which the bug breaks; a test's name says
in how many runs of both worlds together. Clipping per batch and equal noise are left to
the probes: these attackers do not look for them.
"""

import dataclasses

import msgspec
import pytest

from privaudit.auditing.experiments.experiment import run
from privaudit.files.folder import RunFolder
from tests.auditing.audits import audit
from tests.trainers import planted
from trainers.algorithms import ALGORITHMS
from trainers.oracles.oracle import Oracle

INNER = 30


class OnceInThirty(planted.CountsOnce):
    inner = INNER


def audited(path, monkeypatch, plan, oracle, **changes):
    """The result of ``plan``, its algorithm given ``oracle`` in the oracle's place."""
    name = plan.training.algorithm
    family = dataclasses.replace(ALGORITHMS[name], oracle=oracle, **changes)
    monkeypatch.setitem(ALGORITHMS, name, family)
    with RunFolder.opened(path) as folder:
        return run(plan, folder)


def watched(algorithm, runs, **options):
    """Three rounds in which the canary is always clipped, and all releases are seen."""
    plan = audit(
        algorithm,
        rounds=3,
        noise_multiplier=1.35,
        runs=runs,
        adversary="noisy-gradients",
        estimator="rank-walk",
    )
    training = msgspec.structs.replace(
        plan.training, clip_norm=1.0, step_size=1e-3, options=options
    )
    return dataclasses.replace(plan, training=training)


@pytest.mark.full
class TestRefuted:
    @pytest.mark.parametrize(
        ("oracle", "status"),
        [(planted.FiveBatches, "refuted"), (Oracle, "consistent")],
    )
    def test_five_batches_for_one_in_400_runs(
        self, tmp_path, monkeypatch, oracle, status
    ):
        plan = watched("dp-dsgd", 400)
        result = audited(tmp_path, monkeypatch, plan, oracle)
        assert result.upper().epsilon <= 1
        assert result.status == status

    @pytest.mark.parametrize(
        ("inner", "oracle", "status"),
        [(INNER, OnceInThirty, "refuted"), (1, Oracle, "consistent")],
    )
    def test_inner_steps_counted_once_in_200_runs(
        self, tmp_path, monkeypatch, inner, oracle, status
    ):
        plan = watched("dp-dinno", 200, inner_steps=inner, optimiser="sgd")
        result = audited(tmp_path, monkeypatch, plan, oracle)
        assert result.upper().epsilon <= 1
        assert result.status == status

    @pytest.mark.parametrize(
        ("make", "oracle", "status"),
        [
            (planted.TracksTheExact, planted.RemembersNoise, "refuted"),
            (ALGORITHMS["dp-dsgt"].make, Oracle, "consistent"),
        ],
    )
    def test_a_tracker_without_noise_in_300_runs(
        self, tmp_path, monkeypatch, make, oracle, status
    ):
        plan = audit("dp-dsgt", rounds=100, noise_multiplier=6.1, runs=300)
        result = audited(tmp_path, monkeypatch, plan, oracle, make=make)
        assert result.upper().epsilon <= 1
        assert result.status == status
