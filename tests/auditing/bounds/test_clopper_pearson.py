"""Clopper-Pearson limits and the bound on them."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from privaudit.auditing.bounds import ClopperPearson
from privaudit.auditing.bounds.binomial import limit_down, limit_up
from privaudit.auditing.bounds.clopper_pearson import epsilon_from_limits
from privaudit.auditing.scores import Scores


class TestSound:
    @pytest.mark.parametrize("alpha", [0.4, 0.05, 1e-6])
    @pytest.mark.parametrize(("hits", "runs"), [(0, 9), (3, 9), (9, 9), (40, 70_000)])
    def test_limits_are_those_of_statsmodels(self, hits, runs, alpha):
        low, high = proportion_confint(hits, runs, 2 * alpha, method="beta")
        assert limit_down(hits, runs, alpha) == pytest.approx(low, rel=1e-9, abs=0)
        assert limit_up(hits, runs, alpha) == pytest.approx(high, rel=1e-9, abs=0)

    @pytest.mark.parametrize("alpha", [0.05, 1e-30])
    def test_limits_invert_the_binomial_tail(self, alpha):
        low, high = float(limit_down(7, 40, alpha)), float(limit_up(7, 40, alpha))
        assert stats.binom.sf(6, 40, low) == pytest.approx(alpha)
        assert stats.binom.cdf(7, 40, high) == pytest.approx(alpha)

    @pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
    def test_refuses_a_share_outside_its_range(self, share):
        with pytest.raises(ValueError, match="choosing_share must be in"):
            ClopperPearson(share)


class TestTight:
    def test_at_a_point_it_is_the_formula(self):
        scores = Scores([1] * 100 + [0] * 100, [1.0] * 100 + [0.0] * 100, "fixed")
        bound = ClopperPearson(0.5)(scores, 0.0, threat_model="x")
        high = 1 - 0.025 ** (1 / 50)
        assert bound.epsilon == pytest.approx(np.log((1 - high) / high))
        evidence = bound.evidence
        assert evidence.tpr is not None
        assert evidence.fpr is not None
        assert (evidence.tpr.hits, evidence.tpr.runs, evidence.tpr.rate) == (50, 50, 1)
        assert evidence.tpr.low == pytest.approx(1 - high)
        assert evidence.fpr.high == pytest.approx(high)
        assert (evidence.choosing_runs, evidence.testing_runs) == (100, 100)
        assert (evidence.threshold, evidence.tail) == (1.0, "upper")

    @pytest.mark.parametrize(
        ("tpr", "fpr", "delta", "epsilon"),
        [
            (0.5, 0.1, 0.1, np.log(4)),
            (0.9, 0.5, 0.0, np.log(5)),
            (0.5, 0.6, 0.0, 0.0),
            (0.1, 0.05, 0.2, 0.0),
        ],
    )
    def test_both_inequalities(self, tpr, fpr, delta, epsilon):
        assert epsilon_from_limits(tpr, fpr, delta) == pytest.approx(epsilon)
