"""Epochs whose likelihood ratio is of two sums, or of more: points in cells.

Of a record in two of t batches L is e_2 / C(t, 2), e_j the elementary symmetric
polynomials of the batches' ratios l_i; with (e_1, e_2) of one part of them and of
another, those of all are affine in each. Of a record replaced it is the quotient of two
sums. From above the mass of a point of the plane goes to the corners of its cell, its
mean kept. From below any vectors (e_1, ..., e_k) are put in groups, mass to the mean.
The proofs, rounding included, are in ``allocation.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from scipy import special

from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass

Side = Literal["remove", "add", "below"]  # above, in either direction; or below in both

# Cells over the deviation, in the middle; they grow by that of each so many deviations.
_FINE, _GROWS = 0.22, 5.0
_FINE_BELOW = 0.8  # times that
_OPPOSED_BELOW = 1.43  # and 2.5 times as wide far out across
_COARSE = 0.3  # cells across, over their own deviation, or as wide as those along
_FAR_RATIO, _ACROSS = 0.08, 0.35  # cells far out, over their distance and the shift
_MIDDLE = 9.0
_AWAY = 1e-3  # of the tail that may be lost, what each sum loses
_LEAST = 1e-140  # squares are no smaller than doubles
_LEAST_MASS = 1e-150
_SAMPLE = 400  # points that are enough to lay cells
_AT_ONCE = 1 << 21
_SHORT = 8  # vectors longer than that have fewer cells, so that costs are alike
_TALL = 16 * UNIT  # what one sum may move a point by, relatively


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The kind of sum, and its cells."""

    # taken, opposed: how many batches a record is in, and whether it is replaced by its
    # opposite
    taken: int
    opposed: bool
    # e_j is kept times its j-th power, so that a vector's entries are of one size
    scale: float
    # fine, coarse, ratio: widths of cells, over deviations along and across, and over
    # distances far out
    fine: float
    coarse: float
    ratio: float


@dataclasses.dataclass(frozen=True, slots=True)
class Points:
    """Vectors, one a row, and their masses; what a sum of ratios is made of."""

    rows: Floats  # (e_1, ..., e_k); opposed, those of the one record and of the other
    mass: Floats
    # parts of the means of the first two that lie above all rows
    lacking: tuple[float, float]
    # accuracy, moved: bounds on relative errors of masses, and of rows
    accuracy: float
    moved: float
    size: int  # of how many ratios they are the sum


def shape_of(
    shift: float, batches: int, taken: int, opposed: bool, side: Side
) -> Shape:
    """Cells for such epochs: finer where more sums are made."""
    fine = _FINE / math.sqrt(math.log2(batches) + 1)
    if side == "below":
        fine *= _OPPOSED_BELOW if opposed else _FINE_BELOW
    long = math.sqrt(max(taken * (1 + opposed) / _SHORT, 1.0))
    scale = taken / (batches - taken + 0.5) if taken > 2 else 1.0
    # Steps that move little need no cells finer than 3 % far out.
    ratio = max(0.03, _FAR_RATIO * shift)
    return Shape(taken, opposed, scale, fine * long, _COARSE * long, ratio)


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
    k = shape.taken
    if blank:  # ratios of 1: e_j of them is C(blank, j)
        ones = [math.comb(blank, j) * shape.scale**j for j in range(1, k + 1)]
        row = np.array([ones * (law.rows.shape[1] // k)])
        law = dataclasses.replace(
            law,
            rows=_fold(law.rows, row, shape),
            lacking=(law.lacking[0], law.lacking[1] + law.lacking[0] * blank),
        )
    whole = math.comb(batches, k) * shape.scale**k
    p = law.rows[:, k - 1] / whole
    q = law.rows[:, -1] / whole if shape.opposed else np.ones(p.size)
    error = law.accuracy + law.moved + (8 + 4 * k) * UNIT
    lacking = law.lacking[k - 1] / whole * (1 + error) if k < 3 else 0.0
    moved = 1 + 2 * (law.moved + (8 + 4 * k) * UNIT)
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
    step = min(shape.ratio, shape.fine * float(shifts[0]))
    most = float(shifts[-1]) * far
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
        return Points(_wider(first, shape), mass[some], (0.0, 0.0), error, 3 * error, 1)
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
    rows2 = np.stack([edges, np.zeros(edges.size)], 1)
    return Points(
        rows2, np.maximum(found, _LEAST_MASS), (lacking, 0.0), error, _TALL, 1
    )


def _wider(first: Floats, shape: Shape) -> Floats:
    """Rows (e_1, ..., e_k), of one ratio: all but e_1 are 0."""
    rows = np.zeros((len(first), first.shape[1], shape.taken))
    rows[:, :, 0] = shape.scale * first
    return rows.reshape(len(first), -1)


def _fold(one: Floats, other: Floats, shape: Shape) -> Floats:
    """Rows of all pairs of rows; coefficients of products of 1 + e_1 z + ..."""
    k = shape.taken
    a, b = one.reshape(len(one), 1, -1, k), other.reshape(1, len(other), -1, k)
    with np.errstate(over="ignore", invalid="ignore"):
        found = a + b
        for j in range(1, k):
            for i in range(j):
                found[..., j] += a[..., i] * b[..., j - 1 - i]
    return found.reshape(len(one) * len(other), -1)


def _places(rows: Floats, shape: Shape, side: Side) -> tuple[Floats, Floats]:
    """Coordinates of rows along and across, by which cells are laid."""
    if shape.opposed:
        u, v = rows[:, 0], rows[:, rows.shape[1] // 2]
        return u - v, 2 * np.minimum(u, v)
    if side == "below" and shape.taken > 2:
        whole = 1 + rows.sum(1)  # about the product of all 1 + scale l
        return whole, 1 + rows @ np.arange(1.0, shape.taken + 1) / whole
    u = rows[:, 0]
    return u, rows[:, 1] / np.maximum(u, _LEAST) ** 2


def _added(one: Points, other: Points, shape: Shape, side: Side, tail: float) -> Points:
    """The law of the vector of two independent parts."""
    along, across = _cells(one, other, shape, side, tail)
    if side == "below":
        return _grouped(one, other, shape, along, across)
    return _at_corners(one, other, shape, side, tail, along, across)


def _pairs(one: Points, other: Points, shape: Shape) -> Iterator[tuple[Floats, Floats]]:
    """All pairs of points, some at a time; of equal laws each pair once."""
    start = 0
    while start < one.mass.size:
        left = other.mass.size - (start if one is other else 0)
        rows_at_once = _AT_ONCE // (left * one.rows.shape[1])
        stop = min(start + max(1, rows_at_once), one.mass.size)
        begin = start if one is other else 0
        rows = _fold(one.rows[start:stop], other.rows[begin:], shape)
        mass = one.mass[start:stop, None] * other.mass[begin:]
        if one is other:
            place = np.arange(stop - start)
            twice = 2 * mass
            twice[place, place] = mass[place, place]
            some = np.triu(np.ones(mass.shape, bool)).ravel()
            yield rows[some], twice.ravel()[some]
        else:
            yield rows, mass.ravel()
        start = stop


def _grouped(
    one: Points, other: Points, shape: Shape, along: Floats, across: Floats
) -> Points:
    """From below: each cell's mass at its mean."""
    size = along.size * across.size
    mass = np.zeros(size)
    means = np.zeros((one.rows.shape[1], size))
    terms = np.zeros(size, np.int64)
    for rows, masses in _pairs(one, other, shape):
        held = np.isfinite(rows).all(1)
        if not held.all():  # beyond doubles: left out of both laws
            rows, masses = rows[held], masses[held]
        x, y = _places(rows, shape, "below")
        i = np.clip(np.searchsorted(along, x, "right") - 1, 0, None)
        at = i * across.size + np.clip(np.searchsorted(across, y, "right") - 1, 0, None)
        mass += np.bincount(at, masses, size)
        terms += np.bincount(at, minlength=size)
        for j, mean in enumerate(means):
            mean += np.bincount(at, masses * rows[:, j], size)
    some = mass > _LEAST_MASS
    error = (int(terms.max()) + 8) * UNIT
    return Points(
        (means[:, some] / mass[some]).T,
        mass[some],
        (0.0, 0.0),
        one.accuracy + other.accuracy + error,
        one.moved + other.moved + 2 * error + 2 * shape.taken * UNIT,
        one.size + other.size,
    )


def _at_corners(
    one: Points,
    other: Points,
    shape: Shape,
    side: Side,
    tail: float,
    along: Floats,
    across: Floats,
) -> Points:
    """From above: each point's mass at the corners of its cell, its mean kept."""
    size, width = along.size * across.size, across.size
    found, terms = np.zeros(size), np.zeros(size, np.int64)
    tall = along**2
    lack = [0.0, 0.0]
    for rows, mass in _pairs(one, other, shape):
        x, y = _places(rows, shape, side)
        i = np.clip(np.searchsorted(along, x, "right") - 1, 0, along.size - 2)
        p = np.clip((x - along[i]) / (along[i + 1] - along[i]), 0.0, 1.0)
        out = x > along[-1]
        h = tall[i] * (1 - p) + tall[i + 1] * p
        c = np.minimum(np.where(out, y, rows[:, 1] / np.maximum(h, _LEAST**2)), 0.5)
        if out.any():
            lack[0] += float(mass[out] @ (x[out] - along[-1]))
            lack[1] += float(mass[out] @ (rows[out, 1] - c[out] * tall[-1]))
        j = np.minimum(np.searchsorted(across, c, "right") - 1, width - 2)
        q = (c - across[j]) / (across[j + 1] - across[j])
        at = i * width + j
        low, high = mass * (1 - p), mass * p
        terms += np.bincount(at, minlength=size)
        for move, part in ((0, low), (width, high)):
            found += np.bincount(at + move, part * (1 - q), size)
            found += np.bincount(at + move + 1, part * q, size)
    u, v = np.repeat(along, width), np.repeat(tall, width) * np.tile(across, along.size)
    error = (4 * int(terms.max()) + 16) * UNIT
    more = (*_lacking(one, other), error)
    law = Points(
        np.stack([u, v], 1),
        found,
        (
            (more[0] + lack[0]) * (1 + error),
            (more[1] + lack[1]) * (1 + error),
        ),
        one.accuracy + other.accuracy + error,
        one.moved + other.moved + _TALL,
        one.size + other.size,
    )
    return _pruned(law, side, tail)


def _lacking(one: Points, other: Points) -> tuple[float, float]:
    """Add up what both lack of the means: of e_2 also e_1 times the other's."""
    first = one.lacking[0] + other.lacking[0]
    second = one.lacking[1] + other.lacking[1]
    second += one.lacking[0] * other.size + other.lacking[0] * one.size
    return first * (1 + 4 * UNIT), second * (1 + 8 * UNIT)


def _pruned(law: Points, side: Side, tail: float) -> Points:
    """With points that hardly count at 0, which lacks their means but for ``add``."""
    u, v = law.rows.T
    if side == "add":
        cost = law.mass
    else:
        cost = law.mass * (u / law.size + v / math.comb(law.size, 2))
    order = np.argsort(cost)
    none = int(np.searchsorted(np.cumsum(cost[order]), 0.1 * _AWAY * tail))
    gone, kept = order[:none], np.sort(order[none:])
    more = 1 + gone.size * UNIT
    rows = np.vstack([[0.0, 0.0], law.rows[kept]])
    at_0 = max(float(law.mass[gone].sum()) * more, _LEAST_MASS)
    lacking = law.lacking
    if side == "remove":
        lacking = (
            lacking[0] + float(law.mass[gone] @ u[gone]) * more,
            lacking[1] + float(law.mass[gone] @ v[gone]) * more,
        )
    mass = np.append(at_0, law.mass[kept])
    return dataclasses.replace(law, rows=rows, mass=mass, lacking=lacking)


def _cells(
    one: Points, other: Points, shape: Shape, side: Side, tail: float
) -> tuple[Floats, Floats]:
    """Ends of cells along and across; a guess that needs no proof."""
    (first, mass), (second, weight) = _sample(one), _sample(other)
    rows = _fold(first, second, shape)
    mass = (mass[:, None] * weight).ravel()
    held = np.isfinite(rows).all(1)
    rows, mass = rows[held], mass[held]
    x, y = _places(rows, shape, side)
    lay = functools.partial(_ends, mass=mass, tail=tail, fine=shape.fine)
    if shape.opposed:
        half, width = lay(np.abs(x), ratio=shape.ratio, start=0.0)
        along = np.concatenate([-half[:0:-1], half])
        across, _ = lay(y, ratio=2.5 * shape.ratio, least=2 * width)
        return along, across
    along, width = lay(x, ratio=shape.ratio)
    middle = x[np.argsort(x)[x.size // 2]]
    half = y[np.argsort(y)[y.size // 2]]
    lay = functools.partial(_ends, mass=mass, tail=tail, fine=shape.coarse)
    across, _ = lay(y, ratio=_ACROSS, least=1.5 * width / middle * half)
    if side != "below":
        across = np.append(across[across < 0.5], 0.5)
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
) -> tuple[Floats, float]:
    """Ends of cells for such values, from 0 on, and their width in the middle."""
    order = np.argsort(value)
    value, mass = value[order], mass[order]
    below = np.cumsum(mass)
    above = np.cumsum((mass * (value + below[-1]))[::-1])[::-1]

    def at(share: float) -> float:
        return float(value[min(np.searchsorted(below, share * below[-1]), last)])

    last = value.size - 1
    # One deviation from the middle at either side, as a normal law has it.
    early, middle, late, low = map(at, (0.16, 0.5, 0.84, _AWAY * tail))
    high = float(
        value[min(int(np.searchsorted(-above, -_AWAY * tail * above[0])), last)]
    )
    deviation = max((late - early) / 2, 1e-3 * middle)
    if start is not None:
        middle, deviation = start, max(at(0.68), 1e-6 * high)
    size = max(fine * deviation, least)

    ratio = min(ratio, 0.5)  # of one or more, ends would fall below 0

    def width(at: float) -> float:
        off = abs(at - middle)
        wide = size * (1 + off / deviation / _GROWS)
        wide = max(wide, ratio * (off - _MIDDLE * deviation))
        return wide if start is not None else min(ratio * at, wide)

    ends = [middle]
    while ends[-1] < high:
        ends.append(ends[-1] + width(ends[-1]))
    if start is not None:
        return np.array(ends), size
    ends.reverse()
    while ends[-1] > max(low, _LEAST):
        ends.append(ends[-1] - width(ends[-1]))
    return np.array([*ends, 0.0])[::-1], size


def _sample(law: Points) -> tuple[Floats, Floats]:
    """About the same law, at some hundred points."""
    size = -(-law.mass.size // _SAMPLE)
    if size == 1:
        return law.rows, law.mass
    order = np.lexsort(law.rows.T[::-1])
    starts = np.arange(0, law.mass.size, size)
    mass = np.add.reduceat(law.mass[order], starts)
    rows = np.add.reduceat((law.mass[:, None] * law.rows)[order], starts)
    return rows / mass[:, None], mass
