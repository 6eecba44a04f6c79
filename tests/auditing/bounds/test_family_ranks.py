"""Weighted ranks against the curve of a family of mechanisms."""

import functools
import math
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from privaudit.accounting import gdp
from privaudit.accounting.pld.closed_form import epsilon_down
from privaudit.auditing.bounds import (
    Best,
    BestOf,
    NoiseFamily,
    RanksOfFamily,
    TopHalf,
    TopHalfOfFamily,
)
from privaudit.auditing.bounds._ranks import Pair, chance_of_top
from privaudit.auditing.bounds.family_ranks import _Test
from privaudit.auditing.bounds.ledger_family import family_bound, noise_family
from privaudit.auditing.experiments.reach import ideal_scores
from privaudit.auditing.scores import Scores
from privaudit.ledger import Entry
from privaudit.release import NoSampling, PoissonSampling, Release
from tests.tiers import size

ADD = "add-or-remove-one"


def entries(q, z, steps):
    sampling = PoissonSampling(q) if q < 1 else NoSampling()
    release = Release.of_sum(norm_bound=1.0, noise_multiplier=z, sampling=sampling)
    return (Entry(release, steps),)


def gaussian_lines(noise):
    mu = 1 / noise
    epsilons = np.linspace(-1, 1, 161) * (mu * mu / 2 + 6 * mu)
    deltas = stats.norm.cdf(mu / 2 - epsilons / mu)
    deltas -= np.exp(epsilons) * stats.norm.cdf(-mu / 2 - epsilons / mu)
    return epsilons, deltas + 1e-12


GAUSSIAN = NoiseFamily(
    name="the Gaussian mechanism",
    delta_up=lambda noise, epsilon: float(gdp.delta(1 / noise, epsilon)),
    epsilon_down=lambda noise, delta: epsilon_down(1 / noise, delta),
    lines=functools.cache(gaussian_lines),
)
LAPLACE = NoiseFamily(
    name="the Laplace mechanism",
    delta_up=lambda noise, epsilon: max(0, -math.expm1((epsilon - 1 / noise) / 2)),
    epsilon_down=lambda noise, delta: max(0.0, 1 / noise + 2 * math.log1p(-delta)),
)


def canary_scores(repeat, runs=80, many=5, mu=1.0):
    """Runs share canaries: independent by their noise, each scored by all of them."""
    random = np.random.default_rng([6, repeat])
    member = random.random((runs, many)) < 0.5
    seen = random.normal(size=member.shape) + mu * member
    return member, seen + 0.3 * seen.sum(1, keepdims=True) + random.normal(
        size=(runs, 1)
    )


def worlds(random, runs, members=None):
    """By fair coins, or so many members."""
    if members is None:
        return random.random(runs) < 0.5
    return random.permutation(np.arange(runs) < members)


REPEATS = size(40, 6)


def exceeds(estimator, truth, draw, *, repeats, delta=1e-5, confidence=0.9):
    """How often the bound is above ``truth``, and the most that chance explains."""
    count = sum(
        estimator(
            draw(repeat), delta, confidence, threat_model="x", seed=repeat
        ).epsilon
        > truth * (1 + 1e-6)
        for repeat in range(repeats)
    )
    return count, stats.binom.isf(1e-4, repeats, 1 - confidence)


def gaussian_scores(repeat, runs=300, members=None, mu=1.0):
    random = np.random.default_rng([5, repeat])
    member = worlds(random, runs, members)
    design = "coin-flip" if members is None else "fixed"
    return Scores(member, random.normal(size=runs) + mu * member, design)


class TestSound:
    def test_the_ranking_of_the_pair_has_the_law_of_its_own_draws(self):
        """Members among the first so many, against sorted Gaussian numbers."""
        random, (members, others) = np.random.default_rng(0), (30, 70)
        cuts = np.array([1, 3, 10, 30, 31, 60, 99])
        drawn = Pair.above(*gaussian_lines(0.5)).draw(
            random, 4000, members, others, cuts
        )
        direct = []
        for _ in range(4000):
            score = random.normal(size=100) + 2 * (np.arange(100) < members)
            direct.append(np.cumsum(np.argsort(-score) < members)[cuts - 1])
        direct = np.array(direct)
        for column in range(len(cuts)):
            differ = stats.ks_2samp(drawn[:, column], direct[:, column], method="asymp")
            assert differ.pvalue > 1e-4
        # Joint, not only one by one: what lies between two cuts.
        between = [np.diff(one, axis=1)[:, 2] for one in (drawn, direct)]
        assert stats.ks_2samp(*between, method="asymp").pvalue > 1e-4

    def test_without_leak_the_upper_part_is_hypergeometric(self):
        for members, others, right in ((20, 20, 13), (5, 40, 3), (40, 5, 37)):
            for length in (members, right, (members + right) // 2):
                true = stats.hypergeom.sf(right - 1, members + others, members, length)
                found = chance_of_top(lambda fpr: fpr, right, members, others, length)
                assert true <= found <= true + 2e-3

    @pytest.mark.parametrize(("length", "right"), [(30, 15), (30, 26), (8, 6), (3, 3)])
    def test_an_upper_part_of_the_gaussian_pair(self, length, right):
        random = np.random.default_rng(1)
        score = random.normal(size=(20_000, 60)) + 1.0 * (np.arange(60) < 30)
        first = np.argsort(-score, axis=1)[:, :length] < 30
        seen = np.mean(first.sum(1) >= right)
        found = chance_of_top(
            lambda fpr: stats.norm.cdf(stats.norm.ppf(fpr) + 1), right, 30, 30, length
        )
        assert seen == pytest.approx(found, abs=0.015)

    @pytest.mark.parametrize("alpha", [0.04, 0.13])
    def test_upper_parts_alone_keep_their_level(self, alpha):
        """Both lengths at once, by all rankings of 32 members and others alike."""
        few = NoiseFamily(
            "x", GAUSSIAN.delta_up, GAUSSIAN.epsilon_down, 9e3, 1e4, gaussian_lines
        )
        ranks = RanksOfFamily(few, reversed_share=0.001, top_share=0.999)
        erred = 0.0
        # The other test refutes nothing; members and others end in turn at ``ends``.
        with mock.patch.object(_Test, "least_refuted", lambda self, noise: noise):
            for eight in range(9):
                chance = stats.hypergeom.pmf(eight, 64, 32, 8)
                for half in range(max(eight, 16), eight + 25):
                    ends = [eight, 8, 8 + half - eight, 32, 64 - half]
                    member = np.searchsorted(ends, np.arange(64), "right") % 2 == 0
                    scores = Scores(member, -np.arange(64.0), "fixed")
                    if ranks.find(scores, 1e-5, alpha, 0)[0] > 0:
                        left = stats.hypergeom.pmf(half - eight, 56, 32 - eight, 24)
                        erred += chance * left
        assert alpha / 4 < erred <= alpha

    def test_the_pair_lies_above_all_that_is_below_the_lines(self):
        epsilons, deltas = gaussian_lines(1.0)
        x = np.linspace(0, 1, 501)
        above = Pair.above(epsilons, deltas).tpr_at(x)
        true = stats.norm.cdf(stats.norm.ppf(x) + 1)
        assert (above >= true - 1e-9).all()
        assert above == pytest.approx(true, abs=2e-3)

    def test_weights_do_not_increase_inwards(self):
        family = noise_family(entries(0.01, 0.6, 30), ADD)
        member = worlds(np.random.default_rng(0), 500)
        test = _Test.of(RanksOfFamily(family), member, 0.05, 0)
        for noise in (0.5, 1.0, 3.0):
            weights = test._weights(noise)
            assert (weights >= 0).all()
            assert (np.diff(weights[: test.top]) <= 0).all()
            assert (np.diff(weights[test.top :]) >= 0).all()

    @pytest.mark.sized
    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("members", [None, 60, 150, 270])
    def test_no_leak(self, members):
        def draw(repeat):
            return gaussian_scores(repeat, members=members, mu=0.0)

        count, allowed = exceeds(RanksOfFamily(GAUSSIAN), 0.0, draw, repeats=REPEATS)
        assert count <= allowed

    @pytest.mark.sized
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("members", [None, 60, 240])
    def test_coverage(self, members):
        def draw(repeat):
            return gaussian_scores(repeat, members=members)

        truth = epsilon_down(1.0, 1e-5)
        count, allowed = exceeds(RanksOfFamily(GAUSSIAN), truth, draw, repeats=REPEATS)
        assert count <= allowed

    @pytest.mark.full
    @pytest.mark.parametrize("members", [None, 60, 150])
    @pytest.mark.parametrize("mu", [0.0, 1.0])
    def test_coverage_over_a_thousand(self, members, mu):
        def draw(repeat):
            return gaussian_scores(repeat, members=members, mu=mu)

        truth = epsilon_down(mu, 1e-5)
        count, allowed = exceeds(RanksOfFamily(GAUSSIAN), truth, draw, repeats=1000)
        assert count <= allowed

    @pytest.mark.full
    @pytest.mark.parametrize("members", [None, 100])
    def test_coverage_of_a_ledger_over_a_thousand(self, members):
        released = entries(0.1, 0.7, 3)
        family = noise_family(released, ADD)

        def draw(repeat):
            random = np.random.default_rng([6, repeat])
            member = worlds(random, 400, members)
            score = ideal_scores(released, ADD, member, random)
            return Scores(member, score, "coin-flip" if members is None else "fixed")

        truth = family.epsilon_down(1.0, 1e-5)
        count, allowed = exceeds(RanksOfFamily(family), truth, draw, repeats=1000)
        assert count <= allowed

    @pytest.mark.full
    @pytest.mark.parametrize("members", [40, 200, 360])
    @pytest.mark.parametrize("mu", [0.0, 1.0])
    def test_top_half_of_fixed_worlds_over_a_thousand(self, members, mu):
        def draw(repeat):
            return gaussian_scores(repeat, runs=400, members=members, mu=mu)

        count, allowed = exceeds(TopHalf(), epsilon_down(mu, 1e-5), draw, repeats=1000)
        assert count <= allowed

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("members", [40, 200, 360])
    def test_top_half_of_fixed_worlds(self, members):
        def draw(repeat):
            return gaussian_scores(repeat, runs=400, members=members)

        truth = epsilon_down(1.0, 1e-5)
        for estimator in (TopHalf(), TopHalfOfFamily(GAUSSIAN)):
            count, allowed = exceeds(estimator, truth, draw, repeats=40)
            assert count <= allowed

    @pytest.mark.full
    @pytest.mark.sized
    @pytest.mark.parametrize("mu", [1.0, 0.0])
    def test_coverage_of_canaries_that_share_runs(self, mu):
        def draw(repeat):
            member, score = canary_scores(repeat, mu=mu)
            score[:, 1:] += 0.5 * score[:, :1]  # the others know more than their own
            return Scores.of_runs(member, score, "coin-flip")

        truth = epsilon_down(mu, 1e-5) if mu else 0.0
        count, most = exceeds(
            RanksOfFamily(GAUSSIAN), truth, draw, repeats=size(400, 8)
        )
        assert count <= most

    def test_what_any_mechanism_may_do_is_read_from_one_canary_a_run(self):
        member, score = canary_scores(0)
        scores = Scores.of_runs(member, score, "coin-flip")
        first = Scores(member[:, 0], score[:, 0], "coin-flip")
        both = BestOf((Best(), RanksOfFamily(GAUSSIAN)))

        def found(estimator, of):
            return estimator(of, 1e-5, threat_model="x").epsilon

        assert found(Best(), scores) == found(Best(), first)
        one, many = (found(RanksOfFamily(GAUSSIAN), of) for of in (first, scores))
        assert many > one
        assert found(both, scores) > found(both, first)

    def test_refuses_nonsense(self):
        with pytest.raises(ValueError, match="top_share must be in"):
            RanksOfFamily(GAUSSIAN, top_share=0.0)
        with pytest.raises(ValueError, match="simulations must be >= 1"):
            RanksOfFamily(GAUSSIAN, simulations=0)


class TestTight:
    @pytest.mark.parametrize("members", [None, 1000, 3000])
    def test_of_a_perfect_attack_on_a_gaussian(self, members):
        truth = epsilon_down(1.0, 1e-5)
        scores = gaussian_scores(0, runs=4000, members=members)
        for estimator in (RanksOfFamily(GAUSSIAN), TopHalf()):
            assert estimator(scores, 1e-5, threat_model="x").epsilon > 0.8 * truth

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("q", "z", "steps", "least"),
        [(0.01, 0.6, 30, 0.6), (0.02, 0.7, 100, 0.7), (0.25, 3.0, 60, 0.85)],
    )
    def test_at_least_the_top_half(self, q, z, steps, least):
        """Median of perfect attacks over the truth; for rare losses far more."""
        released = entries(q, z, steps)
        family = noise_family(released, ADD)
        truth, found = family.epsilon_down(1.0, 1e-5), []
        for repeat in range(21):
            random = np.random.default_rng([9, repeat])
            member = worlds(random, 4000)
            score = ideal_scores(released, ADD, member, random)
            scores = Scores(member, score, "coin-flip")
            found.append(
                [
                    one(scores, 1e-5, threat_model="x", seed=repeat).epsilon / truth
                    for one in (RanksOfFamily(family), TopHalfOfFamily(family))
                ]
            )
        ranks, half = np.median(found, axis=0)
        assert ranks >= max(least, half)

    @pytest.mark.full
    def test_rare_and_large_losses_are_seen(self):
        released = entries(0.01, 0.4, 10)
        random = np.random.default_rng(3)
        member = worlds(random, 3000)
        score = ideal_scores(released, ADD, member, random)
        scores, family = Scores(member, score, "coin-flip"), noise_family(released, ADD)
        ranks, half = (
            one(scores, 1e-5, threat_model="x").epsilon
            for one in (RanksOfFamily(family), TopHalfOfFamily(family))
        )
        assert ranks > 2 * half
        assert 0.3 < ranks / family.epsilon_down(1.0, 1e-5) <= 1

    def test_a_batch_that_is_not_drawn_again_is_seen_at_the_top(self):
        """No less noise explains its middle: nine members of ten have no signal."""
        random, steps, noise = np.random.default_rng(0), 100, 2.2482681802616873
        member = worlds(random, 4000)
        drawn = member & (random.random(4000) < 0.1)
        score = random.normal(size=4000) + math.sqrt(steps) / noise * drawn
        family = noise_family(entries(0.1, noise, steps), ADD)
        scores = Scores(member, score, "coin-flip")
        bound = RanksOfFamily(family)(scores, 1e-5, threat_model="x")
        assert family.epsilon_down(1.0, 1e-5) == pytest.approx(2, abs=0.01)
        assert 2.5 < bound.epsilon < math.sqrt(steps) / noise * 6

    def test_a_family_known_by_delta_alone(self):
        random = np.random.default_rng(2)
        member = worlds(random, 4000)
        scores = Scores(member, random.laplace(size=4000) + 2.0 * member, "coin-flip")
        bound = RanksOfFamily(LAPLACE)(scores, 1e-5, threat_model="x")
        assert 1.7 < bound.epsilon < 2


class TestLaws:
    def test_backwards_is_found_too(self):
        scores = gaussian_scores(1, runs=2000)
        turned = Scores(scores.member, -scores.score, "coin-flip")
        bound = RanksOfFamily(GAUSSIAN)(turned, 1e-5, threat_model="x")
        assert bound.evidence.tail == "lower"
        assert bound.epsilon > 2

    def test_the_order_of_the_rows_says_nothing(self):
        scores = gaussian_scores(2, runs=500)
        mixed = np.random.default_rng(0).permutation(500)
        other = Scores(scores.member[mixed], scores.score[mixed], "coin-flip")
        bounds = [
            RanksOfFamily(GAUSSIAN)(x, 1e-5, threat_model="x") for x in (scores, other)
        ]
        assert bounds[0].epsilon == bounds[1].epsilon > 0

    def test_all_refuted_stays_within_what_is_known(self):
        few = NoiseFamily(
            "x", GAUSSIAN.delta_up, GAUSSIAN.epsilon_down, 5.0, 10.0, gaussian_lines
        )
        member = np.random.default_rng(0).random(1000) < 0.5
        scores = Scores(member, member.astype(float), "coin-flip")
        bound = RanksOfFamily(few)(scores, 1e-5, threat_model="x")
        assert bound.epsilon == pytest.approx(epsilon_down(0.2, 1e-5))

    def test_ties_say_nothing(self):
        scores = Scores(np.arange(100) % 2 == 0, np.zeros(100), "fixed")
        assert RanksOfFamily(GAUSSIAN)(scores, 1e-5, threat_model="x").epsilon == 0

    def test_of_a_ledger(self):
        bound = family_bound(entries(0.1, 1.0, 3), ADD)
        assert bound.name == "ranks-of-family"
        assert bound.valid_for == "this run's releases with more or less noise"
