"""Epochs whose likelihood ratio is of several sums: points in cells.

Of a record in k of t batches L is e_k / C(t, k), e_j the elementary symmetric
polynomials of the batches' ratios l_i; with (e_1, ..., e_k) of one part of them and of
another, those of all are affine in each. From above a point's mass goes to the corners
of its cell, its mean kept; from below vectors are put in groups, mass to the mean.
Cells are fine along what all batches make of a vector, and coarse across. Proofs,
rounding included: ``allocation.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
from scipy import special

from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass

Part = tuple["Points", tuple[int, ...]]  # and of how many batches entries are
Side = Literal["remove", "add", "below"]  # above, in either direction; or below in both

# Cells over the deviation, in the middle; they grow by that of each so many deviations.
_FINE, _GROWS = 0.12, 5.0
_LAST, _FIRST = 0.2, 0.4  # of those, where a sum is of all batches, or of one
_FAR_RATIO = 0.05  # cells far out, over their distance and the shift
# Even cells of what each e_j is of all that counts, by how many batches a record is in,
# twice as many of half the batches and more, where the others' deviations are least
# alike; from below of the mean degree, for one degree.
_PARTS = {1: (), 2: (16,), 3: (8, 8), 4: (8, 8, 4), 5: (8, 8, 4, 2)}
# Shifts below which the first's cells are half as wide, of three and more; and below
# which cells of products of all ratios but a few are even as well.
LIGHT, LIGHT_OF_REST = 1.5, 0.8
_BELOW_PARTS = 24
# Of products of all ratios but a few, which are of any size unless ratios are light,
# cells of shares are halves of halves towards 0 and 1, so many to either side.
_HALVES = {2: 12, 3: 6}
# From above: of batches that differ, of those that are alike, and of these in parts.
MOST_APART, MOST_TAKEN, MOST_PARTED = 5, 3, 6
MOST_SHIFT, MOST_PARTED_SHIFT = 8.0, 5.0  # e_3, and e_6, of such ratios are doubles
_FARTHEST, _MOST_LOG = 12.0, 500.0  # deviations, and of products of all ratios
_OTHERS = 2.0  # at most: a mean of the ratios of other batches, where it matters
_FEWER = 0.8  # such a mean, where a record is added
_MIDDLE = 9.0
_AWAY = 1e-3  # of the tail that may be lost, what each sum loses
_LEAST = 1e-140  # squares are no smaller than doubles
_LEAST_MASS = 1e-150
_PRUNED = 0.03  # of that tail, points that hardly count
_HALF = 1.5  # times as many points, of half the batches and more: their sum is quick
_SAMPLE = 400  # points that are enough to lay cells
# Pairs of points of all sums of one law together, from above (which are costlier) and
# from below: a few seconds. Laws have as few points as that asks for.
_WORK, _WORK_BELOW = 2.4e8, 8e7
_LARGE = 1.5  # sums that are the work, from above, for each doubling of the batches
_OVER = 1.4  # what is halved has more than so many times that
_FEWEST = 12  # cells along
_AT_ONCE = 1 << 18  # entries that a processor has at hand
_SHORT = 8  # vectors longer than that have fewer cells, so that costs are alike
_TALL = 16 * UNIT  # what one sum may move a point by, relatively, for each entry


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The kind of sum, and its cells."""

    degree: int  # how many batches a record is in
    # entry j is kept times its j-th power, so that a vector's entries are of one size
    scale: float
    batches: int
    others: float  # about a mean of other batches' ratios, times the scale
    # fine, ratio: widths of cells, over the deviation, and over distances far out
    fine: float
    ratio: float
    most: float = math.inf  # points of a law
    # 1: entries are e_1, ..., e_degree. 0: of a batches e_a, ..., e_(a - degree), the
    # degree being how many batches a record is not in
    first: int = 1
    # what e_0, ..., e_degree of all batches count, where not the last alone
    ends: tuple[float, ...] = ()
    light: bool = False  # whether shifts are below `LIGHT`, or `LIGHT_OF_REST`

    @property
    def entries(self) -> int:
        """Return how many sums are kept."""
        return self.degree + 1 - self.first

    def means(self, size: int) -> Floats:
        """Return entries 0, ..., degree where ``size`` ratios are 1, as on average."""
        each = [math.comb(size, j) * self.scale**j for j in range(self.degree + 1)]
        return np.array(each, float)

    def joined(self, size: int) -> Join:
        """Return how two parts become one of ``size`` batches."""
        k, first, rest = self.degree, self.first, self.batches - size
        degrees = np.arange(k + 1)
        # Coefficients of products of 1 + e_1 z + ..., or of e_a + e_(a-1) z + ...
        terms = np.equal.outer(degrees, np.add.outer(degrees, degrees))[first:]
        if not rest and not self.ends:  # the last entry is all that counts
            return Join(terms[-1:].astype(float), np.ones(1))
        # About what others' ratios, of which each entry's is a product, are on average.
        # None is 0 but that of an e_j that no choice of ``taken`` batches has.
        ends = np.array(self.ends or degrees == k, float)
        counts = [
            [math.comb(rest, i - j) * self.others ** (i - j) if i >= j else 0.0]
            for i, j in itertools.product(degrees, degrees)
        ]
        weights = ends @ np.reshape(counts, (k + 1, k + 1))
        blank = first * float(ends @ self.means(rest))
        half = 2 * size >= self.batches
        return Join(terms.astype(float), weights[first:], blank, half)


@dataclasses.dataclass(frozen=True, slots=True)
class Join:
    """Entries of two parts together: affine in either's, no coefficient below 0."""

    # by entry, and by entries of the two parts; 1 comes before these where it counts
    terms: Floats
    weights: Floats  # about how much each entry counts, all others as on average
    blank: float = 0.0  # and what a record counts for that is in none of them
    half: bool = False  # whether they are half of the batches, or more

    def __call__(self, one: Floats, other: Floats) -> Floats:
        """Return the entries of all pairs of rows, one a row."""
        one, other = (
            np.hstack([np.ones((len(rows), entries - rows.shape[1])), rows])
            for rows, entries in zip((one, other), self.terms.shape[1:], strict=True)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            found = [((one @ terms) @ other.T).ravel() for terms in self.terms]
        return np.array(found).T

    def means(self, one: Points, other: Points) -> Floats:
        """Return the means of entries."""
        return self(one.means[None], other.means[None])[0]

    def lacking(self, one: Points, other: Points) -> Floats:
        """Add up what both lack of the means: times what the other's are."""
        (_, first, second), found = self.terms.shape, np.zeros(len(self.terms))
        for law, mean, terms, (here, there) in (
            (one, other.means, self.terms, (first, second)),
            (other, one.means, self.terms.transpose(0, 2, 1), (second, first)),
        ):
            lacks = np.append(np.zeros(here - law.lacking.size), law.lacking)
            found += lacks @ (terms @ np.append(np.ones(there - mean.size), mean)).T
        return found * (1 + 8 * first * UNIT)

    def sums(self, rows: Floats) -> tuple[Floats, Floats]:
        """Weighted rows, and for each what it and all that follow add up to."""
        terms = rows * self.weights
        tails = terms.copy(order="K")
        for j in range(self.weights.size - 2, -1, -1):
            tails[:, j] += tails[:, j + 1]
        return terms, tails


@dataclasses.dataclass(frozen=True, slots=True)
class Points:
    """Vectors, one a row, and their masses; what a sum of ratios is made of."""

    rows: Floats
    mass: Floats
    lacking: Floats  # parts of the means that lie above all rows
    # accuracy, moved: bounds on relative errors of masses, and of rows
    accuracy: float
    moved: float
    size: int  # of how many ratios they are the sum
    means: Floats  # of entries, were nothing lacking


def is_mostly(shift: float, batches: int, taken: int) -> bool:
    """Return whether batches that a record is not in are kept count of.

    They are fewer, and doubles hold products of all ratios.
    """
    few = 0 < batches - taken < taken - 1
    return few and batches * shift * (shift + _FARTHEST) < _MOST_LOG


def shape_of(shift: float, batches: int, taken: int, side: Side) -> Shape:
    """Cells for such epochs: finer where more sums are made."""
    fine = _FINE / math.sqrt(math.log2(batches) + 1)
    # Of those that it is not in one more is kept.
    first = 0 if is_mostly(shift, batches, taken) else 1
    degree = taken if first else batches - taken
    if side != "below":
        fine *= degree - first  # of three across cells are more
    long = math.sqrt(max(taken / _SHORT, 1.0))
    scale = degree / (batches - degree + 0.5)
    others = min(math.exp(shift**2), _OTHERS)
    if side == "add":
        others = max(math.exp(-(shift**2)), _FEWER)
    if not first:
        others = math.exp((1 if side == "add" else -1) * shift**2 / 2)
    others *= scale
    # Steps that move little need no cells finer than 3 % far out.
    ratio = max(0.03, _FAR_RATIO * shift)
    width = fine * long
    return Shape(degree, scale, batches, others, width, ratio, first=first)


def most_points(counts: list[int], side: Side, share: int, degree: int) -> float:
    """Points of a law with which all sums of such batches are as much work as may be.

    ``counts``: of batches of each kind. ``share``: how many epochs share that work.
    Vectors of a higher degree have more corners.
    """
    # Of equal laws each pair is looked at once; sums of few batches have few points.
    sums = sum(n.bit_count() + (n.bit_length() - 1) / 2 for n in counts) - 1
    if side != "below":
        sums = min(sums, _LARGE * math.log2(sum(counts)))
    work = _WORK_BELOW if side == "below" else _WORK / share
    return math.sqrt(work / max(sums, 0.5) / max(degree - 1, 1))


@dataclasses.dataclass(frozen=True, slots=True)
class Masses:
    """P's and Q's masses of outputs, and P's where Q has none, to ``accuracy``."""

    p: Floats
    q: Floats
    lacking: float
    accuracy: float


def two_laws(
    kinds: list[tuple[Floats, Floats, int]],
    shape: Shape,
    batches: int,
    side: Side,
    tail: float,
) -> Masses:
    """The two laws of an epoch of ``batches``, which all but those of kinds are not."""
    law = summed(kinds, shape, side, tail)
    blank = batches - law.size
    if blank:  # ratios of 1, as on average
        means = shape.means(blank)[shape.first :]
        none, join = np.zeros(means.size), shape.joined(batches)
        ones = Points(means[None], np.ones(1), none, 0.0, 0.0, blank, means)
        law = dataclasses.replace(
            law, rows=join(law.rows, ones.rows), lacking=join.lacking(law, ones)
        )
    return _laws_of(law, float(shape.means(batches)[-1]), shape, side)


def _laws_of(law: Points, whole: float, shape: Shape, side: Side) -> Masses:
    """P and Q of the last entry of all batches, of mean ``whole``."""
    k = shape.degree
    p = law.rows[:, -1] / whole
    error = law.accuracy + law.moved + (16 + 4 * k) * UNIT
    lacking = float(law.lacking[-1]) / whole * (1 + error + law.moved)
    moved = 1 + 2 * (law.moved + (16 + 4 * k) * UNIT)
    if side == "remove":
        p = p * moved
    elif side == "add":
        p = p / moved
    return Masses(p * law.mass, law.mass, lacking, error)


class Parts:
    """Batches that are alike, from above, parted at random: see ``allocation.md``.

    ``one``: the law of a block of so many of them, of which a record is in one at most,
    entries over those of the longest's; ``shape``: of all blocks.
    """

    def __init__(
        self,
        one: Callable[[int, Shape], Points],
        shape: Shape,
        side: Side,
        tail: float,
    ) -> None:
        self.one, self.side, self.tail = one, side, tail
        self.taken, self.blocks = shape.degree, shape.batches
        fine = shape.fine * (MOST_TAKEN - 1) / (shape.degree - 1)
        self.shape = dataclasses.replace(shape, degree=MOST_TAKEN, fine=fine)

    def masses(self, batches: int) -> Masses:
        """The two laws of all batches."""
        size, longer = divmod(batches, self.blocks)
        all_, k = {size: self.blocks - longer, size + 1: longer}, self.taken
        if k == MOST_TAKEN:
            law, _ = self.some({k: 1.0}, all_)
            return _laws_of(law, float(law.means[-1]), self.shape, self.side)
        if k == 4:
            law, _ = self.twins({k: 1.0}, all_)
            return _laws_of(law, 1.0, self.shape, self.side)
        # Even, so that both halves have one law.
        share = 0.3 if k == 5 else 0.25
        both = {n: 2 * round(share * many) for n, many in all_.items()}
        rest = {n: many - both[n] for n, many in all_.items()}
        few = sum(rest.values())
        chances = _chances(self.blocks - few, few, k, (2, 3, 4))
        others = {k - n: chance for n, chance in chances.items()}
        one = self.twins(chances, both)
        other = self.some(others, rest) if k == 5 else self.twins(others, rest)
        law, _ = self.mixed(one, other, {k: chances}, {k: 1.0})
        return _laws_of(law, 1.0, self.shape, self.side)

    def some(self, often: dict[int, float], counts: dict[int, int]) -> Part:
        """The law of e_1, e_2 and e_3 of so many blocks, by size."""
        of = dataclasses.replace(self.shape, batches=sum(counts.values()))
        means, ends = of.means(of.batches).tolist(), ()
        if self.taken not in often:
            ends = tuple(self.weight(often, j) / means[j] for j in range(len(means)))
        of = dataclasses.replace(of, ends=ends)
        size, one = min(counts), functools.cache(lambda size: self.one(size, of))

        @functools.cache
        def law(short: int, long: int) -> Points:
            if short + long == 1:
                return one(size + long)
            first = law(short // 2, long - long // 2)
            second = law(short - short // 2, long // 2)
            join = of.joined(short + long)
            return _added(first, second, join, of, self.side, self.tail)

        return law(*counts.values()), (0, 1, 2, 3)

    def twins(self, often: dict[int, float], counts: dict[int, int]) -> Part:
        """Two halves' mean products of two batches, or of four."""
        short, long = counts.values()
        halves = (short // 2, long - long // 2), (short - short // 2, long // 2)
        a, b = map(sum, halves)
        chances = {
            n: _chances(a, b, n, range(max(n - MOST_TAKEN, 0), min(n, MOST_TAKEN) + 1))
            for n in often
        }
        each: tuple[dict[int, float], ...] = ({}, {})
        for n, by in chances.items():
            for j, chance in by.items():
                for one, i in zip(each, (j, n - j), strict=True):
                    one[i] = one.get(i, 0.0) + often[n] * chance
        first, second = (
            self.some(some, dict(zip(counts, half, strict=True)))
            for some, half in zip(each, halves, strict=True)
        )
        return self.mixed(first, second, chances, often)

    def mixed(
        self,
        one: Part,
        other: Part,
        chances: dict[int, dict[int, float]],
        often: dict[int, float],
    ) -> Part:
        """The mean product of n batches, j of the one part: chances by n and j."""
        (first, degrees), (second, others) = one, other
        means, more = (
            np.append(1.0, law.means)[-len(of) :] for law, of in (one, other)
        )
        terms = np.zeros((len(chances), len(degrees), len(others)))
        for row, (n, by) in zip(terms, chances.items(), strict=True):
            for j, chance in by.items():
                if chance:
                    i, at = degrees.index(j), others.index(n - j)
                    row[i, at] = chance / (means[i] * more[at])
        weights = np.array([self.weight(often, n) for n in chances])
        join = Join(terms, weights, half=True)
        law = _added(first, second, join, self.shape, self.side, self.tail)
        return law, tuple(chances)

    def weight(self, often: dict[int, float], taken: int) -> float:
        """About how much a product of so many counts, its mean 1."""
        others = self.shape.others / self.shape.scale
        return often.get(taken, 0.0) * others ** (self.taken - taken)


def _chances(a: int, b: int, taken: int, degrees: Iterable[int]) -> dict[int, float]:
    """Chances of so many of ``taken`` among the first a of a + b, if of these."""
    ways = {j: math.comb(a, j) * math.comb(b, taken - j) for j in degrees}
    return {j: many / sum(ways.values()) for j, many in ways.items()}


def summed(
    kinds: list[tuple[Floats, Floats, int]], shape: Shape, side: Side, tail: float
) -> Points:
    """The law of the vector of all batches, by doubling; kinds as in `allocation`."""
    parts: list[tuple[int, int, Points]] = []
    order = itertools.count()

    def add(one: Points, other: Points) -> Points:
        join = shape.joined(one.size + other.size)
        return _added(one, other, join, shape, side, tail)

    for shifts, weights, count in kinds:
        power, left = one_ratio(shifts, weights, shape, side, tail), count
        while left:
            if left & 1:
                heapq.heappush(parts, (power.size, next(order), power))
            left >>= 1
            if left:
                power = add(power, power)
    while len(parts) > 1:
        (_, _, first), (_, _, second) = heapq.heappop(parts), heapq.heappop(parts)
        law = add(first, second)
        heapq.heappush(parts, (law.size, next(order), law))
    return parts[0][2]


def of_block(
    value: Floats, mass: Floats, lacking: float, mean: float, shape: Shape
) -> Points:
    """The law of the sum of a block's ratios; errors are for the caller to add."""
    means = np.eye(1, shape.entries)[0] * shape.scale
    rows = _wider(value, shape)
    return Points(rows, mass, lacking * means, 0.0, _TALL, 1, mean * means)


def one_ratio(
    shifts: Floats, weights: Floats, shape: Shape, side: Side, tail: float
) -> Points:
    """One ratio exp(s x - s^2 / 2)."""
    far = -float(special.ndtri_exp(math.log(_AWAY * tail))) + float(shifts[-1])
    most = float(shifts[-1]) * far
    fine = shape.fine if side == "below" else _FIRST * shape.fine
    step = min(shape.ratio, fine * float(shifts[0]))
    step = max(step, 2 * most / shape.most)
    number = math.ceil(most / step)
    logs: Floats = (np.arange(-number, number + 1) * step).astype(np.float64)
    ends = np.concatenate([[-np.inf], logs, [np.inf]])
    mass, mean, reach = np.zeros(logs.size + 1), np.zeros(logs.size + 1), 0.0
    for s, weight in zip(shifts.tolist(), weights.tolist(), strict=True):
        x = ends / s + s / 2
        mass += weight * np.exp(log_normal_mass(x))
        mean += weight * np.exp(log_normal_mass(x, s))
        reach = max(reach, float(np.abs(x[1:-1]).max()) + s)
    error = UNIT * (1024 + 32 * reach * reach)
    means = shape.means(1)[shape.first :]
    if side == "below":
        some = (mass > _LEAST_MASS) & (mean > _LEAST_MASS)
        none = np.zeros(shape.entries)
        rows1 = _wider(mean[some] / mass[some], shape)
        return Points(rows1, mass[some], none, error, 3 * error, 1, means)
    edges = np.exp(logs)
    edges = np.concatenate([[0.0], edges])
    inner, low = mass[:-1], edges[:-1] * mass[:-1]
    slack = 4 * (error + 4 * UNIT) * (mean[:-1] + low)
    slack = slack if side == "remove" else -slack
    upper = np.clip((mean[:-1] - low + slack) / np.diff(edges), 0.0, inner)
    found = np.zeros(edges.size)
    found[:-1] = inner - upper
    found[1:] += upper
    found[-1] += mass[-1]
    lacking = max(float(mean[-1] * (1 + 2 * error) - edges[-1] * mass[-1]), 0.0)
    lacks = np.zeros(shape.entries)
    lacks[0] = lacking * shape.scale**shape.first
    rows2 = _wider(edges, shape)
    found = np.maximum(found, _LEAST_MASS)
    return Points(rows2, found, lacks, error, _TALL, 1, means)


def _wider(first: Floats, shape: Shape) -> Floats:
    """Rows of one ratio: all but e_1 and e_0 are 0."""
    rows = np.zeros((first.size, shape.entries))
    if not shape.first:
        rows[:, 1] = shape.scale
    rows[:, 0] = shape.scale**shape.first * first
    return rows


def _added(
    one: Points, other: Points, join: Join, shape: Shape, side: Side, tail: float
) -> Points:
    """The law of the vector of two independent parts."""
    if side == "below":
        return _grouped(one, other, join, shape, tail)
    return _at_corners(one, other, join, shape, side, tail)


def _pairs(one: Points, other: Points, join: Join) -> Iterator[tuple[Floats, Floats]]:
    """All pairs of points, some at a time; of equal laws each pair once."""
    start = 0
    while start < one.mass.size:
        left = other.mass.size - (start if one is other else 0)
        rows_at_once = _AT_ONCE // (left * one.rows.shape[1])
        stop = min(start + max(1, rows_at_once), one.mass.size)
        begin = start if one is other else 0
        rows = join(one.rows[start:stop], other.rows[begin:])
        mass = one.mass[start:stop, None] * other.mass[begin:]
        if one is other:  # twice, but for those on the diagonal and below it
            corner = mass[:, : stop - start]
            corner *= 0.5 * np.eye(len(corner)) + np.triu(np.ones(corner.shape), 1)
            mass *= 2
        yield rows, mass.ravel()
        start = stop


def _grouped(
    one: Points, other: Points, join: Join, shape: Shape, tail: float
) -> Points:
    """From below: each cell's mass at its mean."""
    along, across = _cells(one, other, join, shape, "below", tail)
    size = along.size * across.size
    width = join.weights.size
    table = np.zeros((2 + width, size))  # masses, numbers of terms, means times masses
    for rows, masses in _pairs(one, other, join):
        held = np.isfinite(rows).all(1)
        if not held.all():  # beyond doubles: left out of both laws
            rows, masses = rows[held], masses[held]
        _, tails = join.sums(rows)
        x, y = tails[:, 0], tails.sum(1) / np.maximum(tails[:, 0], 1e-300)
        i = np.clip(np.searchsorted(along, x, "right") - 1, 0, None)
        at = i * across.size + np.clip(np.searchsorted(across, y, "right") - 1, 0, None)
        np.add.at(table[0], at, masses)
        np.add.at(table[1], at, 1.0)
        for j in range(width):
            np.add.at(table[2 + j], at, masses * rows[:, j])
    cells = table.reshape(2 + width, along.size, across.size)
    for turn in range(40):  # by turns two cells are one along, and across
        axis = 1 + (turn % 2 if cells.shape[1] > _FEWEST else 1)
        few = cells.shape[axis] < 2
        if few or np.count_nonzero(cells[0] > _LEAST_MASS) <= _OVER * shape.most:
            break
        cells = np.add.reduceat(cells, np.arange(0, cells.shape[axis], 2), axis)
    mass, terms, *means = cells.reshape(2 + width, -1)
    means = np.array(means)
    some = mass > _LEAST_MASS
    error = (int(terms.max()) + 8) * UNIT
    return Points(
        (means[:, some] / mass[some]).T,
        mass[some],
        np.zeros(join.weights.size),
        one.accuracy + other.accuracy + error,
        one.moved + other.moved + 2 * error + 2 * shape.entries * UNIT,
        one.size + other.size,
        join.means(one, other),
    )


def _at_corners(
    one: Points, other: Points, join: Join, shape: Shape, side: Side, tail: float
) -> Points:
    """From above: each point's mass at the corners of its cell, its mean kept."""
    k = join.weights.size
    if k == 1:  # of all batches
        shape = dataclasses.replace(shape, fine=_LAST * shape.fine, most=math.inf)
    elif join.half:
        shape = dataclasses.replace(shape, most=_HALF * shape.most)
    along, _ = _cells(one, other, join, shape, side, tail)
    parts = [number * (1 + join.half) for number in _PARTS[k]]
    if k > 2 and shape.light:
        parts[0] *= 2
    cuts = [np.arange(number + 1) / number for number in parts]  # doubles
    is_even = k == 1 or shape.first or shape.light
    if not is_even:
        half = 2.0 ** -np.arange(1, _HALVES[k] + 1)
        cuts = [np.concatenate([[0], half[::-1], 1 - half[1:], [1]])] * (k - 1)
    # How far apart in `found` corners are: along, and across each share.
    steps = [math.prod([ends.size for ends in cuts[r:]]) for r in range(k)]
    found = np.zeros(along.size * steps[0])
    terms = np.zeros(found.size, np.int64)
    lack = np.zeros(k)
    for rows, mass in _pairs(one, other, join):
        each, tails = join.sums(rows)
        x = tails[:, 0]
        i = np.clip(np.searchsorted(along, x, "right") - 1, 0, along.size - 2)
        p = np.clip((x - along[i]) / (along[i + 1] - along[i]), 0.0, 1.0)
        if side == "remove" and (out := x > along[-1]).any():
            lack += mass[out] @ (rows[out] * (1 - along[-1] / x[out])[:, None])
        at, shares = i * steps[0], [(steps[0], p, 1 - p)]
        for r in range(k - 1):
            whole = np.maximum(tails[:, r], 1e-300)
            up, down = each[:, r] / whole, tails[:, r + 1] / whole
            # By the less of a share and of what is left: small relatively to both.
            less, is_up = np.minimum(up, down), up < down
            ends, most = cuts[r], cuts[r].size - 2
            if is_even:  # a power of two of them: exactly
                q, low = np.modf(less * (most + 1))
                low = low.astype(np.intp)
            else:
                low = np.clip(np.searchsorted(ends, less, "right") - 1, 0, most)
                q = np.clip((less - ends[low]) / (ends[low + 1] - ends[low]), 0.0, 1.0)
            at = at + np.where(is_up, low, most - low) * steps[r + 1]
            shares.append(
                (steps[r + 1], np.where(is_up, q, 1 - q), np.where(is_up, 1 - q, q))
            )
        np.add.at(terms, at, 1)
        corners = [(0, mass)]
        for step, q, rest in shares:
            corners = [
                (place + step * is_high, weight * (q if is_high else rest))
                for place, weight in corners
                for is_high in (False, True)
            ]
        for place, weight in corners:
            np.add.at(found[place:], at, weight)
    error = (2**k * int(terms.max()) + 16) * UNIT
    lacking = join.lacking(one, other) + lack
    ends = [along, *cuts]
    table = found.reshape([each.size for each in ends])
    moved = one.moved + other.moved + _TALL * max(k, len(one.means))
    for turn in itertools.count():
        mass, rows = _corners(table, ends, join.weights)
        law = Points(
            rows,
            np.maximum(mass, _LEAST_MASS),
            lacking * (1 + error),
            one.accuracy + other.accuracy + error,
            moved,
            one.size + other.size,
            join.means(one, other),
        )
        law = _pruned(law, side, tail)
        # By turns every second end is left out along, and across.
        axes = [0] if turn % 2 == 0 and ends[0].size > _FEWEST else range(1, k)
        axes = [axis for axis in axes if ends[axis].size > 2]
        if law.mass.size <= _OVER * shape.most or not axes:
            return law
        for axis in axes:
            table, ends[axis] = _without_half(table, ends[axis], axis)
            error, moved = error + 8 * UNIT, moved + _TALL
    raise AssertionError


def _corners(
    table: Floats, ends: list[Floats], weights: Floats
) -> tuple[Floats, Floats]:
    """Masses of corners that have some, and their vectors."""
    places = table.nonzero()
    k = len(ends)
    left, rows = ends[0][places[0]], np.zeros((places[0].size, k))
    for r in range(k):
        share = ends[r + 1][places[r + 1]] if r < k - 1 else np.ones(1)
        if weights[r]:
            rows[:, r] = left * share / weights[r]
        left = left * (1 - share)
    return table[places], rows


def _without_half(table: Floats, ends: Floats, axis: int) -> tuple[Floats, Floats]:
    """Leave out every second end, its mass on those beside it and its mean kept.

    Along never the first after 0, which is an infinite loss where a record is added.
    """
    gone = np.arange(2 if axis == 0 else 1, ends.size - 1, 2)
    low, at, high = ends[gone - 1], ends[gone], ends[gone + 1]
    table = np.moveaxis(table, axis, 0).copy()
    mass = np.moveaxis(table[gone], 0, -1)
    table[gone - 1] += np.moveaxis(mass * ((high - at) / (high - low)), -1, 0)
    table[gone + 1] += np.moveaxis(mass * ((at - low) / (high - low)), -1, 0)
    kept = np.delete(table, gone, 0)
    return np.moveaxis(kept, 0, axis), np.delete(ends, gone)


def _pruned(law: Points, side: Side, tail: float) -> Points:
    """With points that hardly count at 0, which lacks their means but for ``add``."""
    cost = law.mass
    if side == "remove":
        means = np.where(law.means, law.means, 1.0)
        cost = law.mass * (law.rows / means).sum(1)
    order = np.argsort(cost)
    none = int(np.searchsorted(np.cumsum(cost[order]), _PRUNED * tail))
    gone, kept = order[:none], np.sort(order[none:])
    more = 1 + gone.size * UNIT
    rows = np.vstack([np.zeros(law.rows.shape[1]), law.rows[kept]])
    at_0 = max(float(law.mass[gone].sum()) * more, _LEAST_MASS)
    lacking = law.lacking
    if side == "remove":
        lacking = lacking + law.mass[gone] @ law.rows[gone] * more
    mass = np.append(at_0, law.mass[kept])
    return dataclasses.replace(law, rows=rows, mass=mass, lacking=lacking)


def _cells(
    one: Points, other: Points, join: Join, shape: Shape, side: Side, tail: float
) -> tuple[Floats, Floats]:
    """Ends of cells along and across; a guess that needs no proof."""
    points = int(min(_SAMPLE, shape.most / 2))
    (first, mass), (second, weight) = _sample(one, points), _sample(other, points)
    rows = join(first, second)
    mass = (mass[:, None] * weight).ravel()
    held = np.isfinite(rows).all(1)
    rows, mass = rows[held], mass[held]
    x = join.sums(rows)[1][:, 0]
    lay = functools.partial(_ends, mass=mass, tail=tail, fine=shape.fine)
    # Parts at 0 make L = 0, an infinite loss where a record is added: no cells there.
    base = 0.0 if side == "add" else join.blank
    along, _ = lay(x, ratio=shape.ratio, base=base)
    if side != "below":
        return along, along
    k = shape.entries
    across = np.linspace(0, k, 1 + _BELOW_PARTS * k)
    return along, across


def _ends(
    value: Floats,
    *,
    mass: Floats,
    tail: float,
    fine: float,
    ratio: float,
    least: float = 0.0,
    start: float | None = None,
    base: float = 0.0,
) -> tuple[Floats, float]:
    """Ends of cells for such values, from 0 on, and their width in the middle."""
    order = np.argsort(value)
    value, mass = value[order], mass[order]
    below = np.cumsum(mass)
    above = np.cumsum((mass * (value + value @ mass / below[-1]))[::-1])[::-1]

    def at(share: float) -> float:
        return float(value[min(np.searchsorted(below, share * below[-1]), last)])

    last = value.size - 1
    # One deviation from the middle at either side, as a normal law has it.
    early, middle, late, low = map(at, (0.16, 0.5, 0.84, _AWAY * tail))
    high = float(
        value[min(int(np.searchsorted(-above, -_AWAY * tail * above[0])), last)]
    )
    if start is None and not middle:  # mostly 0: from the least that is not
        middle = float(value[min(np.searchsorted(value, 0.0, "right"), last)])
        if not middle:
            return np.array([0.0, 1.0]), 1.0
    deviation = max((late - early) / 2, 1e-3 * middle)
    if start is not None:
        middle, deviation = start, max(at(0.68), 1e-6 * high)
    size = max(fine * deviation, least)

    ratio = min(ratio, 0.5)  # of one or more, ends would fall below 0

    def width(at: float) -> float:
        off = abs(at - middle)
        wide = size * (1 + off / deviation / _GROWS)
        wide = max(wide, ratio * (off - _MIDDLE * deviation))
        return wide if start is not None else min(ratio * (at + base), wide)

    ends = [middle]
    while ends[-1] < high:
        ends.append(ends[-1] + width(ends[-1]))
    if start is not None:
        return np.array(ends), size
    ends.reverse()
    while ends[-1] > max(low, _LEAST):
        ends.append(ends[-1] - width(ends[-1]))
    if ends[-1] <= 0:
        ends.pop()
    return np.array([*ends, 0.0])[::-1], size


def _sample(law: Points, points: int) -> tuple[Floats, Floats]:
    """About the same law, at some hundred points."""
    size = -(-law.mass.size // points)
    if size == 1:
        return law.rows, law.mass
    order = np.lexsort(law.rows.T[::-1])
    starts = np.arange(0, law.mass.size, size)
    mass = np.add.reduceat(law.mass[order], starts)
    rows = np.add.reduceat((law.mass[:, None] * law.rows)[order], starts)
    return rows / mass[:, None], mass
