"""Epochs of random allocation in which a record is replaced: one sum for each g.

H_g = E_N (W)+ / t with W the sum of l_i - g l'_i, all independent: at each g a law on a
line. The curve of all g lies between chords of bounds from above, and events that have
such chances. The proofs, rounding included, are in ``allocation.md``, "On a line".
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy import special

from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass

# Shifts of batches, and how many have each. Those that have one of two by chance, from
# above: all at the first, none at the second.
Kinds = list[tuple[float, int]]
# Cells over the deviation, in the middle; they grow by that of each so many deviations,
# and further out are a share of the distance.
_FINE, _GROWS, _MIDDLE, _GEOMETRIC = 0.05, 5.0, 9.0, 0.03
_FAR_RATIO = 0.05  # far out cells are that times the shift, if it is more
_NEAR = 0.06  # cells where sums begin to count, over the distance from there
_FINE_OF_MANY, _MANY = 0.1, 16  # where different shifts are many sums
_MOST_KINDS = 80  # of batches; more are bounded in so many groups
_MOST_CELLS = 700  # of one ratio
_AWAY = 1e-3  # of the tail that may be lost, what each sum loses at either end
_LEAST_MASS = 1e-150  # products of two do not underflow
_COARSE = 200  # points that are enough to lay a grid
_OPEN = 0.0025  # about what chords and tests may leave open of a loss
_MOST_KNOTS = 200
# Pairs of points in all sums of a curve together, some seconds, and of how many knots;
# once that is done each is so many times further from the last.
_WORK, _USUAL_KNOTS, _LATER = 1.4e8, 80, 1.1
_MOST_LOSS = 470.0  # times the ratio at a far end it is a double, with room for sums


@dataclasses.dataclass(frozen=True, slots=True)
class _Sum:
    """A law of sums w = u - g v under N; from below u and v are means in cells."""

    w: Floats  # rising
    mass: Floats
    uv: Floats | None  # two rows, from below
    lacking: float  # part of the mean that lies above all values
    # accuracy, moved: bounds on relative errors of masses, and of u and v
    accuracy: float
    moved: float


@dataclasses.dataclass(slots=True)
class Work:
    """Pairs of points looked at for a curve, and what that makes of its grids."""

    share: int = 1  # how many curves share the work
    pairs: float = 0.0
    wider: float = 1.0  # cells, for the work that is left

    def begun(self) -> None:
        """Lay cells as wide as the first knot's work asks for."""
        share = self.pairs * _USUAL_KNOTS * self.share / _WORK
        self.wider = math.sqrt(max(share, 1.0))

    @property
    def is_done(self) -> bool:
        """Return whether all that is left is to come to an end."""
        return self.pairs * self.share > _WORK


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """The side of a bound, the g that it is at, and its grids."""

    g: float
    below: bool
    tail: float
    fine: float
    ratio: float  # of cells far out, to the distance
    kink: float  # the value beyond which a whole sum counts

    def law(self, mass: Floats, sums: Floats, edges: Floats, error: float) -> _Sum:
        """The law with masses, and with means times masses, in cells of ``edges``.

        From above ``sums`` is one row, of w, and the sum of its terms' sizes another.
        """
        if self.below:
            some = (mass > _LEAST_MASS) & (sums > _LEAST_MASS).all(0)
            uv = sums[:, some] / mass[some]
            w = uv[0] - self.g * uv[1]
            return _Sum(w, mass[some], uv, 0.0, error, 2 * error + UNIT)
        mean, size = sums
        inner, width = mass[:-1], np.diff(edges)
        over = mean[:-1] - edges[:-1] * inner + 4 * (error + 8 * UNIT) * size[:-1]
        part = np.divide(over, width, out=inner.copy(), where=width > 0)
        upper = np.clip(part, 0.0, inner)
        found = np.zeros(edges.size)
        found[:-1] = inner - upper
        found[1:] += upper
        found[-1] += mass[-1]
        lacking = mean[-1] - edges[-1] * mass[-1] + 4 * (error + 8 * UNIT) * size[-1]
        found = np.maximum(found, _LEAST_MASS)
        return _Sum(edges, found, None, max(lacking, 0.0), error + 8 * UNIT, 0.0)

    def one(self, s: float) -> _Sum:
        """The law of exp(s x - s^2 / 2) - g exp(-s x - s^2 / 2), x normal."""
        # Of l as of g l', which counts where others' noise is less.
        rest = math.log(_AWAY * self.tail) - np.array([0.0, math.log(self.g)])
        far = float(np.max([s, -s] - special.ndtri_exp(rest)))
        number = math.ceil(far / max(self.fine, far / _MOST_CELLS))
        x = np.linspace(-far, far, 2 * number + 1)
        ends = np.concatenate([[-np.inf], x, [np.inf]])
        mass, p, q = (np.exp(log_normal_mass(ends, at)) for at in (0.0, s, -s))
        error = UNIT * (1024 + 32 * (far + s) ** 2)
        if self.below:
            return self.law(mass, np.stack([p, q]), x, error)
        up, down = np.exp(s * x - s * s / 2), self.g * np.exp(-s * x - s * s / 2)
        bump = 2 * error * (up + down)
        edges = up - down + bump
        # What lies below all ends is raised to the first.
        low = mass[0]
        mass, p, q = mass[1:], p[1:], self.g * q[1:]
        found = self.law(
            mass, np.stack([p - q, p + q + (up + down) * mass]), edges, error
        )
        found.mass[0] += low
        return found

    def mixed(self, one: _Sum, other: _Sum, loud: float) -> _Sum:
        """The law of one or, with chance ``loud``, of the other."""
        w = np.concatenate([one.w, other.w])
        mass = np.concatenate([(1 - loud) * one.mass, loud * other.mass])
        lacking = (1 - loud) * one.lacking + loud * other.lacking
        accuracy = max(one.accuracy, other.accuracy) + 4 * UNIT
        order = np.argsort(w)
        lacking *= 1 + 4 * UNIT
        return _Sum(w[order], mass[order], None, lacking, accuracy, 0.0)

    def added(self, one: _Sum, other: _Sum) -> _Sum:
        """The law of the sum of two independent variables."""
        edges = self._edges(one, other)
        i, j = np.indices((one.w.size, other.w.size)).reshape(2, -1)
        if one is other:  # each pair once
            i, j = np.triu_indices(one.w.size)
        w = one.w[i] + other.w[j]
        mass = one.mass[i] * other.mass[j]
        if one is other:
            mass[i != j] *= 2
        at = np.maximum(np.searchsorted(edges, w, "right") - 1, 0)
        terms = int(np.bincount(at).max())
        masses = np.bincount(at, mass, edges.size).astype(np.float64)
        error = (terms + 4) * UNIT
        accuracy = one.accuracy + other.accuracy + error
        if one.uv is not None and other.uv is not None:
            sums = [
                np.bincount(at, mass * (a[i] + b[j]), edges.size)
                for a, b in zip(one.uv, other.uv, strict=True)
            ]
            found = self.law(masses, np.array(sums, float), edges, error)
            moved = max(one.moved, other.moved) + found.moved + UNIT
            return dataclasses.replace(found, accuracy=accuracy, moved=moved)
        w = np.maximum(w, edges[0])
        mean = np.bincount(at, mass * w, edges.size).astype(np.float64)
        size = np.abs(mean) + np.abs(edges) * masses  # 0 is an end: of one sign each
        found = self.law(masses, np.stack([mean, size]), edges, error)
        lacking = (one.lacking + other.lacking + found.lacking) * (1 + 4 * UNIT)
        raised = edges + 4 * UNIT * np.abs(edges)
        accuracy += 8 * UNIT
        return dataclasses.replace(found, w=raised, lacking=lacking, accuracy=accuracy)

    def _edges(self, one: _Sum, other: _Sum) -> Floats:
        """Ends of cells for the sum of two: a guess, but for 0, which is one."""
        (value, mass), (more, weight) = _coarser(one), _coarser(other)
        value, mass = (value[:, None] + more).ravel(), (mass[:, None] * weight).ravel()
        order = np.argsort(value)
        value, mass = value[order], mass[order]
        below = np.cumsum(mass)
        last = value.size - 1
        shares = np.array([0.16, 0.5, 0.84, _AWAY * self.tail]) * below[-1]
        places = np.minimum(np.searchsorted(below, shares), last)
        early, middle, late, low = value[places].tolist()
        # Of the least of all that counts: a share of g would be more than all of it.
        above = np.cumsum((mass * np.maximum(value - max(middle, 0.0), 0.0))[::-1])
        top = last - int(np.searchsorted(above, _AWAY * self.tail, "right"))
        high = float(value[min(top, last)])
        deviation = max((late - early) / 2, 1e-9 * abs(middle), 1e-300)
        low = max(low, middle - 3 * (high - middle + deviation))
        # Where it counts, of the size that its positive values have.
        first = int(np.searchsorted(value, 0.0, "right"))
        part = np.cumsum((mass * value)[first:])
        near = math.inf
        if part.size:
            near = 0.1 * float(value[first + np.searchsorted(part, part[-1] / 2)])
        near, fine = max(near, 1e-6 * deviation), self.fine * deviation

        def width(at: float) -> float:
            off = abs(at - middle)
            wide = fine * (1 + off / deviation / _GROWS)
            wide = max(wide, self.ratio * (off - _MIDDLE * deviation))
            return min(wide, max(_NEAR, self.ratio) * (abs(at) + near))

        up, down = [0.0], [0.0]
        while up[-1] < high:
            up.append(up[-1] + width(up[-1]))
        while down[-1] > low:
            down.append(down[-1] - width(down[-1]))
        # A whole sum loses nothing where the end is where it begins to count.
        return np.unique([*down, *up, self.kink])


def _coarser(law: _Sum) -> tuple[Floats, Floats]:
    """About the same law, at some hundred points: to look where it is."""
    starts = np.arange(0, law.w.size, -(-law.w.size // _COARSE))
    mass = np.add.reduceat(law.mass, starts)
    return np.add.reduceat(law.mass * law.w, starts) / mass, mass


def _whole(
    kinds: Kinds,
    batches: int,
    loss: float,
    tail: float,
    work: Work,
    *,
    below: bool,
    loud: float = 0.0,
) -> tuple[_Sum, Floats]:
    """The law of all batches at g = exp(loss), and how far each value is above 0."""
    g, blank = math.exp(loss), batches - sum(n for _, n in kinds)
    fine = _FINE if len(kinds) <= _MANY else _FINE_OF_MANY
    ratio = max(_GEOMETRIC, _FAR_RATIO * max(s for s, _ in kinds))
    fine, ratio = fine * work.wider, min(ratio * work.wider, 0.5)
    way = _Way(g, below, tail, fine, ratio, -blank * (1 - g))

    def added(one: _Sum, other: _Sum) -> _Sum:
        work.pairs += one.w.size * other.w.size / (2 if one is other else 1)
        return way.added(one, other)

    parts: list[tuple[int, int, _Sum]] = []
    order = itertools.count()
    laws = [(way.one(s), count) for s, count in kinds]
    if loud:
        (first, number), (second, _) = laws
        laws = [(way.mixed(first, second, loud), number)]
    for power, count in laws:
        left = count
        while left:
            if left & 1:
                heapq.heappush(parts, (count - left + 1, next(order), power))
            left >>= 1
            if left:
                power = added(power, power)
    while len(parts) > 1:
        (a, _, first), (b, _, second) = heapq.heappop(parts), heapq.heappop(parts)
        heapq.heappush(parts, (a + b, next(order), added(first, second)))
    law = parts[0][2]
    return law, law.w - way.kink


def value_above(
    kinds: Kinds,
    batches: int,
    loss: float,
    tail: float,
    work: Work | None = None,
    loud: float = 0.0,
) -> float:
    """An upper bound on H at exp(loss)."""
    work = work or Work()
    law, over = _whole(kinds, batches, loss, tail, work, below=False, loud=loud)
    over = over + 8 * UNIT * (batches - sum(n for _, n in kinds)) * (1 + math.exp(loss))
    found = float(law.mass @ np.maximum(over, 0.0)) + law.lacking
    error = 2 * law.accuracy + (law.mass.size + 8) * UNIT
    return min(found / batches * (1 + error), 1.0)


def event_below(
    kinds: Kinds, batches: int, loss: float, tail: float, work: Work | None = None
) -> tuple[float, float]:
    """P and Q of an event that is nearly the best at exp(loss), safely rounded."""
    law, over = _whole(kinds, batches, loss, tail, work or Work(), below=True)
    assert law.uv is not None
    blank = batches - sum(n for _, n in kinds)
    some = over > 0
    p, q = (law.uv[:, some] + blank) @ law.mass[some] / batches
    error = (
        2 * (law.accuracy + law.moved) + (law.mass.size + 64 + 4 * _MOST_KNOTS) * UNIT
    )
    return float(p) * (1 - error), min(float(q) * (1 + error), 1.0)


def _knots(at: Callable[[float], float], tail: float, work: Work) -> dict[float, float]:
    """Values of a curve at losses from 0 on, as near as its fall and work ask for."""
    known = {0.0: at(0.0)}
    work.begun()
    further = 1.0
    # Of a normal loss that has this total variation.
    share = min(max(known[0.0], 1e-15), 1 - 1e-12)  # from below that may be 0
    deviation = 2 * float(special.ndtri((1 + share) / 2))
    loss, fall = 0.0, 0.5 / deviation
    while len(known) < _MOST_KNOTS:
        about = max(loss, deviation / 2)
        step = min(math.sqrt(8 * _OPEN * about / (fall + 1)), 0.5 / fall + 0.2)
        further *= _LATER if work.is_done else 1
        step *= further
        before, loss = loss, loss + step
        if loss > _MOST_LOSS:
            break
        known[loss] = at(loss)
        if known[loss] <= 0.05 * tail:
            break
        fall = max(math.log(known[before] / known[loss]) / step, 0.1 * fall)
    return known


def replaced(
    kinds: Kinds,
    batches: int,
    tail: float,
    *,
    below: bool,
    share: int = 1,
    loud: float = 0.0,
) -> tuple[Floats, Floats, float, float]:
    """P's and Q's masses, P's where Q has none, and a bound on relative errors.

    ``share``: how many such curves are to be made in a few seconds. ``loud``: with what
    chance each of all batches has the second of two shifts.
    """
    kinds, work = grouped(kinds, below=below), Work(share)
    if below:
        return _told(kinds, batches, tail, work)
    known = _knots(
        lambda x: value_above(kinds, batches, x, tail, work, loud), tail, work
    )
    return dominating(np.array(list(known)), np.array(list(known.values())))


def dominating(losses: Floats, h: Floats) -> tuple[Floats, Floats, float, float]:
    """The pair, its own mirror image, of bounds ``h`` at losses that rise from 0."""
    a = np.exp(losses)
    kept = _hull(a, h)
    a, h = a[kept], h[kept]
    if a.size > 1:  # no higher than the chord between the next and its mirror image
        h[0] = min(h[0], (2 * h[1] + a[1] - 1) / (1 + a[1]))
    slope = np.append(np.diff(h) / np.diff(a), 0.0)  # beyond the last, h is at infinity
    error = 16 * UNIT
    q = np.diff(slope) + error * (np.abs(slope[1:]) + np.abs(slope[:-1]))
    q = np.maximum(q, 0.0)
    middle = max(1 + 2 * slope[0] - h[0], 0.0) + error
    masses = _mirrored(middle, a[1:] * q, q)
    return *masses, float(h[-1]), 64 * UNIT


def grouped(kinds: Kinds, *, below: bool) -> Kinds:
    """Few shifts, the largest of each group, or from below the least."""
    if len(kinds) <= _MOST_KINDS:
        return kinds
    logs = np.log([s for s, _ in kinds])
    place = ((logs - logs[0]) / (logs[-1] - logs[0]) * (_MOST_KINDS - 1)).astype(int)
    found: dict[int, tuple[float, int]] = {}
    for at, (s, n) in zip(place.tolist(), kinds, strict=True):  # shifts rise
        first, before = found.get(at, (s, 0))
        found[at] = (first if below else s), before + n
    return list(found.values())


def _mirrored(middle: float, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Masses of a pair that is its own mirror image, from those of losses above 0."""
    one, other = np.concatenate([[middle], p]), np.concatenate([[middle], q])
    return np.append(one, q), np.append(other, p)


def _hull(x: Floats, y: Floats) -> list[int]:
    """Corners of the largest convex function below points."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            b, c = kept[-2:]
            if (y[c] - y[b]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[c] - x[b]):
                break
            kept.pop()
        kept.append(i)
    return kept


def _told(
    kinds: Kinds, batches: int, tail: float, work: Work
) -> tuple[Floats, Floats, float, float]:
    """The pair of what some events tell."""
    events: list[tuple[float, float]] = []

    def at(loss: float) -> float:
        events.append(event_below(kinds, batches, loss, tail, work))
        return max(events[-1][0] - math.exp(loss) * events[-1][1], 0.0)

    _knots(at, tail, work)
    return attained(*np.array(events).T)


def attained(p: Floats, q: Floats) -> tuple[Floats, Floats, float, float]:
    """The pair, its own mirror image, of what events of such chances tell, nested."""
    # Of an event and its mirror image, the rarer.
    over = p + q >= 1
    p, q = (
        np.where(over, (1 - q) * (1 - 4 * UNIT), p),
        np.where(over, (1 - p) * (1 + 4 * UNIT), q),
    )
    p, q = _chain(p, q)
    middle = max(1 - float(p[-1] + q[-1]), 0.0)
    return *_mirrored(middle, np.diff(p), np.diff(q)), 0.0, 64 * UNIT


def attained_apart(liked: Floats, other: Floats) -> tuple[Floats, Floats, float, float]:
    """The pair of what events tell: of P and Q, and others of Q and P."""
    (p, q), (v, u) = _chain(*liked), _chain(*other)
    while True:  # shorter, until the curve of both and what is between is concave
        one, two = 1 - float(p[-1] + u[-1]), 1 - float(q[-1] + v[-1])
        steep = p.size == 1 or one * (q[-1] - q[-2]) <= two * (p[-1] - p[-2])
        flat = v.size == 1 or two * (u[-1] - u[-2]) <= one * (v[-1] - v[-2])
        if min(one, two) >= 0 and steep and flat:
            break
        if v.size == 1 or (p.size > 1 and not steep):
            p, q = p[:-1], q[:-1]
        else:
            v, u = v[:-1], u[:-1]
    masses = [
        np.concatenate([[middle], np.diff(first), np.diff(second)])
        for middle, first, second in ((one, p, u), (two, q, v))
    ]
    return masses[0], masses[1], 0.0, 64 * UNIT


def _chain(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Corners of the least concave curve above events, from none to the best."""
    some = (p > q) & (q > 0)
    p, q = p[some], q[some]
    order = np.argsort(-p, kind="stable")
    q, first = np.unique(q[order], return_index=True)
    q, p = np.append(0.0, q), np.append(0.0, p[order][first])
    most = int(np.argmax(p - q)) + 1
    kept = _hull(q[:most], -p[:most])
    return p[kept], q[kept]
