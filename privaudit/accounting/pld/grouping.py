"""Grouping of many different steps onto few measures, above and below.

Above: a step between two nodes is dominated by their mixture, with weights linear in
tau (the total variation) and in the rate. Below: it dominates the node under it, moved
along the tangents at that node. Both are of second order in the distance of the nodes.
The proofs are in ``pld.md``, "Grouping".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting.pld.cells import (
    Cells,
    Direction,
    Step,
)
from privaudit.accounting.pld.dots import (
    MOST_SPACING,
    GridMeasure,
    measure_above,
    measure_below,
)
from privaudit.accounting.pld.families import Family
from privaudit.accounting.pld.line import Floats
from privaudit.accounting.pld.mechanisms.noise import loss_cells
from privaudit.accounting.pld.mixture import Term
from privaudit.accounting.pld.nodes import nodes_of
from privaudit.accounting.pld.tangents import rate_tangent, shift_tangent

Indices = NDArray[np.int64]

MOST_CELLS = 1 << 19  # of one measure
_LARGEST_TANGENT_SHIFT = 50.0
_MORE = 8  # nodes for each, where steps are rounded to them
_WORTH = 0.6  # groups a step, beyond which each step is its own


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """Grid on which a composition is worked out.

    Where ``tilt`` is, grouping may add about ``room`` to the log moment of all steps;
    or to the log delta at the epsilon that ``aim`` has first, and then about delta's.
    """

    spacing: float
    reach: float
    tilt: float = 1.0
    room: float = 1e-3
    tail: float = 1e-12  # that an epoch may lose
    cells: Callable[..., Cells] = loss_cells  # or one that remembers some
    aim: tuple[float, float] = (1.0, -10.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Lattice:
    """The nodes of a family, and where between them each of its steps lies.

    ``to_shift`` and ``to_rate`` say how far it is from the node at or below it to the
    next, in [0, 1], rounded up or down as the bound needs.
    """

    shifts: Floats
    rates: Floats
    at_shift: Indices
    at_rate: Indices
    to_shift: Floats
    to_rate: Floats

    @classmethod
    def of(cls, family: Family, way: Direction, grid: Grid, *, up: bool) -> Lattice:
        shifts, rates = nodes_of(
            family, way, grid.tilt, grid.room, grid.reach, grid.aim
        )
        if family.scheme == "replace" or (family.noise == "laplace" and not up):
            # Rounded to the nodes, which is of first order only.
            shifts, rates = _filled(shifts, _MORE), _filled(rates, _MORE)
        found = cls._of(family, shifts, rates, up=up)
        if sum(1 for _ in found.boxes()) > _WORTH * family.shift.size:
            shifts, rates = np.unique(family.shift), np.unique(family.rate)
            found = cls._of(family, shifts, rates, up=up)
        return found

    @classmethod
    def _of(cls, family: Family, shifts: Floats, rates: Floats, *, up: bool) -> Lattice:
        at_shift, to_shift = _between(shifts, family.shift, family.tau, up=up)
        at_rate, to_rate = _between(rates, family.rate, lambda rate: rate, up=up)
        if family.scheme == "replace":
            to_shift = np.ceil(to_shift) if up else np.zeros_like(to_shift)
        return cls(shifts, rates, at_shift, at_rate, to_shift, to_rate)

    def boxes(self) -> Iterator[tuple[int, int, Indices]]:
        """Each pair of intervals that holds steps, and which."""
        if self.at_shift.size == 1:
            yield 0, 0, np.zeros(1, np.int64)
            return
        columns = int(self.at_rate.max()) + 1
        code = self.at_shift * columns + self.at_rate
        order = np.argsort(code, kind="stable")
        values, first = np.unique(code[order], return_index=True)
        for value, inside in zip(values, np.split(order, first[1:]), strict=True):
            yield *divmod(int(value), columns), inside


def boxes_of(family: Family, way: Direction, grid: Grid) -> int:
    """Number of groups the steps of ``family`` fall into."""
    return sum(1 for _ in Lattice.of(family, way, grid, up=True).boxes())


def terms_above(
    families: tuple[Family, ...], way: Direction, grid: Grid
) -> tuple[list[GridMeasure], list[Term]]:
    """Measures and terms whose composition dominates."""
    measures: list[GridMeasure] = []
    terms: list[Term] = []
    for family in families:
        lattice = Lattice.of(family, way, grid, up=True)
        known: dict[tuple[int, int], int] = {}
        for i, j, inside in lattice.boxes():
            a, b = lattice.to_shift[inside], lattice.to_rate[inside]
            corners: list[int] = []
            weights: list[Floats] = []
            for right, top, weight in (
                (0, 0, (1 - a) * (1 - b)),
                (1, 0, a * (1 - b)),
                (0, 1, (1 - a) * b),
                (1, 1, a * b),
            ):
                if not weight.any():
                    continue
                key = (i + right, j + top)
                if key not in known:
                    step = family.step(lattice.shifts[key[0]], lattice.rates[key[1]])
                    known[key] = len(measures)
                    measures.append(
                        measure_above(_cells(step, way, grid), grid.spacing)
                    )
                corners.append(known[key])
                weights.append(weight)
            terms.append(_term(corners, weights[1:], family.count[inside]))
    return measures, terms


def terms_below(
    families: tuple[Family, ...], way: Direction, grid: Grid
) -> tuple[list[GridMeasure], list[Term]]:
    """Measures and terms whose composition is dominated."""
    measures: list[GridMeasure] = []
    terms: list[Term] = []
    for family in families:
        lattice = Lattice.of(family, way, grid, up=False)
        tangents = (
            family.noise == "gaussian"
            and family.scheme == "poisson"
            and lattice.shifts[-1] <= _LARGEST_TANGENT_SHIFT
        )
        for i, j, inside in lattice.boxes():
            step = family.step(lattice.shifts[i], lattice.rates[j])
            cells = _cells(step, way, grid, _offset(step, grid))
            base = measure_below(cells, grid.spacing)
            if base is None:
                continue  # as if these steps released nothing
            found = [base]
            weights: list[Floats] = []
            a, b = lattice.to_shift[inside], lattice.to_rate[inside]
            # Two tangents go twice as far and get half the weight each, so that what
            # is left for the node itself is not negative.
            times = 2.0 if a.any() and b.any() else 1.0
            if tangents and a.any():
                tangent = shift_tangent(
                    step, cells, way, grid.spacing, lattice.shifts[i + 1], times
                )
                found.append(measure_below(cells, grid.spacing, tangent) or base)
                weights.append(a / times)
            if tangents and b.any():
                tangent = rate_tangent(
                    step, cells, way, grid.spacing, lattice.rates[j + 1], times
                )
                found.append(measure_below(cells, grid.spacing, tangent) or base)
                weights.append(b / times)
            corners = list(range(len(measures), len(measures) + len(found)))
            measures += found
            terms.append(_term(corners, weights, family.count[inside]))
    return measures, terms


def _cells(step: Step, way: Direction, grid: Grid, offset: float = 0.0) -> Cells:
    return grid.cells(step, way, grid.spacing, grid.reach, MOST_CELLS, offset)


def _offset(step: Step, grid: Grid) -> float:
    """Offset of grid points at which little is lost below the first dot.

    Most of a rarely sampled step's losses lie between log(1 - rate) and 0. If that is
    less than a few grid points wide, the first dot is put amid it, as low as the gap of
    the next cell lets it be: at a = 1 - rate (1 - t) for the least t at which the
    unsampled H(t) is above 1 - t by the gap. Any choice is sound.
    """
    if step.scheme != "poisson" or step.rate > 8 * grid.spacing or step.rate > 0.9:
        return 0.0
    if grid.spacing > MOST_SPACING:
        return 0.0
    width = math.expm1(grid.spacing) / step.rate
    inside = np.concatenate([np.linspace(0.01, 0.09, 5), np.linspace(0.1, 0.9, 9)])
    for low in (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65):
        values = _unsampled_profile(step, low + width * np.array([0.0, *inside, 1.0]))
        chord = values[0] + (values[-1] - values[0]) * inside
        gap = float((chord - values[1:-1]).max())
        if values[0] - (1 - low) > 1.1 * gap:
            return math.log1p(-step.rate * (1 - low))
    return math.log1p(-step.rate * 0.5)


def _unsampled_profile(step: Step, t: Floats) -> Floats:
    """H(t) of the pair without sampling."""
    m = step.shift
    if step.noise == "gaussian":
        x = np.log(t) / m
        return special.ndtr(m / 2 - x) - t * special.ndtr(-m / 2 - x)
    loss = np.log(t)
    within = np.where(
        loss >= 0, -np.expm1((loss - m) / 2), 1 - t - t * np.expm1((-loss - m) / 2)
    )
    return np.where(loss >= m, 0.0, np.where(loss <= -m, 1 - t, within))


def _term(corners: list[int], weights: list[Floats], counts: Floats) -> Term:
    if not weights:
        return Term((corners[0],), np.zeros((1, 0)), np.array([counts.sum()]))
    return Term(tuple(corners), np.stack(weights, axis=1), counts)


def _filled(nodes: Floats, more: int) -> Floats:
    """``more`` nodes for each, equally spaced between."""
    at = np.arange((nodes.size - 1) * more + 1) / more
    return np.interp(at, np.arange(nodes.size), nodes)


def _between(
    nodes: Floats, values: Floats, scale: Callable[[Floats], Floats], *, up: bool
) -> tuple[Indices, Floats]:
    """The node at or below each value, and how far it is to the next, in ``scale``.

    What rounding leaves open (below 1e-9 where nodes are 1e-6 apart; all where they are
    closer, or where the scale has no more digits) goes up or down as asked.
    """
    if nodes.size == 1:
        return np.zeros(values.size, np.intp), np.zeros(values.size)
    at = np.clip(np.searchsorted(nodes, values, "right") - 1, 0, nodes.size - 1)
    low, top = nodes[at], nodes[np.minimum(at + 1, nodes.size - 1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        way = (scale(values) - scale(low)) / (scale(top) - scale(low))
    way = np.clip(way + (1e-9 if up else -1e-9), 0.0, 1.0)
    unclear = ~(np.isfinite(way) & (top - low > 1e-6 * top))
    way[unclear] = 1.0 if up else 0.0
    way[values == low] = 0.0
    return at, way
