"""Bounds from the canaries of one run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit

from privaudit.auditing.bounds import OneRun, OneRunGaussian
from privaudit.auditing.bounds._gaussian import epsilon_down
from privaudit.auditing.bounds.one_run import gaussian_refuted, p_value
from privaudit.auditing.scores import Scores

steady = settings(deadline=None, derandomize=True)


class TestSound:
    @steady
    @given(st.integers(1, 80), st.data(), st.floats(0, 5), st.floats(0, 0.01))
    def test_p_value_is_the_formula(self, guesses, data, epsilon, delta):
        """Theorem 5.2 term by term, as it stands in the paper."""
        right = data.draw(st.integers(1, guesses))
        tail = stats.binom.sf(np.arange(-1, guesses), guesses, expit(epsilon))
        slope = max((tail[right - i] - tail[right]) / i for i in range(1, right + 1))
        expected = min(1.0, tail[right] + 2 * 100 * delta * slope)
        found = p_value(100, guesses, right, epsilon, delta)
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-13)

    @pytest.mark.parametrize("mu", [0.0, 1.0])
    @pytest.mark.parametrize("share", [1.0, 0.3])
    def test_gaussian_test_keeps_its_level(self, mu, share):
        random, canaries, repeats = np.random.default_rng(0), 60, 2000
        each, refuted = int(share * canaries / 2), 0
        for _ in range(repeats):
            member = random.random(canaries) < 0.5
            order = np.argsort(-random.normal(size=canaries) - mu * member)
            right = np.count_nonzero(member[order[:each]])
            right += np.count_nonzero(~member[order[-each:]])
            refuted += gaussian_refuted(canaries, 2 * each, int(right), mu, 0.1)
        assert refuted <= stats.binom.isf(1e-4, repeats, 0.1)

    @pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 3.0])
    def test_gaussian_test_of_one_canary_is_exact(self, mu):
        """It is guessed right with chance Phi(mu / 2) at most, and at best so often."""
        chance = float(stats.norm.cdf(mu / 2))
        assert gaussian_refuted(1, 1, 1, mu, chance - 1e-9) is False
        assert gaussian_refuted(1, 1, 1, mu, chance + 1e-9) is (chance < 0.99)

    @pytest.mark.parametrize("mu", [0.1, 0.5, 1.5])
    @pytest.mark.parametrize("canaries", [1, 2, 3, 5, 9])
    def test_gaussian_test_refutes_nothing_that_may_be(self, canaries, mu):
        """Canaries apart, all as well told as mu allows: their law is binomial."""
        chance = stats.norm.cdf(mu / 2)
        for right in range(1, canaries + 1):
            tail = float(stats.binom.sf(right - 1, canaries, chance))
            if tail < 0.999:
                assert not gaussian_refuted(canaries, canaries, right, mu, tail)

    @pytest.mark.parametrize("kind", [OneRun, OneRunGaussian])
    @pytest.mark.parametrize("weights", [(), (0.7, 0.1, 0.2)])
    def test_all_guesses_have_alpha_together(self, kind, weights):
        random = np.random.default_rng(3)
        scores = Scores(random.random(90) < 0.5, random.random(90), "one-run")
        estimator = kind(shares=(1.0, 0.5, 0.1), weights=weights, reversed_share=0.25)
        found = estimator.guesses(scores, 0.05, 0)
        assert sum(one.level for one in found) == pytest.approx(0.05, rel=1e-12)
        for usual, turned, weight in zip(
            found[::2], found[1::2], weights or (1 / 3,) * 3, strict=True
        ):
            assert usual.level == pytest.approx(0.75 * weight * 0.05)
            assert usual.right + turned.right == usual.made == turned.made

    def test_canaries_that_share_their_noise(self):
        """One run whose noise is common to all canaries in pairs: not independent."""
        epsilon, repeats, exceed = 1.0, 200, 0
        for repeat in range(repeats):
            random = np.random.default_rng([8, repeat])
            member = random.random(200) < 0.5
            # The parity of a pair by randomised response: pure epsilon for each coin.
            parity = member[0::2] ^ member[1::2]
            honest = random.random(100) < expit(epsilon)
            told = np.where(honest, parity, ~parity)
            scores = Scores(member, np.repeat(told, 2) + 0.0, "coin-flip")
            exceed += OneRun()(scores, 0.0, 0.9, threat_model="x").epsilon > epsilon
        assert exceed <= stats.binom.isf(1e-4, repeats, 0.1)

    @pytest.mark.parametrize("wrong", [{"shares": ()}, {"shares": (0.0,)}])
    def test_refuses_nonsense(self, wrong):
        with pytest.raises(ValueError, match="shares must be in"):
            OneRun(**wrong)
        with pytest.raises(ValueError, match="reversed_share must be in"):
            OneRun(reversed_share=0.0)


class TestTight:
    def test_pure_dp_is_found(self):
        random = np.random.default_rng(1)
        member = random.random(20_000) < 0.5
        told = np.where(random.random(20_000) < expit(2.0), member, ~member)
        bound = OneRun()(Scores(member, told, "coin-flip"), 0.0, threat_model="x")
        assert 1.9 < bound.epsilon < 2.0

    def test_gaussian_curve_gives_more_than_any_mechanism(self):
        random = np.random.default_rng(2)
        member = random.random(10_000) < 0.5
        scores = Scores(member, random.normal(size=10_000) + 2 * member, "coin-flip")
        free = OneRun()(scores, 1e-6, threat_model="x").epsilon
        bound = OneRunGaussian()(scores, 1e-6, threat_model="x").epsilon
        assert 2 < free < bound < epsilon_down(2.0, 1e-6)
