"""Canaries in the very run: what they cost, and what they tell."""

import contextlib
import pkgutil
import shutil
from unittest import mock

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

import privaudit as pa
from privaudit.auditing.attacks.canaries import public_canaries
from privaudit.auditing.experiments.one_run_bounds import one_run_estimator
from privaudit.auditing.experiments.reach import ideal_scores
from privaudit.auditing.scores import Scores
from privaudit.cli import main
from privaudit.files.folder import RunFolder
from privaudit.files.manifest import audits_in, seal
from privaudit.ledger import Entry, Ledger
from privaudit.report.load import load
from tests.api.test_run_audits import shares
from tests.report.test_verify import edited
from trainers.data.records import PrivateData
from trainers.numerics.randomness import Streams
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.oracle import Oracle
from trainers.runs.measures import CurveRecorder


def wide():
    """A model with a parameter for each of 200 canaries, the same each time."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))


def trained(**more):
    """A run with 200 canaries, of full batches."""
    given = {"epsilon": 2, "rounds": 4, "batch_size": 40, "canaries": 200, "seed": 0}
    return pa.train(wide(), shares(), **given | more)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run and its folder."""
    run = trained()
    folder = tmp_path_factory.mktemp("kept") / "run"
    run.save(folder)
    return run, folder


class TestSound:
    def test_the_ledger_is_that_of_a_run_without(self, kept):
        run, _ = kept
        noise = run.result.noise_multiplier
        plain = trained(canaries=None, epsilon=None, noise_multiplier=noise)
        assert run.ledger == plain.ledger

    def test_an_honest_run_is_consistent(self, kept):
        run, _ = kept
        assert run.result.status == "consistent"
        assert len(run.result.audits) == 2

    def test_where_they_are_tells_nothing_of_the_data(self):
        problems = [
            pa.train(wide(), shares(seed=seed), epsilon=2, rounds=1)._trained
            for seed in (0, 1)
        ]
        places = [
            public_canaries(mock_problem(one), 200, 0).direction for one in problems
        ]
        assert torch.equal(*places)
        assert len(places[0].unique()) == 200

    def test_scores_are_made_of_releases_alone(self):
        """The same releases give the same scores, whatever the records are."""
        seen = []
        noisy = Oracle._noisy

        def spy(self, total, nodes, deviation, step):
            found = noisy(self, torch.zeros_like(total), nodes, deviation, step)
            seen.append(found)
            return found

        scores = []
        for seed in (0, 1):
            with mock.patch.object(Oracle, "_noisy", spy):
                run = pa.train(
                    wide(),
                    shares(seed=seed),
                    epsilon=2,
                    rounds=2,
                    batch_size=40,
                    canaries=100,
                    seed=5,
                )
            folder = run._trained.folder.path
            scores.append(load(folder / "audit-canaries-releases").scores.score)
        assert seen
        assert np.array_equal(*scores)


class Stopped(BaseException):
    """In the place of a kill."""


def stop_after(patched, where, calls):
    """Let ``where`` be called so many times, and never come back from the last."""
    left, there = [calls], pkgutil.resolve_name(where)

    def called(*given, **more):
        left[0] -= 1
        found = there(*given, **more)
        if not left[0]:
            raise Stopped
        return found

    patched.setattr(where, called)


def mock_problem(trained):
    """The problem of a run, as far as canaries need it."""
    from trainers.runs.problem import Problem

    return Problem.of(trained.training, material=trained.material)


class TestDeclaredNodes:
    def test_each_moves_its_own_nodes_sum_alone(self):
        """With and without all canaries, the sums differ by one at each parameter."""
        problem = mock_problem(pa.train(wide(), shares(), epsilon=2, rounds=1)._trained)
        canaries = public_canaries(problem, 7, 0, (1, 0))
        seen = []
        for there in (False, True):
            coins = torch.full((1, 7), there)
            oracle = problem.training.family.oracle(
                PrivateData.of(
                    list(problem.shares),
                    canary=canaries.record,
                    canary_nodes=canaries.nodes,
                    coordinates=canaries.direction,
                ),
                problem.gradients(),
                Mechanism(40.0, clip_norm=0.5),
                Streams(0),
                planted=coins,
            )
            seen.append(oracle.gradient(problem.start(0)) * 40)
        moved = seen[1] - seen[0]
        expected = torch.zeros_like(moved)
        expected[0, 1, canaries.direction[0::2]] = 0.5
        expected[0, 0, canaries.direction[1::2]] = 0.5
        torch.testing.assert_close(moved, expected, atol=1e-5, rtol=0)

    @pytest.mark.full
    def test_unequal_nodes_are_judged_by_the_worst(self, tmp_path):
        few, many = shares()
        run = pa.train(
            wide(),
            [few, tuple(part[:25] for part in many)],
            epsilon=2,
            rounds=3,
            batch_size=20,
            canaries=200,
            canary_nodes="all",
            seed=0,
        )
        run.save(tmp_path / "run")
        assert pa.verify(tmp_path / "run").differences == ()
        found = load(tmp_path / "run" / "audit-canaries-releases")
        assert found.config.canary_nodes == (0, 1)
        assert found.result.gap is None  # of no one family
        assert found.result.beside is None
        page = (tmp_path / "run" / "report.html").read_text()
        assert "in the run itself, at nodes 0, 1 in turn" in page

    def test_noise_that_is_left_out_at_one_declared_node_is_refuted(self):
        noisy = Oracle._noisy

        def less(self, total, nodes, deviation, step):
            found = noisy(self, total.clone(), nodes, deviation, step)
            found[:, 1] = noisy(self, total, nodes, deviation / 20, step)[:, 1]
            return found

        with mock.patch.object(Oracle, "_noisy", less):
            hidden = trained(epsilon=1)
            run = trained(epsilon=1, canary_nodes="1")
        assert hidden.result.audits[0].finding.status == "consistent"
        assert run.result.status == "refuted"

    @pytest.mark.parametrize("signal", [False, True])
    def test_level_where_nodes_have_different_rates(self, signal):
        """Null and coverage: scores of two nodes' ledgers, dealt in turn."""
        steps = [
            pa.Release.of_sum(
                norm_bound=1.0, noise_multiplier=2.0, sampling=pa.PoissonSampling(rate)
            )
            for rate in (0.3, 0.9)
        ]
        entries = [Entry(step, 4) for step in steps]
        true = max(
            pa.epsilon(ledger=Ledger.of(step, 4), delta=1e-3).upper for step in steps
        )
        estimator = one_run_estimator(
            "best", (), "add-or-remove-one", 200, delta=1e-3, confidence=0.95
        )
        trials, above = 100, 0
        for seed in range(trials):
            random = np.random.default_rng(seed)
            member, score = random.random(200) < 0.5, np.empty(200)
            for node, entry in enumerate(entries):
                own = slice(node, None, 2)
                score[own] = ideal_scores(
                    (entry,), "add-or-remove-one", member[own], random
                )
            if not signal:
                score = random.permutation(score)
            found = estimator.find(Scores(member, score, "one-run"), 1e-3, 0.05, 0)[0]
            above += found > (true if signal else 0)
        assert above <= binom.ppf(0.999, trials, 0.05)


class TestCost:
    def test_models_without_are_those_of_a_run_without(self):
        """After one round, whose batches are full, to rounding."""
        seen, final = [], CurveRecorder.final

        def spy(self, models):
            seen.append(models.clone())
            return final(self, models)

        given = {"algorithm": "dp-dsgd", "rounds": 1, "noise_multiplier": 2.0}
        given |= {"epsilon": None}
        with mock.patch.object(CurveRecorder, "final", spy):
            run = trained(canary_nodes="all", test=shares(1, seed=1)[0], **given)
            without = seen[1]
            trained(canaries=None, **given)
        torch.testing.assert_close(without, seen[-1], atol=1e-6, rtol=1e-5)
        assert (without - seen[0]).abs().max() > 0.05
        said = f"accuracy is {run.result.without_canaries:.4f} on test data, and "
        assert f"{said}{run.result.accuracy:.4f} with it" in str(run)


class TestTight:
    def test_noise_that_is_left_out_is_refuted(self):
        noisy = Oracle._noisy

        def less(self, total, nodes, deviation, step):
            return noisy(self, total, nodes, deviation / 20, step)

        with mock.patch.object(Oracle, "_noisy", less):
            run = trained(epsilon=1)
        assert run.certificate.epsilon(1e-5).upper <= 1
        assert run.result.status == "refuted"
        found = load(run._trained.folder.path / "audit-canaries-releases").scores
        assert 60 < found.member.sum() < 140
        there, not_there = found.score[found.member], found.score[~found.member]
        assert (there[:, None] > not_there).mean() > 0.85


class TestKept:
    def test_folder_and_page(self, kept, capsys):
        _, folder = kept
        checked = pa.verify(folder)
        assert checked.differences == ()
        assert any("audit-canaries-releases" in one for one in checked.checked)
        text = (folder / "report.html").read_text()
        assert "Canaries were planted in the run itself" in text
        assert "covered by no certificate" not in text
        assert "those of others are" not in text
        assert main(["show", str(folder)]) == 0
        assert "canaries of one run" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda c: c["training"].update(graph="ring"), "training.graph"),
            (lambda c: c["training"].update(algorithm="dp-dsgd"), "training.algorithm"),
            (lambda c: c.update(noise_multiplier=9.0), "noise_multiplier"),
        ],
    )
    def test_an_audit_of_another_training_is_no_evidence(
        self, kept, tmp_path, change, says
    ):
        folder = shutil.copytree(kept[1], tmp_path / "run")
        audit = folder / "audit-canaries-releases"
        edited(audit / "config.json", change)
        seal(RunFolder(audit))
        seal(RunFolder(folder), audits_in(RunFolder(folder)))
        assert says in [one.what for one in pa.verify(folder).differences]
        shutil.rmtree(audit)
        seal(RunFolder(folder), audits_in(RunFolder(folder)))
        assert not pa.verify(folder)

    @pytest.mark.full
    def test_command(self, tmp_path, capsys):
        given = ["--set", "rounds=2", "--set", "nodes=2", "--set", "hidden=32"]
        out = str(tmp_path / "run")
        given += ["--set", "train=80", "--set", "batch_size=40"]
        more = ["--canaries", "100", "--set", "model=tanh-mlp", "--out", out]
        assert main(["train", "dp-dsgd", "--epsilon", "2", *given, *more]) == 0
        assert pa.verify(out).differences == ()
        assert len(load(out).result.audits) == 2

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "algorithm", [("dp-dsgd",), ("dp-mf-dsgd", "--set=parts=2", "--set=band=2")]
    )
    def test_stopped_at_a_checkpoint_and_as_they_are_judged(
        self, tmp_path, monkeypatch, capsys, algorithm
    ):
        """The same command goes on, and finds what one that never stops finds."""

        def told(name):
            given = ["--set", "rounds=4", "--set", "nodes=2", "--set", "train=40"]
            given += ["--set", "model=tanh-mlp", "--set", "batch_size=10", "--seed=1"]
            given += ["--epsilon=2", "--canaries=20", "--out", str(tmp_path / name)]
            with contextlib.suppress(Stopped):
                assert main(["train", *algorithm, *given]) == 0
            return capsys.readouterr().out

        assert "canaries of one run" in told("whole")
        monkeypatch.setattr("trainers.runs.run.KEEP_EVERY", 0.0)
        monkeypatch.setattr("trainers.runs.run.KEEP_SHARE", 1e9)
        for where, after in (
            ("trainers.runs.run.Keeper._store", 2),
            ("privaudit.auditing.experiments.one_run.judge", 1),
        ):
            with monkeypatch.context() as patched:
                stop_after(patched, where, after)
                assert told("cut") == ""
            assert main(["report", str(tmp_path / "cut")]) == 3
            assert "is not finished" in capsys.readouterr().err
        assert "canaries of one run" in told("cut")
        assert pa.verify(tmp_path / "cut").differences == ()
        for one in ("releases", "final-loss"):
            found = [
                load(tmp_path / run / f"audit-canaries-{one}").scores
                for run in ("whole", "cut")
            ]
            assert np.array_equal(found[0].score, found[1].score)
            assert np.array_equal(found[0].member, found[1].member)


class TestRefused:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("given", "why"),
        [
            ({"canaries": 5}, ">= 10 and"),
            ({"canary_nodes": "0,2"}, "numbers from 0 to 1"),
            ({"canary_nodes": "first"}, "or all; got 'first'"),
            ({"canary_nodes": "0", "canaries": None}, "give canaries"),
            ({"canaries": 100_000}, "a parameter each"),
            ({"algorithm": "dp-fedavg"}, "dp-fedavg protects a user"),
            ({"relation": "replace-one"}, "leave canaries or relation out"),
            ({"algorithm": "dsgt", "epsilon": None}, "promises nothing"),
            ({"sampling": "random-allocation", "batch_size": 10}, "Poisson"),
        ],
    )
    def test_with_a_reason(self, given, why):
        with pytest.raises(ValueError, match=why):
            trained(**given)
