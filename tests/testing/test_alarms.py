"""Alarms of `judge` on 1 000 right mechanisms, and what it misses of 50 wrong ones."""

import functools
import math

import pytest

from privaudit.auditing.bounds.best import Best
from privaudit.auditing.scores import Scores
from privaudit.testing import judge
from privaudit.testing.sampling import Sampler
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


@pytest.mark.sized
def test_of_fifty_faulty_ones_none_that_best_refutes_is_missed():
    """On the same runs: by count at the same level, each by itself at .8 of alpha.

    At nine tenths it is `best` but for simulations, of which a tenth is luck.
    """
    wrong = [*_mechanisms((1.1, 1.2, 1.3, 1.5, 2.0))]
    assert len(wrong) == 50
    refuted = [0, 0]
    for mechanism, epsilon, delta in wrong[:: size(1, 5)]:
        given = {"epsilon": epsilon, "delta": delta, "runs": 2000}
        found = judge(mechanism, (0, 1), **given)
        worlds, seen = Sampler.of(mechanism, (0, 1), None, False, (0, 1)).run(2000)
        scores = Scores(worlds, seen.columns[:, 0], "coin-flip")
        same, less = (
            Best()(scores, delta, 1 - part * (1 - found.level), threat_model="output")
            for part in (1.0, 0.8)
        )
        refuted[0] += found.refuted
        refuted[1] += same.epsilon > epsilon
        assert found.refuted or less.epsilon <= epsilon
    print(f"judge {refuted[0]}, best {refuted[1]}")
    assert refuted[0] >= refuted[1]
