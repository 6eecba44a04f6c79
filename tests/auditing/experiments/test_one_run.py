"""One run with many canaries: our trainers, and what is refused."""

import pathlib

import numpy as np
import pytest
import torch

import privaudit as pa
from privaudit.auditing.attacks.canaries import canaries_of
from privaudit.auditing.experiments.one_run_bounds import one_run_estimator
from privaudit.auditing.experiments.plan import planned, training_of
from privaudit.cli import main
from trainers.data import Dataset, PrivateData
from trainers.runs.problem import Problem

FAST = {"rounds": 3}


def settings(**more):
    more = {"epsilon": 10.0, "delta": 1e-5, "canaries": 600, **more}
    return pa.AuditSettings(one_run=True, **more)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("one") / "run"
    return pa.audit_algorithm("dp-sgd", settings(), training=FAST, out=out)


class TestOurTrainer:
    def test_bounds_and_what_could_be_shown(self, found):
        lower, beside = found.lower, found.result.beside
        assert lower.valid_for == "any mechanism"
        assert 1.5 < lower.epsilon < beside.epsilon < 10
        assert lower.epsilon <= found.result.gap.most
        assert lower.member_runs + lower.non_member_runs == 600
        assert found.status == "consistent"

    def test_folder_is_shown_verified_and_has_a_page(self, found, capsys):
        assert pa.verify(found.path).differences == ()
        assert pa.verify(found.path).is_proved
        assert main(["show", str(found.path)]) == 0
        shown = capsys.readouterr().out
        assert "one run with 600 canaries" in shown
        assert "for comparison, audited" in shown
        assert main(["report", str(found.path)]) == 0
        page = (pathlib.Path(found.path) / "report.html").read_text()
        assert "canaries of one run can show by this method" in page
        assert "--one-run" in page
        assert "--canaries 600" in page

    def test_the_same_call_gives_the_same_folder(self, found):
        again = pa.audit_algorithm("dp-sgd", settings(), training=FAST, out=found.path)
        assert again.result == found.result

    def test_a_changed_score_is_noticed(self, found, tmp_path):
        import shutil

        copy = tmp_path / "copy"
        shutil.copytree(found.path, copy)
        with np.load(copy / "scores.npz") as file:
            arrays = dict(file)
        arrays["score"] = arrays["member"].astype(float)
        np.savez(copy / "scores.npz", **arrays)
        assert pa.verify(copy).differences

    @pytest.mark.full
    def test_reference_models_tell_what_the_loss_does_not(self, tmp_path):
        # Records with wrong labels differ in how hard they are, whoever was there.
        def shown(seen):
            more = {"canaries": 300, "canary": "mislabelled", "noise_multiplier": 0.1}
            audited = pa.audit_algorithm(
                "dp-sgd",
                settings(adversary=seen, epsilon=1000.0, **more),
                training={"rounds": 60, "train": 200},
                out=tmp_path / seen,
            )
            return audited.lower.epsilon

        assert shown("final-loss") < 0.1
        for adversary in ("lira", "rmia"):
            assert shown(adversary) > 0.2

    def test_without_a_clip_norm_others_are_taken_off_whole(self, tmp_path):
        pa.audit_algorithm(
            "dsgd",
            settings(canaries=100, canary="gradient"),
            training={"rounds": 3, "train": 60},
            out=tmp_path / "run",
        )
        with np.load(tmp_path / "run" / "scores.npz") as file:
            score = file["score"]
        # Half a unit a round, either way: no noise, and nothing of other records.
        assert np.abs(score) == pytest.approx(1.5, abs=1e-4)

    def test_rmia_needs_records(self, tmp_path):
        asked = settings(adversary="rmia", canary="gradient")
        with pytest.raises(ValueError, match="crafted gradient has none"):
            pa.audit_algorithm("dp-sgd", asked, training=FAST, out=tmp_path / "x")

    def test_half_the_noise_is_refuted_by_the_curve(self, monkeypatch, tmp_path):
        whole = Problem.train

        def halved(self, noise, *args, **more):
            models, _ = whole(self, noise / 3, *args, **more)
            return models, self.ledger(noise)

        monkeypatch.setattr(Problem, "train", halved)
        bugged = pa.audit_algorithm(
            "dp-sgd",
            settings(epsilon=2.0, canaries=2000, estimator="family"),
            training=FAST,
            out=tmp_path / "bug",
        )
        assert bugged.status == "refuted"

    def test_records_where_the_model_has_no_room(self):
        plan = planned(
            "dp-sgd", settings(), {"model": "softmax", **FAST}, where="--set"
        )
        assert plan.canary == "mislabelled"
        problem = plan.problem()
        records = canaries_of(problem, plan.canary, 600, 0).record
        truth = problem.test.targets[torch.arange(600) % len(problem.test)]
        assert len(records) == 600
        assert bool((records.targets != truth).all())

    def test_crafted_canaries_have_a_parameter_each(self):
        problem = Problem.of(training_of("dp-sgd", FAST, 600))
        places = canaries_of(problem, "gradient", 600, 0).direction
        assert len(places.unique()) == 600


class TestRefused:
    @pytest.mark.parametrize(
        ("algorithm", "more", "why"),
        [
            ("dp-sgd", {"adversary": "neighbour"}, "the adversary is noisy-gradients"),
            ("dp-sgd", {"canary": "clipbkd"}, "many canaries are"),
            ("dp-sgd", {"estimator": "betting"}, "estimators best and family"),
            ("partpsp", {}, "algorithms that release gradients"),
        ],
    )
    def test_what_one_run_cannot_have(self, algorithm, more, why):
        with pytest.raises(ValueError, match=why):
            planned(algorithm, settings(**more), FAST, where="--set")

    def test_canaries_without_one_run(self):
        many = pa.AuditSettings(canaries=4, canary="blank")
        with pytest.raises(ValueError, match="has one canary where it is no crafted"):
            planned("dp-sgd", many, FAST, where="--set")
        with pytest.raises(ValueError, match="canaries must be >= 10 and"):
            pa.AuditSettings(one_run=True, canaries=3)

    def test_too_few_parameters_for_crafted_gradients(self):
        problem = Problem.of(training_of("dp-sgd", {"model": "softmax"}, 600))
        with pytest.raises(ValueError, match="need a parameter each"):
            canaries_of(problem, "gradient", 600, 0)


class TestData:
    def test_each_canary_is_present_by_its_own_coin(self):
        share = Dataset(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
        extra = Dataset(torch.ones(3, 2), torch.ones(3, dtype=torch.long))
        data = PrivateData.of([share, share], canary=extra)
        coins = torch.tensor([[True, False, True]])
        present = data.present(1, coins)
        assert present[0, 0].tolist() == [True] * 4 + [True, False, True]
        assert present[0, 1].tolist() == [True] * 4 + [False] * 3

    def test_several_cannot_stand_in_one_place(self):
        share = Dataset(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
        with pytest.raises(ValueError, match="several are records more"):
            PrivateData.of([share], canary=share, replaces=True)


class TestPlanned:
    def test_guesses_do_not_depend_on_scores(self):
        """Planned twice they are the same, and by ledger, canaries and delta alone."""
        release = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=0.5, sampling=pa.PoissonSampling(1.0)
        )
        entries = pa.Ledger.of(release, 1).nodes[0]
        first, second = (
            one_run_estimator(
                "best", entries, "add-or-remove-one", 1000, delta=d, confidence=0.95
            )
            for d in (1e-5, 1e-5)
        )
        assert first == second
        assert sum(first.weights) == pytest.approx(1)
