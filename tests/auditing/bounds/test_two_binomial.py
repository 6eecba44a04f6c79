"""The exact test of two binomials, against sums over all outcomes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privaudit.auditing.bounds import TwoBinomial, two_binomial
from privaudit.auditing.bounds.binomial import least_hits, limit_down, limit_up
from privaudit.auditing.bounds.clopper_pearson import epsilon_from_limits
from privaudit.auditing.bounds.two_binomial import ceiling

steady = settings(deadline=None, derandomize=True)


class TestSound:
    @pytest.mark.parametrize(("runs", "others", "delta"), [(7, 9, 0.0), (12, 6, 0.05)])
    def test_exact_coverage(self, runs, others, delta):
        """For every pair of probabilities, summed over all outcomes: no simulation."""
        alpha = 0.2
        bounds = np.array(
            [
                [
                    TwoBinomial().from_counts(a, runs, b, others, delta, alpha)
                    for b in range(others + 1)
                ]
                for a in range(runs + 1)
            ]
        )
        assert bounds.max() > 0.5
        for epsilon, fpr in itertools.product(
            [0.0, 0.1, 0.5, 1.0, 2.0], np.linspace(0, 1, 41)
        ):
            tpr = ceiling(fpr, epsilon, delta)
            chance = np.outer(
                stats.binom.pmf(np.arange(runs + 1), runs, tpr),
                stats.binom.pmf(np.arange(others + 1), others, fpr),
            )
            assert chance[bounds > epsilon].sum() <= alpha

    @pytest.mark.parametrize("share", [0.05, 0.4, 0.8])
    @pytest.mark.parametrize(
        ("hits", "alarms", "delta"), [(9, 1, 0.0), (11, 2, 0.02), (12, 0, 0.0)]
    )
    def test_the_interval_is_paid_for(self, share, hits, alarms, delta):
        """At the bound the region has alpha - gamma at most, summed over outcomes."""
        runs, others, alpha = 12, 11, 0.2
        test = TwoBinomial(interval_share=share)
        bound = test.from_counts(hits, runs, alarms, others, delta, alpha)
        assert bound > 0
        level = two_binomial._order_level(alpha)
        a, b = np.meshgrid(range(runs + 1), range(others + 1), indexing="ij")
        order = epsilon_from_limits(
            limit_down(a, runs, level), limit_up(b, others, level), delta
        )
        region = order >= order[hits, alarms]
        low, high = two_binomial._interval(alarms, others, share * alpha)
        most = 0.0
        for fpr in np.linspace(low, high, 101):
            tpr = ceiling(fpr, bound, delta)
            chance = np.outer(
                stats.binom.pmf(np.arange(runs + 1), runs, tpr),
                stats.binom.pmf(np.arange(others + 1), others, fpr),
            )
            most = max(most, chance[region].sum())
        assert 0.7 * alpha * (1 - share) <= most <= alpha * (1 - share) * (1 + 1e-9)

    @pytest.mark.parametrize("gamma", [0.01, 0.1])
    def test_the_interval_misses_as_rarely_as_is_paid(self, gamma):
        ends = np.array([two_binomial._interval(b, 11, gamma) for b in range(12)])
        for fpr in np.linspace(0.001, 0.999, 500):
            missed = (ends[:, 0] > fpr) | (ends[:, 1] < fpr)
            assert stats.binom.pmf(np.arange(12), 11, fpr)[missed].sum() <= gamma

    @steady
    @given(st.floats(0, 1), st.floats(0, 8), st.floats(0, 0.5))
    def test_ceiling_is_where_dp_ends(self, fpr, epsilon, delta):
        tpr = float(ceiling(fpr, epsilon, delta))
        assert tpr <= np.exp(epsilon) * fpr + delta + 1e-12
        assert 1 - fpr <= np.exp(epsilon) * (1 - tpr) + delta + 1e-9
        more = min(1.0, tpr + 1e-6)
        assert (
            more >= 1
            or more > np.exp(epsilon) * fpr + delta
            or 1 - fpr > np.exp(epsilon) * (1 - more) + delta
        )

    @pytest.mark.parametrize("name", ["choosing_share", "interval_share"])
    def test_refuses_shares_outside_their_range(self, name):
        with pytest.raises(ValueError, match=f"{name} must be in"):
            TwoBinomial(**{name: 1.0})


class TestTight:
    @pytest.mark.parametrize(
        ("hits", "alarms", "delta"), [(60, 8, 0.0), (60, 8, 0.01), (95, 40, 0.0)]
    )
    def test_a_little_more_is_not_refuted(self, hits, alarms, delta):
        """At 1.05 times the bound some pair of probabilities explains the outcome."""
        runs, alpha = 100, 0.05
        bound = TwoBinomial().from_counts(hits, runs, alarms, runs, delta, alpha)
        fprs = np.linspace(0.01, 0.6, 600)
        tprs = ceiling(fprs, 1.05 * bound, delta)
        a, b = np.meshgrid(np.arange(runs + 1), np.arange(runs + 1), indexing="ij")
        region = (a >= hits) & (b <= alarms)  # part of any region that grows so
        chance = [
            (
                np.outer(
                    stats.binom.pmf(np.arange(runs + 1), runs, tpr),
                    stats.binom.pmf(np.arange(runs + 1), runs, fpr),
                )
                * region
            ).sum()
            for fpr, tpr in zip(fprs, tprs, strict=True)
        ]
        one_sided = max(chance)
        assert bound > 0
        assert one_sided > alpha / 5

    def test_beats_two_separate_limits(self):
        separate = np.log(limit_down(60, 100, 0.025) / limit_up(8, 100, 0.025))
        assert TwoBinomial().from_counts(60, 100, 8, 100, 0.0, 0.05) > 1.05 * separate


class TestLaws:
    @steady
    @given(st.integers(0, 50), st.integers(0, 50))
    def test_more_hits_or_fewer_alarms_show_more(self, hits, alarms):
        def bound(a, b):
            return TwoBinomial().from_counts(a, 50, b, 50, 0.01, 0.05)

        here = bound(hits, alarms)
        # The interval for q moves with b, and the search stops short by 1 % or so.
        assert bound(min(50, hits + 1), alarms) >= 0.97 * here
        assert bound(hits, max(0, alarms - 1)) >= 0.97 * here

    @steady
    @given(st.integers(1, 300), st.floats(0, 1), st.floats(1e-6, 0.5))
    def test_least_hits_inverts_the_lower_limit(self, runs, probability, alpha):
        hits = int(least_hits(runs, probability, alpha))
        if hits <= runs:
            assert limit_down(hits, runs, alpha) >= probability * (1 - 1e-7)
        if hits > 0:
            assert limit_down(hits - 1, runs, alpha) <= probability * (1 + 1e-7)
