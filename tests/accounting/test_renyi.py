"""Contract of privaudit.accounting.renyi: just above the true divergence."""

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting.renyi import divergence
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
)
from tests.tiers import examples

noises = st.floats(-0.5, 3).map(lambda x: 10**x)
rates = st.floats(-5, -0.05).map(lambda x: 10**x)
orders = st.floats(-2, 1.2).map(lambda x: 1 + 10**x)


def release(noise, sampling, mechanism="gaussian"):
    return Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=sampling, mechanism=mechanism
    )


def integral(log_p, log_q, order, far):
    """D by quadrature of Q ((P/Q)^alpha - 1 - alpha (P/Q - 1)), which is >= 0."""
    with mpmath.workdps(30):
        order = mpmath.mpf(order)

        def height(x):
            ratio = log_p(x) / log_q(x)
            return log_q(x) * (ratio**order - 1 - order * (ratio - 1))

        points = [-far, -8, -4, -2, 0, 2, 4, 8, *(8 + far * k / 8 for k in range(1, 9))]
        area = mpmath.quad(height, points, maxdegree=5)
        return float(mpmath.log1p(area) / (order - 1))


def mixture(rate, shift):
    rate, shift = mpmath.mpf(rate), mpmath.mpf(shift)
    return lambda x: (1 - rate) * mpmath.npdf(x) + rate * mpmath.npdf(x, shift)


def assert_just_above(found, true, loose=2e-3):
    assert true <= found * (1 + 1e-12)
    assert found <= true * (1 + loose) + 1e-25


class TestSound:
    """Both sides at once: no less than the true divergence, and hardly more."""

    @examples(8)
    @given(noises, rates, orders)
    def test_poisson_add_or_remove(self, noise, rate, order):
        true = integral(
            mixture(rate, 1 / noise), mpmath.npdf, order, 2 * order / noise + 12
        )
        found = divergence(
            release(noise, PoissonSampling(rate)), "add-or-remove-one", order
        )
        assert_just_above(found, true)

    @examples(8)
    @given(noises, rates, orders)
    def test_poisson_replace_one(self, noise, rate, order):
        true = integral(
            mixture(rate, 1 / noise),
            mixture(rate, -1 / noise),
            order,
            4 * order / noise + 12,
        )
        found = divergence(release(noise, PoissonSampling(rate)), "replace-one", order)
        assert_just_above(found, true)

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("noise", [0.7, 2.0])
    @pytest.mark.parametrize("order", [1.5, 7.0])
    def test_without_replacement_is_above_any_pair_of_neighbours(self, noise, order):
        # Both directions of the sampled pair, and of the one with other records in the
        # batch at -C: replacing moves N(-C) mixed with N(C) to N(-C).
        rate, shift = 0.1, 2 / noise
        found = divergence(
            release(noise, SamplingWithoutReplacement(10, 100)), "replace-one", order
        )
        mixed, plain = mixture(rate, shift), mpmath.npdf
        far = 2 * order * shift + 12
        for p, q in ((mixed, plain), (plain, mixed)):
            assert integral(p, q, order, far) <= found
        forward = integral(mixed, plain, order, far)
        assert found <= 2 * forward  # what taking both directions can cost

    def test_tiny_divergences_do_not_round_to_zero(self):
        for sampling in (PoissonSampling(1e-8), SamplingWithoutReplacement(1, 10**8)):
            found = divergence(release(1000.0, sampling), "replace-one", 2.0)
            assert found > 1e-23
        small = release(1000.0, PoissonSampling(1e-8))
        assert divergence(small, "add-or-remove-one", 2.0) > 1e-23
        assert divergence(small, "add-or-remove-one", 1.5) > 1e-23

    @given(st.floats(0.2, 50), orders)
    def test_laplace(self, noise, order):
        # Proposition 6 of Mironov (2017), in 50 digits.
        with mpmath.workdps(50):
            e, a = 1 / mpmath.mpf(noise), mpmath.mpf(order)
            true = mpmath.log(
                a / (2 * a - 1) * mpmath.exp((a - 1) * e)
                + (a - 1) / (2 * a - 1) * mpmath.exp(-a * e)
            ) / (a - 1)
        found = divergence(
            release(noise, NoSampling(), "laplace"), "add-or-remove-one", order
        )
        assert_just_above(found, float(true), 1e-9)

    @examples(10)
    @given(st.floats(0.2, 20), rates, st.integers(2, 12))
    def test_poisson_laplace_at_integers(self, noise, rate, order):
        with mpmath.workdps(40):
            e, q = 1 / mpmath.mpf(noise), mpmath.mpf(rate)

            def height(x):
                ratio = mpmath.exp((abs(x) - abs(x - 1)) * e)
                return mpmath.exp(-abs(x) * e) * e / 2 * (1 - q + q * ratio) ** order

            scale = 60 / e
            total = mpmath.quad(height, [-scale, 0, 1, 1 + scale])
            true = float(mpmath.log(total) / (order - 1))
        found = divergence(
            release(noise, PoissonSampling(rate), "laplace"), "add-or-remove-one", order
        )
        assert_just_above(found, true, 1e-6)


class TestLaws:
    @given(noises, rates, orders)
    def test_sampling_never_costs_more_than_none(self, noise, rate, order):
        for relation in ("add-or-remove-one", "replace-one"):
            sampled = divergence(release(noise, PoissonSampling(rate)), relation, order)
            whole = divergence(release(noise, NoSampling()), relation, order)
            assert sampled <= whole * (1 + 1e-3) + 1e-12

    @examples(50)
    @given(noises, rates, st.floats(1.05, 10))
    def test_grows_with_the_order(self, noise, rate, order):
        for relation in ("add-or-remove-one", "replace-one"):
            one = release(noise, PoissonSampling(rate))
            low, high = (divergence(one, relation, a) for a in (order, order + 0.7))
            assert low <= high * (1 + 1e-3)

    def test_between_integers_it_joins_up(self):
        for noise, rate in ((0.5, 0.01), (1.0, 0.3), (20.0, 0.5)):
            whole = release(noise, PoissonSampling(rate))
            for order in (2.0, 3.0, 5.0):
                at = divergence(whole, "add-or-remove-one", order)
                near = divergence(whole, "add-or-remove-one", order + 1e-9)
                assert near == pytest.approx(at, rel=1e-3)

    def test_full_samples_are_no_samples(self):
        whole = divergence(release(2.0, NoSampling()), "replace-one", 3.0)
        for sampling in (PoissonSampling(1.0), SamplingWithoutReplacement(5, 5)):
            assert divergence(release(2.0, sampling), "replace-one", 3.0) == whole

    def test_ends(self):
        empty = release(1.0, PoissonSampling(0.0))
        assert divergence(empty, "add-or-remove-one", 2.0) == 0
        pure = release(0.5, PoissonSampling(0.1), "laplace")
        assert divergence(pure, "add-or-remove-one", math.inf) == pytest.approx(
            math.log1p(0.1 * math.expm1(2.0))
        )
        normal = release(1.0, NoSampling())
        assert divergence(normal, "replace-one", math.inf) == math.inf
        with pytest.raises(ValueError, match="order must be > 1"):
            divergence(normal, "replace-one", 1.0)
        with pytest.raises(ValueError, match="no bound for Laplace"):
            divergence(pure, "replace-one", 2.0)

    @pytest.mark.parametrize("size", range(300, 310))
    def test_rare_samples_of_a_large_pure_loss(self, size):
        noise, rate = 1.1 / size, 1e-150
        one = release(noise, PoissonSampling(rate), "laplace")
        found = divergence(one, "add-or-remove-one", math.inf)
        with mpmath.workdps(400):
            true = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(1 / mpmath.mpf(noise)))
            assert true <= found <= true * (1 + mpmath.mpf(1e-12))

    def test_extremes_stay_finite_or_infinite_but_never_nan(self):
        for noise in (5e-324, 1e-200, 0.005, 0.05, 1e4, 1e8, 1e300):
            for rate in (1e-8, 0.01, 0.999):
                for order in (1.001, 1.5, 40.0, 1000.0):
                    found = [
                        divergence(release(noise, PoissonSampling(rate)), r, order)
                        for r in ("add-or-remove-one", "replace-one")
                    ]
                    fixed = SamplingWithoutReplacement(int(1e8 * rate), 10**8)
                    found.append(
                        divergence(release(noise, fixed), "replace-one", order)
                    )
                    assert all(each >= 0 for each in found)  # nan is not
