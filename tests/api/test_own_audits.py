"""Audits and probes of what a user has in Python."""

import numpy as np
import pytest
import torch

import privaudit as pa
from privaudit.auditing.bounds import RankWalk
from privaudit.files.folder import FolderError
from privaudit.ledger import Ledger
from privaudit.release import NoSampling, Release


def gaussian(noise):
    def scores_of(member, seed):
        return member + noise * np.random.default_rng(seed).normal(size=len(member))

    return scores_of


def ledger(noise):
    return Ledger.of(
        Release.of_sum(norm_bound=1.0, noise_multiplier=noise, sampling=NoSampling())
    )


class TestAlgorithm:
    """Objects in the place of names."""

    fast = {"rounds": 3, "batch_size": 5, "nodes": 2, "train": 40}  # noqa: RUF012

    def test_model_data_and_record(self, tmp_path):
        random = torch.Generator().manual_seed(0)
        x = torch.randn(40, 3, generator=random)
        own = {"model": torch.nn.Linear(3, 2), "data": (x, (x[:, 0] > 0).long())}
        settings = pa.AuditSettings(
            runs=40,
            canary=(30 * torch.ones(3), 1),
            noise_multiplier=1.0,
            estimator=RankWalk(),
        )
        found = pa.audit_algorithm(
            "dp-dsgd", settings, training={**self.fast, **own}, out=tmp_path / "run"
        )
        assert found.lower.method == "rank-walk"
        assert str(found).endswith(str(found.verdict))
        assert found.result.member_runs + found.result.non_member_runs == 40
        assert pa.verify(tmp_path / "run").differences == ()
        with pytest.raises(FolderError, match="nothing says that its record"):
            pa.audit_algorithm(
                "dp-dsgd", settings, training={**self.fast, **own}, out=tmp_path / "run"
            )
        with pytest.raises(ValueError, match="an estimator is a name, or one of"):
            pa.audit_algorithm("dp-dsgd", pa.AuditSettings(estimator=RankWalk(99)))
        with pytest.raises(ValueError, match="model is given twice"):
            pa.audit_algorithm(
                *("dp-dsgd", settings), training=own, model=own["model"], data=x
            )

    def test_names_of_a_score_and_a_record(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "scoring.py").write_text(
            "import torch\n"
            "def record():\n"
            "    return torch.ones(1, 8, 8), 2\n"
            "def score(model):\n"
            "    x, y = record()\n"
            "    return float(model(x[None]).log_softmax(-1)[0, y])\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        names = {"adversary": "scoring:score", "canary": "scoring:record"}
        settings = pa.AuditSettings(runs=60, epsilon=0.1, delta=1e-2, **names)
        whole = {"rounds": 30, "nodes": 2, "train": 40, "split": 0.0, "batch_size": 19}
        found = pa.audit_algorithm("dsgd", settings, training=whole, out="run")
        assert found.status == "refuted"
        assert pa.verify("run").differences == ()

    @pytest.mark.parametrize(
        ("score", "said"),
        [
            (lambda model: float("nan"), "must be finite numbers"),
            (lambda model: model.nothing, "no attribute 'nothing'"),
        ],
    )
    def test_a_score_that_fails_is_one_sentence(self, score, said, tmp_path):
        settings = pa.AuditSettings(runs=10, adversary=score)
        with pytest.raises(ValueError, match=said):
            pa.audit_algorithm(
                "dsgd", settings, training=self.fast, out=tmp_path / "run"
            )


class TestAudit:
    def test_a_right_claim_with_its_ledger_is_consistent(self):
        upper = pa.epsilon(ledger=ledger(2.0), delta=1e-5).upper
        found = pa.audit(
            gaussian(2.0), epsilon=upper, delta=1e-5, ledger=ledger(2.0), runs=2000
        )
        assert found.status == "consistent"
        assert 0 < found.lower.epsilon < upper <= found.upper.epsilon * 1.001
        assert found.summary()["certified"] == found.upper.epsilon

    def test_half_the_noise_is_refuted(self):
        upper = pa.epsilon(ledger=ledger(2.0), delta=1e-5).upper
        found = pa.audit(gaussian(0.2), epsilon=upper, delta=1e-5, runs=2000)
        assert found.status == "refuted"
        assert "REFUTED" in str(found)
        assert found.upper is None

    def test_it_is_repeatable(self):
        def tells(member, seed):
            return member * 1.0

        one, two = (pa.audit(tells, epsilon=1, runs=300, seed=4) for _ in range(2))
        assert one == two
        assert one.member_runs + one.non_member_runs == 300
        assert one.lower.epsilon == pytest.approx(
            one.most_shown, rel=0.05
        )  # all is told

    @pytest.mark.parametrize(
        ("scores_of", "changes", "said"),
        [
            ("train:scores", {}, "audit_program"),
            (gaussian(1.0), {"runs": 1}, "runs must be >= 2"),
            (gaussian(1.0), {"method": "best?"}, "no estimator"),
            (gaussian(1.0), {"epsilon": 0}, "epsilon must be > 0"),
            (gaussian(1.0), {"relation": "replace"}, "relation"),
            (lambda member, seed: member[:-1] * 1.0, {}, "one score a run"),
            (lambda member, seed: 1 / 0, {}, "ZeroDivisionError"),
            (lambda member, seed: np.log(member * 0.0 - 1), {}, "not finite|invalid"),
        ],
    )
    def test_what_is_wrong_is_said(self, scores_of, changes, said):
        with pytest.raises(ValueError, match=said):
            pa.audit(scores_of, **{"epsilon": 1, "runs": 100, **changes})


class TestProbe:
    @staticmethod
    def clipped_sum(data, seed):
        norms = np.linalg.norm(data, axis=1, keepdims=True)
        total = (data / np.maximum(1, norms)).sum(0)
        return total + 2 * np.random.default_rng(seed).normal(size=total.shape)

    def test_what_is_right_has_no_findings(self):
        found = pa.probe(self.clipped_sum, sensitivity=2.0, noise=2.0)
        assert found.findings == []

    def test_each_promise_is_held_against_it(self):
        for promise, name in (
            ({"sensitivity": 0.5}, "sensitivity"),
            ({"noise": 3.0}, "noise"),
        ):
            found = pa.probe(self.clipped_sum, **promise)
            assert any(name in finding for finding in found.findings)

    def test_what_is_wrong_is_said(self):
        with pytest.raises(ValueError, match="got str"):
            pa.probe("mine:release")
        with pytest.raises(ValueError, match="runs must be >= 20"):
            pa.probe(self.clipped_sum, runs=3)
        with pytest.raises(ValueError, match="ZeroDivisionError"):
            pa.probe(lambda data, seed: 1 / 0)
