"""Steps of a group from below: cells merged, and moved onto grid points.

A cell's masses p, q are those of an output less is known of: a loss x = log(p / q).
Next to a grid point c it is put there and, with a negative mass, on the next knot on
the other side of c, so that p and q are kept: a function that is no larger. Where the
sum over cells is negative the knot is dropped (the lower convex hull), so that in the
end all masses are positive, and the composition of what is below is below. The proof is
in ``pld.md``, "Below".
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.fourier import Bundle
from privaudit.accounting.pld.grouping import Group, Part
from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms.noise import Rows

Indices = NDArray[np.int64]

_TURNS = 20  # of merging cells whose grid points are one
_ENOUGH = 1.0  # of a cell's mass, for both beside it to take what is moved
_SEEN = 1e-6  # of a cell's mass of all kinds in the mean; others' losses do not matter
_LEAST = 1e-290  # of a cell's mass; less is left out
_OFF = 2.0**13 * UNIT  # of what a sum has in size: exponents are up to 1000
_DIGITS = 1e-300  # below, numbers lose them
_FAR = 600.0  # exponent up to which masses are put together
_UNITS = (1, 2, 4)  # of grid points, for kinds told by their mean
_LOST = 1.0  # of a grid point: what losses may be lower in sum, on points that do
_BESIDE = 2  # grid points from the last cells to knots beyond


def bundle_below(
    group: Group,
    way: Direction,
    spacing: float,
    tilt: float,
    reach: float,
    part: Part = "all",
) -> Bundle | None:
    """Steps of a group, each dominated by its own pair; None if doubles do not do."""
    family, apart = group.below, group.apart
    edges, spacing, seen, first = group.cells(family, way, spacing, reach, part)
    counts = None if apart else family.count
    at = edges.astype(float) * spacing
    whole = seen if first is None else _some(seen, 0, first + 1)
    found = _best(whole, at[: len(whole.log_p[0]) - 1], counts, spacing, tilt)
    if found is None:
        return None
    index, mass, base, offset = found
    if not (mass.sum(axis=1) > 0).all():
        return None
    rare = None
    if first is not None:
        # What is rare is kept to itself, moved by as much.
        seen = dataclasses.replace(_some(seen, first), atom=np.zeros(len(mass)))
        more = _placed(seen, at[first:], counts, spacing, tilt, (base, offset))
        if more is None:
            return None
        rare = more[:2] if apart else (more[0][0], more[1])
        index = np.concatenate([index, more[0]], axis=1)
        mass = np.concatenate([mass, more[1]], axis=1)
    far = float(np.abs(at).max()) + float(np.abs(index).max()) * spacing
    accuracy = 16 * seen.accuracy + UNIT * (128 + 32 * (tilt * far + abs(base)))
    moved = math.fsum((family.count * offset).tolist())
    if not apart:
        index, where = np.unique(index[0], return_inverse=True)
        moved_to = np.zeros((index.size, len(mass)))
        np.add.at(moved_to, where, mass.T)
        mass = moved_to.T
    known = (index, mass, family.count, base, accuracy, None, rare)
    return dataclasses.replace(Bundle.of(*known, apart=apart), offset=moved)


def _some(seen: Rows, first: int, last: int | None = None) -> Rows:
    """Cells from the ``first`` on, up to the ``last`` of their losses."""
    stop = None if last is None else last + 1
    log_p, log_q = seen.log_p[:, first:stop], seen.log_q[:, first:stop]
    return dataclasses.replace(seen, log_p=log_p, log_q=log_q)


def _best(
    seen: Rows, at: Floats, counts: Floats | None, spacing: float, tilt: float
) -> tuple[Indices, Floats, float, Floats] | None:
    """As `_placed`; kinds told by their mean on fewer points where much is lost.

    On points next to each other kinds' losses may lie beyond the next: what is moved
    from there is then more than it has, and it is dropped, with others.
    """
    if counts is None:
        return _placed(seen, at, counts, spacing, tilt)
    whole = np.exp(seen.log_q[:, 1:-1]).sum(axis=1) + seen.atom
    best, least = None, math.inf
    for unit in _UNITS:
        found = _placed(seen, at, counts, spacing, tilt, unit=unit)
        if found is None:
            continue
        index, mass, base, offset = found
        # Where losses are lower than they were there is more of Q.
        with np.errstate(over="ignore", invalid="ignore"):
            odds = np.exp(base - (1 + tilt) * spacing * index - offset[:, None])
            lost = float(counts @ ((mass * odds).sum(axis=1) - whole))
        if best is None or lost < least:
            best, least = found, lost
        if least < _LOST * spacing:
            break
    return best


def _placed(
    seen: Rows,
    at: Floats,
    counts: Floats | None,
    spacing: float,
    tilt: float,
    known: tuple[float, Floats] | None = None,
    unit: int = 1,
) -> tuple[Indices, Floats, float, Floats] | None:
    """Grid points of each row, tilted masses there, their base, and rows' offsets.

    ``counts``: of steps that are told by their mean. ``known``: base and offsets.
    ``unit``: of the points.
    """
    apart, own = counts is None, None if known is None else known[1]
    log_p, away, knots, offset = _merged(seen, at, counts, unit * spacing, own)
    knots *= unit
    rank = np.cumsum(np.diff(knots, axis=1, prepend=knots[:, :1]) > 0, axis=1)
    # Each row's different knots, and one beyond either end; shorter ones are filled up.
    index = np.repeat(knots[:, -1:] + _BESIDE, int(rank.max()) + 3, axis=1)
    index[:, 0] = knots[:, 0] - _BESIDE
    np.put_along_axis(index, rank + 1, knots, 1)
    lower, upper = (np.take_along_axis(index, rank + more, 1) for more in (0, 2))
    width = index.shape[1]
    rank = np.broadcast_to(rank, log_p.shape) + width * np.arange(len(log_p))[:, None]
    mass, scale = np.zeros((2, len(log_p), width))
    with np.errstate(over="ignore", invalid="ignore"):
        log_p = np.where(log_p > math.log(_LEAST), log_p, -np.inf)
        rest = np.where(log_p > -np.inf, away - knots * spacing, 0.0)
        # Shares, negative ones, of the knots above and below.
        above = np.expm1(np.maximum(-rest, 0.0)) / -np.expm1((knots - upper) * spacing)
        below = -np.expm1(-np.maximum(rest, 0.0)) / np.expm1((knots - lower) * spacing)
        log = log_p + tilt * spacing * knots
        base = max(float(log.max(initial=-math.inf)), 0.0) if not known else known[0]
        kept = log - base > math.log(_LEAST)  # others lose digits to doubles
        log_p, log = (np.where(kept, each, -np.inf) for each in (log_p, log))
        above, below = (np.where(kept, each, 0.0) for each in (above, below))
        for more, part in (
            (0, -np.exp(log_p + tilt * spacing * lower - base) * below),
            (1, np.exp(log - base) * (1 + above + below)),
            (2, -np.exp(log_p + tilt * spacing * upper - base) * above),
        ):
            moved = np.bincount((rank + more).ravel(), part.ravel(), mass.size)
            mass += moved.reshape(mass.shape)
            scale += np.abs(moved).reshape(mass.shape)
    if not np.isfinite(scale).all():
        return None
    mass -= (_OFF * scale + _DIGITS) * (scale > 0)
    rows = np.flatnonzero((mass < 0).any(axis=1))
    points = np.broadcast_to(index[rows if apart else 0], (rows.size, width))
    mass[rows] = _positive(mass[rows], points, spacing, tilt)
    too_far = ~np.isfinite(mass[rows]).all(axis=1)
    for i, own in zip(rows[too_far], points[too_far] * spacing, strict=True):
        own = own[: 1 + int(np.argmax(own))]  # the others repeat it
        at_least = np.searchsorted(own, away[i], "right") - 1
        held = at_least >= 0
        moved = np.exp(log_p[i] + tilt * own[at_least] - base)  # P's, moved down
        mass[i] = (1 - _OFF) * np.bincount(at_least[held], moved[held], width)
    return index, np.where(mass > _DIGITS, mass, 0.0), base, offset


def _merged(
    seen: Rows,
    at: Floats,
    counts: Floats | None,
    spacing: float,
    offset: Floats | None = None,
) -> tuple[Floats, Floats, Indices, Floats]:
    """Logs of P's masses of merged cells, their losses, knots, each kind's offset.

    Which is the loss of its heaviest cell, if ``offset`` does not tell it.
    """
    log_p, log_q = seen.log_p[:, 1:-1], seen.log_q[:, 1:-1]
    low, high = at[None, :-1], at[None, 1:]
    if seen.atom.any():
        zero = int(np.searchsorted(at, 0.0))
        with np.errstate(divide="ignore"):
            atom = np.log(seen.atom)
        log_p, log_q = (np.insert(each, zero, atom, 1) for each in (log_p, log_q))
        low, high = (np.insert(each, zero, 0.0, 1) for each in (low, high))
    share = None if counts is None else (counts / counts.sum())[None]
    for turn in range(_TURNS):
        with np.errstate(invalid="ignore"):
            loss = log_p - log_q - 16 * seen.accuracy
        loss = np.clip(np.where(np.isnan(loss), low, loss), low, high)
        mass = np.exp(log_p)
        whole = mass if share is None else share @ mass
        heavy = np.broadcast_to(whole.argmax(axis=1), len(loss))[:, None]
        own = offset
        if own is None:
            own = np.take_along_axis(loss, heavy, 1)[:, 0]
        away = loss - own[:, None]
        mean = least = most = away
        if share is not None:
            mean = share @ (mass * away) / np.maximum(whole, 1e-300)
            some = mass > _SEEN * whole
            least = np.where(some, away, np.inf).min(axis=0, keepdims=True)
            most = np.where(some, away, -np.inf).max(axis=0, keepdims=True)
        knots = _knots(least / spacing, mean / spacing, most / spacing, whole)
        held = whole > _LEAST
        new = np.diff(knots, axis=1, prepend=knots[:, :1] - 1) > 0
        if turn == _TURNS - 1 or not (held & ~new).any():
            return log_p, away, knots, own
        rank = np.broadcast_to(np.cumsum(new, axis=1) - 1, log_p.shape)
        low, high = (np.broadcast_to(each, rank.shape) for each in (low, high))
        log_p, log_q = (_by_rank(np.logaddexp, each, rank) for each in (log_p, log_q))
        low, high = _by_rank(np.fmin, low, rank), _by_rank(np.fmax, high, rank)
    raise AssertionError


def _knots(least: Floats, mean: Floats, most: Floats, whole: Floats) -> Indices:
    """Grid points next to losses, in order; those of cells without mass are others'."""
    # The knot that takes a negative mass is to have a larger one: of all kinds, where
    # one beside does not have enough.
    beside = np.pad(whole, ((0, 0), (1, 1)))
    near, far = beside[:, :-2], beside[:, 2:]
    few = np.minimum(near, far) < _ENOUGH * whole
    knots = np.where(near > far, np.floor(least), np.ceil(most))
    knots = np.where(few, knots, np.rint(mean))
    held = whole > _LEAST
    first = np.where(held, knots, np.inf).min(axis=1, keepdims=True)
    first = np.where(np.isfinite(first), first, 0.0)  # a row of none
    knots = np.maximum.accumulate(np.where(held, knots, first), axis=1)
    return knots.astype(np.int64)


def _by_rank(function: np.ufunc, values: Floats, rank: Indices) -> Floats:
    """Values of one rank in a row taken together; none is left where there is none."""
    empty = -np.inf if function is np.logaddexp else np.nan
    found = np.full((len(rank), int(rank.max()) + 1), empty)
    function.at(found, (np.arange(len(rank))[:, None], rank), values)
    return found


def _positive(
    mass: Floats, points: Indices | Floats, spacing: float, tilt: float
) -> Floats:
    """Masses of rows that are positive, and no larger as a function, for these.

    A knot inside is dropped by giving its mass to those beside it, in the shares that
    keep P and Q: the chord. A negative mass at the lower end is moved up. From the
    upper end on, masses are merged until their loss is no less than a knot, and are put
    there. All are lowered by what they may be off by, and none is negative; a row is
    not finite where doubles do not do. Rows go side by side: there are many, each with
    a few such knots.
    """
    last = points.argmax(axis=1)  # beyond it there is none
    places = np.arange(mass.shape[1])
    before, after = (np.tile(places + by, (len(mass), 1)) for by in (-1, 1))

    def apart(rows: Indices, i: Indices, to: Indices) -> Floats:
        return (points[rows, to] - points[rows, i]).astype(float) * spacing

    def give(rows: Indices, i: Indices, to: Indices, part: Floats) -> None:
        moved = part * np.exp(tilt * apart(rows, i, to))
        mass[rows, to] += moved - _OFF * np.abs(moved)

    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.arange(len(mass))
        while rows.size:
            negative = (mass[rows] < 0) & (places > 0) & (places < last[rows, None])
            rows, i = rows[negative.any(axis=1)], negative.argmax(axis=1)
            i = i[negative.any(axis=1)]
            lower, higher = before[rows, i], after[rows, i]
            ahead = np.expm1(apart(rows, higher, i))
            back = np.minimum(apart(rows, lower, i), 700.0)
            share = ahead / (ahead - np.expm1(back))
            m, mass[rows, i] = mass[rows, i], 0.0
            give(rows, i, lower, share * m)
            give(rows, i, higher, (1 - share) * m)
            after[rows, lower], before[rows, higher] = higher, lower
        rows = np.flatnonzero((mass[:, 0] < 0) & (last > 0))
        i = np.zeros_like(rows)
        while rows.size:
            m, mass[rows, i] = mass[rows, i], 0.0
            to = after[rows, i]
            give(rows, i, to, m)
            left = (mass[rows, to] < 0) & (to != last[rows])
            rows, i = rows[left], to[left]
        rows = np.flatnonzero(mass[np.arange(len(mass)), last] < 0)
        i, p, q = last[rows], *np.zeros((2, len(rows)))
        while rows.size:
            back = apart(rows, i, last[rows])
            fall, grown = np.exp(tilt * back), np.exp(back)
            far = max(tilt, 1.0) * back > _FAR
            ends = (p > 0) & (q <= p * grown * (1 - 1e-9)) & (mass[rows, i] >= 0) & ~far
            put = p * np.exp(-tilt * back) * (1 - 1e-9)
            own = mass[rows, i] * fall
            off = _OFF * np.abs(own)
            mass[rows, i] = np.where(ends, mass[rows, i] + put, 0.0)
            # P's part no more than it is, Q's no less.
            p, q, to = p + own - off, q + (own + off) * grown, before[rows, i]
            mass[rows[far], i[far]] = np.inf
            left = ~ends & ~far & (to >= 0)
            rows, i, p, q = rows[left], to[left], p[left], q[left]
    return mass
