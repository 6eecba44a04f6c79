"""Contract of xu_theorem_2: Theorem 2 of the A(DP)2SGD paper."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import account
from privaudit.accounting.papers.xu_theorem_2 import TheoremTwo
from privaudit.ledger import Ledger
from privaudit.release import Release, SamplingWithoutReplacement
from tests.tiers import examples

SETTINGS = [  # T, K, n, B
    (58_500, 16, 3125, 256),
    (10_000, 16, 3125, 64),
    (100_000, 16, 3125, 16),
    (1000, 10, 6000, 256),
    (100_000, 16, 60_000, 32),
    (1_000_000, 100, 60_000, 8),
]


@st.composite
def theorems(draw):
    records = draw(st.floats(10, 1e6))
    return TheoremTwo(
        steps=draw(st.floats(1, 1e6)),
        workers=draw(st.integers(1, 100)),
        records=records,
        batch=records * draw(st.floats(1e-5, 0.1)),
        epsilon=draw(st.floats(0.1, 50)),
        delta=10 ** draw(st.floats(-10, -2)),
    )


class TestSound:
    @given(theorems())
    def test_every_admissible_mu_meets_both_conditions(self, theorem):
        try:
            intervals = theorem.admissible()
        except ValueError:
            return
        for low, high in intervals:
            for mu in np.linspace(low, high, 20):
                first, second = theorem.slacks(min(max(float(mu), low), high))
                assert first >= -1e-9 * theorem.epsilon
                assert second >= -1e-9
        sigma, mu = theorem.least_sigma()
        assert sigma == theorem.sigma(mu)

    @pytest.mark.parametrize("epsilon", [2.0, 4.0, 8.0, 20.0])
    def test_the_corrected_noise_gives_its_epsilon(self, epsilon):
        on_mean, _ = TheoremTwo(1000, 1, 60_000, 8, epsilon, 1e-5).least_sigma()
        released = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=8 * on_mean,
            sampling=SamplingWithoutReplacement(8, 60_000),
        )
        ledger = Ledger.of(released, 1000)
        assert account(ledger, 1e-5, "replace-one", "rdp").epsilon <= epsilon

    def test_the_paper_s_noise_on_the_sum_does_not(self):
        theorem = TheoremTwo(10_000, 16, 3125, 64, 4.0, 1e-5)
        sigma, _ = theorem.least_sigma()
        assert sigma == pytest.approx(0.038, abs=1e-3)
        released = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=sigma,
            sampling=SamplingWithoutReplacement(64, 3125),
        )
        ledger = Ledger.of(released, 10_000 // 16)
        assert account(ledger, 1e-5, "replace-one", "rdp").epsilon > 1000


class TestTight:
    @examples(100)
    @given(theorems())
    def test_no_admissible_mu_is_left_out(self, theorem):
        try:
            intervals = theorem.admissible()
        except ValueError:
            intervals = ()
        grid = np.concatenate(
            [10.0 ** np.linspace(-11, -1, 400), np.linspace(0.1, 0.999, 400)]
        )
        for mu in grid:
            if min(theorem.slacks(float(mu))) > 1e-6:
                assert any(low <= mu <= high for low, high in intervals)

    @given(theorems(), st.floats(1e-6, 0.999))
    def test_the_first_condition_says_that_the_noise_is_not_small(self, theorem, mu):
        # sigma^2 >= 6 G^2 / B^2, by equation 25 of the paper.
        slack = theorem.sigma(mu) ** 2 - 6 / theorem.batch**2
        first = theorem.slacks(mu)[0]
        if abs(first) > 1e-6 * theorem.epsilon:
            assert (slack > 0) == (first > 0)


class TestPaper:
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_half_an_epsilon_is_never_covered(self, setting):
        with pytest.raises(ValueError, match="no mu in"):
            TheoremTwo(*setting, epsilon=0.5, delta=1e-5).admissible()

    @pytest.mark.parametrize(
        ("setting", "epsilon", "admitted"),
        [(s, e, False) for s in SETTINGS[:4] for e in (1.0, 2.0)]
        + [(SETTINGS[4], 1.0, False), (SETTINGS[4], 2.0, True)]
        # Only with mu near 1e-5, which a search in steps of 0.01 misses.
        + [(SETTINGS[5], 1.0, True), (SETTINGS[5], 2.0, True)],
    )
    def test_which_settings_are_covered(self, setting, epsilon, admitted):
        theorem = TheoremTwo(*setting, epsilon=epsilon, delta=1e-5)
        if admitted:
            assert theorem.admissible()
        else:
            with pytest.raises(ValueError, match="account the run by rdp"):
                theorem.admissible()

    def test_where_it_holds_the_least_noise_does_not_depend_on_the_steps(self):
        # The first condition binds: the least sigma is sqrt(6) G / B, whatever T.
        for steps in (1000, 10_000):
            sigma, _ = TheoremTwo(steps, 16, 60_000, 32, 8.0, 1e-5).least_sigma()
            assert sigma == pytest.approx(math.sqrt(6) / 32, rel=1e-6)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"steps": 0}, "steps must be > 0"),
        ({"batch": 1e9}, "exceeds"),
        ({"delta": 1.0}, "delta must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
    ],
)
def test_refuses_with_a_sentence(changed, words):
    good = {"steps": 10, "workers": 2, "records": 100, "batch": 5}
    with pytest.raises(ValueError, match=words):
        TheoremTwo(**(good | {"epsilon": 1.0, "delta": 1e-5} | changed))


@pytest.mark.parametrize("mu", [0.0, 1.0, math.nan])
def test_mu_is_inside(mu):
    with pytest.raises(ValueError, match="mu must be in"):
        TheoremTwo(10, 2, 100, 5, 1.0, 1e-5).sigma(mu)
