"""Contract of privaudit.accounting.calibration: inside the budget, and close to it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import (
    account,
    calibration,
    gdp,
    initial_budget,
    most_steps,
    noise_multiplier,
    noise_scale,
    sampling_rate,
)
from privaudit.accounting.calibration import least_meeting
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.plans import Plan
from privaudit.ledger import Ledger, Recorder
from privaudit.release import NoSampling, PoissonSampling, Release
from privaudit.schedules import Growing, Shrinking
from tests.tiers import examples

epsilons = st.floats(-1.5, 1.5).map(lambda x: 10**x)
deltas = st.floats(-12, -2).map(lambda x: 10**x)


def plain(noise, count=1):
    return Ledger.of(
        Release.of_sum(norm_bound=1.0, noise_multiplier=noise, sampling=NoSampling()),
        count,
    )


def sampled(noise, rate, count):
    sampling = PoissonSampling(rate)
    released = Release.of_sum(norm_bound=1.0, noise_multiplier=noise, sampling=sampling)
    return Ledger.of(released, count)


def different(noises):
    recorder = Recorder(1)
    for noise in noises:
        released = Release.of_sum(
            norm_bound=1.0, noise_multiplier=float(noise), sampling=NoSampling()
        )
        recorder.record(0, released)
    return recorder.ledger()


class TestSound:
    """The answer meets the budget, by an account made anew."""

    @examples(20)
    @given(epsilons, deltas)
    def test_noise(self, epsilon, delta):
        noise, bound = noise_multiplier(plain, epsilon, delta, method="gdp")
        again = account(plain(noise), delta, method="gdp")
        assert bound == again
        assert again.epsilon <= epsilon

    @examples(25)
    @given(epsilons, deltas)
    def test_steps(self, epsilon, delta):
        def make(steps):
            return plain(10.0, steps)

        steps, bound = most_steps(make, epsilon, delta, method="gdp")
        assert bound.epsilon <= epsilon
        assert account(make(steps + 1), delta, method="gdp").epsilon > epsilon

    @examples(6)
    @given(epsilons, deltas)
    def test_rate(self, epsilon, delta):
        def make(rate):
            return sampled(2.0, rate, 10)

        rate, bound = sampling_rate(make, epsilon, delta, method="gdp-clt")
        assert 0 < rate <= 1
        assert bound.epsilon <= epsilon

    @examples(6)
    @given(epsilons, deltas)
    def test_initial_budget_and_scale(self, epsilon, delta):
        growth = Growing(1.0, 5.0).values(20)
        mu0, bound = initial_budget(
            lambda mu0: different(1 / (mu0 * growth)), epsilon, delta, method="gdp"
        )
        assert bound.epsilon <= epsilon
        shape = Shrinking(3.0, 5.0).values(20)
        scale, bound = noise_scale(
            lambda scale: different(scale * shape), epsilon, delta, method="gdp"
        )
        assert bound.epsilon <= epsilon
        assert 3 * scale == pytest.approx(1 / mu0, rel=1e-3)


class TestTight:
    @examples(20)
    @given(epsilons, deltas)
    def test_noise_is_within_a_thousandth(self, epsilon, delta):
        noise, _ = noise_multiplier(plain, epsilon, delta, method="analytic-gaussian")
        best = 1 / float(gdp.mu(epsilon, delta))
        if best > 0.1:
            assert best * (1 - 1e-9) <= noise <= best * 1.001

    def test_steps_are_exact(self):
        # mu = sqrt(T) / 10 and epsilon(mu = 1, 1e-5) = 4.377178
        steps, _ = most_steps(lambda n: plain(10.0, n), 4.37718, 1e-5, method="gdp")
        assert steps == 100

    @given(st.floats(1e-3, 1e3), st.floats(1e-8, 1e-2))
    def test_search_on_a_known_inverse(self, true, tolerance):
        seen = []

        def meets(x):
            seen.append(x)
            return x >= true

        found = least_meeting(meets, least=1e-6, tolerance=tolerance)
        assert true <= found <= true * (1 + 2 * tolerance)
        assert found in seen

    def test_rdp_noise(self):
        noise, bound = noise_multiplier(
            lambda z: sampled(z, 256 / 60_000, 2000), 1.0, 1e-5, method="rdp"
        )
        assert bound.epsilon <= 1
        assert noise == pytest.approx(1.124, abs=2e-3)

    @pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
    def test_the_certificate_is_asked_a_few_times(self, monkeypatch, epsilon):
        asked = []
        made = Certificate.epsilon

        def counted(self, *args, **named):
            asked.append(self.ledger.nodes[0][0].release.noise)
            return made(self, *args, **named)

        monkeypatch.setattr(Certificate, "epsilon", counted)
        noise, bound = noise_multiplier(lambda z: sampled(z, 0.01, 1000), epsilon, 1e-5)
        assert len(asked) <= 7
        assert noise in asked
        assert bound.epsilon <= epsilon
        less = max(x for x in asked if x < noise)
        assert less >= noise * (1 - 1e-4)
        assert account(sampled(less, 0.01, 1000), 1e-5).epsilon > epsilon

    @pytest.mark.full
    def test_steps_that_differ_are_asked_a_few_times(self, monkeypatch):
        """Many quiet steps that rarely are loud: their closed form is far off."""
        random = np.random.default_rng(4)
        plan = Plan.from_table(
            np.stack([random.uniform(0.5, 2, 300), 1e-3 * random.uniform(1, 3, 300)], 1)
        )
        asked = []
        made = Certificate.epsilon

        def counted(self, *args, **named):
            asked.append(args)
            return made(self, *args, **named)

        monkeypatch.setattr(Certificate, "epsilon", counted)
        scale, bound = noise_scale(plan.ledger, 0.2, 1e-5)
        assert len(asked) <= 7
        assert account(plan.ledger(scale * (1 - 1e-3)), 1e-5).epsilon > 0.2
        near = Certificate.of(plan.ledger(scale)).guess(1e-5, scouted=True)
        assert near == pytest.approx(bound.epsilon, rel=0.07)


class TestLaws:
    @given(
        st.floats(1e-3, 1e3),
        st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=5),
    )
    def test_wherever_it_aims_it_ends(self, true, targets):
        places = iter(targets * 1000)

        def aim(bad, good):
            at = next(places)
            return 0.0 if at == good else at  # which would be near enough

        found = least_meeting(lambda x: x >= true, least=1e-6, aim=aim)
        assert true <= found <= true * (1 + 2e-4)

    @pytest.mark.parametrize("guess", [1e-9, 0.5, 1e12])
    def test_any_guess_ends(self, guess):
        found = least_meeting(lambda x: x >= 0.7, guess=guess)
        assert found == pytest.approx(0.7, rel=1e-4)

    def test_the_ends_of_the_range(self):
        assert least_meeting(lambda x: True, least=0.25) == 0.25
        with pytest.raises(ValueError, match="nothing up to"):
            least_meeting(lambda x: False)
        assert most_steps(lambda n: plain(0.1, n), 1.0, 1e-5, method="gdp")[0] == 0
        few = most_steps(lambda n: plain(1e6, n), 1.0, 1e-5, method="gdp", most=7)
        assert few[0] == 7
        rate, _ = sampling_rate(lambda q: sampled(100.0, q, 1), 1.0, 1e-5, method="rdp")
        assert rate == 1

    def test_a_tolerance_below_the_doubles_ends(self):
        found = least_meeting(lambda x: x >= 0.7, tolerance=1e-300)
        assert found == 0.7

    def test_classical_searches_only_where_it_is_proved(self):
        noise, bound = noise_multiplier(plain, 0.5, 1e-5, method="classical-gaussian")
        assert bound.epsilon <= 0.5
        assert noise == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 0.5, rel=1e-3)
        with pytest.raises(ValueError, match="valid for epsilon < 1 only"):
            noise_multiplier(plain, 1.0, 1e-5, method="classical-gaussian")

    def test_what_cannot_be_met_is_said(self):
        with pytest.raises(ValueError, match="no noise multiplier up to 1e\\+09"):
            noise_multiplier(lambda z: plain(z, 10**30), 0.1, 1e-5, method="gdp")
        laplace = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=1.0,
            sampling=NoSampling(),
            mechanism="laplace",
        )
        with pytest.raises(ValueError, match="gdp account is for Gaussian"):
            noise_multiplier(lambda z: Ledger.of(laplace), 1.0, 1e-5, method="gdp")
        with pytest.raises(ValueError, match="no steps at all"):
            most_steps(lambda n: plain(0.1), 0.1, 1e-5, method="gdp")
        with pytest.raises(ValueError, match="tolerance must be"):
            noise_multiplier(plain, 1.0, 1e-5, method="gdp", tolerance=0.0)

    @given(
        epsilons,
        st.integers(1, 10_000),
        st.one_of(st.just(1.0), st.floats(-4, -0.01).map(lambda x: 10**x)),
    )
    def test_a_pure_budget(self, epsilon, steps, rate):
        """Of Laplace noise: log(1 + rate (exp(1 / z) - 1)) a step."""
        sampling = NoSampling() if rate == 1 else PoissonSampling(rate)

        def make_ledger(noise, count=steps):
            released = Release.of_sum(
                norm_bound=1.0,
                noise_multiplier=noise,
                sampling=sampling,
                mechanism="laplace",
            )
            return Ledger.of(released, count)

        noise, bound = noise_multiplier(make_ledger, epsilon, 0.0)
        least = 1 / math.log1p(math.expm1(epsilon / steps) / rate)
        assert bound.epsilon <= epsilon
        assert bound.delta == 0
        assert least * (1 - 1e-12) <= noise <= least * (1 + 2e-4)
        most, _ = most_steps(lambda n: make_ledger(noise, n), epsilon, 0.0)
        assert steps <= most <= 1.01 * steps

    def test_a_pure_budget_is_for_laplace_noise_and_the_certified_account(self):
        with pytest.raises(ValueError, match="a delta above 0, or Laplace noise"):
            noise_multiplier(plain, 1.0, 0.0)
        with pytest.raises(ValueError, match=r"delta must be in \(0, 1\)"):
            noise_multiplier(plain, 1.0, 0.0, method="rdp")

    def test_the_invariant_is_checked(self):
        budget = calibration._Budget(1.0, 1e-5, "add-or-remove-one", "gdp")
        assert not budget.meets(0.1, plain)
        with pytest.raises(AssertionError, match="exceeds the budget"):
            budget.checked(0.1)
