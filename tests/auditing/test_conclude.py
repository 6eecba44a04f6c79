"""What decides about a claim, and what only contradicts an account.

The program is randomised response: at epsilon 1 it is (1, 0)-private, and no more.
"""

import math

import numpy as np
import pytest
import torch

import privaudit as pa
from privaudit.cli import main
from privaudit.integrations import torch_loop

TRUE = math.e / (1 + math.e)
CLAIM = {"epsilon": 1.05, "delta": 1e-5}


def response(worlds, seed):
    """Says the world, and the other one with the chance of 1 / (1 + e)."""
    right = np.random.default_rng(seed).random(len(worlds)) < TRUE
    return np.where(right, worlds, ~worlds).astype(float)


def gaussian(noise):
    """The account of a single noisy sum, which randomised response is not."""
    release = pa.Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=pa.PoissonSampling(1.0)
    )
    return pa.Ledger.of(release, 1)


class TestATrueClaimIsNotRefuted:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("estimator", "noise"), [("family", 5.0), ("top-half", 1.0)]
    )
    def test_of_a_program(self, estimator, noise, tmp_path, monkeypatch, capsys):
        """5.0: its account meets the claim; 1.0: it proves more, of another program."""
        (tmp_path / "ledger.json").write_text(gaussian(noise).to_json())
        monkeypatch.chdir(tmp_path)
        given = ["--epsilon", "1.05", "--delta", "1e-5", "--runs", "2000"]
        given += ["--ledger", "ledger.json", "--estimator", estimator, "--out", "run"]
        place = f"{__name__}:response"
        assert main(["audit-program", place, *given]) == 0
        said = capsys.readouterr().out
        assert "UNPROVEN" in said
        assert "does not do what its ledger says" in said
        assert pa.verify(tmp_path / "run").differences == ()

    @pytest.mark.full
    def test_in_python(self):
        found = pa.audit(
            response, **CLAIM, ledger=gaussian(5.0), method="family", runs=2000
        )
        assert found.status == "unproven"
        assert found.lower.valid_for == "any mechanism"
        assert found.beside.epsilon > 4 > 1 > found.lower.epsilon

    def test_of_one_run_with_canaries(self):
        like = np.arange(180.0).reshape(60, 3), np.arange(60) % 2
        planted = pa.canaries(4000, like=like, kind="noise", seed=0)
        scores = response(planted.member, 1)
        found = planted.audit(scores, **CLAIM, ledger=gaussian(5.0), method="family")
        assert found.status == "unproven"
        assert found.beside.epsilon > CLAIM["epsilon"]

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("method", ["top-half", "betting-gaussian"])
    def test_of_scores_in_a_file(self, method, tmp_path, capsys):
        member = np.random.default_rng(0).random(2000) < 0.5
        rows = zip(member, response(member, 1), strict=True)
        file = tmp_path / "scores.csv"
        lines = [f"{int(there)},{score}" for there, score in rows]
        file.write_text("\n".join(["member,score", *lines]))
        given = [
            "bound",
            str(file),
            "--design",
            "coin-flip",
            "--delta",
            "1e-5",
            "--method",
            method,
        ]
        assert main([*given, "--epsilon", "1.05"]) == 0
        said = capsys.readouterr().out
        assert "UNPROVEN" in said
        assert "for the verdict, audited" in said

    def test_of_a_loop(self):
        """It releases one of two numbers, and no sum with Gaussian noise."""

        def loop(seed, canary):
            nothing = torch.zeros(1)
            total = canary.add(nothing, clip_norm=1.0, sampling_rate=1.0)
            told = response(np.array([bool(total.norm() > 0.5)]), seed)
            canary.see(nothing + float(told[0]), noise_multiplier=5.0)

        found = torch_loop.audit(loop, **CLAIM, runs=3000, canaries=1)
        assert found.status == "unproven"
        assert found.audited.beside.epsilon > CLAIM["epsilon"]


def test_a_false_claim_is_refuted_whatever_was_asked_for():
    """At epsilon 1, it is not (.5, 1e-5)-private."""
    found = pa.audit(
        response, epsilon=0.5, ledger=gaussian(5.0), method="family", runs=2000
    )
    assert found.status == "refuted"
