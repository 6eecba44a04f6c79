"""Contract of privaudit.accounting.gaussian."""

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import gaussian, gdp
from tests.accounting import reference_gdp as reference

epsilons = st.floats(1e-6, 500)
log_deltas = st.floats(-600, -1e-3)
sizes = st.floats(1e-3, 1e3)


def true_delta(sigma, epsilon, sensitivity):
    with mpmath.workdps(reference.DIGITS):
        return reference.delta(mpmath.mpf(sensitivity) / mpmath.mpf(sigma), epsilon)


class TestSound:
    @given(st.floats(1e-6, 1, exclude_max=True), log_deltas, sizes)
    def test_classical_is_never_below_analytic(self, epsilon, log_delta, size):
        delta = math.exp(log_delta)
        classical = gaussian.classical_sigma(epsilon, delta, size)
        assert true_delta(classical, epsilon, size) <= delta

    @given(sizes, log_deltas, sizes)
    def test_analytic_epsilon_meets_its_delta(self, sigma, log_delta, size):
        delta = math.exp(log_delta)
        epsilon = gaussian.analytic_epsilon(sigma, delta, size)
        assert true_delta(sigma, epsilon, size) <= delta

    def test_classical_refuses_where_it_fails(self):
        for epsilon in (0.0, 1.0, 2.0, math.nan):
            with pytest.raises(ValueError, match="use the analytic one"):
                gaussian.classical_sigma(epsilon, 1e-5)
        with pytest.raises(ValueError, match="use the analytic one"):
            gaussian.classical_epsilon(1.0, 1e-5)
        with pytest.raises(ValueError, match="use the analytic one"):
            gaussian.classical_epsilon(0.0, 1e-5)


class TestTight:
    @given(epsilons, log_deltas)
    def test_analytic_epsilon_is_the_least(self, epsilon, log_delta):
        delta = math.exp(log_delta)
        sigma = 1 / float(gdp.mu(epsilon, delta))
        found = gaussian.analytic_epsilon(sigma, delta)
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
        found = gaussian.analytic_epsilon(sigma, delta)
        assert found == pytest.approx(epsilon, rel=1e-5)

    def test_classical_is_its_formula(self):
        formula = 3 * math.sqrt(2 * math.log(1.25e5)) / 0.5
        assert gaussian.classical_sigma(0.5, 1e-5, 3.0) == pytest.approx(formula)
        assert gaussian.classical_epsilon(formula, 1e-5, 3.0) == pytest.approx(0.5)


class TestLaws:
    def test_ends(self):
        assert gaussian.analytic_epsilon(0.0, 1e-5) == math.inf
        assert gaussian.analytic_epsilon(0.0, 1e-5, 0.0) == 0
        assert gaussian.classical_epsilon(1.0, 1e-5, 0.0) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gaussian.analytic_epsilon(1.0, 1e-5, -1.0), "sensitivity"),
        (lambda: gaussian.analytic_epsilon(-1.0, 1e-5), "sigma must be"),
        (lambda: gaussian.analytic_epsilon(1.0, 0.0), "delta must be"),
        (lambda: gaussian.classical_sigma(0.5, 1.0), "delta must be"),
    ],
)
def test_refuses_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
