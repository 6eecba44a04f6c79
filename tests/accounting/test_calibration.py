"""Contract of privaudit.accounting.calibration, first where the answer is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting.calibration import least_meeting, noise_multiplier
from privaudit.ledger import Ledger, PoissonSampling, Release


def poisson(q, steps):
    return lambda z: Ledger.of(
        Release.of_sum(norm_bound=1.0, noise_multiplier=z, sampling=PoissonSampling(q)),
        steps,
    )


class TestSound:
    @given(st.floats(1e-3, 1e6), st.floats(1e-6, 0.1))
    def test_the_answer_meets_the_budget_and_wastes_little(self, edge, tolerance):
        found = least_meeting(
            lambda x: x >= edge, least=1e-6, most=1e9, tolerance=tolerance
        )
        assert edge <= found <= edge * (1 + 1.01 * tolerance)

    def test_only_points_that_were_tried_are_returned(self):
        tried = []

        def meets(x):
            tried.append(x)
            return x >= 3.7

        assert least_meeting(meets) in tried

    def test_nothing_meets(self):
        with pytest.raises(ValueError, match="nothing up to"):
            least_meeting(lambda x: False)

    @pytest.mark.parametrize("method", ["pld", "rdp"])
    def test_never_over_the_target(self, method):
        _, bound = noise_multiplier(poisson(0.05, 50), 0.7, 1e-4, method=method)
        assert 0.699 <= bound.epsilon <= 0.7


class TestTight:
    def test_the_known_value(self):
        # dp-accounting 0.6.0 by its own calibration: 1.00798
        z, bound = noise_multiplier(poisson(256 / 60000, 2000), 1.0, 1e-5)
        assert z == pytest.approx(1.008, abs=2e-4)
        assert bound.epsilon <= 1


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [(0, 1e-5, "epsilon"), (-1, 1e-5, "epsilon"), (1, 0, "delta"), (1, 1.5, "delta")],
)
def test_a_budget_out_of_range_is_named(epsilon, delta, message):
    with pytest.raises(ValueError, match=message):
        noise_multiplier(poisson(0.1, 10), epsilon, delta)


def test_an_account_that_refuses_is_heard():
    with pytest.raises(ValueError, match="1e-09"):
        noise_multiplier(poisson(0.1, 10), 1.0, 1e-12)
