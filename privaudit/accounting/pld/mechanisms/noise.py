"""Masses of steps by their loss, whichever the noise and the sampling."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.pld.cells import (
    Cells,
    Direction,
    Noise,
    Scheme,
    Step,
    grid_span,
    half_grid,
)
from privaudit.accounting.pld.dots import GridMeasure, measure_above, measure_below
from privaudit.accounting.pld.line import UNIT, Floats, sampled_loss
from privaudit.accounting.pld.mechanisms import gaussian, laplace
from privaudit.accounting.pld.mechanisms.loss import (
    MOST_CELLS,
    Loss,
    sampled_divergence,
)

_NOISE = {"gaussian": gaussian, "laplace": laplace}


def total_variation(step: Step) -> float:
    """Total variation of the unsampled pair."""
    return _NOISE[step.noise].total_variation(step.shift)


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Masses of P and Q of steps of one kind, by their loss."""

    # log_p, log_q: logs of the masses below the first of some losses, between, and
    # above the last; shape (steps, cells)
    log_p: Floats
    log_q: Floats
    atom: Floats  # mass of P (and of Q) at loss 0 exactly, in no cell; shape (steps,)
    accuracy: float  # as in `Cells`

    def merged(self, kept: NDArray[np.intp]) -> Rows:
        """The same between fewer of the losses, ``kept`` by number."""
        columns = np.append(0, kept + 1)
        widths = np.diff(columns, append=self.log_p.shape[1])
        found: list[Floats] = []
        size = 0.0
        for logs in (self.log_p, self.log_q):
            top = np.maximum.reduceat(logs, columns, axis=1)
            top = np.where(top > -np.inf, top, 0.0)
            parts = np.exp(logs - np.repeat(top, widths, axis=1))
            with np.errstate(divide="ignore"):
                found.append(top + np.log(np.add.reduceat(parts, columns, axis=1)))
            size = max(size, float(np.abs(top).max()))
        accuracy = self.accuracy + UNIT * (64 + int(widths.max()) + 16 * size)
        return Rows(found[0], found[1], self.atom, accuracy)


def rows(
    kind: tuple[Noise, Scheme],
    way: Direction,
    edges: Floats,
    shift: Floats,
    rate: Floats,
    reach: float = math.inf,
) -> Rows:
    """Masses of many steps, shift and rate (steps,), between the same losses.

    ``way``: as `Step` says, or reversed for ``add``. ``edges``: increasing; of
    ``fixed`` steps 0 is one. ``reach``: Phi(-reach), about, counts as below or above.
    """
    noise, scheme = kind
    masses = _NOISE[noise].masses
    columns = (shift[:, None], rate[:, None], reach)
    atom = np.zeros(shift.size)
    if scheme == "replace":
        if noise != "gaussian":
            raise ValueError(
                "Poisson sampling under replace-one is accounted for Gaussian noise "
                f"only, got {noise}; account the release unsampled"
            )
        log_p, log_q, accuracy = gaussian.opposed(edges, *columns)
    elif scheme == "fixed":
        # Losses above 0 of the pair, those below of its reverse, the rest of P at 0.
        zero = int(np.searchsorted(edges, 0.0))
        high_q, high_p, accuracy = masses(edges[zero:], *columns)
        low_p, low_q, off = masses(-edges[zero::-1], *columns)
        log_p = np.concatenate([low_p[:, :0:-1], high_p[:, 1:]], axis=1)
        log_q = np.concatenate([low_q[:, :0:-1], high_q[:, 1:]], axis=1)
        accuracy = max(accuracy, off)
        steps = (Step(noise, scheme, m, 1.0) for m in shift.tolist())
        atom = (1 - rate) * np.array([total_variation(step) for step in steps])
    elif way == "remove":
        log_q, log_p, accuracy = masses(edges, *columns)
    else:
        log_p, log_q, accuracy = masses(-edges[::-1], *columns)
        log_p, log_q = log_p[:, ::-1], log_q[:, ::-1]
    return Rows(log_p, log_q, atom, accuracy)


def ends(step: Step, way: Direction, reach: float) -> tuple[float, float]:
    """Losses that all lies between but what is further out than ``reach``."""
    m, q = step.shift, step.rate
    far = most = m
    if step.noise == "gaussian":
        far, beyond = m * (reach + m / 2), gaussian.upper_reach(m, q, reach)
        most = m * (float(beyond) + m / 2)
    low, high = sampled_loss(-far, q), sampled_loss(most, q)
    if step.scheme == "replace":
        high -= sampled_loss(-most - m * m, q)
    if step.scheme != "poisson":
        return -high, high
    return (low, high) if way == "remove" else (-high, -low)


def loss_cells(
    step: Step, way: Direction, spacing: float, reach: float, limit: int
) -> Cells:
    """The masses of ``step`` on a grid that covers all but its far tails.

    The grid ends where less than Phi(-``reach``) of any mixed variable is left, or
    after ``limit`` cells.
    """
    low, high = ends(step, way, reach)
    start, stop = grid_span(low, high, spacing, limit)
    found = rows(
        (step.noise, step.scheme),
        way,
        half_grid(start, stop, spacing),
        np.array([step.shift]),
        np.array([step.rate]),
    )
    p, q = found.log_p[0], found.log_q[0]
    return Cells(
        start,
        p[1:-1],
        q[1:-1],
        (float(p[0]), float(q[0])),
        (float(p[-1]), float(q[-1])),
        float(found.atom[0]),
        found.accuracy,
    )


class Gaussian(Loss):
    """N(shift) against N(0), sampled: as the account of Gaussian steps has it."""

    def __init__(self, shift: float, rate: float) -> None:
        self.step = Step("gaussian", "poisson", shift, rate)

    @property
    def symmetric(self) -> bool:  # pyrefly: ignore[bad-override]
        return self.step.rate == 1

    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        return measure_above(self._cells(way, spacing, reach), spacing)

    def below(self, way: Direction, spacing: float, reach: float) -> GridMeasure | None:
        return measure_below(self._cells(way, spacing, reach), spacing)

    def _cells(self, way: Direction, spacing: float, reach: float) -> Cells:
        return loss_cells(self.step, way, spacing, reach, MOST_CELLS)

    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        m, q = self.step.shift, self.step.rate
        far = 36 + 4 * m
        x = np.linspace(-far, far, int(min(max(10 * far, 400), 2000)))
        log_q = -0.5 * x * x - 0.5 * math.log(2 * math.pi) + math.log(x[1] - x[0])
        loss = m * x - m * m / 2
        if q < 1:
            loss = np.logaddexp(math.log1p(-q), math.log(q) + loss)
        return (loss, log_q) if way == "remove" else (-loss, log_q + loss)

    def length(self, reach: float) -> float:
        m = self.step.shift
        return 2 * m * (reach + m / 2)

    def range(self, way: Direction) -> tuple[float, float]:
        q = self.step.rate
        low = -math.log1p(-q) * (1 + 1e-14) if q < 1 else math.inf
        return (math.inf, low) if way == "remove" else (low, math.inf)

    def distance(self) -> float:
        return self.step.rate * math.erf(self.step.shift / math.sqrt(8)) * (1 + 1e-13)

    def divergence(self, order: float) -> float:
        if order == math.inf:
            return math.inf
        whole = order * self.step.shift**2 / 2 * (1 + 1e-14)
        return sampled_divergence(whole, self.step.rate, order)
