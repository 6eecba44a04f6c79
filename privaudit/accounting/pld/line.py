"""Chances that a normal variable is in an interval; losses under sampling.

Masses are worked out in logarithms and from the middle of narrow intervals, never as a
small difference of large numbers, so that their *relative* error is a few units in the
last place.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

UNIT = 2.0**-53  # unit roundoff
_LOG_SQRT_TAU = 0.5 * math.log(2 * math.pi)
_NARROW = 0.05


def log_normal_mass(
    left: Floats, right: Floats, centre: float | Floats = 0.0
) -> Floats:
    """log of the probability that N(centre, 1) lies in [left, right], elementwise.

    Narrow intervals by the Taylor series of the density about the middle m, whose
    even derivatives are Hermite polynomials: w phi(m) sum_k He_2k(m) (w/2)^2k/(2k+1)!.
    With w (1 + |m|) <= 0.05 the terms from k = 4 on are below 1e-16 of the sum.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        width = right - left
        middle = 0.5 * (left + right) - centre
        square = middle * middle
        quarter = 0.25 * width * width
        series = ((square - 15) * square + 45) * square - 15
        series *= quarter / 42
        series += (square - 6) * square + 3
        series *= quarter / 20
        series += square - 1
        series *= quarter / 6
        series += 1
        series *= width
        mass = np.log(series)
        mass -= 0.5 * square
        mass -= _LOG_SQRT_TAU
        wide = ~(width * (1 + np.abs(middle)) <= _NARROW)
    if wide.any():
        mass[wide] = _log_normal_difference(
            (left - centre)[wide], (right - centre)[wide]
        )
    return mass


def _log_normal_difference(left: Floats, right: Floats) -> Floats:
    """log(Phi(right) - Phi(left)) where the two differ by more than 2 % of either."""
    flip = left + right > 0  # work in the lower tail
    low = np.where(flip, -right, left)
    high = np.where(flip, -left, right)
    top = special.log_ndtr(high)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.exp(special.log_ndtr(low) - top)
        return np.where(high > low, top + np.log1p(-np.minimum(ratio, 1)), -np.inf)


def unsampled_loss(loss: Floats, rate: float | Floats) -> Floats:
    """The loss g of an unsampled pair with loss = log(1 - rate + rate exp(g)).

    Minus infinity at and below log(1 - rate).
    """
    # Each form where it has digits: far below 0 only what is left of 1 - rate counts.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        near = np.log1p(np.maximum(np.expm1(loss) / rate, -1.0))
        rest = np.minimum((1 - rate) * np.exp(-loss), 1.0)
        far = loss - np.log(rate) + np.log1p(-rest)
        return np.where(rate == 1, loss, np.where(np.abs(loss) < 1, near, far))


def sampled_loss(loss: float, rate: float) -> float:
    """log(1 - rate + rate exp(loss)), the inverse of `unsampled_loss`."""
    if rate == 1:
        return loss
    if loss > 700:  # below, that would cancel for small rates
        return loss + math.log(rate) + math.log1p((1 - rate) / rate * math.exp(-loss))
    if loss < -1 and rate > 0.5:
        return math.log((1 - rate) + rate * math.exp(loss))
    return math.log1p(rate * math.expm1(loss))
