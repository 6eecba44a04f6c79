"""Probability masses of two neighbouring outputs in cells of the privacy loss.

What the noises of ``mechanisms/gaussian.py`` and ``laplace.py`` have in common.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np

from privaudit.accounting.pld.line import UNIT, Floats

Noise = Literal["gaussian", "laplace"]
Scheme = Literal["poisson", "replace", "fixed"]
Direction = Literal["remove", "add"]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One release, as far as its privacy loss goes.

    Parameters
    ----------
    noise
        The shape of the noise.
    scheme
        ``poisson``: (1 - rate) N(0) + rate N(shift) against N(0), and reversed.
        ``replace``: (1 - rate) N(0) + rate N(shift) against (1 - rate) N(0) + rate
        N(-shift). ``fixed``: the profile of the first for losses above 0, and of its
        reverse below.
    shift
        Sensitivity over the noise's standard deviation or scale.
    rate
        Probability of being in the batch; 1 without sampling.
    """

    noise: Noise
    scheme: Scheme
    shift: float
    rate: float


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """The masses of one cell, at ``index``, in many parts in order of loss."""

    index: int
    log_p: Floats
    log_q: Floats


@dataclasses.dataclass(frozen=True, slots=True)
class Cells:
    """Masses of P and Q by privacy loss, on half cells of a grid.

    Parameters
    ----------
    start, offset
        The first grid point is ``start * spacing + offset``.
    log_p, log_q
        Of the half cells, in order of loss; shape (2 * number of cells,).
    below, above
        Logs of the masses of P and of Q at losses below the grid and above it.
    atom
        Mass of P (and of Q) at loss 0 exactly, not in any cell.
    accuracy
        Bound on the relative error of every mass, and on how far the loss of the
        interval's true ends is from the grid point.
    edges
        Outputs at the grid points, in order of loss; None if the step has no tangents.
    split
        The cell next to most of the losses, where the grid is coarse beside them.
    infinite
        Mass of P where Q has none, on top of what lies above the grid.
    """

    start: int
    log_p: Floats
    log_q: Floats
    below: tuple[float, float]
    above: tuple[float, float]
    atom: float
    accuracy: float
    edges: Floats | None
    offset: float = 0.0
    split: Split | None = None
    infinite: float = 0.0

    def __len__(self) -> int:
        return self.log_p.size // 2


@dataclasses.dataclass(frozen=True, slots=True)
class Outputs:
    """Masses of noise alone (a) and of the mixture (b) by the loss log(b / a)."""

    start: int
    log_a: Floats
    log_b: Floats
    below: tuple[float, float]  # logs, of a and of b
    above: tuple[float, float]
    accuracy: float
    edges: Floats | None
    offset: float
    split: tuple[Floats, Floats] | None  # logs, of the cell above ``offset``

    def towards(self, direction: Direction) -> Cells:
        """The mixture against the noise for ``remove``, reversed for ``add``."""
        return self._reversed() if direction == "add" else self._forward()

    def _forward(self) -> Cells:
        return Cells(
            self.start,
            self.log_b,
            self.log_a,
            self.below[::-1],
            self.above[::-1],
            0.0,
            self.accuracy,
            self.edges,
            self.offset,
            None if self.split is None else Split(-self.start, *self.split[::-1]),
        )

    def _reversed(self) -> Cells:
        return Cells(
            -(self.start + self.log_a.size // 2),
            self.log_a[::-1],
            self.log_b[::-1],
            self.above,
            self.below,
            0.0,
            self.accuracy,
            None if self.edges is None else self.edges[::-1],
            -self.offset,
            None
            if self.split is None
            else Split(
                self.log_a.size // 2 - 1 + self.start,
                self.split[0][::-1],
                self.split[1][::-1],
            ),
        )


def half_grid(start: int, stop: int, spacing: float) -> Floats:
    """Points half a spacing apart, from ``start`` to ``stop`` spacings."""
    return np.arange(2 * start, 2 * stop + 1, dtype=float) * (0.5 * spacing)


def grid_span(low: float, high: float, spacing: float, limit: int) -> tuple[int, int]:
    """Grid indices around [low, high], and around 0, at most ``limit`` cells."""
    first = max(math.floor(max(low, -1e300) / spacing), -limit // 2)
    last = min(math.ceil(high / spacing), first + limit)
    return min(first, -1), max(last, 1)


def accuracy_of(outputs: Floats, shift: float) -> float:
    """Accuracy of masses between Gaussian outputs moved by ``shift``; see `Cells`."""
    # exp, log, expm1, log1p and log_ndtr are taken to be within 8 units in the last
    # place of their value; the exponent of a normal density is at most x^2 / 2, an
    # output's error at most 8 units of |x| + shift + |g| / shift, and the loss moves
    # by at most shift times that. The constant covers the logarithm of the rate.
    finite = outputs[np.isfinite(outputs)]
    far = (float(np.max(np.abs(finite))) if finite.size else 0.0) + shift
    return UNIT * (1024 + 32 * far * far)


def mix(rate: float, log_first: Floats, log_second: Floats) -> Floats:
    """log of (1 - rate) first + rate second."""
    if rate == 1:
        return log_second
    first, second = math.log1p(-rate) + log_first, math.log(rate) + log_second
    top = np.maximum(first, second)
    with np.errstate(invalid="ignore"):
        found = top + np.log(1 + np.exp(np.minimum(first, second) - top))
    return np.where(top == -np.inf, top, found)
