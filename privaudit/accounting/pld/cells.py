"""Probability masses of two neighbouring outputs in cells of the privacy loss."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np

from privaudit.accounting.pld.line import UNIT, Floats

Noise = Literal["gaussian", "laplace"]
Scheme = Literal["poisson", "replace", "fixed"]
Direction = Literal["remove", "add"]
Masses = tuple[Floats, Floats, float]  # logs of two laws' masses, and their accuracy


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One release, as far as its privacy loss goes."""

    noise: Noise  # the shape of the noise
    # ``poisson``: (1 - rate) N(0) + rate N(shift) against N(0), and reversed.
    # ``replace``: (1 - rate) N(0) + rate N(shift) against (1 - rate) N(0) + rate
    # N(-shift). ``fixed``: the profile of the first for losses above 0, and of its
    # reverse below
    scheme: Scheme
    shift: float  # sensitivity over the noise's standard deviation or scale
    rate: float  # probability of being in the batch; 1 without sampling


@dataclasses.dataclass(frozen=True, slots=True)
class Cells:
    """Masses of P and Q by privacy loss, on half cells of a grid."""

    start: int  # the first grid point is ``start * spacing``
    # log_p, log_q: of the half cells, in order of loss; shape (2 * number of cells,)
    log_p: Floats
    log_q: Floats
    # below, above: logs of the masses of P and of Q at losses below the grid and above
    # it
    below: tuple[float, float]
    above: tuple[float, float]
    atom: float  # mass of P (and of Q) at loss 0 exactly, not in any cell
    # bound on the relative error of every mass, and on how far the loss of the
    # interval's true ends is from the grid point
    accuracy: float
    # mass of P where Q has none, on top of what lies above the grid
    infinite: float = 0.0

    def __len__(self) -> int:
        return self.log_p.size // 2


def half_grid(start: int, stop: int, spacing: float) -> Floats:
    """Points half a spacing apart, from ``start`` to ``stop`` spacings."""
    return np.arange(2 * start, 2 * stop + 1, dtype=float) * (0.5 * spacing)


def grid_span(low: float, high: float, spacing: float, limit: int) -> tuple[int, int]:
    """Grid indices around [low, high], and around 0, at most ``limit`` cells."""
    first = max(math.floor(max(low, -1e300) / spacing), -limit // 2)
    return min(first, -1), max(min(math.ceil(high / spacing), first + limit), 1)


def accuracy_of(outputs: Floats, shift: float) -> float:
    """Accuracy of masses between Gaussian outputs moved by ``shift``; see `Cells`."""
    # exp, log, expm1, log1p and log_ndtr are taken to be within 8 units in the last
    # place of their value; the exponent of a normal density is at most x^2 / 2, an
    # output's error at most 8 units of |x| + shift + |g| / shift, and the loss moves
    # by at most shift times that. The constant covers the logarithm of the rate.
    finite = outputs[np.isfinite(outputs)]
    far = (float(np.max(np.abs(finite))) if finite.size else 0.0) + shift
    return UNIT * (1024 + 32 * far * far)


def mix(rate: float | Floats, log_first: Floats, log_second: Floats) -> Floats:
    """log of (1 - rate) first + rate second."""
    with np.errstate(invalid="ignore", divide="ignore"):
        first, second = np.log1p(-rate) + log_first, np.log(rate) + log_second
        top = np.maximum(first, second)
        found = top + np.log(1 + np.exp(np.minimum(first, second) - top))
    return np.where(top == -np.inf, top, found)
