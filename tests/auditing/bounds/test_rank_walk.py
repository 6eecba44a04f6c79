"""The rank walk: its null law against runs of the mechanism that attains it."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from privaudit.auditing.bounds import Best, RankWalk, TwoBinomial
from privaudit.auditing.bounds._null_walk import NullWalk, _quantile
from privaudit.auditing.bounds.rank_walk import (
    Way,
    _GivenCounts,
    _leaks_expected,
    crossing_limits,
    prefix_epsilon,
)
from privaudit.auditing.scores import Scores
from tests.tiers import size

LENGTHS = np.array([4, 9, 20, 47, 100])


def ends(random, runs, epsilon, delta, repeats):
    """Right labels at both ends of runs of leaky randomised response, ranked well."""
    bits = random.random((repeats, runs)) < 0.5
    member = np.where(random.random((repeats, runs)) < expit(epsilon), bits, ~bits)
    leak = random.random((repeats, runs)) < delta
    score = np.where(leak, 9.0 * (2 * member - 1), 2 * bits - 1)
    order = np.argsort(-score + random.random((repeats, runs)) / 2, axis=1)
    ranked = np.take_along_axis(member, order, axis=1)
    top = np.cumsum(ranked, axis=1)[:, LENGTHS - 1]
    bottom = np.cumsum(~ranked[:, ::-1], axis=1)[:, LENGTHS - 1]
    return top, bottom


class TestSound:
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (2.0, 0.04)])
    def test_the_null_law_dominates_what_runs_do(self, epsilon, delta):
        """Chance to cross any one level, simulated both ways: ours is not less."""
        runs, repeats = 200, 4000
        random = np.random.default_rng(0)
        top, bottom = ends(random, runs, epsilon, delta, repeats)
        null = NullWalk.draw(random, repeats, LENGTHS, runs, delta)
        leaks = _leaks_expected(runs, delta)
        statistics = np.array(
            [
                prefix_epsilon(one, other, LENGTHS, leaks, 0.02).max()
                for one, other in zip(top, bottom, strict=True)
            ]
        )
        for level in (0.2, 0.05, 0.01):
            statistic = np.quantile(statistics, 1 - level)
            limits = crossing_limits(statistic, LENGTHS, leaks, 0.02)
            theirs = np.mean(statistics >= statistic)
            ours = null.crosses(epsilon, limits).mean()
            error = 4 * np.sqrt(2 * theirs * (1 - theirs) / repeats)
            assert ours >= theirs - error
            if delta == 0:  # the two ends hold runs of one kind only: equality
                assert ours <= theirs + error

    @pytest.mark.parametrize("side", [0, 1])
    def test_fixed_counts_cross_either_end_as_often_as_draws_do(self, side):
        """At epsilon 0 who is at an end is drawn without replacement: closed form."""
        members, others, length, limit = 23, 14, 9, 7 if side == 0 else 5
        limits = np.full((3, 1), 99)
        limits[side] = limit
        way = Way(
            order=np.arange(members + others),
            alpha=0.1,
            lengths=np.array([length]),
            statistic=0.0,
            side=side,
            length=length,
            limits=limits,
        )
        walks = _GivenCounts(way, members, others, 0.0)
        found = walks._crosses(np.random.default_rng(0), 0.0, 20_000).mean()
        there = (members, others)[side]
        truth = stats.hypergeom.sf(limit - 1, members + others, there, length)
        assert 0.05 < truth < 0.6
        assert abs(found - truth) < 5 * np.sqrt(truth / 20_000)

    @pytest.mark.parametrize("delta", [0.0, 0.03])
    def test_crossings_grow_with_epsilon(self, delta):
        null = NullWalk.draw(np.random.default_rng(1), 500, LENGTHS, 200, delta)
        limits = crossing_limits(1.0, LENGTHS, 2, 0.02)
        counts = [
            np.count_nonzero(null.crosses(epsilon, limits))
            for epsilon in np.linspace(0, 4, 200)
        ]
        assert counts == sorted(counts)
        assert counts[0] < 50
        assert counts[-1] == 500

    @pytest.mark.parametrize("delta", [0.0, 0.03])
    def test_null_counts_have_their_law(self, delta):
        """Mean and variance of the last prefix of each end, leaks included."""
        runs, repeats, epsilon = 200, 20_000, 1.0
        null = NullWalk.draw(np.random.default_rng(2), repeats, LENGTHS, runs, delta)
        leaked = null.leaked[0, :, -1]
        assert leaked.mean() == pytest.approx(runs * delta / 2, abs=0.1)
        impossible = np.full((3, len(LENGTHS)), 10**6)
        for right in (60, 75, 85):
            limits = impossible.copy()
            limits[0, -1] = right
            chance = stats.binom.sf(
                right - 1 - leaked, LENGTHS[-1] - leaked, expit(epsilon)
            ).mean()
            share = null.crosses(epsilon, limits).mean()
            error = 4 * np.sqrt(chance * (1 - chance) / repeats) + 1e-3
            assert share == pytest.approx(chance, abs=error)

    @pytest.mark.parametrize("trials", [1, 7, 1000, 100_000])
    @pytest.mark.parametrize("right", [0.5, 0.9, 0.9999])
    def test_quantiles_are_those_of_scipy(self, trials, right):
        uniform = np.concatenate(
            [[1e-6, 0.999999], np.random.default_rng(3).random(99)]
        )
        exact = stats.binom.ppf(uniform, trials, right)
        assert np.array_equal(_quantile(uniform, trials, right), exact)

    @pytest.mark.parametrize(
        "wrong", [{"simulations": 0}, {"prefixes": 0}, {"share": 0.0}]
    )
    def test_refuses_nonsense(self, wrong):
        with pytest.raises(ValueError, match="must be >"):
            RankWalk(**wrong)

    @pytest.mark.parametrize(
        ("alpha", "shares", "simulations"),
        [(1 / 16, 1 / 4, 1023), (1 / 4, 1 / 2, 4095), (1 / 32, 1 / 8, 1023)],
    )
    def test_the_levels_of_both_ways_sum_to_alpha(
        self, monkeypatch, alpha, shares, simulations
    ):
        """Exactly: each way refutes at so many of its equally likely ranks.

        Of R simulated walks and the observed one, the observed is one of the k most
        extreme with chance k / (R + 1). All numbers here are exact in binary.
        """
        spent = []

        def spy(null, limits, allowed):
            spent.append(Fraction(allowed + 1, null.uniforms.shape[1] + 1))
            return 0.0

        monkeypatch.setattr(NullWalk, "largest_rejected", spy)
        walk = RankWalk(simulations=simulations, reversed_share=shares)
        member = np.random.default_rng(0).random(200) < 0.5
        for score in (member, ~member):
            scores = Scores(member, score.astype(float), "coin-flip")
            walk.find(scores, 1e-5, alpha, 0)
        assert spent == [Fraction(alpha * (1 - shares)), Fraction(alpha * shares)]
        assert sum(spent) == Fraction(alpha)

    @pytest.mark.parametrize("allowed", [-1, 0, 3, 40])
    def test_the_search_ends_where_counting_does(self, allowed):
        null = NullWalk.draw(np.random.default_rng(1), 500, LENGTHS, 200, 0.03)
        limits = crossing_limits(1.0, LENGTHS, 2, 0.02)
        found = null.largest_rejected(limits, allowed)
        if allowed < 0:
            assert found == 0
        else:
            assert null.crosses(found, limits).sum() <= allowed
            assert null.crosses(found + 2e-4, limits).sum() > allowed

    @pytest.mark.sized
    @pytest.mark.sampled(60)
    @pytest.mark.parametrize("members", [40, 114, 160])
    @pytest.mark.parametrize("design", ["fixed", "coin-flip"])
    def test_no_alarms_of_a_fixed_deal(self, members, design):
        """Whatever is declared; 114 of 200 passes for coins."""
        if design == "coin-flip" and members != 114:
            pytest.skip("refused as coins")
        files = size(60, 10)
        alarms = fixed_alarms(members, design, files)
        assert alarms <= stats.binom.isf(1e-4, files, 0.05)

    @pytest.mark.full
    @pytest.mark.parametrize("estimator", [RankWalk(), Best()])
    def test_a_false_coin_flip_gives_no_more_alarms_over_a_thousand(self, estimator):
        alarms = fixed_alarms(114, "coin-flip", 1000, estimator)
        assert alarms <= stats.binom.isf(1e-3, 1000, 0.05)

    @pytest.mark.full
    @pytest.mark.parametrize("members", [40, 100, 160])
    def test_coverage_of_fixed_worlds_over_a_thousand(self, members):
        """Leaky randomised response, which attains its epsilon."""
        exceeded = 0
        for repeat in range(1000):
            random = np.random.default_rng([4, repeat])
            member = random.permutation(np.arange(200) < members)
            bits = np.where(random.random(200) < expit(1.0), member, ~member)
            bound = RankWalk()(
                Scores(member, bits.astype(float), "fixed"),
                0.0,
                0.9,
                threat_model="x",
                seed=repeat,
            )
            exceeded += bound.epsilon > 1.0
        assert exceeded <= stats.binom.isf(1e-3, 1000, 0.1)


def fixed_alarms(members, design, repeats, estimator=None):
    """How many of so many audits of no leak say more than 0, at 95 %."""
    alarms = 0
    for repeat in range(repeats):
        random = np.random.default_rng([2, repeat])
        member = random.permutation(np.arange(200) < members)
        scores = Scores(member, random.normal(size=200), design)
        bound = (estimator or RankWalk())(scores, 1e-5, threat_model="x", seed=repeat)
        alarms += bound.epsilon > 0
    return alarms


class TestTight:
    @pytest.mark.parametrize("members", [300, 1000, 1700])
    def test_fixed_worlds_are_as_strong(self, members):
        random = np.random.default_rng(5)
        member = random.permutation(np.arange(2000) < members)
        scores = Scores(member, random.normal(size=2000) + 1.5 * member, "fixed")
        walk, two = (
            one(scores, 1e-5, threat_model="x").epsilon
            for one in (RankWalk(), TwoBinomial())
        )
        assert walk > 0.9 * two

    def test_crossing_limits_are_least(self):
        for statistic in (0.3, 1.5, 4.0):
            limits = crossing_limits(statistic, LENGTHS, 2, 0.02)
            found = prefix_epsilon(limits[0], limits[1], LENGTHS, 2, 0.02)
            least = prefix_epsilon(limits[0] - 1, limits[1] - 1, LENGTHS, 2, 0.02)
            possible = limits[:2] <= LENGTHS
            assert (found[:2][possible] >= statistic - 1e-6).all()
            assert (least[:2][possible] < statistic + 1e-6).all()

    def test_leaks_are_discounted(self):
        """Without that it shows half at this delta, or nothing of more runs."""
        found = []
        for seed in range(15):
            random = np.random.default_rng(seed)
            member = random.random(4000) < 0.5
            scores = Scores(member, random.normal(size=4000) + member, "coin-flip")
            bound = RankWalk()(scores, 1e-2, 0.95, threat_model="x", seed=seed)
            found.append(bound.epsilon)
        assert np.median(found) > 0.6 * 2.317789  # of N(0, 1) against N(1, 1)

    def test_perfect_attack(self):
        """All m labels right: about log(m / 3) is the most that m runs can show."""
        member = np.random.default_rng(0).random(2000) < 0.5
        scores = Scores(member, member.astype(float), "coin-flip")
        bound = RankWalk()(scores, 0.0, 0.95, threat_model="x")
        assert 0.8 * np.log(2000 / 3) < bound.epsilon < np.log(2000 / 3)
