"""Grouping of many different steps, in cells of the loss chosen for each group.

All steps of a group have the same cells. Above, the mass of a cell goes to its ends;
below, it is merged: what that differs by is summed over all steps in a `Gap`. The
proofs are in ``pld.md``, "Cells" and "Groups".
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.pld.cells import Direction, Noise, Scheme
from privaudit.accounting.pld.families import Family
from privaudit.accounting.pld.fourier import MOST_POINTS, Bundle
from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms.noise import Rows, ends, rows
from privaudit.accounting.pld.scout import Guess, Law, rare_spacing

Indices = NDArray[np.int64]

MOST_CELLS = 1 << 19  # of one measure
_GROUPS = 32
_MOST_KINDS = 1 << 10  # in a group, for its masses' memory
_FEW = 12  # kinds of a group that are composed one by one in any case
# In all cells of all kinds, or of those of Laplace noise, if they are: some hundredths
# of a second, or a third of one.
_MOST_WAVES = {"gaussian": 1e7, "laplace": 1e8}
_TRANSFORM = 10.0  # cells of a frequency that are as dear as a point of a transform
_TRIES = 2
# Of a group: ranks by shift between Gaussian kinds that are told together, and parts.
_FAR_FIRST, _TYPICAL = np.array([1, 4, 16, 64, 256]), 12
_FAR = 1e15  # grid points; what is further out is lost
# The same of the moments that bound the window; below, what lengthens it by so much.
_FURTHER, _LONGER = 6.0, 0.1
_GROWN = 0.1  # of the log moment under the tilt: what cells may add
_COARSE = 0.2  # of what cells may add: for grid points that are too far apart for them
# The same where few frequencies matter: below, losses are moved as far as grid points
# are apart, and such points cost little.
_FINE, _CHEAP = 0.01, 1 << 17
# Of what cells may add: for steps to be taken for others, where there are as many, into
# at most so many parts of a group, and if so few are left.
_ROUNDED, _ROUND_FROM, _MOST_PARTS, _WORTH = 0.4, 1 << 10, 2.0**20, 2
_LEAST_RARE, _MOST_RARE = 1e-3, 1e-2  # of what is rare: what may change
# Losses on other points than 0 for most waves to be nothing, and times by which rare
# losses' grid may be finer for that: it has more points, of which few waves matter.
_APART, _FINER, _MOST_FINE = 64.0, 3.0, MOST_POINTS // 2
_A_DECADE = 20  # losses between which densities of cells are chosen


Part = Literal["all", "common", "rare"]


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Steps of a family, and the losses between their cells.

    ``above``, ``below``: steps that dominate them, and that they dominate, or they
    themselves. ``edges``: increasing, even multiples of spacing; ``apart``: composed
    one by one. ``cut``, one of the edges: what is above is rare, and its edges are
    those of a grid ``coarser`` times. ``seen``: the masses that were asked for last.
    """

    above: Family
    below: Family
    edges: Indices
    apart: bool
    cut: int | None = None
    coarser: int = 1
    seen: dict[tuple[Direction, float, float, int], Rows] = dataclasses.field(
        default_factory=dict
    )

    def cells(
        self, of: Family, way: Direction, spacing: float, reach: float, part: Part
    ) -> tuple[Indices, float, Rows, int | None]:
        """Edges of a part's cells on its grid, its spacing, and masses between.

        ``common`` is what is not rare; ``rare`` is all, on the coarser grid, with the
        number of the first cell that is rare.
        """
        seen = self.rows(of, way, spacing, reach)
        if self.cut is None or part == "all":
            return self.edges, spacing, seen, None
        number = int(np.searchsorted(self.edges, self.cut))
        if part == "common":
            none = np.full((len(seen.log_p), 1), -np.inf)  # what is above is rare
            log_p, log_q = (
                np.append(each[:, : number + 1], none, axis=1)
                for each in (seen.log_p, seen.log_q)
            )
            seen = dataclasses.replace(seen, log_p=log_p, log_q=log_q)
            return self.edges[: number + 1], spacing, seen, None
        kept = np.flatnonzero(self.edges % (2 * self.coarser) == 0)
        first = int(np.searchsorted(kept, number))
        edges = self.edges[kept] // self.coarser
        return edges, spacing * self.coarser, seen.merged(kept), first

    def rows(self, of: Family, way: Direction, spacing: float, reach: float) -> Rows:
        """Masses of all steps; kept, as those above may be those below as well."""
        asked = way, spacing, reach, id(of)
        if asked not in self.seen:
            self.seen.clear()
            at = self.edges.astype(float) * spacing
            self.seen[asked] = rows(
                (of.noise, of.scheme), way, at, of.shift, of.rate, reach
            )
        return self.seen[asked]


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """Grid on which a composition is worked out, and the groups' cells."""

    spacing: float
    reach: float
    tail: float = 1e-12  # that an epoch may lose
    groups: tuple[Group, ...] = ()
    coarser: int = 1  # times the spacing of that for what is rare

    @property
    def is_parted(self) -> bool:
        """Return whether common and rare losses are composed apart."""
        return bool(self.groups) and all(one.cut is not None for one in self.groups)


def groups_of(family: Family) -> list[Family]:
    """At most some thirty groups of similar steps.

    Halved where the spread of log moments is largest, which are about rate^2
    (exp(shift^2) - 1).
    """
    if family.shift.size <= _GROUPS:
        parts = [np.array([i]) for i in range(family.shift.size)]
    else:
        # Second moment of the likelihood ratio; of Laplace noise about exp(shift).
        size = family.shift ** (2 if family.noise == "gaussian" else 1)
        size = np.log(np.expm1(np.minimum(size, 500.0))) + np.maximum(size - 500, 0.0)
        if family.noise == "laplace":
            size += np.log1p(-np.exp(-family.shift))
        at = np.stack([size, 2 * np.log(family.rate)])
        loud = family.count * np.exp((at.sum(axis=0) - at.sum(axis=0).max()) / 2)
        found = [(0.0, 0, np.arange(family.shift.size))]
        for number in range(1, _GROUPS):
            _, _, part = heapq.heappop(found)
            halves = [half for half in _halves(at, part) if half.size]
            for half in halves:
                cost = loud[half].sum() * np.ptp(at[:, half], axis=1).max() ** 3
                cost *= len(halves) - 1  # what cannot be parted is left
                heapq.heappush(found, (-float(cost), number + half[0] * _GROUPS, half))
        parts = [
            few
            for *_, part in found
            if part.size
            for few in np.array_split(part, -(-part.size // _MOST_KINDS))
        ]
    return [
        dataclasses.replace(
            family,
            shift=family.shift[part],
            rate=family.rate[part],
            count=family.count[part],
        )
        for part in parts
    ]


def _halves(at: Floats, part: Indices) -> tuple[Indices, Indices]:
    """Both halves of the range that is wider."""
    values = at[np.argmax(np.ptp(at[:, part], axis=1))][part]
    middle = (values.min() + values.max()) / 2
    low = values <= middle
    return part[low], part[~low]


def _rounded(
    groups: list[Family],
    way: Direction,
    points: Floats,
    beside: Floats,
    room: float,
    reach: float,
) -> tuple[list[tuple[Family, Family]], float]:
    """Fewer steps that dominate each group's, and that they dominate; what it costs.

    H grows with the shift and with the rate: steps that are near in both are taken to
    have the largest of each above, and the least below. ``room``: by how much that may
    move epsilon, about. ``beside``: each group's, as `Law.beside` has it at ``points``.
    """
    pairs, cost = [(group, group) for group in groups], 0.0
    if sum(group.shift.size for group in groups) < _ROUND_FROM:
        return pairs, cost
    costs = _moved(groups, way, points, np.diff(beside), reach)
    some = np.arange(costs.size)
    for _ in range(_TRIES):  # those that are not worth it leave more to the others
        # Of a group in c parts there are c kinds, or c^2, which cost a part in c.
        shares = np.cbrt(costs[some])
        parts = shares * ((shares**2).sum() / room)
        parts = np.ceil(np.minimum(parts, _MOST_PARTS)).clip(1)
        for i, each in zip(some.tolist(), parts.tolist(), strict=True):
            pairs[i] = _rounded_to(groups[i], each)
        merged = np.array([pairs[i][0] is not groups[i] for i in some], bool)
        some, parts = some[merged], parts[merged]
        cost = float((costs[some] / parts).sum())
    return pairs, cost


def _moved(
    groups: list[Family], way: Direction, points: Floats, chances: Floats, reach: float
) -> Floats:
    """About what epsilon moves by from a group's least shift and rate to its largest.

    delta is the mean of H at what others' losses leave of epsilon; ``chances``: shape
    (groups, aims, cells), of that to lie between ``points``, over the fall of delta.
    """
    odds = np.exp(np.minimum(points, 700.0))
    found = np.zeros(len(groups))
    for kind, some in _by_kind(groups).items():
        shift, rate = (
            np.array(
                [end.reduce(of) for end in (np.maximum, np.minimum) for of in each]
            )
            for each in zip(
                *((groups[i].shift, groups[i].rate) for i in some), strict=True
            )
        )
        seen = rows(kind, way, points, shift, rate, reach)
        p, q = (
            np.subtract(*np.exp(log).reshape(2, len(some), -1))
            for log in (seen.log_p, seen.log_q)
        )
        # From the side on which there is less.
        above, below = (
            np.stack(
                [np.cumsum(each[:, ::turn], 1)[:, :-1][:, ::turn] for each in (p, q)]
            )
            for turn in (-1, 1)
        )
        grown = np.where(
            points < 0, odds * below[1] - below[0], above[0] - odds * above[1]
        )
        grown = np.maximum(grown, 0.0)
        steps = np.array([groups[i].steps for i in some])
        moved = np.einsum("gac,gc->ga", chances[some], grown[:, 1:] + grown[:, :-1])
        found[some] = steps * moved.max(axis=1) / 2
    return found


def _rounded_to(group: Family, parts: float) -> tuple[Family, Family]:
    """The same with each range of shifts and rates in so many parts."""
    at = np.log(np.stack([group.shift, group.rate]))
    least, wide = at.min(axis=1, keepdims=True), np.ptp(at, axis=1)[:, None]
    part = np.floor((at - least) * (parts / np.maximum(wide, 1e-300)))
    part = np.minimum(part, parts - 1)
    label = part[0] * parts + part[1]
    order = np.argsort(label, kind="stable")
    starts = np.flatnonzero(np.diff(label[order], prepend=-1.0))
    if starts.size * _WORTH > label.size:
        return group, group
    above, below = (
        dataclasses.replace(
            group,
            shift=end.reduceat(group.shift[order], starts),
            rate=end.reduceat(group.rate[order], starts),
            count=np.add.reduceat(group.count[order], starts),
        )
        for end in (np.maximum, np.minimum)
    )
    return above, below


@dataclasses.dataclass(frozen=True, slots=True)
class _Cells:
    """Cells of groups; each adds its mass times density times width / 12."""

    group: Indices
    low: Floats
    high: Floats
    cost: Floats

    @classmethod
    def cut(
        cls,
        points: Floats,
        plain: tuple[Floats, Floats],
        under: list[tuple[Floats, float]],
        most: float,
    ) -> _Cells:
        """All losses of each group, cut until no cell adds more than ``most``."""
        within, beside = plain
        group = np.arange(within.shape[1])
        first, last = np.zeros_like(group), np.full_like(group, points.size - 1)
        done: list[tuple[Indices, Indices, Indices, Floats]] = []
        while group.size:
            mass = (within[:, group, last] - within[:, group, first]).max(axis=0)
            seen = (beside[group, :, last] - beside[group, :, first]).max(axis=1)
            width = points[last] - points[first]
            cost = mass * seen * width / 12
            for tilted, tilt in under:
                # A cell of 50 over its tilt is far too wide whatever it has.
                grown = np.expm1(np.minimum(tilt * width, 50.0)) * tilt * width / 12
                moved = (tilted[:, group, last] - tilted[:, group, first]).max(axis=0)
                cost = np.maximum(cost, moved * grown)
            ends = (cost <= most) | (last - first == 1)
            done.append(tuple(each[ends] for each in (group, first, last, cost)))
            group, first, last = group[~ends], first[~ends], last[~ends]
            middle = (first + last) // 2
            group = np.concatenate([group, group])
            first, last = np.append(first, middle), np.append(middle, last)
        group, first, last, cost = map(np.concatenate, zip(*done, strict=True))
        # Where points are too far apart, equal parts.
        parts = np.ceil(np.cbrt(np.minimum(cost / most, 1e9))).clip(1).astype(np.int64)
        which = np.repeat(np.arange(group.size), parts)
        part = np.arange(which.size) - np.repeat(np.cumsum(parts) - parts, parts)
        parts = parts[which]
        width = (points[last] - points[first])[which] / parts
        low = points[first][which] + part * width
        order = np.lexsort((low, group[which]))
        which, parts = which[order], parts[order]
        low, width = low[order], width[order]
        return cls(group[which], low, low + width, cost[which] / parts**3)

    def spacing(
        self,
        steps: Floats,
        room: float,
        least: float,
        most: float,
        above: float = -math.inf,
    ) -> float:
        """Largest spacing whose cells of two points ``above`` add ``room`` at most."""
        width = self.high - self.low
        middle = np.abs(self.low + self.high) / 2
        density = steps[self.group] * self.cost * 12 / np.maximum(width, 1e-150) ** 2
        density *= self.high > above
        low, high = least, max(most, least)
        while high > low * 1.1:  # a tenth of a spacing is not worth a look more
            h = math.sqrt(low * high)
            square = np.minimum((2 * h) ** 2 / 12, middle * h)
            cost = float(density @ np.where(2 * h > width, square, 0.0))
            low, high = (low, h) if cost > room else (h, high)
        return low


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Groups of steps, the losses between their cells, and the grid's spacing."""

    groups: list[tuple[Family, Family]]
    reached: Floats
    cells: _Cells
    spacing: float
    waves: float
    window: float
    guess: Guess
    rare: float  # the spacing that does for rare losses

    def on(self, spacing: float) -> tuple[tuple[Group, ...], int]:
        """The groups on a grid, and times by which that of rare losses is coarser."""
        coarser, cut = 1, None
        if self.guess.rest is not None:
            least = max(self.guess.rest.window / _MOST_FINE, spacing)
            coarser = max(math.floor(max(self.rare, least) / spacing), 1)
            unit = 2 * coarser
            cut = unit * max(round(self.guess.cut / (unit * spacing)), 1)
        kinds = np.array([above.shift.size for above, _ in self.groups])
        cells = np.bincount(self.cells.group, minlength=kinds.size)
        points = self.window / spacing
        if self.guess.rest is not None:
            points = max(points, self.guess.rest.window / (spacing * coarser))
        each = np.minimum(cells * min(self.waves, points / 2), _TRANSFORM * points)
        # Kinds of Laplace noise have large masses at losses of their own, which from
        # below would be moved to those of others.
        sharp = np.array([above.noise == "laplace" for above, _ in self.groups])
        work = np.where(sharp, float((kinds * sharp) @ each), float(kinds @ each))
        found = []
        for i, (above, below) in enumerate(self.groups):
            some = self.cells.group == i
            edges = np.append(self.cells.low[some], self.cells.high[some].max())
            apart = (
                bool(work[i] <= _MOST_WAVES[above.noise]) or above.shift.size <= _FEW
            )
            edges = _edges(edges, self.reached[i], spacing)
            if cut is not None:
                edges = _parted(edges, cut, 2 * coarser)
            found.append(Group(above, below, edges, apart, cut, coarser))
        return tuple(found), coarser


def chosen(
    groups: list[Family],
    way: Direction,
    law: Law,
    aims: Floats,
    slack: float,
    reach: float,
    least: float,
    guess: Guess,
) -> Choice:
    """Cells of groups of similar steps, for ``law``, good at ``aims``.

    ``slack``: by how much they move epsilon. ``reach``: outputs further out are lost.
    """
    largest = [
        group.step(float(group.shift.max()), float(group.rate.max()))
        for group in groups
    ]
    reached = np.array([ends(step, way, reach) for step in largest])
    points = _points(reached, aims, law)
    steps = np.array([group.steps for group in groups])
    loud = [  # whether all steps of a group are that one
        group.shift.size == 1 and step == law.loud
        for group, step in zip(groups, largest, strict=True)
    ]
    known = {which: law.beside(points, aims, loud=which) for which in set(loud)}
    beside = np.stack([known[which] for which in loud])
    log_mass = _log_masses(groups, way, points, reach)
    within = _sums(np.exp(log_mass))
    room = max(slack, 1e-100)
    pairs, cost = _rounded(groups, way, points, beside, _ROUNDED * room, reach)
    room -= min(cost, room) / 2
    middle = (points[1:] + points[:-1]) / 2
    under = []
    windows = [(law.tilt, *law.ends, law.window, math.inf)]
    if guess.rest is not None:
        windows = [
            (one.tilt, one.down, one.up, one.window, most)
            for one, most in ((guess, guess.cut), (guess.rest, math.inf))
        ]
    for at, down, up, wide, most in windows:
        for tilt, grown in (
            (at, _GROWN),
            (at + up, _FURTHER),
            (at - down, max(_FURTHER, _LONGER * wide * down)),
        ):
            tilted = np.where(middle < most, log_mass + tilt * middle, -math.inf)
            tilted = np.exp(tilted - tilted.max(axis=1, keepdims=True))
            sums = _sums(tilted / tilted.sum(axis=1, keepdims=True))
            under.append((sums * room / grown, abs(tilt)))  # the same is too much
    # What all cells add falls with the most that one may add as its power 2 / 3.
    most = room / float(steps.sum())
    plain = (within, beside)
    cells = _Cells.cut(points, plain, under, most)
    for _ in range(_TRIES):
        cost = float(steps[cells.group] @ cells.cost)
        # By a thousand at once at most: far off, the power is another one.
        most *= min(max(room / max(cost, 1e-300), 1e-3), 1e3) ** 1.5
        cells = _Cells.cut(points, plain, under, most)
    window = law.window if guess.rest is None else guess.window
    spacing, fine = (
        cells.spacing(steps, share * room, least, window / 64)
        for share in (_COARSE, _FINE)
    )
    if law.waves < math.inf:
        spacing = max(fine, min(spacing, window / _CHEAP))
    rare, cut = 0.0, guess.cut
    if guess.rest is not None:
        share = min(max(slack / cut, _LEAST_RARE), _MOST_RARE)
        most = min(rare_spacing(cut, guess.moved, share), guess.rest.window / 64)
        rare = cells.spacing(steps, _COARSE * room, least, most, cut)
        # Waves fall where so many common losses are on other points than 0.
        sizes = np.where(middle < cut, np.abs(middle), 0.0)
        order = np.argsort(-sizes)
        many = np.cumsum((steps @ np.exp(log_mass))[order])
        apart = float(sizes[order][many < _APART].min(initial=math.inf))
        least = max(rare / _FINER, guess.rest.window / _MOST_FINE)
        if many[-1] > _APART and apart > least:
            rare = min(rare, apart)
    known = (pairs, reached, cells, spacing, law.waves, window, guess, rare)
    return Choice(*known)


def _points(ends: Floats, aims: Floats, law: Law) -> Floats:
    """Losses, increasing, around 0 and where ``law`` has its mass below ``aims``."""
    sizes = np.maximum(np.abs(ends), 1e-290)
    far = float(sizes.max()) * (1 + 1e-9)
    near = max(float(sizes.max(axis=1).min()) * 1e-3, 1e-9 * far)
    decades = math.log10(far / near)
    each = np.geomspace(near, far, math.ceil(_A_DECADE * decades))
    beyond = (aims[:, None] - law.spread()).ravel()
    inside = beyond[(beyond > ends[:, 0].min()) & (beyond < ends[:, 1].max())]
    some = np.concatenate([-each, [0.0], each, inside])
    some = np.unique(some)
    return some[np.append(True, np.diff(some) > near * 1e-3)]


def _sums(values: Floats) -> Floats:
    """Sums of all before, of each row, and minus those of all after: one has digits.

    A mass of 1e-17 at a large loss is nothing to a sum that begins with the others.
    """
    before, after = np.zeros((2, len(values), values.shape[1] + 1))
    np.cumsum(values, 1, out=before[:, 1:])
    np.cumsum(-values[:, ::-1], 1, out=after[:, -2::-1])
    return np.stack([before, after])


def _log_masses(
    groups: list[Family], way: Direction, points: Floats, reach: float
) -> Floats:
    """Logs of P's masses between ``points`` of steps that stand for each group."""
    found = np.zeros((len(groups), points.size - 1))
    for kind, some in _by_kind(groups).items():
        each = [_typical(groups[i]) for i in some]
        shift, rate, share = np.concatenate(each, axis=1)
        seen = rows(kind, way, points, shift, rate, reach).log_p[:, 1:-1]
        sizes = np.array([one.shape[1] for one in each])
        starts = np.cumsum(sizes) - sizes
        found[some] = np.logaddexp.reduceat(seen + np.log(share)[:, None], starts)
    return found


def _by_kind(groups: list[Family]) -> dict[tuple[Noise, Scheme], list[int]]:
    """Indices of the groups of each noise and scheme."""
    kinds: dict[tuple[Noise, Scheme], list[int]] = {}
    for i, group in enumerate(groups):
        kinds.setdefault((group.noise, group.scheme), []).append(i)
    return kinds


def _typical(group: Family) -> Floats:
    """Shifts, rates and shares of few steps that stand for all.

    Gaussian: the largest shift alone, then the next four times as many at a time, as
    the mean of all has nothing far out, where few have most.
    """
    order = np.argsort(-group.shift, kind="stable")
    if group.noise == "gaussian":
        parts = np.split(order, _FAR_FIRST[order.size > _FAR_FIRST])
    else:
        parts = np.array_split(order, min(_TYPICAL, order.size))
    count = np.array([group.count[part].sum() for part in parts])
    square = [group.count[part] @ group.shift[part] ** 2 for part in parts]
    rate = [group.count[part] @ group.rate[part] for part in parts]
    shift, rate = np.sqrt(square / count), np.minimum(rate / count, 1.0)
    return np.stack([shift, rate, count / group.steps])


def _edges(losses: Floats, ends: Floats, spacing: float) -> Indices:
    """Even grid points next to ``losses``, and to 0, that reach to ``ends``."""
    found = np.rint(losses / (2 * spacing))
    low = min(math.floor(max(ends[0] / (2 * spacing), -_FAR)), -1)
    high = max(math.ceil(min(ends[1] / (2 * spacing), _FAR)), 1)
    found = np.concatenate([np.clip(found, low, high), [low, 0.0, high]])
    return 2 * np.unique(found).astype(np.int64)


def _parted(edges: Indices, cut: int, unit: int) -> Indices:
    """Edges, and ``cut``; multiples of ``unit`` next to them, above it these alone."""
    near = unit * np.unique(np.rint(edges / unit).astype(np.int64))
    ends = [edges[0] // unit, max(-(-edges[-1] // unit), cut // unit + 1)]
    some = [edges[edges < cut], near, [cut], unit * np.array(ends)]
    return np.unique(np.concatenate(some))


def bundle(
    group: Group,
    way: Direction,
    spacing: float,
    tilt: float,
    reach: float,
    part: Part = "all",
) -> Bundle:
    """Steps of a group, from above."""
    family = group.above
    edges, spacing, seen, first = group.cells(family, way, spacing, reach, part)
    raised, most, base, rare = _raised(seen, edges, spacing, tilt, first)
    lost = float(family.count @ np.exp(seen.log_p[:, -1])) * (1 + 4 * seen.accuracy)
    far = float(np.abs(edges).max()) * spacing
    accuracy = 8 * seen.accuracy + UNIT * (128 + 32 * (tilt * far + abs(base)))
    known = (edges, raised, family.count, base, accuracy, most, rare)
    return dataclasses.replace(Bundle.of(*known, apart=group.apart), lost=lost)


def _raised(
    seen: Rows, edges: Indices, spacing: float, tilt: float, far: int | None = None
) -> tuple[Floats, Floats, float, tuple[Indices, Floats] | None]:
    """Masses on both ends of the cells, and their logs at most: ``pld.md``, "Cells".

    And points and masses of cells from ``far`` on, which are rare.
    """
    width = np.diff(edges) * spacing
    at = edges * spacing
    mass = seen.log_p[:, 1:-1]
    with np.errstate(invalid="ignore", over="ignore"):
        # The loss of a cell's mean, above its lower end.
        mean = mass - seen.log_q[:, 1:-1] - at[:-1]
        mean = np.clip(np.where(np.isnan(mean), 0.0, mean), 0.0, width)
    step = -np.expm1(-width)
    exact = -np.expm1(-mean) / step
    share = np.minimum(exact + 16 * seen.accuracy / step, 1.0)
    low = mass + tilt * at[:-1]
    high = mass + tilt * at[1:]
    base = max(float(high.max(initial=-math.inf)), 0.0)
    top = np.exp(high - base)
    bottom = np.exp(low - base)
    most = np.full(edges.size, -np.inf)
    most[:-1] = low.max(axis=0)
    most[1:] = np.logaddexp(most[1:], high.max(axis=0)) - base
    most[0] -= base
    found = np.zeros((len(mass), edges.size))
    bottom, top = (1 - share) * bottom, share * top
    found[:, :-1] = bottom
    found[:, 1:] += top
    rare = None
    if far is not None:
        rare = edges[far:], np.pad(bottom[:, far:], ((0, 0), (0, 1)))
        rare[1][:, 1:] += top[:, far:]
    # What lies below has less loss than the upper end of the first cell that has mass.
    held = mass > -np.inf
    first = np.where(held.any(axis=1), held.argmax(axis=1) + 1, edges.size - 1)
    under = seen.log_p[:, 0] + tilt * at[first] - base
    np.logaddexp.at(most, first, under)
    found[np.arange(first.size), first] += np.exp(under)
    if seen.atom.any():
        zero = int(np.searchsorted(edges, 0))
        found[:, zero] += seen.atom * math.exp(-base)
        most[zero] = np.logaddexp(most[zero], -base)
    return found, most, base, rare
