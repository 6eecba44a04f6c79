"""The form of account that fails: refuted as it runs, mended by more noise."""

import json

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from privaudit.claims import claims_of
from privaudit.claims.attacks import attacked
from privaudit.claims.claim import judged
from privaudit.cli import main


class TestNetwork:
    def test_by_accounts_alone_nothing_is_proved(self, capsys):
        assert main(["claims", "network", "--quick", "--json"]) == 1  # one disproved
        found = json.loads(capsys.readouterr().out)["claims"]
        names = [one["claim"] for one in found]
        assert names[:2] == ["path-of-3", "path-of-5"]
        assert names[2:] == ["messages-added-up", "secrets-by-connectivity"]
        assert [one["verdict"] for one in found[2:]] == ["disproved", "consistent"]
        for one in found[:2]:
            assert one["verdict"] == "unproven"
            assert one["certified_as_corrected"] <= one["claimed"]
            assert one["claimed"] < 0.5 * one["certified_as_printed"]

    def test_messages_together_are_solved_for_single_vectors(self):
        # What one end of a path of five hears in four rounds, and its own vector.
        path = (mpmath.eye(5) + mpmath.zeros(5)) * 0
        for i in range(5):
            for j in range(max(0, i - 1), min(5, i + 2)):
                path[i, j] = mpmath.mpf(2 if i == j and i in (0, 4) else 1) / 3
        rows = [[0, 0, 0, 0, 1]] + [list((path**t)[3, :]) for t in range(4)]
        solved = mpmath.lu_solve(mpmath.matrix(rows).T, mpmath.matrix([1, 0, 0, 0, 0]))
        left = mpmath.matrix(rows).T * solved - mpmath.matrix([1, 0, 0, 0, 0])
        assert mpmath.norm(left) < 1e-12  # the first node's, with its noise alone
        claim = next(c for c in claims_of("network") if c.name == "messages-added-up")
        found = claim.printed()
        for epsilon in (found.lower, found.upper):  # of a Gaussian mechanism with mu 1
            delta = norm.cdf(0.5 - epsilon) - np.exp(epsilon) * norm.cdf(-0.5 - epsilon)
            assert delta == pytest.approx(claim.delta, rel=5e-3)
        assert found.lower > 10 * claim.claimed
        assert claim.corrected().upper <= claim.claimed * (1 + 1e-3)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("name", ["path-of-3", "path-of-5"])
    def test_it_is_refuted_and_the_corrected_form_is_not(self, name, tmp_path):
        claim = next(one for one in claims_of("network") if one.name == name)
        found = attacked(judged(claim), tmp_path, None)
        assert claim.attack.runs <= 2000
        assert found.audited.confidence == 0.99
        assert found.verdict == "refuted"
        assert found.audited_corrected.epsilon <= claim.claimed

    def test_its_methods_can_be_cited(self, capsys):
        assert main(["cite", "network/path-of-3"]) == 0
        assert "Gaussian Differential Privacy" in capsys.readouterr().out
