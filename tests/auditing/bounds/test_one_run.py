"""Bounds from the canaries of one run."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit

import privaudit as pa
from privaudit.accounting.pld.closed_form import epsilon_down
from privaudit.auditing.bounds import OneRun, OneRunGaussian
from privaudit.auditing.bounds.one_run import gaussian_refuted, p_value
from privaudit.auditing.experiments.one_run_bounds import one_run_estimator
from privaudit.auditing.experiments.reach import ideal_scores
from privaudit.auditing.scores import Scores
from tests.tiers import size

ADD = "add-or-remove-one"


def _nothing(member, random):
    return random.normal(size=len(member)), 0.0, 0.0


def _tied(member, random):
    return np.zeros(len(member)), 0.0, 0.0


def _sorted(member, random):
    """Higher from one to the next, and all moved by one number."""
    return np.arange(len(member)) + random.normal(), 0.0, 0.0


def _in_pairs(member, random):
    """The parity of two by randomised response, which is private for each."""
    parity = np.repeat(member[0::2] ^ member[1::2], 2)
    honest = np.repeat(random.random(len(member) // 2) < expit(1.0), 2)
    return np.where(honest, parity, ~parity) + 0.0, 1.0, 0.0


def _response(member, random):
    """Randomised response: as well told as pure epsilon allows."""
    honest = random.random(len(member)) < expit(1.0)
    return np.where(honest, member, ~member) + 0.0, 1.0, 0.0


def _leaking(member, random):
    """As that, and a hundredth of all canaries are told whatever it says."""
    score, epsilon, _ = _response(member, random)
    told = random.random(len(member)) < 0.01
    return np.where(told, 2.0 * member - 1.0, score), epsilon, 0.01


def _all_at_once(member, random):
    """Once in two hundred runs all are told: delta for each, and for all together."""
    if random.random() < 0.005:
        return member + 0.0, 0.0, 0.005
    return random.normal(size=len(member)), 0.0, 0.005


DESIGNS = {
    "nothing": _nothing,
    "tied": _tied,
    "sorted": _sorted,
    "in-pairs": _in_pairs,
    "response": _response,
    "leaking": _leaking,
    "all-at-once": _all_at_once,
}

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

    @pytest.mark.sampled(2)
    @pytest.mark.sized
    @pytest.mark.parametrize("design", sorted(DESIGNS))
    @pytest.mark.parametrize("one_sided", [0, 2])
    def test_keeps_its_level(self, design, one_sided):
        """Guesses on one side beside those on both, at the true epsilon and delta."""
        repeats, alpha, canaries = size(5000, 300), 0.05, 200
        estimator = OneRun((0.1, 0.5, 0.4), 0.1, one_sided=one_sided)
        exceed = 0
        for repeat in range(repeats):
            random = np.random.default_rng([21, repeat])
            member = random.random(canaries) < 0.5
            score, epsilon, delta = DESIGNS[design](member, random)
            scores = Scores(member, score, "one-run")
            exceed += any(
                p_value(canaries, one.made, one.right, epsilon, delta) <= one.level
                for one in estimator.guesses(scores, alpha, repeat)
            )
        assert exceed <= stats.binom.isf(1e-4, repeats, alpha)

    def test_guesses_on_one_side_are_of_the_highest_scores(self):
        member = np.array([True, False, True, True, False, False])
        scores = Scores(member, np.array([6.0, 5, 4, 3, 2, 1]), "one-run")
        usual, turned = OneRun((0.67,), one_sided=1).guesses(scores, 0.05, 0)
        assert (usual.made, usual.right) == (4, 3)
        assert (turned.made, turned.right) == (4, 2)

    @pytest.mark.parametrize("wrong", [{"shares": ()}, {"shares": (0.0,)}])
    def test_refuses_nonsense(self, wrong):
        with pytest.raises(ValueError, match="shares must be in"):
            OneRun(**wrong)
        with pytest.raises(ValueError, match="reversed_share must be in"):
            OneRun(reversed_share=0.0)


class TestTight:
    def test_sampling_is_seen_on_one_side(self):
        """Of a tenth that is drawn, each shifted by three deviations."""
        sampling = pa.PoissonSampling(0.1)
        release = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=1 / 3, sampling=sampling
        )
        entries = pa.Ledger.of(release).nodes[0]
        how = {"delta": 1e-5, "confidence": 0.95}
        planned = one_run_estimator("best", entries, ADD, 2000, **how)
        assert planned.one_sided == 1
        random = np.random.default_rng(0)
        member = random.random(2000) < 0.5
        scores = Scores(member, ideal_scores(entries, ADD, member, random), "one-run")
        both = dataclasses.replace(planned, one_sided=0)
        found = [one(scores, 1e-5, threat_model="x").epsilon for one in (both, planned)]
        truth = pa.epsilon(ledger=pa.Ledger.of(release), delta=1e-5).lower
        assert found[0] < 1 < 1.4 < found[1] < truth

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
