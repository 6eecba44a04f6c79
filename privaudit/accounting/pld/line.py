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


def log_normal_mass(ends: Floats, centre: float | Floats = 0.0) -> Floats:
    """log of the probability that N(centre, 1) lies between each number and the next.

    ``ends`` increase along the last axis. Wide intervals by their ends' tails, r(|x|)
    exp(-x^2 / 2), of which the two are at least 2 % apart, or by the error function.
    Narrow ones by the Taylor series of the density about the middle m, whose even
    derivatives are Hermite polynomials: w phi(m) sum_k He_2k(m) (w/2)^2k/(2k+1)!. With
    w (1 + |m|) <= 0.05 the terms from k = 4 on are below 1e-16 of the sum.
    """
    left, right = ends[..., :-1], ends[..., 1:]
    moved = ends - centre
    size = np.abs(moved)
    tail = 0.5 * special.erfcx(size / math.sqrt(2))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        near = np.minimum(size[..., :-1], size[..., 1:])
        width = right - left
        rest = np.minimum(tail[..., :-1], tail[..., 1:])
        rest *= np.exp(-width * (near + 0.5 * width))
        mass = np.log(np.maximum(tail[..., :-1], tail[..., 1:]) - rest)
        mass -= 0.5 * near * near
        middle = 0.5 * (left + right) - centre
        both = (moved[..., :-1] < 0) & (moved[..., 1:] > 0)
        each = (size[..., at][both] for at in (slice(None, -1), slice(1, None)))
        mass[both] = np.log(sum(0.5 * special.erf(one / math.sqrt(2)) for one in each))
        narrow = width * (1 + np.abs(middle)) <= _NARROW
        width, middle = width[narrow], middle[narrow]
        square = middle * middle
        quarter = 0.25 * width * width
        series = (((square - 15) * square + 45) * square - 15) * (quarter / 42)
        series = (series + (square - 6) * square + 3) * (quarter / 20)
        series = (series + square - 1) * (quarter / 6) + 1
        mass[narrow] = np.log(series * width) - 0.5 * square - _LOG_SQRT_TAU
        mass[~(left < right)] = -np.inf
    return mass


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
