"""Contract of experiment: right noise stands, bugs are caught."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest

from privaudit.auditing.experiments import experiment
from privaudit.auditing.experiments.experiment import AuditResult, run
from privaudit.auditing.experiments.presets import AUDITED, training_upon
from privaudit.auditing.scores import Scores
from privaudit.files.folder import FolderError, RunFolder
from privaudit.settings import BLOCK
from tests.auditing.audits import audit
from tests.tiers import size
from tests.trainers.planted import NoiseDividedTwice, NoiseMissingAtNode
from trainers.algorithms import ALGORITHMS
from trainers.runs.problem import Problem


def done(path, plan, **more) -> AuditResult:
    with RunFolder.opened(path) as folder:
        return run(plan, folder, **more)


def arrays(path):
    with np.load(path / "scores.npz") as file:
        return {name: file[name] for name in ("member", "score", "accuracy", "block")}


def through(monkeypatch, oracle):
    """The algorithm that `audit` runs, given ``oracle`` in the oracle's place."""
    family = dataclasses.replace(ALGORITHMS["dp-dsgd"], oracle=oracle)
    monkeypatch.setitem(ALGORITHMS, "dp-dsgd", family)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The folder of a finished audit; not to be changed."""
    path = tmp_path_factory.mktemp("once") / "audit"
    done(path, audit(runs=60, rounds=1))
    return path


@pytest.fixture
def finished(once, tmp_path):
    """A copy of it."""
    return shutil.copytree(once, tmp_path / "audit")


class TestSound:
    @pytest.mark.sized
    def test_the_right_noise_is_certified_and_not_refuted(self, tmp_path):
        for seed in range(size(3, 1)):
            result = done(
                tmp_path / str(seed),
                audit(rounds=size(12, 4), runs=size(200, 80), seed=seed),
            )
            assert result.status == "consistent"
            assert result.upper().epsilon <= 1
            assert not result.verdict.account_contradicted

    @pytest.mark.full
    @pytest.mark.parametrize("adversary", ["final-loss", "noisy-gradients"])
    def test_the_right_noise_is_not_refuted_over_twenty_seeds(
        self, tmp_path, adversary
    ):
        for seed in range(20):
            plan = audit(runs=600, seed=seed, adversary=adversary)
            assert done(tmp_path / str(seed), plan).status == "consistent"

    @pytest.mark.parametrize(
        "attack",
        [
            dict(adversary="noisy-gradients", rounds=3, runs=100),
            # One whose start lets the final loss show it: of twelve seeds, eight do.
            pytest.param(dict(rounds=100, runs=300, seed=3), marks=pytest.mark.full),
        ],
    )
    def test_no_noise_is_refuted(self, tmp_path, attack):
        result = done(tmp_path, audit("dsgd", noise_multiplier=0, **attack))
        assert result.status == "refuted"
        assert result.lower().epsilon > 1
        assert result.upper().epsilon == float("inf")

    @pytest.mark.parametrize(
        "attack",
        [
            dict(adversary="noisy-gradients", rounds=5, runs=100),
            pytest.param(
                dict(rounds=100, noise_multiplier=6.1, runs=500),
                marks=pytest.mark.full,
            ),
        ],
    )
    def test_noise_divided_twice_is_refuted(self, tmp_path, monkeypatch, attack):
        through(monkeypatch, NoiseDividedTwice)
        plan = audit(estimator="rank-walk", **attack)
        result = done(tmp_path, plan)
        assert result.upper().epsilon <= 1  # the ledger knows nothing of the bug
        assert result.status == "refuted"
        assert result.verdict.account_contradicted

    @pytest.mark.full
    def test_noise_missing_at_one_node_is_refuted(self, tmp_path, monkeypatch):
        through(monkeypatch, NoiseMissingAtNode)
        plan = audit(rounds=10, runs=150, adversary="noisy-gradients")
        result = done(tmp_path, plan)
        assert result.upper().epsilon <= 1
        assert result.status == "refuted"

    def test_worlds_are_coin_flips_of_the_seed(self, tmp_path):
        done(tmp_path / "a", audit(runs=120, rounds=1))
        scores = Scores.load(tmp_path / "a" / "scores.npz")
        assert scores.design == "coin-flip"
        assert abs(scores.member_runs - 60) < 29
        done(tmp_path / "b", audit(runs=120, rounds=1, seed=1))
        other = Scores.load(tmp_path / "b" / "scores.npz")
        assert (scores.member != other.member).any()

    def test_the_ledger_is_what_was_planned(self, once):
        plan = audit(runs=60, rounds=1)
        problem = experiment.Problem.of(plan.training)
        kept = RunFolder(once).read("ledger.json", experiment.Ledger)
        assert kept == problem.ledger(plan.noise_multiplier)


class TestLaws:
    def test_scores_do_not_depend_on_workers_or_memory(self, tmp_path):
        plan = audit(runs=110, rounds=3)
        done(tmp_path / "a", plan, workers=1)
        done(tmp_path / "b", plan, workers=2)
        one, other = arrays(tmp_path / "a"), arrays(tmp_path / "b")
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
        done(tmp_path / "c", plan, workers=1, memory_limit=8 << 20)
        close = arrays(tmp_path / "c")
        np.testing.assert_allclose(close["score"], one["score"], rtol=1e-4)

    @pytest.mark.full
    def test_fewer_runs_are_the_beginning_of_more(self, tmp_path):
        done(tmp_path / "a", audit(runs=60, rounds=3))
        done(tmp_path / "b", audit(runs=120, rounds=3))
        one, other = arrays(tmp_path / "a"), arrays(tmp_path / "b")
        np.testing.assert_array_equal(one["score"], other["score"][:60])

    def test_a_finished_audit_is_not_run_again(self, finished, monkeypatch):
        first = RunFolder(finished).read("result.json", AuditResult)
        monkeypatch.setattr(experiment, "train_block", None)
        assert done(finished, audit(runs=60, rounds=1)) == first

    def test_progress_is_told(self, tmp_path):
        seen = []
        plan = audit(runs=60, rounds=1)
        done(tmp_path, plan, progress=lambda *counts: seen.append(counts))
        assert seen[0] == (0, 60)
        assert seen[-1] == (60, 60)


PROGRAM = """
import sys
from privaudit.auditing.experiments.experiment import run
from privaudit.files.folder import RunFolder
from tests.auditing.audits import audit
from trainers.algorithms import ALGORITHMS
with RunFolder.opened(sys.argv[1]) as folder:
    run(audit(runs=400, rounds=12), folder)
"""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_is_planned_as_it_stands(algorithm):
    # `privaudit audit adp2sgd` asked for a softmax with hidden units, and ended there;
    # `dp-mf-dsgd` for more batches than a node has records for.
    for base in ({}, AUDITED):
        problem = Problem.of(training_upon(algorithm, {}, base, "a test"))
        if problem.training.family.private:
            assert all(problem.ledger(1.0).nodes)


class TestKilled:
    @pytest.mark.full
    def test_killed_at_any_moment_the_scores_are_the_same(self, tmp_path):
        done(tmp_path / "whole", audit(runs=400, rounds=12))
        path = tmp_path / "killed"
        kills = 0
        # Kill on the first sign of each stage, then at growing distance from the start.
        for wait_for in ("config.json", "ledger.json", "scores.npz", "scores.npz"):
            child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)])
            limit = time.monotonic() + 120
            before = (path / wait_for).stat().st_mtime_ns if kills > 2 else None
            while child.poll() is None and time.monotonic() < limit:
                if (path / wait_for).exists() and (
                    (path / wait_for).stat().st_mtime_ns != before
                ):
                    child.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.002)
            if child.wait() == -signal.SIGKILL:
                kills += 1
        assert kills >= 3
        assert not (path / "result.json").exists() or kills < 4
        result = done(path, audit(runs=400, rounds=12))
        one, other = arrays(tmp_path / "whole"), arrays(path)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
        whole = RunFolder(tmp_path / "whole").read("result.json", AuditResult)
        assert msgspec.structs.replace(result, seconds=0) == msgspec.structs.replace(
            whole, seconds=0
        )


class TestFolders:
    @pytest.fixture
    def finished(self, finished):
        (finished / "result.json").unlink()
        return finished

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"nonsense"])
    def test_damaged_scores(self, finished, content):
        (finished / "scores.npz").write_bytes(content)
        with pytest.raises(FolderError, match=r"scores\.npz is damaged"):
            done(finished, audit(runs=60, rounds=1))

    def test_truncated_scores(self, finished):
        whole = (finished / "scores.npz").read_bytes()
        (finished / "scores.npz").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(FolderError, match="damaged"):
            done(finished, audit(runs=60, rounds=1))

    def test_half_a_block(self, finished):
        kept = arrays(finished)
        np.savez(finished / "scores.npz", **{k: v[:-3] for k, v in kept.items()})
        with pytest.raises(FolderError, match="not whole"):
            done(finished, audit(runs=60, rounds=1))

    def test_another_audits_folder(self, finished):
        with pytest.raises(FolderError, match="seed = 0, not 5"):
            done(finished, audit(runs=60, rounds=1, seed=5))
        with pytest.raises(FolderError, match="run with rounds = 1, not 2"):
            done(finished, audit(runs=60, rounds=2))

    def test_a_full_disk_keeps_what_there_was(self, tmp_path, monkeypatch):
        plan = audit(runs=4 * BLOCK, rounds=1)
        real, writes = os.replace, []

        def full_after_five(self, *args, **more):
            writes.append(args)
            if len(writes) > 5:
                raise OSError(28, "No space left on device")
            return real(self, *args, **more)

        monkeypatch.setattr("pathlib.Path.replace", full_after_five)
        with pytest.raises(FolderError, match="No space left"):
            done(tmp_path, plan, workers=1)
        kept = arrays(tmp_path)
        assert 0 < len(kept["score"]) < plan.runs
        monkeypatch.undo()
        done(tmp_path, plan)
        np.testing.assert_array_equal(
            arrays(tmp_path)["score"][: len(kept["score"])], kept["score"]
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(runs=1), "runs"),
        (dict(confidence=1.0), "confidence"),
        (dict(adversary="psychic"), "choose one of"),
        (dict(estimator="hope"), "choose one of"),
        (dict(seed=-1), "seed"),
    ],
)
def test_settings_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        audit(**change)
