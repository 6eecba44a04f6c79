"""Sums of rounded normal numbers, and what it costs to take them for a normal one.

Several nodes add noise that is rounded to whole steps of one grid, and only the exact
sum is seen. It is not a rounded normal number of more variance, but within
`log_distance_up` of post-processing of one. Statement and proof: ``grid.md``.
"""

from __future__ import annotations

import math

STEPS = 2.0**20  # of the grid in a deviation of the noise, at least: the oracle's
LEAST_STEPS = 2.0**10
MOST_MU2 = 1e6  # what `failure_up` covers
_MOST_EPSILON = 1e6  # what such releases can have at most, at any delta that is a float
_MOST_NUMBERS = 2.0**100  # coordinates times steps
_LEAST = math.ulp(0.0)


def log_distance_up(count: int, steps: float) -> float:
    """Logarithm of a bound on how far a sum of rounded normals is from a rounded sum.

    In total variation, of ``count`` numbers round(s z), z standard normal and s =
    ``steps``, from s sqrt(count) z rounded at random: 4 s exp(1.6 (count - 1) -
    2 pi^2 s^2 (count - 1) / count), rounded up.
    """
    if not (steps >= 2 and 1 <= count <= 2 * math.pi**2 * steps**2):
        raise ValueError(
            f"the lemma is for a deviation of 2 steps or more, and at most 2 pi^2 as "
            f"many squared numbers, got {count} numbers of deviation {steps:g}"
        )
    if count == 1:
        return -math.inf
    decay = 2 * math.pi**2 * steps**2 * (count - 1) / count
    found = 1.6 * (count - 1) - decay + math.log(4 * steps)
    return found + 1e-12 * (decay + 10 * count)


def failure_up(count: int, steps: float = STEPS) -> float:
    """Delta that pays for all sums of 2 to ``count`` noises in one run.

    For up to 2^100 numbers seen, and figures up to those of releases whose squares of
    sensitivity over noise sum up to `MOST_MU2`.

    >>> failure_up(1024) < 1e-300, failure_up(1)
    (True, 0.0)
    """
    if steps < LEAST_STEPS:
        raise ValueError(
            f"exact sums are accounted for noise of {LEAST_STEPS:g} steps or more a "
            f"deviation, got {steps:g}"
        )
    if count < 2:
        return 0.0
    worst = max(log_distance_up(some, steps) for some in (2, count))
    # (1 + exp(epsilon)) for each number: see grid.md.
    total = worst + math.log(_MOST_NUMBERS) + _MOST_EPSILON + math.log(2)
    if total > -1:
        raise ValueError(
            f"noise of {steps:g} steps a deviation does not pay for what sums of "
            "rounded noise give away: use a finer grid"
        )
    return max(math.exp(total) * (1 + 1e-9), _LEAST)
