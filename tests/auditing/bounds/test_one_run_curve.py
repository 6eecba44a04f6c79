"""One run against the curve of its ledger: on mechanisms whose epsilon is known."""

import functools
from unittest import mock

import numpy as np
import pytest
from scipy import optimize, special, stats

from privaudit.accounting import Certificate
from privaudit.auditing.bounds import one_run_curve
from privaudit.auditing.bounds.one_run import OneRunGaussian
from privaudit.auditing.bounds.one_run_curve import one_run_family
from privaudit.auditing.scores import Scores
from privaudit.ledger import Entry, Ledger
from privaudit.release import PoissonSampling, Release
from tests.tiers import size

ADD = "add-or-remove-one"
MU, DELTA = 1.0, 1e-5


def gaussian_epsilon(mu, delta):
    """Balle and Wang 2018, solved by bisection."""

    def beyond(epsilon):
        far = np.exp(epsilon + special.log_ndtr(-epsilon / mu - mu / 2))
        return stats.norm.cdf(-epsilon / mu + mu / 2) - far - delta

    return optimize.brentq(beyond, 0, 100)


@functools.cache
def family(noise=1 / MU, shares=(0.4, 0.1), weights=()):
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=PoissonSampling(1.0)
    )
    return one_run_family((Entry(release, 1),), ADD, shares, weights)


REPEATS = size(400, 40)


def exceeds(scores_of, repeats=REPEATS, canaries=120, alpha=0.1):
    """How often the bound is above the truth at delta .01."""
    truth, above = gaussian_epsilon(MU, 0.01), 0
    for repeat in range(repeats):
        random = np.random.default_rng([19, repeat])
        member = random.random(canaries) < 0.5
        scores = Scores(member, scores_of(random, member), "one-run")
        found = family()(scores, 0.01, 1 - alpha, threat_model="x", seed=repeat)
        above += found.epsilon > truth
    return above


class TestSound:
    @pytest.mark.sized
    def test_independent_canaries(self):
        above = exceeds(lambda random, b: random.normal(size=len(b)) + MU * b)
        assert above <= stats.binom.isf(1e-4, REPEATS, 0.1)

    @pytest.mark.sized
    def test_canaries_that_tell_of_each_other(self):
        """One Gaussian release of each pair's parity: f-DP for each coin, all tied."""

        def scores(random, member):
            parity = member[0::2] ^ member[1::2]
            told = random.normal(size=len(parity)) + MU * parity
            # Both guesses of a pair are right or wrong together.
            other = random.random(len(parity)) < 0.5
            return np.stack([np.where(other, told, -told), told], 1).ravel()

        assert exceeds(scores) <= stats.binom.isf(1e-4, REPEATS, 0.1)

    @pytest.mark.sized
    def test_all_canaries_at_once(self):
        """With chance delta all is told, else nothing: guesses are wholly dependent."""
        gives_away = 2 * stats.norm.cdf(MU / 2) - 1  # the total variation of mu-GDP

        def scores(random, member):
            noise = random.normal(size=len(member))
            # A hundredth, for neighbours differ in one coin of all.
            return np.where(random.random() < gives_away / 100, member, noise)

        assert exceeds(scores) <= stats.binom.isf(1e-4, REPEATS, 0.1)

    @pytest.mark.sized
    def test_no_signal(self):
        positive, repeats = 0, size(200, 50)
        for repeat in range(repeats):
            random = np.random.default_rng([7, repeat])
            member = random.random(200) < 0.5
            scores = Scores(member, random.normal(size=200), "one-run")
            bound = family()(scores, DELTA, 0.9, threat_model="x", seed=repeat)
            positive += bound.epsilon > 0
        assert positive <= stats.binom.isf(1e-4, repeats, 0.1)

    def test_more_noise_than_accounted_is_found(self):
        """The ledger states half the noise that there is: the bound is of the truth."""
        random = np.random.default_rng(3)
        member = random.random(5000) < 0.5
        scores = Scores(member, random.normal(size=5000) + MU * member, "one-run")
        found = family(0.5 / MU)(scores, DELTA, threat_model="x").epsilon
        assert 1 < found < gaussian_epsilon(MU, DELTA)


class TestTight:
    @pytest.mark.parametrize("turned", [False, True])
    def test_its_curve_is_not_below_the_certified_one(self, turned, monkeypatch):
        """Whichever direction is the worse one; and hardly above it."""
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=0.8, sampling=PoissonSampling(0.2)
        )
        entries = (Entry(release, 3),)
        if turned:
            composed = one_run_curve.compose_entries(entries, ADD)
            lines = {"remove": composed.lines("add"), "add": composed.lines("remove")}
            other = mock.Mock(directions=composed.directions)
            other.lines = lambda direction="remove": lines[direction]
            monkeypatch.setattr(one_run_curve, "compose_entries", lambda *_: other)
        epsilons, deltas = one_run_curve._profile(entries, ADD)
        certified = Certificate.of(Ledger(nodes=(entries,)), ADD)
        assert epsilons[0] == 0
        for epsilon, delta in zip(epsilons[::6], deltas[::6], strict=True):
            truth = certified.delta(epsilon)
            assert truth.lower <= delta <= 1.1 * truth.upper + 1e-4

    def test_equals_the_gaussian_test_on_gaussian_releases(self):
        """Two ways to one figure: the certified curve, and mu-GDP in closed form."""
        random = np.random.default_rng(4)
        member = random.random(5000) < 0.5
        scores = Scores(member, random.normal(size=5000) + 2 * member, "one-run")
        curve = family(0.5)(scores, DELTA, threat_model="x").epsilon
        closed = OneRunGaussian((0.4, 0.1))(scores, DELTA, threat_model="x").epsilon
        assert curve == pytest.approx(closed, rel=0.03)
        assert curve <= closed * 1.001

    @pytest.mark.parametrize("weights", [(0.5,), (0.9, 0.2), (0.0, 0.5)])
    def test_refuses_weights(self, weights):
        with pytest.raises(ValueError, match="weights must be one for each share"):
            OneRunGaussian((0.4, 0.1), weights=weights)
