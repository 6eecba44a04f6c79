"""Lower bounds on a step's profile from the profile of a nearby step.

For a Poisson sampled Gaussian H(a) is convex in tau = 2 Phi(shift / 2) - 1 and convex
in the rate, so it lies above its tangents in both; their slopes are closed forms. The
proofs are in ``pld.md``, "Tangents".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from privaudit.accounting.pld.cells import Cells, Direction, Step
from privaudit.accounting.pld.dots import Tangent
from privaudit.accounting.pld.line import Floats

_DENSITY = 1 / math.sqrt(2 * math.pi)
_BESIDE, _PARTS = 3, 64  # cells next to most of the losses, and parts of each
_FARTHEST = 16.0  # outputs, below which there is next to nothing
_Parts = Callable[[Floats], tuple[Floats, Floats]]  # D, and a bound on its bend


def shift_tangent(
    step: Step,
    cells: Cells,
    direction: Direction,
    spacing: float,
    shift: float,
    times: float = 1.0,
) -> Tangent:
    """Tangent in tau at ``step``, ``times`` as far as to ``shift``, a larger one.

    dH/dtau = rate exp(g/2 - g^2 / (2 m^2)), g the unsampled loss, m the shift: rate
    phi(x - m) / phi(m / 2) at the output x.
    """
    m = step.shift
    rise_of_tau = 2 * (special.ndtr(-m / 2) - special.ndtr(-shift / 2)) * (1 - 1e-12)
    size = times * max(0.0, rise_of_tau) / (_DENSITY * math.exp(-m * m / 8))
    scale = size * step.rate * _DENSITY

    def parts(x: Floats) -> tuple[Floats, Floats]:
        rise = scale * np.exp(-0.5 * (x - m) ** 2)
        # D'' in a is ((x - m) x - 1) D / (rate m exp(g))^2.
        bend = x * (x - m) - 1
        peak = np.maximum(rise[:-1], rise[1:])
        peak = np.where((x[:-1] < m) & (x[1:] > m), scale, peak)
        return rise, np.fmax(bend[:-1], bend[1:]).clip(0.0) * peak

    return _tangent(step, cells, direction, spacing, parts)


def rate_tangent(
    step: Step,
    cells: Cells,
    direction: Direction,
    spacing: float,
    rate: float,
    times: float = 1.0,
) -> Tangent:
    """Tangent in the rate at ``step``, ``times`` as far as to ``rate``, a larger one.

    dH/drate = Phi(m - x) - Phi(-x) at the output x.
    """
    m = step.shift
    size = times * max(0.0, rate - step.rate) * (1 - 1e-12)

    def parts(x: Floats) -> tuple[Floats, Floats]:
        rise = size * (special.ndtr(m - x) - special.ndtr(-x)).clip(0.0) * (1 - 1e-9)
        # D'' in a is (x phi(x - m) - (x + m) phi(x)) size / (rate m exp(g))^2.
        near = np.exp(-0.5 * (x - m) ** 2)
        high = np.where((x[:-1] < m) & (x[1:] > m), 1.0, np.fmax(near[:-1], near[1:]))
        near = np.exp(-0.5 * x**2)
        low = np.where((x[:-1] < 0) & (x[1:] > 0), 1.0, np.fmax(near[:-1], near[1:]))
        second = x[1:].clip(0.0) * high + (-x[:-1] - m).clip(0.0) * low
        return rise, size * _DENSITY * second

    return _tangent(step, cells, direction, spacing, parts)


def _ordered(cells: Cells, direction: Direction) -> Floats:
    """Outputs at the grid points, increasing."""
    if cells.edges is None:
        raise ValueError("only Poisson sampled Gaussian steps have tangents")
    return cells.edges if direction == "remove" else cells.edges[::-1]


def _tangent(
    step: Step, cells: Cells, direction: Direction, spacing: float, parts: _Parts
) -> Tangent:
    """From D at the points and a bound on D'' (rate m exp(g))^2 in the cells.

    The gap of a chord is at most D'' width^2 / 8, and at most the larger end.
    """
    m, q = step.shift, step.rate
    x = _ordered(cells, direction)
    points = (cells.start + np.arange(x.size)) * spacing + cells.offset
    along = points if direction == "remove" else -points[::-1]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        rise, second = parts(x)
        # a / (rate exp(g)) at the left end, where it is largest.
        inverse = 1 + (1 - q) / q * np.exp(m * m / 2 - m * x[:-1])
        sag = second * (math.expm1(spacing) * inverse / m) ** 2 / 8
        sag = np.where(np.isfinite(sag), sag, np.inf)
        at = -cells.start if direction == "remove" else cells.start + len(cells)
        for cell in range(max(at - _BESIDE, 0), min(at + _BESIDE, len(cells))):
            within = _sag_within(step, x[cell : cell + 2], along[cell], parts)
            sag[cell] = min(sag[cell], within)
        if direction == "add":  # b D(1 / b) has the second derivative a^3 D''(a)
            factor = np.exp(points)
            rise = rise[::-1] * factor
            sag = sag[::-1] * factor[1:] * math.exp(spacing)
    # Rounding of the rise.
    sag = sag + 1e-9 * np.maximum(rise[:-1], rise[1:])
    # Less by as much as is left at the ends, so that they need no bend to get to 0.
    rise = rise * (1 - 1e-9)
    rise = np.maximum(rise - max(rise[0], rise[-1]), 0.0)
    cap = np.maximum(rise[:-1], rise[1:])
    sag = np.where(np.minimum(rise[:-1], rise[1:]) > 0, sag, cap)
    return Tangent(rise, np.minimum(sag, cap))


def _sag_within(step: Step, ends: Floats, loss: float, parts: _Parts) -> float:
    """The gap of the chord over outputs between ``ends``, by its parts.

    At most the largest gap at their ends, and the largest of a part's own chord.
    ``loss`` is that of the cell's own left end, at which there may be no output.
    """
    m, q = step.shift, step.rate
    left, right = ends.tolist()
    if not (math.isfinite(right) and right > left):
        return math.inf
    x = np.linspace(max(left, right - _FARTHEST), right, _PARTS + 1)
    x[0] = left
    rise, second = parts(x)
    ratio = np.exp(m * x)  # a, less a constant and over another
    first = ratio[0]
    if left == -math.inf:  # D is 0 from the left end to there
        first = (math.expm1(loss) + q) / q * math.exp(m * m / 2)
    chord = rise[0] + (rise[-1] - rise[0]) * (ratio - first) / (ratio[-1] - first)
    own = second * (np.diff(ratio) / (m * ratio[:-1])) ** 2 / 8
    own = np.where(np.isfinite(own), own, np.inf)
    own = np.minimum(own, np.maximum(rise[:-1], rise[1:]))
    found = float((chord - rise).max()) + float(own.max())
    return found + 1e-12 * float(rise.max()) if math.isfinite(found) else math.inf
