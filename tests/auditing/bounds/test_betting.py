"""Bets against epsilon: fair or worse under the null, at every moment."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from privaudit.accounting import gdp
from privaudit.auditing.bounds import Betting, BettingGaussian, Game
from privaudit.auditing.scores import Scores
from tests.tiers import size


def expected_factor(wealth, laws):
    """Expected wealth after one more run, over wealth now, for each epsilon.

    ``laws``: score -> (probability in the member world, in the other).
    """
    now = np.exp(wealth.log_wealth).sum(axis=1)
    total = np.zeros_like(now)
    for score, chances in laws.items():
        for member, chance in zip((True, False), chances, strict=True):
            after = wealth.after([member], [score])
            total += chance / 2 * np.exp(after.log_wealth).sum(axis=1)
    return total / now


def leaky(epsilon, delta):
    """Scores of leaky randomised response, the worst of its (epsilon, delta)."""
    true, lie = (1 - delta) * expit(epsilon), (1 - delta) * expit(-epsilon)
    return {3.0: (delta, 0.0), 1.0: (true, lie), -1.0: (lie, true), -3.0: (0.0, delta)}


class TestSound:
    @pytest.mark.parametrize(
        ("delta", "sign"), [*itertools.product([0.0, 1e-3, 0.1], [1, -1])]
    )
    def test_no_bet_is_favourable_under_its_null(self, delta, sign):
        """Exactly, over the outcomes of the next run, after pasts of several kinds."""
        epsilons = (0.0, 0.5, 1.0, 2.0)
        random = np.random.default_rng(0)
        worst = 0.0
        for past, shift in itertools.product((9, 40, 300), (0.0, 2.0)):
            member = random.random(past) < 0.5
            score = np.round(random.normal(size=past) + sign * shift * member)
            wealth = Game(delta, 0.95, epsilons).start().after(member, score)
            for place, epsilon in enumerate(epsilons):
                laws = leaky(epsilon, delta)
                laws = {sign * score: both for score, both in laws.items()}
                factor = expected_factor(wealth, laws)[place]
                worst = max(worst, factor)
                assert factor <= 1 + 1e-12
        assert worst > 0.9

    @pytest.mark.parametrize("delta", [0.0, 0.1, 0.9])
    def test_no_outcome_costs_more_than_is_staked(self, delta):
        """Wealth stays positive, wherever a score falls and whoever made it."""
        random = np.random.default_rng(9)
        game = Game(delta, 0.95, (0.0, 0.3, 1.0, 3.0))
        for past, shift, sign in itertools.product((9, 60), (0.5, 5.0), (1, -1)):
            member = random.random(past) < 0.5
            score = sign * np.round(random.normal(size=past) + shift * member)
            wealth = game.start().after(member, score)
            for world, told in itertools.product((True, False), {*score, -99, 99}):
                change = wealth.after([world], [told]).log_wealth - wealth.log_wealth
                assert (change >= np.log(1 - 0.95) - 1e-9).all()

    def test_no_guess_is_favourable_under_gaussian_dp(self):
        epsilons = (0.0, 1.0, 4.0)
        random = np.random.default_rng(1)
        member = random.random(50) < 0.5
        game = Game(1e-5, 0.95, epsilons, "mu-Gaussian DP")
        wealth = game.start().after(member, member + random.normal(size=50))
        for place, epsilon in enumerate(epsilons):
            mu = float(gdp.mu(epsilon, 1e-5))
            median = np.median(wealth.score)
            right, wrong = stats.norm.cdf([mu / 2, -mu / 2])
            laws = {median + 1: (right, wrong), median - 1: (wrong, right)}
            factor = expected_factor(wealth, laws)[place]
            assert 0.5 < factor <= 1 + 1e-9

    @pytest.mark.sized
    @pytest.mark.parametrize("against", ["any mechanism", "mu-Gaussian DP"])
    def test_false_alarms_at_the_claim_itself(self, against):
        """Looking after every run, at the true epsilon of N(0, 1) against N(1, 1)."""
        repeats, alarms = size(100, 40), 0
        game = Game(1e-5, 0.9, (4.377178,), against)
        for repeat in range(repeats):
            random = np.random.default_rng([5, repeat])
            member = random.random(1000) < 0.5
            score = random.normal(size=1000) + member
            alarms += game.start().after(member, score).stop(4.377178, 10) == "refuted"
        assert alarms <= stats.binom.isf(1e-4, repeats, 0.1)

    def test_rows_in_order_of_time_must_be_such(self):
        """Sorted or alternating worlds are not what coins give in the order of runs."""
        betting = Betting(order="time")
        coins = np.random.default_rng(4).random(60) < 0.5
        for member in (np.arange(60) < 30, np.arange(60) % 2 == 0):
            scores = Scores(member, np.zeros(60), "coin-flip")
            with pytest.raises(ValueError, match="use the order shuffled"):
                betting(scores, 1e-5, threat_model="x")
            assert Betting()(scores, 1e-5, threat_model="x").epsilon == 0
        found = betting(Scores(coins, np.zeros(60), "coin-flip"), 0, threat_model="x")
        assert "in the order of the runs" in found.evidence.note
        with pytest.raises(ValueError, match="order must be shuffled or time"):
            Betting(order="file")

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ((1.0,), "delta must be in"),
            ((0.0, 0.95, (1.0,), "mu-Gaussian DP"), "above 0 against Gaussian DP"),
            ((0.1, 1.0), "confidence must be in"),
            ((0.1, 0.9, ()), "must rise"),
            ((0.1, 0.9, (1.0, 1.0)), "must rise"),
            ((0.1, 0.9, (-1.0, 1.0)), "must rise"),
        ],
    )
    def test_refuses_nonsense(self, arguments, says):
        with pytest.raises(ValueError, match=says):
            Game(*arguments)


class TestTight:
    @pytest.mark.parametrize(("claim", "most"), [(1.0, 400), (8.0, 40)])
    def test_refutes_halved_noise_soon(self, claim, most):
        """Mean runs a world until a Gaussian claim with half the noise is refuted."""
        mu, runs = 2 * float(gdp.mu(claim, 1e-5)), []
        game = Game(1e-5, 0.95, (claim,), "mu-Gaussian DP")
        for repeat in range(40):
            random = np.random.default_rng([6, repeat])
            wealth = game.start()
            while wealth.stop(claim, 10_000) is None:
                member = random.random(20) < 0.5
                wealth = wealth.after(member, random.normal(size=20) + mu * member)
            assert wealth.stop(claim, 10_000) == "refuted"
            runs.append(len(wealth.score) / 2)
        assert np.mean(runs) < most


class TestLaws:
    @pytest.mark.parametrize("against", ["any mechanism", "mu-Gaussian DP"])
    def test_portions_do_not_matter_and_the_bound_never_falls(self, against):
        random = np.random.default_rng(2)
        member = random.random(300) < 0.5
        score = random.normal(size=300) + 2 * member
        game = Game(1e-2, 0.9, (0.0, 0.2, 0.5, 1.0, 2.0), against)
        whole = game.start().after(member, score)
        wealth, bounds = game.start(), []
        for one in range(300):
            wealth = wealth.after(member[one : one + 1], score[one : one + 1])
            bounds.append(wealth.epsilon)
        assert bounds == sorted(bounds)
        assert bounds[-1] == whole.epsilon > 0
        assert wealth.highest == pytest.approx(whole.highest)

    def test_shuffled_rows_may_stand_in_any_order(self):
        random = np.random.default_rng(7)
        member = random.random(400) < 0.5
        score = random.normal(size=400) + 3 * member
        rows = np.lexsort((score, member))
        bounds = {
            betting(Scores(world, told, "coin-flip"), 1e-5, threat_model="x").epsilon
            for betting in (Betting(), BettingGaussian())
            for world, told in ((member, score), (member[rows], score[rows]))
        }
        assert len(bounds) == 2
        assert min(bounds) > 1

    def test_the_seed_gives_the_order_and_time_has_none(self):
        random = np.random.default_rng(8)
        member = random.random(400) < 0.5
        scores = Scores(member, random.normal(size=400) + 3 * member, "coin-flip")
        shuffled, time = (
            {
                betting(scores, 1e-5, threat_model="x", seed=seed).epsilon
                for seed in range(6)
            }
            for betting in (Betting(), Betting(order="time"))
        )
        assert len(shuffled) > 1
        played = Game(1e-5).start().after(member, scores.score).epsilon
        assert time == {played}

    def test_stops_when_spent(self):
        wealth = Game(1e-2).start()
        assert wealth.stop(1.0, 10) is None
        assert wealth.after([0, 1] * 5, [0.0] * 10).stop(1.0, 10) == "spent"

    def test_a_grid_may_be_one_claim(self):
        random = np.random.default_rng(3)
        member = random.random(500) < 0.5
        scores = Scores(member, random.normal(size=500) + 4 * member, "coin-flip")
        assert Betting((1.0,))(scores, 1e-5, threat_model="x").epsilon == 1.0
        assert Betting((50.0,))(scores, 1e-5, threat_model="x").epsilon == 0.0
