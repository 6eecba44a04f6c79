"""Alarms of `judge` on 1 000 right mechanisms."""

import functools
import math

import pytest

from privaudit.testing import judge
from tests.tiers import size

LEAST = 3.7306317  # noise of (1, 1e-5)-DP Gaussian sums of sensitivity 1


def laplace(data, rng, scale):
    return float(data + rng.laplace(scale=scale))


def gaussian(data, rng, scale):
    return float(data + rng.normal(scale=scale))


def response(data, rng, truth):
    return int(data if rng.random() < truth else 1 - data)


def geometric(data, rng, chance):
    return int(data + rng.geometric(chance) - rng.geometric(chance))


def _mechanisms(factors):
    """Mechanisms with as many times the epsilon that is claimed, by four kinds."""
    for epsilon in (0.3, 1.0, 2.0):
        for factor in factors:
            true = factor * epsilon
            made = {
                laplace: {"scale": 1 / true},
                response: {"truth": 1 / (1 + math.exp(-true))},
                geometric: {"chance": 1 - math.exp(-true)},
            }
            for kind, given in made.items():
                yield functools.partial(kind, **given), epsilon, 0.0
    for factor in factors:
        yield functools.partial(gaussian, scale=LEAST * 1.0001 / factor), 1.0, 1e-5


@pytest.mark.sized
def test_a_thousand_right_mechanisms_at_most_one_alarm_at_999_in_a_thousand():
    """Each at its exact epsilon, at 99.9 % for the pair."""
    right = [*_mechanisms((1.0,))]
    trials = size(1000, 60)
    alarms = sum(
        judge(
            *(right[trial % len(right)][0], (0, 1)),
            epsilon=right[trial % len(right)][1],
            delta=right[trial % len(right)][2],
            confidence=0.998,  # half of alpha is for the first pair
            runs=1000,
            seed=trial,
        ).refuted
        for trial in range(trials)
    )
    print(f"{alarms} alarms in {trials}")
    assert alarms <= 1
