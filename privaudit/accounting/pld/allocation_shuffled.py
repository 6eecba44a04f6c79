"""Shuffled batches from above: how many release as if nobody were in one place.

Whoever is in a place of a batch, with chance about 1 / q its release is drawn from the
law without anybody there. Among so many batches, and no more, a record's is hidden as
in a random allocation: ``allocation.md``, "Shuffled anew".
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from privaudit.accounting import gdp

_LEVELS = 4  # numbers of batches that are told apart, each a pair to be worked out
_ROUND = 1.25  # by which rounded numbers grow: other losses ask for few others
_MOST_LOG, _MOST_OTHERS = 60.0, 1_000_000  # of q; of more chances lose digits
_STEPS = 50


def numbers_of_alike(
    shift: float, batches: int, lost: float
) -> tuple[list[tuple[int, float]], float]:
    """Numbers of batches among which a record is hidden, the chance of each, and loss.

    Parameters
    ----------
    shift
        A record's norm over the noise.
    batches
        How many a pass has, the record's included.
    lost
        About how much may be lost at any threshold, in (0, 1).

    Returns
    -------
    Pairs of a number and its chance, numbers rounded down; and a bound on what the
    divergence is more than that of their mixture, at any threshold.
    """
    low, high = 0.0, _MOST_LOG
    if _lost(shift, batches, high) > lost:
        return [(1, 1.0)], 0.0
    for _ in range(_STEPS):  # invariant: high is enough
        middle = (low + high) / 2
        enough = _lost(shift, batches, middle) <= lost
        low, high = (low, middle) if enough else (middle, high)
    chance = math.exp(-high) / (1 + _missing(shift, high)) * (1 - 1e-12)
    # Of more, others are left where they are known to be.
    others = min(batches - 1, _MOST_OTHERS)
    k = np.arange(1.0, math.ceil(others * chance) + 2)
    fewer = special.bdtr(k - 1, others, chance) * (1 + 1e-8)  # less than k others
    found, before, least = [], 0.0, 1
    for level in np.geomspace(lost / 10, 0.5, _LEVELS).tolist():
        more = int(np.searchsorted(fewer, level, side="right"))  # others, at least
        if more <= 1:
            continue
        more = math.floor(_ROUND ** math.floor(math.log(more, _ROUND)) + 1e-9)
        if more + 1 > least:
            below = float(fewer[more - 1])
            found.append((least, max(below - before, 1e-300) * (1 + 1e-12)))
            least, before = more + 1, below
    found.append((least, (1 - before) * (1 + 1e-12)))
    return found, _lost(shift, batches, high)


def _missing(shift: float, log_q: float) -> float:
    """Chance by which a record's law falls short of 1 / q of nobody's, rounded up."""
    return max(float(gdp.delta(shift, log_q)) * math.exp(-log_q), 1e-300) * (1 + 1e-14)


def _lost(shift: float, batches: int, log_q: float) -> float:
    """Least of what laws are replaced by, and of the divergence itself, at the worst.

    The one grows with the threshold, the other falls.
    """
    each = (batches - 1) * _missing(shift, log_q) * (1 + 1e-14)

    def less(log_g: float) -> bool:
        return each * (1 + math.exp(log_g)) < float(gdp.delta(2 * shift, log_g))

    low, high = 0.0, 1.0
    while less(high):
        if high > 256:
            return math.inf
        low, high = high, 2 * high
    for _ in range(_STEPS):  # invariant: not less(high)
        middle = (low + high) / 2
        low, high = (middle, high) if less(middle) else (low, middle)
    return each * (1 + math.exp(high)) * (1 + 1e-12)
