"""Cases of the kind that jax-privacy tests its auditor by, unbalanced ones too.

Scores are the quantiles of a normal law; there are half as many others as members, as
many, or half as many more. What they are worth is dp-accounting's.
"""

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from scipy import stats

import privaudit as pa
from privaudit.auditing.bounds import OneRunGaussian
from privaudit.auditing.rates import attack_rates
from privaudit.auditing.scores import Scores

RATIOS = pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5])


def quantiles(shift, members, ratio=1.0, design="fixed"):
    others = int(members * ratio)
    scores = [
        stats.norm.ppf((np.arange(count) + 0.5) / count) + more
        for count, more in ((members, shift), (others, 0.0))
    ]
    worlds = np.repeat([True, False], [members, others])
    return Scores(worlds, np.concatenate(scores), design)


def bound(scores, delta, confidence, method="best"):
    how = {"delta": delta, "confidence": confidence, "method": method}
    return pa.lower_bound(
        scores.score, scores.member, design=scores.design, **how
    ).epsilon


class TestFixedWorlds:
    @pytest.mark.sampled(2)
    @RATIOS
    @pytest.mark.parametrize(
        ("mu", "members"), [(0.3, 300_000), (1.0, 20_000), (1.5, 20_000)]
    )
    def test_any_mechanism(self, mu, members, ratio):
        found = bound(quantiles(mu, members, ratio), 0.1, 0.8)
        true = get_epsilon_gaussian(1 / mu, 0.1)
        assert 0.8 * true < found < true

    @pytest.mark.sampled(3)
    @RATIOS
    @pytest.mark.parametrize(
        ("mu", "least"), [(0.1, 1.0), (0.3, 0.93), (1.0, 0.95), (3.0, 0.95)]
    )
    def test_gaussian(self, mu, least, ratio):
        found = bound(quantiles(mu, 100_000, ratio), 0.05, 0.9, "top-half")
        true = get_epsilon_gaussian(1 / mu, 0.05)
        assert least * true <= found <= true

    @RATIOS
    @pytest.mark.parametrize("method", ["best", "top-half"])
    def test_nothing_is_shown_where_nothing_leaks(self, method, ratio):
        assert bound(quantiles(0.0, 5000, ratio), 0.0, 0.8, method) == 0

    @pytest.mark.parametrize(("members", "others"), [(9, 10), (12, 13), (12, 10)])
    def test_a_perfect_attack_shows_what_so_few_runs_can(self, members, others):
        worlds = np.repeat([True, False], [members, others])
        scores = Scores(worlds, worlds.astype(float), "fixed")
        # All right with chance p^runs at most, p = e^epsilon / (1 + e^epsilon).
        p = 0.2 ** (1 / (members + others))
        most = np.log(p / (1 - p))
        assert 0.75 * most < bound(scores, 0.0, 0.8) <= most


class TestOneRun:
    """Theirs, of 10 000 canaries in and 10 000 out at 95 % and delta 1e-6."""

    @pytest.mark.parametrize(
        ("shift", "theirs"), [(0, 0.0), (1, 1.13346), (2, 2.311945), (4, 4.395568)]
    )
    def test_any_mechanism_at_least_as_much(self, shift, theirs):
        found = bound(quantiles(shift, 10_000, design="one-run"), 1e-6, 0.95)
        true = get_epsilon_gaussian(1 / shift, 1e-6) if shift else 0.0
        assert theirs <= found <= true

    @pytest.mark.parametrize(
        ("shift", "theirs"), [(0, 0.0), (1, 2.164749), (2, 4.7218075), (4, 9.133752)]
    )
    def test_gaussian_nearly_as_much(self, shift, theirs):
        scores = quantiles(shift, 10_000, design="one-run")
        found, _ = OneRunGaussian().find(scores, 1e-6, 0.05, 0)
        true = get_epsilon_gaussian(1 / shift, 1e-6) if shift else 0.0
        assert 0.85 * theirs <= found <= true


class TestRates:
    @RATIOS
    def test_best_and_worst(self, ratio):
        others = int(30 * ratio)
        worlds = np.repeat([True, False], [30, others])
        best = attack_rates(Scores(worlds, worlds.astype(float), "fixed"))
        assert best.auroc.value == 1
        assert all(one.tpr.value == 1 for one in best.tpr_at_fpr)
        worst = attack_rates(Scores(worlds, -worlds.astype(float), "fixed"))
        assert worst.auroc.value == 0  # theirs is 1 / 2, by the concave hull
        assert all(one.tpr.value == 0 for one in worst.tpr_at_fpr)

    @RATIOS
    def test_a_round_curve(self, ratio):
        # TPR = sqrt(FPR (2 - FPR)), a quarter of a circle.
        members, others = 10_000, int(10_000 * ratio)
        u, v = ((np.arange(n) + 0.5) / n for n in (members, others))
        # A member's rank among the others: its FPR t has tpr(t) = u.
        score = np.concatenate([np.sqrt(1 - u**2), 1 - v])
        worlds = np.repeat([True, False], [members, others])
        found = attack_rates(Scores(worlds, score, "fixed"))
        assert abs(found.auroc.value - np.pi / 4) < 1e-3
        for one in found.tpr_at_fpr:
            assert abs(one.tpr.value - np.sqrt(one.fpr * (2 - one.fpr))) < 5e-3
