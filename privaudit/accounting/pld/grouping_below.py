"""Steps of a group from below: cells merged, and moved onto grid points.

A cell's masses p, q are those of an output less is known of: a loss x = log(p / q).
Next to a grid point c it is put there and, with a negative mass, on the next knot on
the other side of c, so that p and q are kept: a function that is no larger. Where the
sum over cells is negative the knot is dropped (the lower convex hull), so that in the
end all masses are positive, and the composition of what is below is below. The proof is
in ``pld.md``, "Below".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.fourier import Bundle
from privaudit.accounting.pld.grouping import Group
from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms.noise import Rows, rows

Indices = NDArray[np.int64]

_TURNS = 20  # of merging cells whose grid points are one
_ENOUGH = 1.0  # of a cell's mass, for both beside it to take what is moved
_BESIDE = 2  # grid points from the last cells to knots beyond


def bundle_below(
    group: Group, way: Direction, spacing: float, tilt: float, reach: float
) -> Bundle | None:
    """Steps of a group, each dominated by its own pair; None if doubles do not do.

    Each kind's losses lie on grid points moved by the loss of its heaviest cell.
    """
    family = group.family
    at = group.edges.astype(float) * spacing
    kind = (family.noise, family.scheme)
    seen = rows(kind, way, at, family.shift, family.rate, reach)
    share = family.count / family.steps
    log_p, away, knots, offset = _merged(seen, at, share, spacing)
    knots = np.concatenate([[knots[0] - _BESIDE], knots, [knots[-1] + _BESIDE]])
    points = knots * spacing
    with np.errstate(over="ignore", invalid="ignore"):
        rest = away - points[1:-1]
        # Shares, negative ones, of the knots above and below.
        above = np.expm1(np.maximum(-rest, 0.0)) / -np.expm1(points[1:-1] - points[2:])
        below = -np.expm1(-np.maximum(rest, 0.0)) / np.expm1(np.diff(points)[:-1])
        log = log_p + tilt * points[1:-1]
        base = max(float(log.max(initial=-math.inf)), 0.0)
        mass = np.zeros((len(log), knots.size))
        scale = np.zeros_like(mass)
        for place, part in (
            (slice(1, -1), np.exp(log - base) * (1 + above + below)),
            (slice(2, None), -np.exp(log_p + tilt * points[2:] - base) * above),
            (slice(0, -2), -np.exp(log_p + tilt * points[:-2] - base) * below),
        ):
            mass[:, place] += part
            scale[:, place] += np.abs(part)
    if not np.isfinite(scale).all():
        return None
    mass -= 64 * UNIT * scale + 1e-300
    mass[:, [0, -1]] += 1e-300 * (scale[:, [0, -1]] == 0)
    for i in np.flatnonzero((mass < 0).any(axis=1)):
        try:
            _positive(mass[i], scale[i], points, tilt)
        except OverflowError:  # knots are too far apart: P's masses moved down
            at_least = np.where(rest[i] >= 0, 0, -1) + np.arange(1, knots.size - 1)
            held = away[i] >= points[at_least]
            mass[i] = scale[i] = np.bincount(
                at_least[held],
                np.exp(log_p[i] + tilt * points[at_least] - base)[held],
                knots.size,
            )
    mass = np.maximum(mass - 64 * UNIT * scale, 0.0)
    if not (mass.sum(axis=1) > 0).all():
        return None
    with np.errstate(divide="ignore"):
        most = np.log(mass.max(axis=0))
    far = float(np.abs(at).max()) + float(np.abs(points).max())
    accuracy = 16 * seen.accuracy + UNIT * (128 + 32 * (tilt * far + abs(base)))
    moved = math.fsum((family.count * offset).tolist())
    return Bundle.of(knots, mass, family.count, base, 0.0, accuracy, most, offset=moved)


def _merged(
    seen: Rows, at: Floats, share: Floats, spacing: float
) -> tuple[Floats, Floats, Indices, Floats]:
    """Logs of P's masses of merged cells, their losses, knots, and each kind's offset.

    Losses are less the offset. Cells whose losses have one knot are merged.
    """
    log_p, log_q = seen.log_p[:, 1:-1], seen.log_q[:, 1:-1]
    low, high = at[:-1], at[1:]
    if seen.atom.any():
        zero = int(np.searchsorted(at, 0.0))
        with np.errstate(divide="ignore"):
            atom = np.log(seen.atom)
        log_p, log_q = (np.insert(each, zero, atom, 1) for each in (log_p, log_q))
        low, high = np.insert(low, zero, 0.0), np.insert(high, zero, 0.0)
    some = share @ np.exp(log_p) > 1e-290  # all others are left out
    log_p, log_q, low, high = log_p[:, some], log_q[:, some], low[some], high[some]
    for turn in range(_TURNS):
        with np.errstate(invalid="ignore"):
            loss = log_p - log_q - 16 * seen.accuracy
        loss = np.clip(np.where(np.isnan(loss), low, loss), low, high)
        mass = share[:, None] * np.exp(log_p)
        whole = mass.sum(axis=0)
        heavy = int(np.argmax(whole))
        offset = loss[:, heavy]
        away = loss - offset[:, None]
        mean = (mass * away).sum(axis=0) / whole / spacing
        # The knot that takes a negative mass is to have a larger one.
        beside = np.pad(whole, 1)
        near, far = beside[:-2], beside[2:]
        few = np.minimum(near, far) < _ENOUGH * whole
        knots = np.where(near > far, np.floor(mean), np.ceil(mean))
        knots = np.where(few, knots, np.rint(mean))
        knots[heavy] = 0.0
        knots = knots.astype(np.int64)
        first = np.append(True, np.diff(knots) > 0)
        if first.all() or turn == _TURNS - 1:
            break
        starts = np.flatnonzero(first)
        log_p, log_q = (
            np.logaddexp.reduceat(each, starts, axis=1) for each in (log_p, log_q)
        )
        low, high = low[starts], high[np.append(starts[1:], high.size) - 1]
    if not first.all():  # one cell: nothing is known but that all is one
        log_p = np.logaddexp.reduce(log_p, axis=1)[:, None]
        log_q = np.logaddexp.reduce(log_q, axis=1)[:, None]
        offset = (log_p - log_q)[:, 0] - 32 * seen.accuracy
        return log_p, np.zeros_like(log_p), np.zeros(1, np.int64), offset
    return log_p, away, knots, offset


def _positive(mass: Floats, scale: Floats, points: Floats, tilt: float) -> None:
    """Put masses that are positive, and no larger as a function, in the place of these.

    A knot inside is dropped by giving its mass to those beside it, in the shares that
    keep P and Q: the chord. A negative mass at the lower end is moved up. From the
    upper end on, masses are merged until their loss is no less than a knot, and are put
    there. ``scale`` grows by the sizes of what is moved.
    """
    last = mass.size - 1
    before, after = list(range(-1, last)), list(range(1, last + 2))
    exp, expm1 = math.exp, math.expm1

    def give(i: int, to: int, part: float) -> None:
        moved = part * exp(tilt * (points[to] - points[i]))
        mass[to] += moved
        scale[to] += abs(moved)

    todo = [i for i in range(1, last) if mass[i] < 0]
    while todo:
        i = todo.pop()
        m = float(mass[i])
        if not m < 0 or i in (0, last):
            continue
        lower, higher = before[i], after[i]
        ahead = expm1(points[i] - points[higher])
        behind = expm1(min(points[i] - points[lower], 700.0))
        share = ahead / (ahead - behind)
        mass[i] = 0.0
        for to, part in ((lower, share), (higher, 1 - share)):
            give(i, to, part * m)
            if mass[to] < 0:
                todo.append(to)
        after[lower], before[higher] = higher, lower
    i = 0
    while mass[i] < 0 and i != last:
        m, mass[i] = float(mass[i]), 0.0
        give(i, after[i], m)
        i = after[i]
    i, end = last, float(points[last])
    if mass[i] >= 0:
        return
    p = q = 0.0
    while i >= 0:
        back = end - float(points[i])
        own = float(mass[i]) * exp(min(tilt * back, 600.0))
        p, q, mass[i] = p + own, q + own * exp(min(back, 600.0)), 0.0
        if p > 0 and q <= p * exp(min(back, 600.0)) * (1 - 1e-9):
            mass[i] = p * exp(-tilt * back) * (1 - 1e-9)
            return
        i = before[i]
