"""Sums of rounded normals against mpmath: both laws of the lemma, how far apart."""

import itertools
import math

import mpmath as mp
import pytest

from privaudit.accounting.views.grid import STEPS, failure_up, log_distance_up
from trainers.numerics import noise
from trainers.numerics.randomness import grid_step


def rounded(s, most):
    """P(round(s Z) = k), k = -most..most."""
    edges = [mp.ncdf((k - mp.mpf(1) / 2) / s) for k in range(-most, most + 2)]
    return [b - a for a, b in itertools.pairwise(edges)]


def summed(s, count, most):
    """The law of a sum of so many, by convolution."""
    one = rounded(s, most)
    found = [mp.mpf(1)]
    for _ in range(count):
        more = [mp.mpf(0)] * (len(found) + len(one) - 1)
        for i, p in enumerate(found):
            for j, q in enumerate(one):
                more[i + j] += p * q
        found = more
    return found


def spline(count, x):
    """The density at x of a sum of uniform numbers on [-1/2, 1/2], by its definition.

    1 / (K - 1)! sum_j (-1)^j C(K, j) max(x + K/2 - j, 0)^(K - 1).
    """
    terms = [
        (-1) ** j * mp.binomial(count, j) * mp.mpf(x + count / 2 - j) ** (count - 1)
        for j in range(count + 1)
        if x + count / 2 - j > 0
    ]
    return mp.fsum(terms) / mp.factorial(count - 1)


def at_random(s, count, most):
    """P(Q(s sqrt(count) Z) = k), by integrating over Z, piece by piece."""
    deviation = s * mp.sqrt(count)

    def chance(k):
        knots = [k - mp.mpf(count) / 2 + j for j in range(count + 1)]
        return mp.quad(
            lambda y: mp.npdf(y, 0, deviation) * spline(count, mp.mpf(k) - y), knots
        )

    half = [chance(k) for k in range(most + 1)]
    return half[:0:-1] + half


def distance_up(count, steps):
    return min(mp.exp(log_distance_up(count, steps)), 1)


class TestLemma:
    @pytest.mark.parametrize(
        ("s", "count"),
        [
            ("0.5", 2),
            ("0.7", 2),
            pytest.param("0.5", 3, marks=pytest.mark.full),
            pytest.param("1", 3, marks=pytest.mark.full),
        ],
    )
    def test_the_distance_falls_as_it_says(self, s, count):
        # Below 2 steps the lemma claims nothing, but its exponent is seen.
        with mp.workdps(20):
            s = mp.mpf(s)
            most = int(9 * s) + 3
            one = summed(s, count, most)
            other = at_random(s, count, count * most)
            found = mp.fsum(abs(p - q) for p, q in zip(one, other, strict=True)) / 2
            said = mp.exp(-2 * mp.pi**2 * s**2 * (count - 1) / count)
            assert said / 20 < found < 4 * s * said * mp.exp(1.6 * (count - 1))

    @pytest.mark.full
    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_at_two_steps_it_is_a_bound(self, count):
        with mp.workdps(60):
            one = summed(mp.mpf(2), count, 34)
            other = at_random(mp.mpf(2), count, count * 34)
            found = mp.fsum(abs(p - q) for p, q in zip(one, other, strict=True)) / 2
            assert distance_up(count, 2.0) / 1e4 < found < distance_up(count, 2.0)

    def test_rounding_at_random_is_a_law_for_every_number(self):
        for count in (2, 3, 5):
            for y in (0.0, 0.3, 0.5, -1.7):
                near = range(math.floor(y) - 4, math.ceil(y) + 5)
                assert mp.fsum(spline(count, k - y) for k in near) == pytest.approx(1)

    def test_the_figure_is_what_is_written(self):
        for count, s in ((2, 2.0), (4, 2.5), (8, 3.0)):
            a = 2 * mp.pi**2 * s**2 * (count - 1) / count
            right = 4 * s * mp.exp(1.6 * (count - 1) - a)
            assert right <= distance_up(count, s) <= min(1, right * (1 + 1e-8))

    def test_the_ends_of_where_it_holds(self):
        """A deviation of 2 steps, and at most 2 pi^2 4 = 78.96 numbers of that."""
        assert 0 < distance_up(78, 2.0) < 1.001

    @pytest.mark.parametrize(("count", "s"), [(2, 1.99), (79, 2.0), (0, 4.0)])
    def test_where_it_says_nothing(self, count, s):
        with pytest.raises(ValueError, match="the lemma is for"):
            distance_up(count, s)


class TestPaid:
    def test_a_fine_grid_costs_next_to_nothing_and_never_nothing(self):
        for count in (2, 64, 1024):
            assert 0 < failure_up(count) < 1e-300
            assert 0 < failure_up(count, 2.0**10) < 1e-300
        assert failure_up(1) == 0  # a release by itself is exact

    def test_a_coarse_grid_is_refused(self):
        with pytest.raises(ValueError, match="1024 steps or more"):
            failure_up(2, 1023.0)

    @pytest.mark.parametrize("deviation", [1e-9, 0.7, 1.0, 3.9e5])
    def test_the_oracles_grids_are_as_fine(self, deviation):
        assert deviation / noise.grid(deviation) >= STEPS
        assert deviation / grid_step(deviation) >= STEPS
