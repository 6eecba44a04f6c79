"""What the Dyn-D2P paper's equation 6 claims, against a bound on the same run.

J = 2500, delta = 1e-4, Poisson sampling at rate 1/J, add-or-remove-one, noise set by
equations 4, 6, 8 and 9. Each step's mu is rounded down to one of a few values, so that
the account is of a run that leaks less: even its epsilon is above the claim.
"""

import numpy as np
import pytest

from privaudit.accounting import METHODS, account, clt, gdp
from privaudit.ledger import Recorder
from privaudit.release import PoissonSampling, Release
from privaudit.schedules import Constant, Growing

RATE, DELTA = 1 / 2500, 1e-4


def mus(claimed, steps, inverse_rho):
    total = float(gdp.mu(claimed, DELTA))
    growth = Constant(1.0) if inverse_rho == 1 else Growing(1.0, 1 / inverse_rho)
    return clt.initial_budget(total, growth, RATE, steps) * growth.values(steps)


def ledger(each, buckets, up=False):
    """The steps, each mu rounded to the lower (or upper) edge of its bucket."""
    recorder = Recorder(1)
    for bucket in np.array_split(np.sort(each), buckets):
        mu = float(bucket[-1] if up else bucket[0])
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=1 / mu, sampling=PoissonSampling(RATE)
        )
        recorder.record(0, release, len(bucket))
    return recorder.ledger()


def epsilon(released):
    method = "certified" if "certified" in METHODS else "pld"
    return account(released, DELTA, method=method).epsilon


def assert_understated(claimed, steps, inverse_rho, low, high, buckets):
    each = mus(claimed, steps, inverse_rho)
    limit = gdp.epsilon(clt.clt_mu(each, RATE), DELTA)
    assert limit == pytest.approx(claimed, rel=1e-6)
    assert clt.distance_from_limit([(each, RATE)]) >= DELTA
    below = epsilon(ledger(each, buckets))
    assert below > claimed
    assert low * 0.99 - 0.005 <= below <= high * 1.01 + 0.005
    if buckets > 1:
        above = epsilon(ledger(each, buckets, up=True))
        assert below <= above <= high * 1.01 + 0.005


CONSTANT = [
    (0.3, 2500, 0.83),
    (0.3, 10_000, 0.361),
    (1.0, 2500, 3.23),
    (1.0, 10_000, 2.26),
    (1.0, 50_000, 1.175),
    (3.0, 2500, 5.85),
    (3.0, 10_000, 5.38),
]


@pytest.mark.parametrize(("claimed", "steps", "figure"), [CONSTANT[3], CONSTANT[4]])
def test_constant_budget(claimed, steps, figure):
    assert_understated(claimed, steps, 1, figure, figure, 1)


@pytest.mark.parametrize(("claimed", "steps", "figure"), CONSTANT)
def test_constant_budget_all(claimed, steps, figure):
    assert_understated(claimed, steps, 1, figure, figure, 1)


GROWING = [
    # claimed, steps, 1/rho, and the bracket by fifty buckets
    (0.3, 2500, 0.5, 1.24, 1.35),
    (0.3, 2500, 0.3, 1.44, 1.66),
    (0.3, 2500, 0.1, 1.57, 2.05),
    (0.3, 10_000, 0.5, 0.53, 0.58),
    (0.3, 10_000, 0.3, 0.72, 0.85),
    (0.3, 10_000, 0.1, 0.97, 1.31),
    (1.0, 2500, 0.5, 3.66, 3.87),
    (1.0, 2500, 0.3, 3.73, 4.11),
    (1.0, 2500, 0.1, 3.65, 4.39),
    (1.0, 10_000, 0.5, 2.94, 3.14),
    (1.0, 10_000, 0.3, 3.19, 3.54),
    (1.0, 10_000, 0.1, 3.31, 4.02),
    (3.0, 2500, 0.5, 5.86, 6.14),
    (3.0, 2500, 0.3, 5.77, 6.24),
    (3.0, 2500, 0.1, 5.49, 6.39),
    (3.0, 10_000, 0.5, 5.65, 5.95),
    (3.0, 10_000, 0.3, 5.66, 6.16),
    (3.0, 10_000, 0.1, 5.50, 6.44),
]


def test_growing_budget_by_its_last_tenth_alone():
    # Claimed 1; leaving out the other steps can only leak less.
    last = np.sort(mus(1.0, 10_000, 0.3))[-1000:]
    assert epsilon(ledger(last, 1)) > 1.5


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("claimed", "steps", "inverse_rho", "low", "high"), GROWING)
def test_growing_budget(claimed, steps, inverse_rho, low, high):
    assert_understated(claimed, steps, inverse_rho, low, high, 50)
