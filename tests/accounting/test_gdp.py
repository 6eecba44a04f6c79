"""Contract of privaudit.accounting.gdp."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import gdp
from tests.accounting import reference_gdp as reference

mus = st.floats(-6, 3).map(lambda x: 10**x)
quantiles = st.floats(-4, 36.5)  # delta from near 1 to below 1e-290
log_deltas = st.floats(-690, -1e-3)


def epsilon_at(mu, quantile):
    """The epsilon at which delta is about phi(quantile)."""
    return max(0.0, mu * (quantile + mu / 2))


class TestSound:
    @given(mus, quantiles)
    def test_delta_is_rounded_up(self, mu, quantile):
        epsilon = epsilon_at(mu, quantile)
        true = reference.delta(mu, epsilon)
        assert gdp.delta(mu, epsilon) >= true
        with mpmath.workdps(reference.DIGITS):
            assert mpmath.mpf(float(gdp.log_delta(mu, epsilon))) >= mpmath.log(true)

    @given(mus, log_deltas)
    def test_epsilon_meets_its_delta(self, mu, log_delta):
        delta = math.exp(log_delta)
        assert reference.delta(mu, float(gdp.epsilon(mu, delta))) <= delta

    @given(st.floats(0, 500), log_deltas)
    def test_mu_meets_its_delta(self, epsilon, log_delta):
        delta = math.exp(log_delta)
        assert reference.delta(float(gdp.mu(epsilon, delta)), epsilon) <= delta

    @given(st.lists(st.floats(0, 1e3), max_size=8))
    def test_composition_is_rounded_up(self, steps):
        assert gdp.compose(steps) >= reference.composed(steps)

    def test_delta_below_the_doubles_is_not_zero(self):
        assert gdp.delta(0.1, 100.0) == 5e-324
        assert gdp.log_delta(0.1, 100.0) == pytest.approx(-499967, abs=1)

    def test_far_in_the_tail_nothing_is_nan(self):
        grid = np.array([0.0, 1e-300, 1e-8, 1.0, 30.0, 1e8, 1e160, 1e300, np.inf])
        found = gdp.log_delta(grid[:, None], grid)
        assert not np.isnan(found).any()
        assert np.isneginf(found[0]).all()
        assert np.isneginf(found[:, -1]).all()
        inner = found[1:, :-1]
        assert np.isfinite(inner).all()
        assert (np.diff(inner, axis=0) >= -1e-12 * np.abs(inner[1:]) - 1e-9).all()


class TestTight:
    @given(mus, quantiles)
    def test_log_delta(self, mu, quantile):
        epsilon = epsilon_at(mu, quantile)
        with mpmath.workdps(reference.DIGITS):
            true = float(mpmath.log(reference.delta(mu, epsilon)))
        assert gdp.log_delta(mu, epsilon) == pytest.approx(true, rel=1e-11, abs=1e-10)

    @given(mus, log_deltas)
    def test_epsilon(self, mu, log_delta):
        epsilon = float(gdp.epsilon(mu, math.exp(log_delta)))
        if epsilon > 1e-6 * mu:
            less = epsilon * (1 - 1e-6) - 1e-9 * mu
            assert reference.delta(mu, max(0, less)) > math.exp(log_delta)

    @given(st.floats(0, 500), log_deltas)
    def test_mu(self, epsilon, log_delta):
        more = float(gdp.mu(epsilon, math.exp(log_delta))) * (1 + 1e-9)
        assert reference.delta(more, epsilon) > math.exp(log_delta)

    def test_extremes_are_resolved(self):
        for mu in (1e-6, 1e-3, 1.0, 1e3):
            epsilon = float(gdp.epsilon(mu, 1e-300))
            assert float(reference.delta(mu, epsilon)) == pytest.approx(
                1e-300, rel=1e-7
            )


class TestLaws:
    @given(mus, log_deltas)
    def test_the_directions_undo_each_other(self, mu, log_delta):
        delta = math.exp(log_delta)
        epsilon = gdp.epsilon(mu, delta)
        if epsilon > 1e-6 * mu:
            assert gdp.mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)

    @given(mus, st.floats(0, 1e3), st.floats(0, 1e3))
    def test_delta_falls_as_epsilon_grows(self, mu, epsilon, more):
        less = gdp.log_delta(mu, epsilon + more)
        assert less <= gdp.log_delta(mu, epsilon) + 1e-9

    def test_composition_is_free_of_order_and_scale(self):
        steps = np.random.default_rng(0).uniform(0, 2, 1000)
        assert gdp.compose(steps) == gdp.compose(steps[::-1])
        assert gdp.compose(1e-200 * steps) == pytest.approx(1e-200 * gdp.compose(steps))

    def test_arrays_give_what_scalars_give(self):
        mu, epsilon = np.array([[0.1], [1.0], [7.0]]), np.array([0.0, 0.5, 20.0])
        table = gdp.delta(mu, epsilon)
        assert table.shape == (3, 3)
        for i, row in enumerate(table):
            for j, value in enumerate(row):
                assert value == pytest.approx(
                    gdp.delta(mu[i, 0], epsilon[j]), rel=1e-14
                )
        deltas = np.array([1e-300, 1e-5, 0.3])
        for function in gdp.epsilon, gdp.mu:
            table = function(mu, deltas)
            assert table[1, 1] == pytest.approx(function(1.0, 1e-5), rel=1e-11)
            assert table[2, 0] == pytest.approx(function(7.0, 1e-300), rel=1e-11)

    def test_ends(self):
        assert gdp.delta(0.0, 0.0) == 0
        assert gdp.epsilon(0.0, 1e-9) == 0
        assert gdp.delta(np.inf, 5.0) == 1
        assert gdp.epsilon(np.inf, 0.5) == np.inf
        assert gdp.compose([]) == 0
        assert gdp.compose([1.0, np.inf]) == np.inf


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),
    [
        # dp_accounting 0.6.0: get_epsilon_gaussian(1 / mu, delta)
        (0.5, 1e-5, 1.993091),
        (1.0, 1e-5, 4.377178),
        (2.0, 1e-6, 10.997151),
    ],
)
def test_agrees_with_dp_accounting(mu, delta, epsilon):
    assert gdp.epsilon(mu, delta) == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gdp.delta(-1.0, 1.0), "mu must be a number >= 0, got -1"),
        (lambda: gdp.delta(math.nan, 1.0), "got nan"),
        (lambda: gdp.delta(1.0, -0.5), "epsilon must be"),
        (lambda: gdp.epsilon(1.0, 0.0), r"delta must be in \(0, 1\), got 0"),
        (lambda: gdp.mu(1.0, 1.0), "got 1.0"),
        (lambda: gdp.mu(math.inf, 0.1), "finite"),
        (lambda: gdp.compose([1.0, -2.0]), "got -2"),
    ],
)
def test_refuses_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
