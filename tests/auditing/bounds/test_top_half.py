"""The top half against Gaussian DP and other families."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from privaudit.accounting import gdp
from privaudit.accounting.pld.closed_form import epsilon_down
from privaudit.auditing.bounds import NoiseFamily, TopHalf, TopHalfOfFamily
from privaudit.auditing.bounds._bets import _most_right
from privaudit.auditing.scores import Scores

steady = settings(deadline=None, derandomize=True)
mus = st.floats(1e-6, 20)


def exact_delta(mu, epsilon):
    """The textbook formula to 60 digits."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )


def shifted(random, runs, shift, noise):
    member = random.random(runs) < 0.5
    return Scores(member, noise(size=runs) + shift * member, "coin-flip")


GAUSSIAN = NoiseFamily(
    name="the Gaussian mechanism",
    delta_up=lambda noise, epsilon: float(gdp.delta(1 / noise, epsilon)),
    epsilon_down=lambda noise, delta: epsilon_down(1 / noise, delta),
)
# Laplace, sensitivity 1, scale b: delta = 1 - exp((epsilon - 1 / b) / 2) below 1 / b.
LAPLACE = NoiseFamily(
    name="the Laplace mechanism",
    delta_up=lambda noise, epsilon: max(0, -math.expm1((epsilon - 1 / noise) / 2)),
    epsilon_down=lambda noise, delta: max(0.0, 1 / noise + 2 * math.log1p(-delta)),
)


class TestSound:
    @steady
    @given(mus, st.floats(1e-12, 0.5))
    def test_epsilon_is_not_above_the_true_one(self, mu, delta):
        epsilon = epsilon_down(mu, delta)
        assert epsilon == 0 or exact_delta(mu, epsilon) >= delta

    @steady
    @given(st.floats(0, 30), st.floats(1e-10, 0.5))
    def test_chances_of_a_right_guess_are_not_below_the_true_one(self, epsilon, delta):
        mu = 2 * special.ndtri(_most_right(delta, (epsilon,))[0])
        assert exact_delta(mu, epsilon) >= delta

    def test_right_guesses_are_fewer_than_the_binomial_says(self):
        """The lemma, on the pair that attains it and with ranks instead of Z."""
        random, runs, repeats = np.random.default_rng(0), 50, 4000
        chance = stats.norm.cdf(0.5)
        right = []
        for _ in range(repeats):
            scores = shifted(random, runs, 1.0, random.normal)
            top = np.argsort(np.argsort(scores.score)) >= runs - runs // 2
            right.append(np.count_nonzero(top == scores.member))
        for count in range(25, 50):
            most = stats.binom.sf(count - 1, runs, chance)
            assert np.mean(np.array(right) >= count) <= most + 4 * np.sqrt(
                most * (1 - most) / repeats
            )

    @pytest.mark.parametrize("delta", [1e-5, 1e-2])
    def test_laplace_family(self, delta):
        count, repeats = 0, 200
        truth = LAPLACE.epsilon_down(0.5, delta)
        for repeat in range(repeats):
            random = np.random.default_rng([3, repeat])
            scores = shifted(random, 400, 2.0, random.laplace)
            bound = TopHalfOfFamily(LAPLACE)(scores, delta, 0.9, threat_model="x")
            count += bound.epsilon > truth
        assert count <= stats.binom.isf(1e-4, repeats, 0.1)

    def test_refuses_nonsense(self):
        with pytest.raises(ValueError, match="reversed_share must be in"):
            TopHalf(1.0)
        with pytest.raises(ValueError, match="positive scale to a larger"):
            NoiseFamily("x", max, min, 1.0, 0.5)


class TestTight:
    @pytest.mark.parametrize(
        ("mu", "delta", "epsilon"),
        [
            # dp_accounting 0.6.0: get_epsilon_gaussian(1 / mu, delta)
            (0.5, 1e-5, 1.993091),
            (1.0, 1e-5, 4.377178),
            (1.0, 1e-2, 2.317789),
            (2.0, 1e-6, 10.997151),
        ],
    )
    def test_epsilon(self, mu, delta, epsilon):
        assert epsilon_down(mu, delta) == pytest.approx(epsilon, abs=1e-6)

    def test_the_gaussian_family_is_the_gaussian_curve(self):
        random = np.random.default_rng(1)
        scores = shifted(random, 4000, 1.0, random.normal)
        curve = TopHalf()(scores, 1e-5, threat_model="x")
        family = TopHalfOfFamily(GAUSSIAN)(scores, 1e-5, threat_model="x")
        assert 3 < family.epsilon <= curve.epsilon
        assert family.epsilon == pytest.approx(curve.epsilon, rel=1e-4)
        assert family.lower.valid_for == "the Gaussian mechanism"
        assert curve.lower.valid_for == "mu-Gaussian DP"

    def test_laplace_family_comes_near(self):
        random = np.random.default_rng(2)
        scores = shifted(random, 20_000, 2.0, random.laplace)
        bound = TopHalfOfFamily(LAPLACE)(scores, 1e-5, threat_model="x")
        assert 1.9 < bound.epsilon < 2


class TestLaws:
    def test_nothing_refuted_is_zero(self):
        member = np.arange(100) % 2 == 0
        scores = Scores(member, np.zeros(100), "coin-flip")
        bound = TopHalfOfFamily(GAUSSIAN)(scores, 1e-5, threat_model="x")
        assert bound.epsilon == 0

    def test_all_refuted_stays_within_what_is_known(self):
        few = NoiseFamily("x", GAUSSIAN.delta_up, GAUSSIAN.epsilon_down, 5.0, 10.0)
        member = np.random.default_rng(0).random(1000) < 0.5
        scores = Scores(member, member.astype(float), "coin-flip")
        bound = TopHalfOfFamily(few)(scores, 1e-5, threat_model="x")
        assert bound.epsilon == pytest.approx(epsilon_down(0.2, 1e-5))

    def test_no_gaussian_is_pure(self):
        assert epsilon_down(1.0, 0.0) == math.inf
        assert epsilon_down(0.0, 0.0) == 0
