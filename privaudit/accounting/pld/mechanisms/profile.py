"""Measures on the grid from a bound on the profile alone.

Let H(a) = delta at epsilon = log a be bounded at the grid points a_i = exp(i h) by B_i.
H is convex, so that at these points it is at most the lower hull of the dots B_i, and
between them at most the chords of that; before the first dot at most the chord from
H(0) = 1, and behind the last at most its value. The measure with these dots is above H,
whatever it was rounded to, if its own dots are: they are worked out again from its
masses, as a sum of terms >= 0, and all masses are raised by what may be missing.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.dots import GridMeasure, drop_concave_knots
from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms.loss import PairLoss

MOST_POINTS = 1 << 14
_MOST_FACTOR = 1.01


def dots_of(measure: GridMeasure, spacing: float) -> Floats:
    """H at the grid points of a measure: sums of terms >= 0."""
    from scipy.signal import lfilter  # a tenth of a second

    # The sum over j > i of m_j (1 - exp((i - j) h)), from the top: each step down all
    # distances grow by h, and 1 - x exp(-h) is (1 - x) exp(-h) + (1 - exp(-h)).
    above = np.cumsum(measure.mass[::-1]) * -math.expm1(-spacing)
    sums = np.asarray(lfilter([1.0], [1.0, -math.exp(-spacing)], above))
    return np.append(0.0, sums[:-1])[::-1] + measure.infinite


def measure_of(dots: Floats, start: int, spacing: float) -> GridMeasure:
    """A measure whose H is at least ``dots`` at the grid points from ``start`` on."""
    dots = np.clip(dots, 0.0, 1.0)
    fall = (dots[:-1] - dots[1:]) / math.expm1(spacing)
    mass = np.empty(dots.size)
    mass[0] = max(1 - dots[0] - fall[0], 0.0)
    mass[1:-1] = fall[:-1] * math.exp(spacing) - fall[1:]
    mass[-1] = fall[-1] * math.exp(spacing)
    drop_concave_knots(mass, np.abs(mass), spacing)
    mass = np.maximum(mass, 0.0)
    if not mass.any():
        mass[0] = 1e-300
    infinite = float(dots[-1])
    found = GridMeasure(start, mass, infinite, UNIT * 1024)
    got = dots_of(found, spacing) * (1 - UNIT * (64 + 4 * dots.size))
    # Where a knot was dropped the hull is the chord of the knots that are left.
    kept = (mass > 0) & (dots > 0)
    kept[[0, -1]] = dots[[0, -1]] > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(kept, dots / got, 0.0)
    factor = max(1.0, float(np.nanmax(ratio)), 1 / (float(mass.sum()) + infinite))
    if not factor < _MOST_FACTOR:
        return GridMeasure(start, mass, 1.0, UNIT * 1024)  # nothing is bounded
    factor *= 1 + 1e-12
    return dataclasses.replace(
        found, mass=mass * factor, infinite=min(infinite * factor, 1.0)
    )


class EitherWay(PairLoss):
    """Loss above a loss and its reverse both: either record may be the one."""

    @property
    def symmetric(self) -> bool:  # pyrefly: ignore[bad-override]
        """True: attained by all releases the same way."""
        return True

    @property
    def lattice(self) -> float | None:
        """See `Loss`: of both ways together, none."""
        return None

    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        one, two = (PairLoss.above(self, w, spacing, reach) for w in ("remove", "add"))
        start = min(one.start, two.start)
        dots = np.zeros(max(m.start + m.mass.size for m in (one, two)) - start)
        for measure in (one, two):
            first = measure.start - start
            mass = np.pad(measure.mass, (first, dots.size - first - measure.mass.size))
            more = dots_of(dataclasses.replace(measure, mass=mass), spacing)
            dots = np.maximum(dots, more * (1 + 2 * measure.accuracy))
        return measure_of(dots * (1 + 1e-11), start, spacing)

    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        return super().sketch("remove")

    def length(self, reach: float) -> float:
        return 2 * super().length(reach)

    def range(self, way: Direction) -> tuple[float, float]:
        most = max(super().range("remove"))
        return most, most

    def infinite(self, way: Direction) -> float:
        return max(super().infinite("remove"), super().infinite("add"))
