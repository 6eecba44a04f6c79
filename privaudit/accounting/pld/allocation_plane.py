"""Epochs whose likelihood ratio is of several sums: points in cells.

Of a record in k of t batches L is e_k / C(t, k), e_j the elementary symmetric
polynomials of the batches' ratios l_i; with (e_1, ..., e_k) of one part of them and of
another, those of all are affine in each. Of a record replaced it is the quotient of two
such. From above a point's mass goes to the corners of its cell, its mean kept; from
below vectors are put in groups, mass to the mean. Cells are fine along what all batches
make of a vector, and coarse across. Proofs, rounding included: ``allocation.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from scipy import special

from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass

Fold = Callable[[Floats, Floats, "Shape"], Floats]
Side = Literal["remove", "add", "below"]  # above, in either direction; or below in both

# Cells over the deviation, in the middle; they grow by that of each so many deviations.
_FINE, _GROWS = 0.12, 5.0
_LAST, _FIRST = 0.2, 0.4  # of those, where a sum is of all batches, or of one
_ACROSS = 0.2  # and of a size of both, across
_OPPOSED = 0.1  # of a record replaced, of logs
_FAR_RATIO = 0.05  # cells far out, over their distance and the shift
# Even cells of what each e_j is of all that counts, by how many batches a record is in,
# twice as many of half the batches and more, where the others' deviations are least
# alike; from below of the mean degree, for one degree.
_PARTS = {1: (), 2: (16,), 3: (8, 8)}
_BELOW_PARTS = 24
# Of products of all ratios but a few, which are of any size, cells of shares are halves
# of halves towards 0 and 1, so many to either side.
_HALVES = {2: 12, 3: 6}
MOST_TAKEN = 3  # from above
MOST_SHIFT = 8.0  # e_3 of such ratios is a double
_FARTHEST, _MOST_LOG = 12.0, 500.0  # deviations, and of products of all ratios
_OTHERS = 2.0  # at most: a mean of the ratios of other batches, where it matters
_FEWER = 0.6  # such a mean, where a record is added
_MIDDLE = 9.0
_AWAY = 1e-3  # of the tail that may be lost, what each sum loses
_LEAST = 1e-140  # squares are no smaller than doubles
_LEAST_MASS = 1e-150
_PRUNED = 0.03  # of that tail, points that hardly count
_HALF = 1.5  # times as many points, of half the batches and more: their sum is quick
_SAMPLE = 400  # points that are enough to lay cells
# Pairs of points of all sums of one law together, from above (which are costlier) and
# from below: a few seconds. Laws have as few points as that asks for.
_WORK, _WORK_BELOW = 3.5e7, 2.7e7
_OVER = 1.4  # what is halved has more than so many times that
_FEWEST = 12  # cells along
_AT_ONCE = 1 << 18  # entries that a processor has at hand
_SHORT = 8  # vectors longer than that have fewer cells, so that costs are alike
_TALL = 16 * UNIT  # what one sum may move a point by, relatively, for each entry


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The kind of sum, and its cells."""

    # degree, opposed: how many batches a record is in, and whether it is replaced by
    # its opposite
    degree: int
    opposed: bool
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

    @property
    def entries(self) -> int:
        """Return how many sums are kept of each record."""
        return self.degree + 1 - self.first

    def means(self, size: int) -> Floats:
        """Return entries 0, ..., degree where ``size`` ratios are 1, as on average."""
        each = [math.comb(size, j) * self.scale**j for j in range(self.degree + 1)]
        return np.array(each, float)


@dataclasses.dataclass(frozen=True, slots=True)
class Points:
    """Vectors, one a row, and their masses; what a sum of ratios is made of."""

    rows: Floats  # the entries; opposed, those of the one record and of the other
    mass: Floats
    lacking: Floats  # parts of the means that lie above all rows
    # accuracy, moved: bounds on relative errors of masses, and of rows
    accuracy: float
    moved: float
    size: int  # of how many ratios they are the sum


def is_mostly(shift: float, batches: int, taken: int) -> bool:
    """Return whether batches that a record is not in are kept count of.

    They are fewer, and doubles hold products of all ratios.
    """
    few = 0 < batches - taken < taken - 1
    return few and batches * shift * (shift + _FARTHEST) < _MOST_LOG


def shape_of(
    shift: float, batches: int, taken: int, opposed: bool, side: Side
) -> Shape:
    """Cells for such epochs: finer where more sums are made."""
    fine = _FINE / math.sqrt(math.log2(batches) + 1)
    # Of those that it is not in one more is kept.
    first = 0 if is_mostly(shift, batches, taken) and not opposed else 1
    degree = taken if first else batches - taken
    if opposed:
        fine = _OPPOSED
    elif side != "below":
        fine *= degree - first  # of three across cells are more
    long = math.sqrt(max(taken * (1 + opposed) / _SHORT, 1.0))
    scale = degree / (batches - degree + 0.5)
    others = _FEWER if side == "add" else min(math.exp(shift**2), _OTHERS)
    if not first:
        others = math.exp((1 if side == "add" else -1) * shift**2 / 2)
    others *= scale
    # Steps that move little need no cells finer than 3 % far out.
    ratio = max(0.03, _FAR_RATIO * shift)
    width = fine * long
    return Shape(degree, opposed, scale, batches, others, width, ratio, first=first)


def most_points(counts: list[int], side: Side, share: int) -> float:
    """Points of a law with which all sums of such batches are as much work as may be.

    ``counts``: of batches of each kind. ``share``: how many epochs share that work.
    """
    # Of equal laws each pair is looked at once.
    sums = sum(n.bit_count() + (n.bit_length() - 1) / 2 for n in counts) - 1
    work = _WORK_BELOW if side == "below" else _WORK / share
    return math.sqrt(work / max(sums, 0.5))


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
    return _laws_of(law, shape, batches, side, float(shape.means(batches)[-1]))


def two_laws_of_blocks(
    one: Callable[[int], tuple[Floats, Floats, float, float, float]],
    batches: int,
    shape: Shape,
    side: Side,
    tail: float,
) -> Masses:
    """The same from above, of blocks of which a record is in at most one batch each.

    ``one``: the law of a block's sum by its size; ``shape.batches``: blocks, 2^n.
    """
    k, number = shape.degree, shape.batches
    size, longer = divmod(batches, number)
    most = size + bool(longer)

    @functools.cache
    def part(some: int, blocks: int) -> Points:
        if blocks > 1:
            parts = part(some // 2, blocks // 2), part(some - some // 2, blocks // 2)
            return _added(*parts, shape, side, tail)
        value, mass, lacking, accuracy, moved = one(some)
        rows = _wider((value / most)[:, None], shape)
        lacks = np.zeros(shape.entries)
        lacks[0] = lacking / most * shape.scale
        return Points(rows, mass, lacks, accuracy, moved + _TALL, 1)

    choices = sum(
        math.comb(longer, j)
        * math.comb(number - longer, k - j)
        * (size + 1) ** j
        * size ** (k - j)
        for j in range(k + 1)
    )
    whole = shape.scale**k * (choices / most**k)
    return _laws_of(part(batches, number), shape, number, side, whole)


def _laws_of(
    law: Points, shape: Shape, batches: int, side: Side, whole: float
) -> Masses:
    """P and Q of sums, of which all ratios' mean is ``whole``."""
    blank = batches - law.size
    k = shape.entries
    if blank:  # ratios of 1, as on average
        row = np.tile(shape.means(blank)[shape.first :], (1, 1 + shape.opposed))
        law = dataclasses.replace(
            law,
            rows=_fold(law.rows, row, shape),
            lacking=_lacking(
                law, dataclasses.replace(law, lacking=np.zeros(k), size=blank), shape
            ),
        )
    p = law.rows[:, k - 1] / whole
    q = law.rows[:, -1] / whole if shape.opposed else np.ones(p.size)
    error = law.accuracy + law.moved + (16 + 4 * k) * UNIT
    lacking = float(law.lacking[-1]) / whole * (1 + error)
    moved = 1 + 2 * (law.moved + (16 + 4 * k) * UNIT)
    if side == "remove":
        p = p * moved
    elif side == "add":
        p = p / moved
    return Masses(p * law.mass, q * law.mass, lacking, error)


def summed(
    kinds: list[tuple[Floats, Floats, int]], shape: Shape, side: Side, tail: float
) -> Points:
    """The law of the vector of all batches, by doubling; kinds as in `allocation`."""
    parts: list[tuple[int, int, Points]] = []
    order = itertools.count()
    for shifts, weights, count in kinds:
        power, left = _one(shifts, weights, shape, side, tail), count
        while left:
            if left & 1:
                heapq.heappush(parts, (power.size, next(order), power))
            left >>= 1
            if left:
                power = _added(power, power, shape, side, tail)
    while len(parts) > 1:
        (_, _, first), (_, _, second) = heapq.heappop(parts), heapq.heappop(parts)
        law = _added(first, second, shape, side, tail)
        heapq.heappush(parts, (law.size, next(order), law))
    return parts[0][2]


def _one(
    shifts: Floats, weights: Floats, shape: Shape, side: Side, tail: float
) -> Points:
    """One ratio exp(s x - s^2 / 2); opposed also exp(-s x - s^2 / 2) at the same x."""
    far = -float(special.ndtri_exp(math.log(_AWAY * tail))) + float(shifts[-1])
    most = float(shifts[-1]) * far
    fine = shape.fine if side == "below" else _FIRST * shape.fine
    step = min(shape.ratio, fine * float(shifts[0]))
    step = max(step, 2 * most / shape.most)
    number = math.ceil(most / step)
    logs: Floats = (np.arange(-number, number + 1) * step).astype(np.float64)
    ends = [np.concatenate([[-np.inf], logs, [np.inf]])]
    sums = np.zeros((3, logs.size + 1))
    reach = 0.0
    for s, weight in zip(shifts.tolist(), weights.tolist(), strict=True):
        # In logs of the one ratio; of the other they are those of -x.
        x = ends[0] / s + (0.0 if shape.opposed else s / 2)
        for i, centre in enumerate((0.0, s, -s)):
            sums[i] += weight * np.exp(log_normal_mass(x, centre))
        reach = max(reach, float(np.abs(x[1:-1]).max()) + s)
    mass, mean, other = sums
    error = UNIT * (1024 + 32 * reach * reach)
    if side == "below":
        some = (sums > _LEAST_MASS).all(0)
        rows = [mean[some] / mass[some]]
        if shape.opposed:
            rows.append(other[some] / mass[some])
        first = np.stack(rows, 1)
        none = np.zeros(shape.entries)
        return Points(_wider(first, shape), mass[some], none, error, 3 * error, 1)
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
    rows2 = _wider(edges[:, None], shape)
    return Points(rows2, np.maximum(found, _LEAST_MASS), lacks, error, _TALL, 1)


def _wider(first: Floats, shape: Shape) -> Floats:
    """Rows of one ratio: all but e_1 and e_0 are 0."""
    rows = np.zeros((len(first), first.shape[1], shape.entries))
    if not shape.first:
        rows[:, :, 1] = shape.scale
    rows[:, :, 0] = shape.scale**shape.first * first
    return rows.reshape(len(first), -1)


def _fold(one: Floats, other: Floats, shape: Shape) -> Floats:
    """Rows of all pairs of rows; coefficients of products of 1 + e_1 z + ...

    Or of e_a + e_(a-1) z + ...
    """
    k, first = shape.entries, shape.first
    a, b = (
        np.ascontiguousarray(np.moveaxis(rows.reshape(len(rows), -1, k), 0, -1))
        for rows in (one, other)
    )
    a, b = a[..., None], b[..., None, :]  # by record, and by entry
    with np.errstate(over="ignore", invalid="ignore"):
        found = a + b if first else np.zeros(np.broadcast_shapes(a.shape, b.shape))
        for j in range(k):
            for i in range(j + 1 - first):
                found[:, j] += a[:, i] * b[:, j - first - i]
    return found.reshape(-1, len(one) * len(other)).T


def _fold_last(one: Floats, other: Floats, shape: Shape) -> Floats:
    """As `_fold`, but the last entry alone, which is all that counts of all batches."""
    a, b = one, other[:, ::-1]
    if shape.first:
        ones = np.ones((len(one), 1)), np.ones((len(other), 1))
        a, b = np.hstack([ones[0], a]), np.hstack([b, ones[1]])
    with np.errstate(over="ignore", invalid="ignore"):
        return (a @ b.T).reshape(-1, 1)


def _weights(shape: Shape, size: int) -> Floats:
    """About how much e_1, ..., e_k of so many ratios count: e_(k-j) of others' means.

    None is 0 but that of an e_j that no choice of ``taken`` batches has.
    """
    k, rest = shape.degree, shape.batches - size
    counts = [
        math.comb(rest, k - j) * shape.others ** (k - j)
        for j in range(shape.first, k + 1)
    ]
    return np.array(counts, float)


def _blank(shape: Shape, size: int) -> float:
    """Return the weight of e_0 beside those of `_weights`, where it has none there."""
    return shape.first * float(shape.means(shape.batches - size)[-1])


def _sums(rows: Floats, shape: Shape, size: int) -> tuple[Floats, Floats]:
    """Weighted rows, and for each what it and all that follow add up to."""
    terms = rows * _weights(shape, size)
    tails = terms.copy(order="K")
    for j in range(shape.entries - 2, -1, -1):
        tails[:, j] += tails[:, j + 1]
    return terms, tails


def _places(rows: Floats, shape: Shape, size: int) -> tuple[Floats, Floats]:
    """Coordinates of rows along and across, by which cells are laid."""
    k = shape.entries
    if shape.opposed:
        base = max(_blank(shape, size), 1e-300)  # of all sums that none is left out of
        u, v = (
            np.log(base + _sums(part, shape, size)[1][:, 0])
            for part in (rows[:, :k], rows[:, k:])
        )
        return u - v, np.minimum(u, v)
    _, tails = _sums(rows, shape, size)
    return tails[:, 0], tails.sum(1) / np.maximum(tails[:, 0], 1e-300)


def _added(one: Points, other: Points, shape: Shape, side: Side, tail: float) -> Points:
    """The law of the vector of two independent parts."""
    if side == "below":
        along, across = _cells(one, other, shape, side, tail)
        return _grouped(one, other, shape, along, across, tail)
    return _at_corners(one, other, shape, side, tail)


def _pairs(
    one: Points, other: Points, shape: Shape, fold: Fold
) -> Iterator[tuple[Floats, Floats]]:
    """All pairs of points, some at a time; of equal laws each pair once."""
    start = 0
    while start < one.mass.size:
        left = other.mass.size - (start if one is other else 0)
        rows_at_once = _AT_ONCE // (left * one.rows.shape[1])
        stop = min(start + max(1, rows_at_once), one.mass.size)
        begin = start if one is other else 0
        rows = fold(one.rows[start:stop], other.rows[begin:], shape)
        mass = one.mass[start:stop, None] * other.mass[begin:]
        if one is other:  # twice, but for those on the diagonal and below it
            corner = mass[:, : stop - start]
            corner *= 0.5 * np.eye(len(corner)) + np.triu(np.ones(corner.shape), 1)
            mass *= 2
        yield rows, mass.ravel()
        start = stop


def _grouped(
    one: Points,
    other: Points,
    shape: Shape,
    along: Floats,
    across: Floats,
    tail: float,
) -> Points:
    """From below: each cell's mass at its mean."""
    size, size_of = along.size * across.size, one.size + other.size
    width = one.rows.shape[1]
    table = np.zeros((2 + width, size))  # masses, numbers of terms, means times masses
    for rows, masses in _pairs(one, other, shape, _fold):
        held = np.isfinite(rows).all(1)
        if not held.all():  # beyond doubles: left out of both laws
            rows, masses = rows[held], masses[held]
        x, y = _places(rows, shape, size_of)
        i = np.clip(np.searchsorted(along, x, "right") - 1, 0, None)
        at = i * across.size + np.clip(np.searchsorted(across, y, "right") - 1, 0, None)
        table[0] += np.bincount(at, masses, size)
        table[1] += np.bincount(at, minlength=size)
        for j in range(width):
            table[2 + j] += np.bincount(at, masses * rows[:, j], size)
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
    if shape.opposed:  # what hardly counts of either record is left out of both
        x, y = _places((means / np.maximum(mass, _LEAST_MASS)).T, shape, size_of)
        counts = np.where(some, mass * np.exp(y) * (1 + np.exp(np.abs(x))), 0.0)
        order = np.argsort(counts)
        none = np.searchsorted(np.cumsum(counts[order]), _AWAY * tail * counts.sum())
        some[order[:none]] = False
    error = (int(terms.max()) + 8) * UNIT
    return Points(
        (means[:, some] / mass[some]).T,
        mass[some],
        np.zeros(shape.entries),
        one.accuracy + other.accuracy + error,
        one.moved + other.moved + 2 * error + 2 * shape.entries * UNIT,
        one.size + other.size,
    )


def _at_corners(
    one: Points, other: Points, shape: Shape, side: Side, tail: float
) -> Points:
    """From above: each point's mass at the corners of its cell, its mean kept."""
    k, size = shape.entries, one.size + other.size
    weights = _weights(shape, size)
    last = size == shape.batches  # all that counts is the last entry
    half = 2 * size >= shape.batches
    if last:
        shape = dataclasses.replace(shape, fine=_LAST * shape.fine, most=math.inf)
    elif half:
        shape = dataclasses.replace(shape, most=_HALF * shape.most)
    along, _ = _cells(one, other, shape, side, tail)
    parts = [number * (1 + half) for number in _PARTS[k]]
    cuts = [np.arange(number + 1) / number for number in parts]  # doubles
    if last:
        cuts = [np.array([0.0, 1.0])] * (k - 1)
    elif not shape.first:
        half = 2.0 ** -np.arange(1, _HALVES[k] + 1)
        cuts = [np.concatenate([[0], half[::-1], 1 - half[1:], [1]])] * (k - 1)
    # How far apart in `found` corners are: along, and across each share.
    steps = [math.prod([ends.size for ends in cuts[r:]]) for r in range(k)]
    found = np.zeros(along.size * steps[0])
    terms = np.zeros(found.size, np.int64)
    lack = np.zeros(k)
    for rows, mass in _pairs(one, other, shape, _fold_last if last else _fold):
        each, tails = (rows, rows) if last else _sums(rows, shape, size)
        x = tails[:, 0]
        i = np.clip(np.searchsorted(along, x, "right") - 1, 0, along.size - 2)
        p = np.clip((x - along[i]) / (along[i + 1] - along[i]), 0.0, 1.0)
        if side == "remove" and (out := x > along[-1]).any():
            lack[-rows.shape[1] :] += mass[out] @ (
                rows[out] * (1 - along[-1] / x[out])[:, None]
            )
        at, shares = i * steps[0], [(steps[0], p, 1 - p)]
        for r in range(0 if last else k - 1):
            whole = np.maximum(tails[:, r], 1e-300)
            up, down = each[:, r] / whole, tails[:, r + 1] / whole
            # By the less of a share and of what is left: small relatively to both.
            less, is_up = np.minimum(up, down), up < down
            ends, most = cuts[r], cuts[r].size - 2
            low = np.clip(np.searchsorted(ends, less, "right") - 1, 0, most)
            q = np.clip((less - ends[low]) / (ends[low + 1] - ends[low]), 0.0, 1.0)
            at = at + np.where(is_up, low, most - low) * steps[r + 1]
            shares.append(
                (steps[r + 1], np.where(is_up, q, 1 - q), np.where(is_up, 1 - q, q))
            )
        terms += np.bincount(at, minlength=found.size)
        corners = [(0, mass)]
        for step, q, rest in shares:
            corners = [
                (place + step * is_high, weight * (q if is_high else rest))
                for place, weight in corners
                for is_high in (False, True)
            ]
        for place, weight in corners:
            found += np.bincount(at + place, weight, found.size)
    error = (2**k * int(terms.max()) + 16) * UNIT
    lacking = _lacking(one, other, shape) + lack
    ends = [along, *cuts]
    table = found.reshape([each.size for each in ends])
    moved = one.moved + other.moved + _TALL * k
    for turn in itertools.count():
        mass, rows = _corners(table, ends, weights)
        law = Points(
            rows,
            np.maximum(mass, _LEAST_MASS),
            lacking * (1 + error),
            one.accuracy + other.accuracy + error,
            moved,
            size,
        )
        law = _pruned(law, shape, side, tail)
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


def _lacking(one: Points, other: Points, shape: Shape) -> Floats:
    """Add up what both lack of the means: times what the other's are."""
    found = np.zeros(shape.degree + 1)
    for law, mean in ((one, shape.means(other.size)), (other, shape.means(one.size))):
        some = np.append(np.zeros(shape.first), law.lacking)
        found += [some[: j + 1] @ mean[j::-1] for j in range(found.size)]
    return found[shape.first :] * (1 + 8 * shape.entries * UNIT)


def _pruned(law: Points, shape: Shape, side: Side, tail: float) -> Points:
    """With points that hardly count at 0, which lacks their means but for ``add``."""
    cost = law.mass
    if side == "remove":
        means = shape.means(law.size)[shape.first :]
        cost = law.mass * (law.rows / np.where(means, means, 1.0)).sum(1)
    order = np.argsort(cost)
    none = int(np.searchsorted(np.cumsum(cost[order]), _PRUNED * tail))
    gone, kept = order[:none], np.sort(order[none:])
    more = 1 + gone.size * UNIT
    rows = np.vstack([np.zeros(shape.entries), law.rows[kept]])
    at_0 = max(float(law.mass[gone].sum()) * more, _LEAST_MASS)
    lacking = law.lacking
    if side == "remove":
        lacking = lacking + law.mass[gone] @ law.rows[gone] * more
    mass = np.append(at_0, law.mass[kept])
    return dataclasses.replace(law, rows=rows, mass=mass, lacking=lacking)


def _cells(
    one: Points, other: Points, shape: Shape, side: Side, tail: float
) -> tuple[Floats, Floats]:
    """Ends of cells along and across; a guess that needs no proof."""
    points = int(min(_SAMPLE, shape.most / 2))
    (first, mass), (second, weight) = _sample(one, points), _sample(other, points)
    rows = _fold(first, second, shape)
    mass = (mass[:, None] * weight).ravel()
    held = np.isfinite(rows).all(1)
    rows, mass = rows[held], mass[held]
    size = one.size + other.size
    x, y = _places(rows, shape, size)
    lay = functools.partial(_ends, mass=mass, tail=tail, fine=shape.fine)
    if shape.opposed:
        # The more likely a loss is of either record, the more its cells count.
        share = mass * np.exp(y) * (1 + np.exp(np.abs(x)))
        deviation = max(math.sqrt(share @ (x * x) / share.sum()), 1e-9)
        half = [0.0]
        while half[-1] < np.abs(x).max():
            half.append(half[-1] + shape.fine * (deviation + half[-1] / _GROWS))
        low, high = float(y.min()), float(y.max())
        across = np.arange(low, high + _ACROSS, _ACROSS)
        return np.array([*(-at for at in half[:0:-1]), *half]), across
    # Parts at 0 make L = 0, an infinite loss where a record is added: no cells there.
    base = 0.0 if side == "add" else _blank(shape, size)
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
