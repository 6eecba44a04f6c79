"""One Gaussian release without sampling: the classical account and the exact one."""

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import closed_forms, gdp
from privaudit.ledger import Entry
from privaudit.release import NoSampling, Release
from tests.accounting import reference_gdp as reference

epsilons = st.floats(1e-6, 500)
log_deltas = st.floats(-600, -1e-3)
sizes = st.floats(1e-3, 1e3)


def entries(sigma, size=1.0):
    release = Release.of_sum(
        norm_bound=size, noise_multiplier=sigma / size, sampling=NoSampling()
    )
    return (Entry(release),)


def analytic(sigma, delta, size=1.0):
    found = entries(sigma, size)
    return closed_forms.analytic_epsilon(found, delta, "add-or-remove-one")


def classical(sigma, delta, size=1.0):
    found = entries(sigma, size)
    return closed_forms.classical_epsilon(found, delta, "add-or-remove-one")


def true_delta(sigma, epsilon, sensitivity):
    with mpmath.workdps(reference.DIGITS):
        return reference.delta(mpmath.mpf(sensitivity) / mpmath.mpf(sigma), epsilon)


class TestSound:
    @given(st.floats(1e-6, 1, exclude_max=True), log_deltas)
    def test_classical_is_never_below_analytic(self, epsilon, log_delta):
        delta = math.exp(log_delta)
        sigma = closed_forms.classical_sigma(epsilon, delta)
        assert true_delta(sigma, epsilon, 1) <= delta

    @given(sizes, log_deltas, sizes)
    def test_analytic_epsilon_meets_its_delta(self, sigma, log_delta, size):
        delta = math.exp(log_delta)
        assert true_delta(sigma, analytic(sigma, delta, size), size) <= delta

    @given(st.floats(1e-3, 1 - 1e-13), log_deltas, sizes)
    def test_classical_epsilon_is_not_below_its_formula(self, part, log_delta, size):
        delta = math.exp(log_delta)
        with mpmath.workdps(reference.DIGITS):
            factor = mpmath.sqrt(2 * mpmath.log(mpmath.mpf(1.25) / delta))
            sigma = float(factor * size / part)
            found = classical(sigma, delta, size)
            assert factor * size / sigma <= found <= part * (1 + 1e-14)

    def test_classical_refuses_where_it_fails(self):
        for epsilon in (0.0, 1.0, 2.0, math.nan):
            with pytest.raises(closed_forms.OutsideTheorem, match="the analytic one"):
                closed_forms.classical_sigma(epsilon, 1e-5)
        for sigma in (1.0, 0.0):
            with pytest.raises(closed_forms.OutsideTheorem, match="the analytic one"):
                classical(sigma, 1e-5)


class TestTight:
    @given(epsilons, log_deltas)
    def test_analytic_epsilon_is_the_least(self, epsilon, log_delta):
        delta = math.exp(log_delta)
        found = analytic(1 / float(gdp.mu(epsilon, delta)), delta)
        assert found == pytest.approx(epsilon, rel=1e-6, abs=1e-6)

    @pytest.mark.parametrize(
        ("epsilon", "delta", "sigma"),
        [
            # dp_accounting 0.6.0: get_sigma_gaussian(epsilon, delta)
            (1.0, 1e-5, 3.730632),
            (0.1, 1e-6, 36.304690),
            (10.0, 1e-5, 0.499889),
        ],
    )
    def test_known_figures(self, epsilon, delta, sigma):
        assert analytic(sigma, delta) == pytest.approx(epsilon, rel=1e-5)

    def test_classical_is_its_formula(self):
        formula = math.sqrt(2 * math.log(1.25e5)) / 0.5
        assert closed_forms.classical_sigma(0.5, 1e-5) == pytest.approx(formula)
        assert classical(3 * formula, 1e-5, 3.0) == pytest.approx(0.5)


def test_no_noise_has_no_epsilon():
    assert analytic(0.0, 1e-5) == math.inf


def test_refuses_with_a_sentence():
    with pytest.raises(ValueError, match="delta must be"):
        analytic(1.0, 0.0)
    with pytest.raises(ValueError, match="delta must be"):
        closed_forms.classical_sigma(0.5, 1.0)
