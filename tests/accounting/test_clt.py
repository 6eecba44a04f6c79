"""Contract of privaudit.accounting.clt: equations 6 to 10 of the Dyn-D2P paper."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import clt, gdp
from privaudit.schedules import Constant, Growing, Shrinking
from tests.accounting import reference_gdp as reference

budgets = st.floats(-6, 6).map(lambda x: 10**x)
rates = st.floats(-8, 0).map(lambda x: 10**x)


class TestSound:
    @given(budgets, rates, st.floats(1, 20), st.integers(1, 300))
    def test_initial_budget_meets_its_total(self, total, rate, rho, steps):
        growth = Growing(1.0, rho)
        mu0 = clt.initial_budget(total, growth, rate, steps)
        assert clt.clt_mu(mu0 * growth.values(steps), rate) <= total * (1 + 1e-12)

    @given(budgets, rates, st.integers(1, 200))
    def test_noise_scale_meets_its_total_or_refuses(self, total, rate, steps):
        clips = Shrinking(7.0, 2.0).values(steps)
        noise = Shrinking(1.0, 6.0).values(steps)
        try:
            scale = clt.noise_scale(total, clips, noise, rate, steps)
        except ValueError:
            assert total / rate > 1  # mu_tot so large that some mu_k exceeds 1
        else:
            mus = clips / (scale * noise)
            assert mus.max() <= 1
            assert clt.clt_mu(mus, rate) <= total * (1 + 1e-9)

    def test_the_paper_s_settings_are_far_from_the_limit(self):
        # J = 2500, K = 10 000, delta = 1e-4: the limit resolves no such delta, even
        # for a constant budget.
        total = float(gdp.mu(1.0, 1e-4))
        mu_bar = clt.constant_budget(total, 1 / 2500, 10_000)
        mus = np.full(10_000, mu_bar)
        epsilon = gdp.epsilon(clt.clt_mu(mus, 1 / 2500), 1e-4)
        assert epsilon == pytest.approx(1.0, rel=1e-6)
        assert clt.distance_from_limit([(mus, 1 / 2500)]) > 0.05 > 1e-4


class TestTight:
    @given(st.lists(st.floats(0, 20), min_size=1, max_size=20), rates)
    def test_eq_6(self, mus, rate):
        true = float(reference.clt_mu(mus, rate))
        assert clt.clt_mu(mus, rate) == pytest.approx(true, rel=1e-11)

    @given(budgets, rates, st.floats(1, 20), st.integers(1, 300))
    def test_initial_budget_is_the_largest(self, total, rate, rho, steps):
        growth = Growing(1.0, rho).values(steps)
        more = clt.initial_budget(total, growth, rate, steps) * (1 + 1e-9)
        assert clt.clt_mu(more * growth, rate) > total

    def test_known_figure(self):
        # q = 1/2500, K = 10 000, mu_k from 0.8 to 2.67: mu_tot 0.370, epsilon 1.206.
        mus = Growing(0.8, 1 / 0.3).values(10_000)
        mu = clt.clt_mu(mus, 1 / 2500)
        assert mu == pytest.approx(0.370, abs=5e-4)
        assert gdp.epsilon(mu, 1e-4) == pytest.approx(1.206, abs=5e-4)


class TestLaws:
    @given(budgets, rates, st.integers(1, 1000))
    def test_a_constant_budget_is_a_growing_one_with_rho_1(self, total, rate, steps):
        mu_bar = clt.constant_budget(total, rate, steps)
        mu0 = clt.initial_budget(total, Constant(1.0), rate, steps)
        assert mu_bar == pytest.approx(mu0, rel=1e-9)

    def test_no_overflow(self):
        assert clt.clt_mu([100.0], 0.5) == math.inf
        mu0 = clt.initial_budget(1e6, Growing(1.0, 1e6), 1e-9, 1000)
        assert 0 < mu0 < 1

    def test_distance_falls_as_the_root_of_the_steps(self):
        few = clt.distance_from_limit([(np.full(10**4, 0.5), 0.01)])
        many = clt.distance_from_limit([(np.full(10**6, 0.5), 0.01)])
        assert many == pytest.approx(few / 10, rel=1e-9)

    def test_distance_of_nothing_is_zero_and_it_grows_with_mu(self):
        assert clt.distance_from_limit([([1.0, 2.0], 0.0)]) == 0
        assert clt.distance_from_limit([([], 0.1)]) == 0
        found = [
            clt.distance_from_limit([([mu] * 10**6, 0.01)]) for mu in (0.2, 1.0, 2.0)
        ]
        assert found == sorted(found)
        assert clt.distance_from_limit([([100.0], 0.1)]) == 1

    def test_distance_from_limit_is_that_of_all_steps(self):
        together = clt.distance_from_limit([([0.5] * 30 + [1.0] * 70, 0.1)])
        apart = clt.distance_from_limit([([0.5] * 30, 0.1), ([1.0] * 70, 0.1)])
        assert apart == pytest.approx(together)
        # Without sampling: 0.56 E|z|^3 / sqrt(steps).
        plain = clt.distance_from_limit([([1.0] * 100, 1.0)])
        assert plain == pytest.approx(0.056 * math.sqrt(8 / math.pi), rel=0.01)

    def test_distance_bounds_the_distribution_of_the_loss(self):
        # Steps alike, by simulation: the loss of the world without the record.
        random, mu, rate, steps = np.random.default_rng(0), 1.0, 0.1, 200
        x = random.normal(size=(10_000, steps))
        loss = np.log1p(rate * np.expm1(mu * x - mu * mu / 2)).sum(1)
        z = np.sort((loss - loss.mean()) / loss.std())
        error = np.abs(
            np.linspace(0, 1, len(z)) - [0.5 * math.erfc(-v / math.sqrt(2)) for v in z]
        ).max()
        assert 0.005 < error < clt.distance_from_limit([(np.full(steps, mu), rate)])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: clt.clt_mu([1.0, -1.0], 0.1), "mu of step 1"),
        (lambda: clt.clt_mu([1.0], 1.1), "sampling rate"),
        (lambda: clt.initial_budget(0.0, [1.0], 0.1, 1), "mu_total must be > 0"),
        (lambda: clt.initial_budget(1.0, [1.0], 0.1, 2), "2 values are needed"),
        (lambda: clt.initial_budget(1.0, [1.0], 0.0, 1), "at least one sampled"),
        (lambda: clt.constant_budget(1.0, 0.1, 0), "steps must be >= 1"),
        (
            lambda: clt.noise_scale(1.0, [1.0, 1.0], [1.0, 0.01], 0.01, 2),
            "step 1 has mu_k",
        ),
    ],
)
def test_refuses_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
