"""Losses of mechanisms on a grid, from above and from below.

A pair (P, Q) is the output with the record and without it, for direction ``remove``;
``add`` is its reverse. Poisson sampling with rate q makes of P the mixture
(1 - q) Q + q P, and if (P, Q) dominates, so does what is made of it: H_a of the sampled
pair is an affine function of H at another place (Zhu, Dong and Wang 2022, theorem 11).
So a pair needs its masses between any losses, and sampling is a change of scale.
"""

from __future__ import annotations

import abc
import copy
import math
from typing import ClassVar

import numpy as np

from privaudit.accounting.pld.cells import Cells, Direction, grid_span, half_grid, mix
from privaudit.accounting.pld.dots import (
    GridMeasure,
    measure_above,
    measure_below,
    measure_lowered,
)
from privaudit.accounting.pld.line import UNIT, Floats, sampled_loss, unsampled_loss

MOST_CELLS = 1 << 19


class _Known(abc.ABC):
    """Facts of the losses of a release, or of a pair."""

    symmetric: ClassVar[bool] = False  # one pair both ways

    @property
    def lattice(self) -> float | None:
        """Number of which all losses are multiples, if of any."""
        return None

    @abc.abstractmethod
    def distance(self) -> float:
        """At least the total variation distance."""

    def divergence(self, order: float) -> float:
        """At least the Renyi divergence of both directions; infinity if unknown."""
        return math.inf


class Loss(_Known):
    """The privacy loss of one release, sampling included; upper bounds hold for it."""

    points: ClassVar[int] = MOST_CELLS  # of grids, most

    @property
    def attained(self) -> tuple[Loss, ...]:
        """Losses that some data sets attain, for lower bounds; the best is taken."""
        return (self,)

    @abc.abstractmethod
    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        """A measure that dominates."""

    def below(self, way: Direction, spacing: float, reach: float) -> GridMeasure | None:
        """A measure that is dominated; None if P = Q is the best on this grid."""
        return None

    def lowered(
        self, way: Direction, spacing: float, reach: float
    ) -> GridMeasure | None:
        """As `below`, good on fine grids for few and large losses if there is one."""
        return self.below(way, spacing, reach)

    @abc.abstractmethod
    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        """Losses and logs of Q's masses there, about: to know where to look."""

    @abc.abstractmethod
    def length(self, reach: float) -> float:
        """About how long the grid of its losses is."""

    def range(self, way: Direction) -> tuple[float, float]:
        """The largest loss, and minus the least; infinite where nothing bounds it."""
        return math.inf, math.inf

    def infinite(self, way: Direction) -> float:
        """About P's mass at infinite loss."""
        return 0.0


class Pair(_Known):
    """P and Q without sampling, by loss; ``top``, ``null``: masses of one alone."""

    top: float = 0.0
    null: float = 0.0

    @abc.abstractmethod
    def masses(self, edges: Floats) -> tuple[Floats, Floats, float]:
        """Logs of P's and Q's masses below the first edge, between edges, and above.

        ``edges`` grow; those that are minus infinity hold nothing between them. Last,
        a bound on the masses' relative error, and on how far losses are misplaced.
        """

    @abc.abstractmethod
    def span(self, reach: float) -> tuple[float, float]:
        """Losses that all but Phi(-reach) of P and Q lies between."""

    @abc.abstractmethod
    def extremes(self) -> tuple[float, float]:
        """The least and the largest loss, rounded outwards; perhaps infinite."""

    @abc.abstractmethod
    def sketch(self) -> tuple[Floats, Floats]:
        """Finite losses, and logs of Q's masses, about."""


class PairLoss(Loss):
    """The loss of a pair, Poisson sampled with ``rate``; or others ``attained``."""

    def __init__(
        self, pair: Pair, rate: float = 1.0, attained: tuple[Pair, ...] | None = None
    ) -> None:
        self.pair, self.rate = pair, rate
        self._attained = attained

    @property
    def symmetric(self) -> bool:  # pyrefly: ignore[bad-override]
        return self.pair.symmetric and self.rate == 1

    @property
    def attained(self) -> tuple[Loss, ...]:
        if self._attained is None:
            return (self,)
        return tuple(PairLoss(pair, self.rate) for pair in self._attained)

    @property
    def lattice(self) -> float | None:
        """See `Loss`; of a sampled pair the largest loss is one such number."""
        if self.rate == 1:
            return self.pair.lattice
        top = self.pair.extremes()[1]
        if self.pair.lattice is None or top == math.inf:
            return None
        return sampled_loss(top, self.rate)

    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        return measure_above(self.cells(way, spacing, reach), spacing)

    def below(self, way: Direction, spacing: float, reach: float) -> GridMeasure | None:
        return measure_below(self.cells(way, spacing, reach), spacing)

    def lowered(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        return measure_lowered(self.cells(way, spacing, reach), spacing)

    def cells(self, way: Direction, spacing: float, reach: float) -> Cells:
        """Masses on a grid with points at multiples of ``spacing``."""
        pair, rate = self.pair, self.rate
        low, high = (_sampled(loss, rate) for loss in pair.span(reach))
        if low == -math.inf:
            low = -300.0
        start, stop = grid_span(low - spacing, high + spacing, spacing, MOST_CELLS)
        points = half_grid(start, stop, spacing)
        log_p, log_q, accuracy = pair.masses(unsampled_loss(points, rate))
        null, top = pair.null, rate * pair.top
        if null and rate < 1:  # in the mixture these outputs have a loss
            at = int(np.searchsorted(points, math.log1p(-rate), "right"))
            log_q[at] = np.logaddexp(log_q[at], math.log(null))
            null = 0.0
        log_p = mix(rate, log_q, log_p)
        accuracy += UNIT * 1024
        low_p, low_q, high_p, high_q = (
            float(log[i]) for i in (0, -1) for log in (log_p, log_q)
        )
        if way == "remove":
            return Cells(
                start,
                log_p[1:-1],
                log_q[1:-1],
                (low_p, _log_sum(low_q, null)),
                (high_p, high_q),
                0.0,
                accuracy,
                infinite=top,
            )
        return Cells(
            -stop,
            log_q[-2:0:-1],
            log_p[-2:0:-1],
            (high_q, _log_sum(high_p, top)),
            (low_q, low_p),
            0.0,
            accuracy,
            infinite=null,
        )

    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        loss, log_q = self.pair.sketch()
        if self.rate < 1:
            loss = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + loss)
            if self.pair.null:
                loss = np.append(loss, math.log1p(-self.rate))
                log_q = np.append(log_q, math.log(self.pair.null))
        return (loss, log_q) if way == "remove" else (-loss, log_q + loss)

    def length(self, reach: float) -> float:
        """See `Loss`; a grid reaches to 0, wherever the losses are."""
        low, high = (_sampled(loss, self.rate) for loss in self.pair.span(reach))
        return max(high, 0.0) - min(max(low, -300.0), 0.0)

    def range(self, way: Direction) -> tuple[float, float]:
        low, high = self.pair.extremes()
        high = math.inf if self.pair.top else _sampled(high, self.rate)
        low = -math.inf if self.pair.null else low
        low = _sampled(low, self.rate)
        slack = 1 + 1e-13
        up, down = high * slack, -low * slack
        return (up, down) if way == "remove" else (down, up)

    def distance(self) -> float:
        return self.rate * self.pair.distance()

    def infinite(self, way: Direction) -> float:
        if way == "remove":
            return self.rate * self.pair.top
        return self.pair.null if self.rate == 1 else 0.0

    def divergence(self, order: float) -> float:
        """See `Loss`.

        x^a is convex, and so is x^(1 - a): the moment of a mixture with 1 is at most
        the mixture of the moments.
        """
        return sampled_divergence(self.pair.divergence(order), self.rate, order)


def unattained(loss: Loss) -> Loss:
    """The same bound from above; no data are known to attain it."""
    found = copy.copy(loss)
    assert isinstance(found, PairLoss), "all others are sampled by themselves"
    found._attained = ()
    return found


def sampled_divergence(whole: float, rate: float, order: float) -> float:
    """log(1 - q + q exp((a - 1) D)) / (a - 1), rounded up; at order infinity its limit.

    >>> round(sampled_divergence(1.0, 0.5, 2.0), 6)
    0.620115
    """
    if rate == 1 or whole in (0.0, math.inf):
        return whole
    if order == math.inf:
        # Of a loss up to D sampled; that of a record added is at most -log(1 - q + q
        # exp(-D)), which is more where losses are negative.
        up = math.log1p(rate * math.expm1(whole)) if whole < 700 else whole
        return max(up, -math.log1p(rate * math.expm1(-whole))) * (1 + 1e-14)
    size = (order - 1) * whole
    if size > 700:
        return whole
    return math.log1p(rate * math.expm1(size)) / (order - 1) * (1 + 1e-14)


def _sampled(loss: float, rate: float) -> float:
    if loss == -math.inf:
        return math.log1p(-rate) if rate < 1 else loss
    return loss if loss == math.inf else sampled_loss(loss, rate)


def _log_sum(log: float, mass: float) -> float:
    return float(np.logaddexp(log, math.log(mass))) if mass else log
