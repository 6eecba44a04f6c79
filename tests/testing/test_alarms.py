"""Alarms of `judge` on 1 000 right mechanisms, and what it misses of 50 wrong ones."""

import functools
import math

import numpy as np
import pytest

from privaudit.auditing.bounds.best import Best
from privaudit.auditing.scores import Scores
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
    trials = size(1000, 20)
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


@pytest.mark.full
@pytest.mark.sized
def test_of_fifty_faulty_ones_none_that_best_refutes_is_missed():
    """Each by itself, on the same runs and at the same level.

    In general it may be: at nine tenths of alpha it is `best` but for the luck of
    simulations, a fifth or so.
    """
    wrong = [*_mechanisms((1.1, 1.2, 1.3, 1.5, 2.0))]
    assert len(wrong) == 50
    refuted = 0
    for mechanism, epsilon, delta in wrong[:: size(1, 13)]:
        seen = []

        def run(data, rng, mechanism=mechanism, seen=seen):
            seen.append((data, mechanism(data, rng)))
            return seen[-1][1]

        found = judge(run, (0, 1), epsilon=epsilon, delta=delta, runs=2000)
        refuted += found.refuted
        if not found.refuted:
            assert len(seen) == 2000
            worlds, score = np.array(seen, float).T
            scores = Scores(worlds > 0, score, "coin-flip")
            bound = Best()(scores, delta, found.level, threat_model="output")
            assert bound.epsilon <= epsilon, (mechanism, epsilon)
    print(f"{refuted} refuted")
    assert refuted >= size(20, 1)
