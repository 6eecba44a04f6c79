"""The exact test of two binomials, against sums over all outcomes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privaudit.auditing.bounds import TwoBinomial
from privaudit.auditing.bounds.binomial import least_hits, limit_down
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
        from privaudit.auditing.bounds.binomial import limit_up

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
