"""The exact test of guessed coins, by enumeration and by simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from privaudit.testing.coins import (
    Plan,
    Ranking,
    Stage,
    _reached,
    chance,
    chance_together,
)
from tests.tiers import size


def enumerated(right, guesses, runs, epsilon, delta):
    """By all ways that runs can be told, and guesses right."""
    weights = [w for w, many in enumerate(guesses, start=1) for _ in range(many)]
    weights += [0] * (runs - len(weights))
    weights.sort(reverse=True)
    seen = sum(w * many for w, many in enumerate(right, start=1))
    true, total = 1 / (1 + math.exp(-epsilon)), 0.0
    for told in range(runs + 1):
        sure, rest = sum(weights[:told]), weights[told:]
        for hits in itertools.product((0, 1), repeat=len(rest)):
            if sure + sum(h * w for h, w in zip(hits, rest, strict=True)) >= seen:
                total += stats.binom.pmf(told, runs, delta) * math.prod(
                    true if hit else 1 - true for hit in hits
                )
    return total


class TestSound:
    @pytest.mark.parametrize("delta", [0.0, 0.1, 0.4])
    @pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
    @pytest.mark.parametrize(
        ("right", "guesses"),
        [([3, 0, 0, 2], [4, 0, 1, 2]), ([0, 2, 1], [1, 3, 1]), ([5], [6])],
    )
    def test_it_is_what_enumeration_gives(self, right, guesses, epsilon, delta):
        found = chance(np.array(right), np.array(guesses), 8, epsilon, delta)
        exact = enumerated(right, guesses, 8, epsilon, delta)
        assert exact <= found <= exact * (1 + 1e-5) + 1e-12 or found == 0.05 >= exact

    @pytest.mark.parametrize("runs", [1000, 3_000_000])
    @pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01])
    def test_one_weight_is_a_binomial_whatever_the_size(self, runs, delta):
        right = np.array([0, 0, int(runs * 0.4)])
        guesses = np.array([0, 0, runs // 2])
        found = chance(right, guesses, runs, 1.2, delta)
        exact = 0.0
        told = np.arange(int(stats.binom.isf(1e-16, runs, delta)) + 1)
        left = stats.binom.sf(
            right[2] - told - 1, guesses[2] - told, 1 / (1 + math.exp(-1.2))
        )
        exact = float((stats.binom.pmf(told, runs, delta) * left).sum())
        assert exact * (1 - 1e-6) <= found
        assert found <= 2 * exact + 1e-11

    @pytest.mark.sized
    def test_stages_that_look_at_earlier_ones_keep_the_level(self):
        """A plan that bets more where the past was lucky, and less where not."""
        random, level = np.random.default_rng(0), 0.1
        trials, alarms = size(4000, 800), 0
        for _ in range(trials):
            stages = []
            luck = 0.0
            for runs in (30, 60, 200):
                guesses = np.array([runs // 3, 0, 0, 5 if luck > 0 else runs // 3])
                right = random.binomial(guesses, 1 / (1 + math.exp(-0.5)))
                luck += float(right[0] - 0.62 * guesses[0])
                stages.append(Stage(right, guesses, runs, random.random()))
            alarms += chance_together(stages, 0.5, 0.0) <= level
        assert alarms <= stats.binom.isf(1e-6, trials, level)
        assert alarms >= stats.binom.ppf(1e-6, trials, level / 2)  # nor is it lax

    @pytest.mark.parametrize("true", [0.5, 0.8])
    def test_a_walk_reaches_its_limits_as_enumeration_has_it(self, true):
        lengths, limits = np.array([2, 5, 6, 11]), np.array([3, 4, 7, 8])
        exact = 0.0
        for steps in itertools.product((0, 1), repeat=11):
            walk = np.cumsum(steps)[lengths - 1]
            if (walk >= limits).any():
                exact += math.prod(true if step else 1 - true for step in steps)
        assert exact <= _reached(lengths, limits, true) <= exact + 1e-12

    def test_a_long_walk_with_a_limit_at_its_end_is_a_binomial(self):
        lengths, limits = np.array([4000, 5000, 9000]), np.array([4001, 5001, 7290])
        exact = float(stats.binom.sf(7289, 9000, 0.8))
        assert exact <= _reached(lengths, limits, 0.8) <= exact * (1 + 1e-9) + 1e-13

    @pytest.mark.sampled(4)
    @pytest.mark.sized
    @pytest.mark.parametrize("delta", [0.0, 0.05])
    @pytest.mark.parametrize("epsilon", [0.0, 1.0])
    def test_a_ranking_keeps_its_level_where_all_that_is_allowed_leaks(
        self, epsilon, delta
    ):
        """Leaky randomised response, told runs at both ends."""
        random, trials, level = (
            np.random.default_rng(5),
            size(4000, 30 if delta else 100),
            0.1,
        )
        alarms = 0
        for _ in range(trials):
            worlds = random.random(300) < 0.5
            told, true = random.random(300) < delta, 1 / (1 + math.exp(-epsilon))
            said = worlds ^ (random.random(300) >= true)
            score = np.where(told, 2.0 * worlds - 1, said - 0.5)
            found = Ranking.of(score, worlds, random, delta, level)
            alarms += found.chance(epsilon, delta) <= level
        assert alarms <= stats.binom.isf(1e-6, trials, level)
        if not delta:
            assert alarms >= stats.binom.ppf(1e-6, trials, level / 3)  # nor is it lax


class TestTight:
    def test_a_plan_learns_both_ends_and_their_weights(self):
        random = np.random.default_rng(1)
        worlds = random.random(40_000) < 0.5
        score = random.laplace(size=40_000, scale=0.5) + worlds
        plan = Plan.of(score, worlds, 1.0, 0.0)
        assert plan.weights[0] < 0 < plan.weights[-1]
        right, guesses = plan.guessed(score, worlds)
        best = 1 / (1 + math.exp(-2))  # outside of [0, 1] the ratio is exp(2)
        assert abs(right[-1] / guesses[-1] - best) < 0.02

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_ranking_refutes_from_either_end(self, sign):
        random = np.random.default_rng(1)
        worlds = random.random(2000) < 0.5
        ties = np.round(random.laplace(size=2000) + 2.0 * worlds) * sign
        found = Ranking.of(ties, worlds, random, 1e-5, 1e-3)
        assert found.chance(1.0, 1e-5) < 1e-6
        assert found.chance(2.1, 1e-5) > 0.01
        rare = np.where(random.random(2000) < 0.03, sign * (2.0 * worlds - 1), 0.0)
        assert Ranking.of(rare, worlds, random, 0.0, 1e-3).chance(1.0, 0.0) < 1e-4


class TestLaws:
    @pytest.mark.sized
    def test_a_ranking_grows_with_epsilon_and_delta(self):
        random = np.random.default_rng(2)
        worlds = random.random(200) < 0.5
        ranking = Ranking.of(
            worlds + random.normal(size=200), worlds, random, 0.0, 1e-3
        )
        for delta in (0.0, 0.02):
            found = [ranking.chance(e, delta) for e in np.linspace(0, 4, size(40, 9))]
            assert (np.diff(found) >= -1e-12).all()
        found = [ranking.chance(0.5, d) for d in np.linspace(0, 0.2, size(20, 6))]
        assert (np.diff(found) >= -1e-9).all()

    def test_it_grows_with_epsilon_and_delta(self):
        stages = [
            Stage(np.array([9, 3]), np.array([12, 4]), 20, 0.7),
            Stage(np.array([0, 60]), np.array([0, 80]), 100, 0.2),
        ]
        for delta in (0.0, 0.01):
            found = [chance_together(stages, e, delta) for e in np.linspace(0, 4, 40)]
            assert (np.diff(found) >= -1e-12).all()
        found = [chance_together(stages, 0.5, d) for d in np.linspace(0, 0.2, 20)]
        assert (np.diff(found) >= -1e-9).all()
