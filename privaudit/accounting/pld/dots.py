"""From masses of loss cells to measures on the grid: an upper and a lower one.

Write H(a) = E_Q[(dP/dQ - a)+]. A pair of measures on the grid of losses is a convex,
piecewise linear H with knots at a_i = exp(i h). Joining the dots (a_i, H(a_i)) gives
one above the true H; joining dots lowered by c_i, where c_i is at least the gap between
chord and curve in both cells next to i, gives one below it. Both gaps are of second
order in h. The proofs are in ``pld.md``.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from privaudit.accounting.pld.cells import Cells
from privaudit.accounting.pld.line import UNIT, Floats

MOST_SPACING = 600.0  # its exponential is in range, with room for sums
_ENDS = 8  # ends that are tried


@dataclasses.dataclass(frozen=True, slots=True)
class GridMeasure:
    """P by privacy loss: ``mass[i]`` at loss (start + i) * spacing; ``infinite``."""

    start: int
    mass: Floats
    infinite: float
    accuracy: float


def measure_above(cells: Cells, spacing: float) -> GridMeasure:
    """A pair that dominates: the mass of each cell split onto its two ends.

    The split that keeps the masses of P and of Q is the chord (Doroshenko et al. 2022,
    "connect the dots"); the upper end gets a little more, so that no rounding can take
    anything from it.
    """
    left, right = _scaled(cells, spacing)
    p, q = left[0] + right[0], left[1] + right[1]
    step = -math.expm1(-spacing)
    upper = np.clip((p - q + 8 * cells.accuracy * (p + q)) / step, 0.0, p)
    mass = np.zeros(p.size + 1)
    mass[:-1] = p - upper
    mass[1:] += upper
    mass[0] += math.exp(cells.below[0])
    mass[-cells.start] += cells.atom
    if not mass.any():  # all of it underflows, or is infinite
        mass[0] = 1e-300
    infinite = math.exp(cells.above[0]) + cells.infinite
    return GridMeasure(cells.start, mass, infinite, 4 * cells.accuracy)


def measure_below(cells: Cells, spacing: float) -> GridMeasure | None:
    """A pair that is dominated.

    The dots are lowered by more than the largest gap in the cells beside them, which
    moves mass as a discrete second derivative does. Where that leaves a negative mass
    the lowered dots are not convex, and the knot is dropped (the lower convex hull).
    The first dot is put onto H(a) >= 1 - a and the last onto H(a) >= 0, where these
    lie far enough below; so no mass is lost. None if nothing can be told apart on this
    grid: P = Q is below every pair. Mass at infinite loss is in H at every a, and left
    as it is.
    """
    found = None if spacing > MOST_SPACING else _finite_below(cells, spacing)
    if not cells.infinite:
        return found
    if found is None:  # what is left of P, as one output that all of Q may have
        rest = 1 - cells.infinite * (1 + 4 * cells.accuracy)
        if not rest > 0 or not math.isfinite(spacing):
            return None
        start = math.floor(math.log(rest) / spacing) - 1
        found = GridMeasure(start, np.array([rest]), 0.0, 4 * cells.accuracy)
    return dataclasses.replace(found, infinite=cells.infinite)


def measure_lowered(cells: Cells, spacing: float) -> GridMeasure:
    """A pair that is dominated: all of P at the lower end of its cell.

    Of first order in the spacing a step, but nothing is left out, however few and large
    losses are: for short compositions on fine grids.
    """
    mass = np.append(np.exp(cells.log_p).reshape(-1, 2).sum(axis=1), 0.0)
    mass[-1] = math.exp(cells.above[0])
    mass[-cells.start] += cells.atom
    if not mass.any():
        mass[0] = 1e-300
    return GridMeasure(cells.start, mass, cells.infinite, 4 * cells.accuracy)


def _finite_below(cells: Cells, spacing: float) -> GridMeasure | None:
    """As `measure_below`, of what has a finite loss."""
    left, right = _scaled(cells, spacing)
    p, q = left[0] + right[0], left[1] + right[1]
    noise = 8 * cells.accuracy * (p + q)
    gap = _gap(left, right, spacing) + noise
    step = -math.expm1(-spacing)
    upper = np.clip((p - q - noise) / step, 0.0, p)
    down, up = 1 / step, 1 / math.expm1(spacing)  # shares of c for the neighbours
    least, most = 0, p.size
    for _ in range(_ENDS):
        first, below_q, low = _first_dot(cells, p, upper, gap, spacing, least)
        stop, above_q, high = _last_dot(cells, p, q, upper, gap, spacing, most)
        if stop - first < 2:
            return None
        inner, size = slice(first, stop), stop - first
        between = np.maximum(gap[inner][:-1], gap[inner][1:])
        lowered = np.concatenate([[low], between, [high]])
        mass = np.zeros(size + 1)
        mass[:-1] = p[inner] - upper[inner]
        mass[1:] += upper[inner]
        mass[0] += below_q
        mass[-1] += above_q
        scale = mass + (down + up) * np.abs(lowered)
        scale[1:] += down * np.abs(lowered[:-1])
        scale[:-1] += up * np.abs(lowered[1:])
        mass[:-1] += up * (lowered[:-1] - lowered[1:])
        mass[1:] += down * (lowered[1:] - lowered[:-1])
        start = cells.start + first
        if 0 <= -start <= size:
            mass[-start] += cells.atom
        drop_concave_knots(mass, scale, spacing)
        if mass[0] >= 0 and mass[-1] >= 0:
            break
        # An end with next to no mass: the next one that was not dropped.
        left = np.flatnonzero(mass[1:-1] > 0)
        if not left.size:
            return None
        if mass[0] < 0:
            least = first + 1 + int(left[0])
        if mass[-1] < 0:
            most = first + 1 + int(left[-1])
    else:
        return None
    mass = np.maximum(mass - 8 * UNIT * scale, 0.0)
    if not mass.any():
        return None
    return GridMeasure(start, mass, 0.0, 4 * cells.accuracy)


def _first_dot(
    cells: Cells, p: Floats, upper: Floats, gap: Floats, spacing: float, least: int
) -> tuple[int, float, float]:
    """First dot at which 1 - a is below H by the gap of the next cell, or None.

    Returns its index, a Q(losses below), and by how much (rounded up).
    """
    points = (cells.start + np.arange(p.size)) * spacing
    below_p = _sums_before(p, math.exp(cells.below[0]))
    halves = np.exp(cells.log_q)
    below_q = _sums_before(halves[::2] + halves[1::2], _exp(cells.below[1]))
    below_q *= np.exp(np.minimum(points, 700.0))
    noise = 2 * cells.accuracy * (below_q + below_p)
    depth = below_q - below_p
    # Nor may the line to the next dot fall faster than 1 - a does.
    falls = below_q + (p - upper) + (depth - _larger(gap)) / math.expm1(spacing)
    found = (depth - noise >= gap) & (falls >= 0) & (points < 700.0)
    found[:least] = False
    index = _first_true(found)
    if index == p.size:
        return index, 0.0, 0.0
    return index, float(below_q[index]), float(depth[index] + noise[index])


def _last_dot(
    cells: Cells,
    p: Floats,
    q: Floats,
    upper: Floats,
    gap: Floats,
    spacing: float,
    most: int,
) -> tuple[int, float, float]:
    """Last dot at which 0 is below H by the gap of the cell before, or None.

    Returns its index, a Q(losses above), and by how much (rounded down).
    """
    end = p.size
    above_p = math.exp(cells.above[0])
    above_q = _exp(cells.above[1] + (cells.start + end) * spacing)
    while end:  # from the top, in blocks over which exp(loss) stays in range
        block = slice(max(0, end - max(1, min(4096, int(600 / spacing)))), end)
        ahead = np.arange(end - block.start) * spacing  # of the dots end, end - 1, ...
        p_above = _sums_before(p[block][::-1], above_p, full=True)
        q_above = _sums_before(
            q[block][::-1] * np.exp(ahead + spacing), above_q, full=True
        ) * np.exp(-np.append(ahead, ahead[-1] + spacing))
        room = (p_above - q_above) - 2 * cells.accuracy * (p_above + q_above)
        before = gap[block][::-1]
        last = (
            upper[block][::-1]
            + q_above[:-1]
            - (_larger(before) - room[:-1]) / -math.expm1(-spacing)
        )
        found = (room[:-1] >= before) & (last >= 0)
        found[: max(end - most, 0)] = False
        index = _first_true(found)
        if index < before.size:
            return end - index, float(q_above[index]), float(room[index])
        end, above_p, above_q = block.start, float(p_above[-1]), float(q_above[-1])
    return 0, 0.0, 0.0


def _exp(x: float) -> float:
    return math.exp(min(x, 709.0))


def _sums_before(values: Floats, first: float, *, full: bool = False) -> Floats:
    """Element i is ``first`` plus the values before i; if ``full``, one more."""
    sums = np.empty(values.size + 1)
    sums[0] = first
    np.cumsum(values, out=sums[1:])
    sums[1:] += first
    return sums if full else sums[:-1]


def _larger(gap: Floats) -> Floats:
    """Larger of each gap and the next."""
    return np.maximum(gap, np.append(gap[1:], 0.0))


def _first_true(found: np.ndarray) -> int:
    return int(np.argmax(found)) if found.any() else found.size


def _scaled(
    cells: Cells, spacing: float
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """P and Q of the left and right halves, Q times exp(loss at the left end)."""
    at = (cells.start + np.arange(len(cells))) * spacing
    p = np.exp(cells.log_p.reshape(-1, 2))
    q = np.exp(cells.log_q.reshape(-1, 2) + at[:, None])
    return (p[:, 0], q[:, 0]), (p[:, 1], q[:, 1])


def _gap(
    left: tuple[Floats, Floats], right: tuple[Floats, Floats], spacing: float
) -> Floats:
    """At least the largest gap of chord and curve in each cell.

    The curve is no lower than its tangents at the cell's ends and middle, which the
    masses of the halves give; their envelope has two knots, and the gap is largest at
    one of them. In units in which the cell is [1, exp(h)].
    """
    width = math.expm1(spacing)
    p = left[0] + right[0]
    q = left[1] + right[1]
    rise = np.clip(p - q, 0.0, None)  # H at the left end, less its part from above
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        first = (left[0] / left[1] - 1) * (q - rise / width)
        second = rise * (1 - (right[0] / right[1] - 1) / width)
        gap = np.fmax(first, second)
    gap = np.where(np.isfinite(gap), gap, rise)
    return np.clip(gap, 0.0, rise)


def drop_concave_knots(mass: Floats, scale: Floats, spacing: float) -> None:
    """Lower convex hull of the dots, in place: no mass is negative afterwards.

    A knot of mass m is dropped by giving m to the knots left beside it, in the shares
    that keep P and Q. Points without mass are no knots. The ends stay.
    """
    held = mass != 0
    held[[0, -1]] = True
    knots = np.flatnonzero(held)
    todo = np.flatnonzero(mass[knots] < 0).tolist()
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    last = knots.size - 1
    new = {i: mass.item(knots[i]) for i in todo}  # of the knots that change
    grown: dict[int, float] = {}
    while todo:
        i = todo.pop()
        m = new[i]
        if not m < 0 or i in (0, last):  # those dropped have none
            continue
        lower, higher = before.get(i, i - 1), after.get(i, i + 1)
        new[i] = 0.0
        # Shares of P: (1 - e^-ahead) / (e^behind - e^-ahead), and the rest.
        at, left, right = knots.item(i), knots.item(lower), knots.item(higher)
        ahead = math.expm1(-(right - at) * spacing)
        behind = math.expm1(min((at - left) * spacing, 700.0))
        share = ahead / (ahead - behind)
        for neighbour, place, part in (
            (lower, left, share),
            (higher, right, 1 - share),
        ):
            had = new[neighbour] if neighbour in new else mass.item(place)
            new[neighbour] = had + part * m
            grown[neighbour] = grown.get(neighbour, 0.0) - m
            if new[neighbour] < 0:
                todo.append(neighbour)
        after[lower], before[higher] = higher, lower
    mass[knots[list(new)]] = list(new.values())
    scale[knots[list(grown)]] += list(grown.values())
