"""Contract of privaudit.accounting.gaussian."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import gaussian
from tests.accounting import reference_gdp as reference

epsilons = st.floats(1e-6, 500)
log_deltas = st.floats(-600, -1e-3)
sizes = st.floats(1e-3, 1e3)


def true_delta(sigma, epsilon, sensitivity):
    with mpmath.workdps(reference.DIGITS):
        return reference.delta(mpmath.mpf(sensitivity) / mpmath.mpf(sigma), epsilon)


class TestSound:
    @given(epsilons, log_deltas, sizes)
    def test_analytic_sigma_meets_the_budget(self, epsilon, log_delta, size):
        delta = math.exp(log_delta)
        sigma = float(gaussian.analytic_sigma(epsilon, delta, size))
        assert true_delta(sigma, epsilon, size) <= delta

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
        assert true_delta(sigma, 1.0, size) <= gaussian.analytic_delta(sigma, 1.0, size)

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
    def test_analytic_sigma_is_the_least(self, epsilon, log_delta):
        delta = math.exp(log_delta)
        less = float(gaussian.analytic_sigma(epsilon, delta)) * (1 - 1e-9)
        assert true_delta(less, epsilon, 1.0) > delta

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
        found = gaussian.analytic_sigma(epsilon, delta)
        assert found == pytest.approx(sigma, rel=1e-5)

    def test_classical_is_its_formula(self):
        formula = 3 * math.sqrt(2 * math.log(1.25e5)) / 0.5
        assert gaussian.classical_sigma(0.5, 1e-5, 3.0) == pytest.approx(formula)
        assert gaussian.classical_epsilon(formula, 1e-5, 3.0) == pytest.approx(0.5)


class TestLaws:
    @given(epsilons, log_deltas)
    def test_noise_and_epsilon_undo_each_other(self, epsilon, log_delta):
        delta = math.exp(log_delta)
        sigma = float(gaussian.analytic_sigma(epsilon, delta, 2.0))
        again = gaussian.analytic_epsilon(sigma, delta, 2.0)
        assert again == pytest.approx(epsilon, rel=1e-6, abs=1e-6)

    def test_arrays(self):
        table = gaussian.analytic_sigma([[0.5], [1.0]], [1e-5, 1e-6], 2.0)
        assert table.shape == (2, 2)
        assert (np.diff(table, axis=0) < 0).all()
        assert (np.diff(table) > 0).all()

    def test_ends(self):
        assert gaussian.analytic_epsilon(0.0, 1e-5) == math.inf
        assert gaussian.analytic_epsilon(0.0, 1e-5, 0.0) == 0
        assert gaussian.classical_epsilon(1.0, 1e-5, 0.0) == 0
        assert gaussian.analytic_sigma(1.0, 1e-5, 0.0) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gaussian.analytic_sigma(1.0, 1e-5, -1.0), "sensitivity"),
        (lambda: gaussian.analytic_epsilon(-1.0, 1e-5), "sigma must be"),
        (lambda: gaussian.analytic_epsilon(1.0, 0.0), "delta must be"),
        (lambda: gaussian.classical_sigma(0.5, 1.0), "delta must be"),
    ],
)
def test_refuses_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
