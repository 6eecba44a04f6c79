"""Contract of privaudit.accounting.rdp."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import account, gdp
from privaudit.accounting.rdp import epsilon_at, least_epsilon
from privaudit.accounting.renyi import divergence
from privaudit.ledger import Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
)
from tests.accounting import reference_gdp as reference


def rdp(
    noise, sampling, count, delta=1e-5, relation="add-or-remove-one", kind="gaussian"
):
    released = Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=sampling, mechanism=kind
    )
    return account(Ledger.of(released, count), delta, relation, "rdp").epsilon


class TestSound:
    @given(st.floats(-4, 2).map(lambda x: 10**x), st.floats(-12, -0.5))
    def test_never_below_the_exact_gaussian(self, mu, log_delta):
        delta = 10**log_delta
        epsilon, _ = least_epsilon(lambda order: order * mu * mu / 2, delta)
        assert reference.delta(mu, epsilon) <= delta

    def test_a_negative_divergence_is_refused(self):
        with pytest.raises(ValueError, match="must be >= 0"):
            epsilon_at(2.0, -1e-18, 1e-5)

    def test_rounding_near_zero_is_not_privacy(self):
        # dp-accounting's sum in log space comes out as zero or less here, and a million
        # such steps as free. The true divergence is about alpha q^2 / (2 sigma^2).
        released = Release.of_sum(
            norm_bound=1.0, noise_multiplier=100.0, sampling=PoissonSampling(1e-8)
        )
        for order in (2.0, 8.0, 64.0):
            found = divergence(released, "add-or-remove-one", order)
            assert found == pytest.approx(order * 1e-20 / 2, rel=0.01)


class TestTight:
    @pytest.mark.parametrize(
        ("figure", "expected"),
        [
            # dp_accounting 0.6.0, RdpAccountant with its orders
            (lambda: rdp(1.0, PoissonSampling(0.01), 10_000), 6.7128),
            (lambda: rdp(2.0, PoissonSampling(256 / 6000), 2000), 4.9369),
            (lambda: rdp(10.0, NoSampling(), 100, kind="laplace"), 4.5327),
            (
                lambda: rdp(
                    2.0,
                    SamplingWithoutReplacement(250, 2500),
                    100,
                    relation="replace-one",
                ),
                14.0538,
            ),
        ],
    )
    def test_no_worse_than_dp_accounting(self, figure, expected):
        assert figure() <= expected

    def test_without_replacement_is_a_third_less(self):
        found = rdp(
            2.0, SamplingWithoutReplacement(250, 2500), 100, relation="replace-one"
        )
        assert found == pytest.approx(8.653, abs=1e-3)

    @given(st.floats(-3, 1.5).map(lambda x: 10**x), st.floats(-10, -2))
    def test_within_a_fifth_of_the_exact_gaussian(self, mu, log_delta):
        delta = 10**log_delta
        exact = float(gdp.epsilon(mu, delta))
        epsilon, order = least_epsilon(lambda a: a * mu * mu / 2, delta)
        assert order > 1
        if exact > mu:
            assert epsilon <= 1.5 * exact

    @pytest.mark.parametrize("mu", [1e-4, 0.01, 1.0, 30.0])
    def test_the_best_order_is_inside(self, mu):
        def divergence(order):
            return order * mu * mu / 2

        epsilon, order = least_epsilon(divergence, 1e-6)
        for other in (1 + (order - 1) * 0.8, 1 + (order - 1) * 1.25):
            assert epsilon_at(other, divergence(other), 1e-6) >= epsilon * (1 - 1e-3)


class TestLaws:
    def test_pure_laplace_is_never_more_than_its_sum(self):
        assert rdp(1.0, NoSampling(), 3, 1e-12, kind="laplace") <= 3 * (1 + 1e-12)
        assert rdp(1.0, PoissonSampling(0.1), 1, 1e-12, kind="laplace") <= math.log1p(
            0.1 * math.expm1(1)
        ) * (1 + 1e-12)

    def test_grows_with_steps_and_rate_falls_with_noise(self):
        base = rdp(1.0, PoissonSampling(0.01), 100)
        assert rdp(1.0, PoissonSampling(0.01), 200) > base
        assert rdp(1.0, PoissonSampling(0.02), 100) > base
        assert rdp(1.5, PoissonSampling(0.01), 100) < base

    def test_a_large_delta_can_cost_nothing(self):
        assert rdp(1000.0, NoSampling(), 1, 0.1) == 0

    def test_laplace_poisson_replace_one_is_refused(self):
        with pytest.raises(ValueError, match="no bound for Laplace"):
            rdp(1.0, PoissonSampling(0.1), 1, relation="replace-one", kind="laplace")
