"""An epoch of random allocation: pairs above and below it, by sums of ratios.

Each record is by itself in one of t batches; L = (l_1 + ... + l_t) / t is the
likelihood ratio, the l_i independent and log-normal under Q. The law of the sum is made
by doubling, on grids that are as fine as it is narrow and geometric far from its
middle. In each cell, mass goes to both ends for a bound from above, its mean kept, and
to its mean for one from below. All terms are positive, so that errors are relative,
however small delta is. The proofs, rounding included, are in ``allocation.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting import gdp
from privaudit.accounting.pld.allocation_plane import (
    LIGHT,
    LIGHT_OF_REST,
    MOST_TAKEN,
    Masses,
    Parts,
    Points,
    Shape,
    Side,
    is_mostly,
    most_points,
    of_block,
    one_ratio,
    shape_of,
    two_laws,
)
from privaudit.accounting.pld.allocation_replaced import dominating, replaced
from privaudit.accounting.pld.allocation_scores import MOST_TAKEN as MOST_SCORED
from privaudit.accounting.pld.allocation_scores import scored
from privaudit.accounting.pld.allocation_shuffled import numbers_of_alike
from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass
from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import PairLoss

# Cells in the middle, over the deviation of the bulk. Each of some ten doublings adds a
# sixth of its square to the variance, or takes half of that; costs are one over it.
_FINE = 0.018
_FINE_OF_MANY = 0.04  # where different shifts are many sums
_GEOMETRIC = 0.03  # cells far out, over their distance
_MIDDLE = 9.0  # deviations to each side that have fine cells, at most
_MOST_CELLS = 1500  # of one ratio, which is wide where there is little noise
_MOST_KINDS = 300  # of batches; more are bounded in so many groups
_MOST_COUNTED, _MOST_LAPLACE = 100_000, 500.0  # batches, and their shift
_BLOCKS = 32  # of many batches of which a record is in three and more, one of each
_LOUDER, _MOST_LOUD = 0.95, 1.5  # of different batches' shifts
_MOST_SHIFT = 12.0  # beyond, ratios times the least mass are not small
_AWAY = 1e-3  # of the tail that may be lost, what each sum loses at either end
_LEAST_TAIL, _TAIL_ABOVE, _TAIL_SMALL = 1e-25, 1e-15, 1e-18
_TAIL_BELOW, _TAIL_PLANE = 1e-18, 1e-13
_TAIL_CURVE = 1e-15  # from below
_LEAST_MASS = 1e-150  # products of two do not underflow
_BETWEEN, _MOST_BETWEEN = 800, 200.0  # losses of two steps, and the largest
_SKETCHED = 4000
_TAIL_SHUFFLED = 1e-9  # to look by
_QUICK, _SHUFFLED_KNOTS = 24, 600  # curves that are made in some seconds, and points
_LEAST_TOP = 1e-3  # exponentials of the least losses are apart
_SHUFFLED_LOST = 10.0 ** np.arange(1, 6)  # of the tail: to a part of delta or so
_COARSE = 250  # points that are enough to lay a grid


@dataclasses.dataclass(frozen=True, slots=True)
class Epoch:
    """Batches of which a record is in some, all choices equally likely."""

    # shifts, counts: sensitivity over noise of each kind of batch, and how many of it
    # were released
    shifts: tuple[float, ...]
    counts: tuple[int, ...]
    batches: int  # how many the epoch has; those that were not released tell nothing
    # taken, opposed: how many a record is in, one if not said, from above at most 6;
    # whether it is replaced by its opposite, not removed
    taken: int = 1
    opposed: bool = False
    blocks: int = 0  # of an epoch, of which this is one: how many different ones
    # of two shifts and one count: with what chance each batch has the second
    loud: float = 0.0
    # a batch is one of these, beside what they share, of which ``shifts`` are
    inner: Epoch | None = None
    shuffled: bool = False  # batches of one size, a uniform order of all records

    @property
    def is_sum(self) -> bool:
        """Return whether its likelihood ratio is a sum of the batches'."""
        return self.taken == 1 and not self.opposed

    @property
    def is_many(self) -> bool:
        """Return whether a record is replaced in more batches than sums tell of.

        All batches being released, their mean does.
        """
        whole = sum(self.counts) == self.batches
        return self.opposed and self.taken > MOST_SCORED and whole


@dataclasses.dataclass(frozen=True, slots=True)
class Law:
    """A law of a sum of ratios, or of their mean, under Q."""

    # value, mass: rising, and the mass of each
    value: Floats
    mass: Floats
    lacking: float  # part of the mean that lies above all values
    # accuracy, moved: bounds on the relative errors of masses, and of values
    accuracy: float
    moved: float


def epoch_measure(
    epoch: Epoch, way: Direction, spacing: float, tail: float
) -> GridMeasure | None:
    """A measure that dominates ``epoch`` in one direction; None with too little noise.

    Mixture against noise alone for ``remove``, reversed for ``add``. ``tail``: about
    how much probability may be counted as lost, in (0, 1).
    """
    side: Side = "remove" if epoch.opposed else way
    law = epoch_masses(epoch, side, tail)
    if law is None:
        return None
    p, q, infinite = law.p, law.q, law.lacking
    if side == "add":
        p, q, infinite = q, p, 0.0
    some = (p > 0) & (q > 0)
    infinite += float(p[~some].sum())
    p, q = p[some], q[some]
    loss = np.log(p / q)
    accuracy = UNIT * (64 + 16 * float(np.abs(loss).max()))
    index = np.floor(loss / spacing).astype(np.int64)
    start, stop = _bounds(index, p, tail)
    infinite += float(p[index >= stop].sum())
    inside = index < stop
    low = inside & (index < start)  # raised to the lower end of the grid
    below = float(p[low].sum())
    index, p, q = (values[inside & ~low] for values in (index - start, p, q))
    cells = stop - start
    # As `dots.measure_above`: the split of each cell that keeps P and Q.
    scaled = q * np.exp((index + start) * spacing)
    masses, others = (
        np.bincount(index, weights=values, minlength=cells) for values in (p, scaled)
    )
    upper = masses - others + 8 * accuracy * (masses + others)
    upper = np.clip(upper / -math.expm1(-spacing), 0.0, masses)
    found = np.zeros(cells + 1)
    found[:-1] = masses - upper
    found[1:] += upper
    found[0] += below
    accuracy = law.accuracy + 4 * accuracy
    infinite = float(infinite) * (1 + accuracy + 1e-12)
    return GridMeasure(start, found, infinite, float(accuracy))


def _bounds(index: NDArray[np.int64], p: Floats, tail: float) -> tuple[int, int]:
    """Indices of the grid, but for a tenth of ``tail`` at either end."""
    order = np.argsort(index, kind="stable")
    sums = np.cumsum(p[order])
    first = int(np.searchsorted(sums, 0.1 * tail))
    last = int(np.searchsorted(sums, sums[-1] - 0.1 * tail))
    top = min(last, index.size - 1)
    start = int(index[order[min(first, index.size - 1)]])
    return min(start, -1), max(int(index[order[top]]) + 1, 1)


def losses(epoch: Epoch, way: Direction, tail: float) -> tuple[Floats, Floats] | None:
    """Losses to look by, and logs of their masses under Q: no bound."""
    # Sums of sums: data may tell so much less that a tilt to them misses the bound. Of
    # blocks of opposed records data's law would be made for this alone.
    told = epoch.is_sum or (epoch.opposed and not epoch.blocks)
    side, tail = ("below", tail) if told else (way, max(tail, _TAIL_ABOVE))
    tail = max(tail, _TAIL_SHUFFLED) if epoch.shuffled else tail
    law = epoch_masses(epoch, side, tail)
    if law is None:
        return None
    some = (law.p > 0) & (law.q > 0)
    log_p, log_q = np.log(law.p[some]), np.log(law.q[some])
    return (log_p - log_q, log_q) if way == "remove" else (log_q - log_p, log_p)


class AllocatedBelow(PairLoss):
    """The loss of an epoch, for lower bounds only."""

    @classmethod
    def of(cls, epoch: Epoch, tail: float = _TAIL_BELOW) -> AllocatedBelow | None:
        """Build from a pair that data attain, or that tells less; None if too far."""
        law = epoch_masses(epoch, "below", tail)
        if law is None:
            return None
        some = (law.p > 0) & (law.q > 0)
        log_p, log_q = np.log(law.p[some]), np.log(law.q[some])
        return cls(Atoms(log_p, log_q, far=law.accuracy / UNIT))

    @classmethod
    def counted(cls, epoch: Epoch) -> AllocatedBelow | None:
        """Build from how many batches of Laplace noise are beyond the shift."""
        from scipy import stats  # a tenth of a second, which few need

        shift, count = epoch.shifts[-1], min(epoch.counts[-1], _MOST_COUNTED)
        if shift > _MOST_LAPLACE:
            return None
        often = count * math.exp(-shift) / 2
        far = 12 * math.sqrt(often) + 60
        k = np.arange(max(0, int(often - far)), min(count, int(often + far)) + 1)
        log_q = stats.binom.logpmf(k, count, math.exp(-shift) / 2)
        ratio = k * math.exp(shift) + (count - k) / (2 - math.exp(-shift))
        log_p = log_q + np.log(1 - count / epoch.batches + ratio / epoch.batches)
        return cls(Atoms(log_p, log_q, far=1e-9 / UNIT))

    def __init__(self, atoms: Atoms) -> None:
        super().__init__(atoms)
        self.atoms = atoms

    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        """See `Loss`; nothing is known."""
        raise NotImplementedError("an epoch from below bounds nothing from above")

    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        """See `Loss`; the rarest losses matter as well, far above."""
        loss, masses = self.atoms.loss, self.atoms.log_q
        starts = np.arange(0, loss.size, -(-loss.size // _SKETCHED))
        loss, log_q = loss[starts], np.logaddexp.reduceat(masses, starts)
        return (loss, log_q) if way == "remove" else (-loss, log_q + loss)

    def range(self, way: Direction) -> tuple[float, float]:
        return math.inf, math.inf

    def distance(self) -> float:
        return 1.0


def epoch_masses(epoch: Epoch, side: Side, tail: float) -> Masses | None:
    """P's and Q's masses, bounded on one side; None if doubles do not hold them."""
    if epoch.is_sum:
        law = epoch_law(epoch, side, tail)
        if law is None:
            return None
        error = law.accuracy + law.moved
        return Masses(law.value * law.mass, law.mass, law.lacking, error)
    # Both take seconds: one for several tails; in cones and of blocks for all usual
    # ones, the scout's too.
    usual = _TAIL_ABOVE if tail >= _TAIL_ABOVE else _TAIL_SMALL
    usual = usual if tail >= usual else _LEAST_TAIL
    if epoch.shuffled:
        return _alike_others(epoch, max(usual, tail))
    if epoch.opposed and epoch.taken > 1:
        return _scored(epoch) if side == "below" else _through_none(epoch, usual)
    if epoch.opposed:
        tail = max(1000.0 ** math.floor(math.log(tail, 1000) + 1e-9), _LEAST_TAIL)
        tail = usual if epoch.blocks else tail
        return _curve(epoch, side, tail if side != "below" else _TAIL_CURVE)
    return _plane(epoch, side, usual if side != "below" else _TAIL_PLANE)


@functools.lru_cache(maxsize=48)
def _curve(epoch: Epoch, side: Side, tail: float) -> Masses | None:
    if max(epoch.shifts) > _MOST_SHIFT:
        return None
    below = side == "below"
    counts = (*epoch.counts, 0) if epoch.loud else epoch.counts
    kinds, share = list(zip(epoch.shifts, counts, strict=True)), epoch.blocks or 1
    found = replaced(
        kinds, epoch.batches, tail, below=below, share=share, loud=epoch.loud
    )
    return Masses(*found)


@functools.lru_cache(maxsize=48)
def _alike_others(epoch: Epoch, tail: float) -> Masses | None:
    """Shuffled batches, by those of them that are as if nobody were in their place."""
    (shift,) = epoch.shifts
    if shift > _MOST_SHIFT:
        return None
    top = max(float(gdp.epsilon(2 * shift, tail)), _LEAST_TOP)
    losses = top * np.linspace(0.0, 1.0, _SHUFFLED_KNOTS) ** 2
    h = np.asarray(gdp.delta(2 * shift, losses))  # the order known
    for lost in (tail * _SHUFFLED_LOST).tolist():
        found, more = numbers_of_alike(shift, epoch.batches, lost)
        heights = [chance * _one_of(shift, n, losses.tobytes()) for n, chance in found]
        h = np.minimum(h, sum(heights) + more)
    h = np.minimum(h * (1 + 64 * UNIT), 1.0)
    # Exponentials are rounded, but that of 0; H falls.
    losses[1:] += (16 * losses[1:] + 4) * UNIT
    return Masses(*dominating(losses, h))


@functools.lru_cache(maxsize=256)
def _one_of(shift: float, n: int, losses: bytes) -> Floats:
    """Upper bounds on H of a record replaced in one of ``n``, at ``losses``."""
    one = Epoch((shift,), (n,), n, opposed=True, blocks=_QUICK)
    law = _curve(one, "remove", _LEAST_TAIL)
    assert law is not None
    return np.array([_height(law, x) for x in np.frombuffer(losses).tolist()])


@functools.lru_cache(maxsize=48)
def _through_none(epoch: Epoch, tail: float) -> Masses | None:
    """A record replaced, from above: removed, and then the other one added.

    On any event P <= e^a N + h_a, N <= e^b Q + h_b: H at e^(a + b) is h_a + e^a h_b at
    most. Where noise differs and batches are few this is less than blocks of one lose.
    """
    plain = dataclasses.replace(epoch, opposed=False)
    # What is lost counts e^a times.
    away, back = (epoch_masses(plain, way, _LEAST_TAIL) for way in ("remove", "add"))
    if away is None or back is None:
        return None
    # If a record is added what lacks of P only makes more of its bound.
    back = Masses(back.q, back.p, 0.0, back.accuracy)
    top = 1.0
    while top < _MOST_BETWEEN and _height(away, top) > tail:
        top *= 1.5
    losses = np.linspace(0.0, top, _BETWEEN)
    to, fro = (
        np.array([_height(law, x) for x in losses.tolist()]) for law in (away, back)
    )
    found, rise = [], np.exp(losses)
    for n in range(2 * _BETWEEN - 1):  # in all as many steps
        some = slice(max(n - _BETWEEN + 1, 0), min(n, _BETWEEN - 1) + 1)
        found.append((to[some] + rise[some] * fro[some][::-1]).min())
    h = np.minimum(np.array(found) * (1 + 64 * UNIT), 1.0)
    step = float(losses[1]) * (1 + 16 * UNIT)
    return Masses(*dominating(step * np.arange(h.size, dtype=np.float64), h))


def _height(law: Masses, loss: float) -> float:
    """An upper bound on what P exceeds exp(loss) Q by."""
    error = law.accuracy + (law.p.size + 16) * UNIT
    over = law.p * (1 + error) - math.exp(loss) * (1 - error) * law.q
    return (float(np.maximum(over, 0.0).sum()) + law.lacking) * (1 + error)


@functools.lru_cache(maxsize=48)
def _scored(epoch: Epoch) -> Masses | None:
    """From below alone."""
    if max(epoch.shifts) > _MOST_SHIFT or epoch.taken > MOST_SCORED:
        return None
    kinds = list(zip(epoch.shifts, epoch.counts, strict=True))
    return Masses(*scored(kinds, epoch.batches, epoch.taken, _TAIL_CURVE, opposed=True))


@functools.lru_cache(maxsize=48)
def _plane(epoch: Epoch, side: Side, tail: float) -> Masses | None:
    largest = max(epoch.shifts)
    if largest > _MOST_SHIFT:
        return None
    kinds = _kinds(epoch, side)
    t, k = epoch.batches, epoch.taken
    # Parts take all batches, alike; of all but few cones are of what is left out.
    alike = len(kinds) == 1 and kinds[0][2] == t and not is_mostly(largest, t, k)
    if side != "below" and alike:
        many = t >= 2 * _BLOCKS
        if k > MOST_TAKEN or (many and k == MOST_TAKEN):
            return _in_parts(epoch, side, tail, _BLOCKS if many else t)
    shape = shape_of(largest, epoch.batches, epoch.taken, side)
    most = most_points([n for _, _, n in kinds], side, epoch.blocks or 1, shape.degree)
    light = largest < (LIGHT if shape.first else LIGHT_OF_REST)
    shape = dataclasses.replace(shape, most=most, light=light)
    try:
        law = two_laws(kinds, shape, epoch.batches, side, tail)
    except OverflowError:  # more choices of batches than doubles can count
        return None
    if side != "below" or not 2 < k <= MOST_SCORED:
        return law
    beside = law.p, law.q, law.accuracy + (law.p.size + 8) * UNIT
    shifts = list(zip(epoch.shifts, epoch.counts, strict=True))
    return Masses(*scored(shifts, t, k, _TAIL_CURVE, opposed=False, beside=beside))


def _in_parts(epoch: Epoch, side: Side, tail: float, blocks: int) -> Masses:
    """Equal batches in blocks, at most one of each for a record."""
    (shifts, weights, _), *_ = _kinds(epoch, side)
    variance = float(weights @ np.expm1(shifts**2)) * blocks / epoch.batches
    shift = math.sqrt(math.log1p(variance)) if blocks < epoch.batches else shifts[-1]
    shape = shape_of(shift, blocks, epoch.taken, side)
    most = most_points([blocks], side, epoch.blocks or 1, epoch.taken)
    light = epoch.taken == MOST_TAKEN and shifts[-1] < LIGHT
    shape = dataclasses.replace(shape, most=most, light=light)
    longest = -(-epoch.batches // blocks)

    def one(size: int, shape: Shape) -> Points:
        if longest == 1:
            return one_ratio(shifts, weights, shape, side, tail)
        law = _sum(Epoch(epoch.shifts, (size,), size, loud=epoch.loud), side, tail)
        assert law is not None
        found = of_block(
            law.value / longest, law.mass, law.lacking / longest, size / longest, shape
        )
        moved = law.moved + found.moved
        return dataclasses.replace(found, accuracy=law.accuracy, moved=moved)

    return Parts(one, shape, side, tail).masses(epoch.batches)


def epoch_law(epoch: Epoch, side: Side, tail: float) -> Law | None:
    """L under Q, bounded on one side; None if doubles do not hold it."""
    law = _sum(epoch, side, max(tail, _LEAST_TAIL))
    if law is None:
        return None
    blank = epoch.batches - sum(epoch.counts)
    return dataclasses.replace(
        law,
        value=(law.value + blank) / epoch.batches,
        lacking=law.lacking / epoch.batches * (1 + 4 * UNIT),
        moved=law.moved + 4 * UNIT,
    )


@functools.lru_cache(maxsize=48)
def _sum(epoch: Epoch, side: Side, tail: float) -> Law | None:
    if max(epoch.shifts) > _MOST_SHIFT:
        return None
    parts: list[tuple[int, int, Law]] = []  # by how many ratios they are the sum of
    order = itertools.count()
    kinds = _kinds(epoch, side)
    fine = _FINE if len(kinds) <= 16 else _FINE_OF_MANY
    inner = None
    if epoch.inner is not None:
        inner = epoch_law(epoch.inner, side, tail)
        if inner is None:
            return None
    for shifts, weights, count in kinds:
        power, left = _one(shifts, weights, side, tail, fine), count
        if inner is not None:
            power = _joined(power, inner, np.multiply, side, tail, fine)
        while left:
            if left & 1:
                heapq.heappush(parts, (count - left + 1, next(order), power))
            left >>= 1
            if left:
                power = _joined(power, power, np.add, side, tail, fine)
    while len(parts) > 1:
        (one, _, first), (two, _, second) = heapq.heappop(parts), heapq.heappop(parts)
        law = _joined(first, second, np.add, side, tail, fine)
        heapq.heappush(parts, (one + two, next(order), law))
    return parts[0][2]


def _kinds(epoch: Epoch, side: Side) -> list[tuple[Floats, Floats, int]]:
    """Shifts, weights and counts of ratios alike; many are grouped, safely."""
    shifts, counts = np.array(epoch.shifts, float), np.array(epoch.counts)
    if epoch.loud:
        weights = np.array([1 - epoch.loud, epoch.loud])
        return [(shifts, weights, epoch.counts[0])]
    if shifts.size <= _MOST_KINDS:
        return [
            (s, np.ones(1), int(n))
            for s, n in zip(shifts[:, None], counts, strict=True)
        ]
    # Where a ratio's variance grows fast, groups are narrow; where all is equal, as
    # their number is best spent: by the root of what is lost.
    lost = np.sqrt(counts[1:] * np.diff(np.expm1(np.minimum(shifts, 5.0) ** 2)))
    place = np.concatenate([[0.0], np.cumsum(lost)])
    at = np.minimum((place / place[-1] * _MOST_KINDS).astype(int), _MOST_KINDS - 1)
    found = []
    for i in np.unique(at):
        some, each = shifts[at == i], counts[at == i]
        ends, number = some[[0, -1]], int(each.sum())
        if side == "below" or ends[0] == ends[1]:
            found.append((ends[:1], np.ones(1), number))
            continue
        weight = _chance(some, each, float(ends[0]), float(ends[1]))
        found.append((ends, np.array([1 - weight, weight]), number))
    return found


def _chance(shifts: Floats, counts: Floats, least: float, most: float) -> float:
    """One chance of ``most`` for all batches, else ``least``, that bounds them."""
    tau, low, high = (-2 * special.ndtr(-s / 2) for s in (shifts, least, most))
    share = (tau - low + 64 * UNIT) / (high - low + 64 * UNIT)
    with np.errstate(divide="ignore"):
        kept = float(counts @ np.log1p(-np.minimum(share, 1.0))) / int(counts.sum())
    return min(-math.expm1(kept) * (1 + 8 * UNIT) + 8 * UNIT, 1.0)


def alike(epoch: Epoch) -> tuple[tuple[float, ...], float]:
    """Shifts that all batches may have instead of their own, and the second's chance.

    The largest in all, or of two one by chance, the larger one beyond all: a guess of
    which is less, by about the exponents where losses count.
    """
    shifts, counts = np.array(epoch.shifts, float), np.array(epoch.counts)
    least, most = epoch.shifts[0], epoch.shifts[-1]
    counts[0] += epoch.batches - counts.sum()  # not released: these tell less
    found, best = ((most,), 0.0), _LOUDER
    if len(epoch.shifts) == 1 or most > _MOST_LOUD:
        return found
    apart = 1 + epoch.opposed  # two records' shifts, over one's
    for high in most * np.linspace(1.02, 1.6, 30):
        chance = _chance(apart * shifts, counts, apart * least, apart * high)
        sizes = np.exp(2 * (np.array([least, high]) / most) ** 2)
        size = math.log(np.array([1 - chance, chance]) @ sizes) / 2
        if size < best:
            found, best = ((least, float(high)), chance), size
    return found


def _one(shifts: Floats, weights: Floats, side: Side, tail: float, fine: float) -> Law:
    """The law of a ratio exp(s x - s^2 / 2), x normal, or a mixture of such laws."""
    far = -float(special.ndtri_exp(math.log(_AWAY * tail)))
    least, most = float(shifts[0]), float(shifts[-1])
    high = most * (far + most / 2)  # where P has as little beyond as Q has below -high
    step = max(min(_GEOMETRIC, fine * least), 2 * high / _MOST_CELLS)
    number = math.ceil(2 * high / step)
    edges = np.concatenate([[0.0], np.exp(step * np.arange(number + 1) - high)])
    mass, mean, reach = np.zeros(edges.size), np.zeros(edges.size), 0.0
    for s, weight in zip(shifts.tolist(), weights.tolist(), strict=True):
        with np.errstate(divide="ignore"):
            x = np.append(np.log(edges) / s + s / 2, np.inf)
        mass += weight * np.exp(log_normal_mass(x))
        mean += weight * np.exp(log_normal_mass(x, s))
        reach = max(reach, float(np.abs(x[1:-1]).max()) + s)
    accuracy = UNIT * (1024 + 32 * reach * reach)
    return _law(mass, mean, edges, side, accuracy)


def _law(mass: Floats, mean: Floats, edges: Floats, side: Side, error: float) -> Law:
    """The law with these masses and means in cells, off by ``error`` at most."""
    if side == "below":
        some = (mass > _LEAST_MASS) & (mean > _LEAST_MASS)
        value = mean[some] / mass[some]
        return Law(value, mass[some], 0.0, error, 2 * error + UNIT)
    inner, ends = mass[:-1], edges[:-1] * mass[:-1]
    slack = 4 * (error + 4 * UNIT) * (mean[:-1] + ends)
    slack = slack if side == "remove" else -slack
    upper = np.clip((mean[:-1] - ends + slack) / np.diff(edges), 0.0, inner)
    found = np.zeros(edges.size)
    found[:-1] = inner - upper
    found[1:] += upper
    found[-1] += mass[-1]
    lacking = max(float(mean[-1] * (1 + 2 * error) - edges[-1] * mass[-1]), 0.0)
    return Law(edges, np.maximum(found, _LEAST_MASS), lacking, error + 8 * UNIT, 0.0)


def _joined(
    one: Law, other: Law, how: np.ufunc, side: Side, tail: float, fine: float
) -> Law:
    """The law of the sum of two independent variables, or product, of mean 1 each."""
    edges = _grid(one, other, how, tail, fine)
    value = how.outer(one.value, other.value).ravel()
    mass = (one.mass[:, None] * other.mass).ravel()
    at = np.searchsorted(edges, value, "right") - 1
    masses = np.bincount(at, mass, edges.size).astype(np.float64)
    means = np.bincount(at, mass * value, edges.size).astype(np.float64)
    most = int(np.bincount(at).max())  # terms that are added one after another
    found = _law(masses, means, edges, side, (most + 4) * UNIT)
    moved = one.moved + other.moved
    moved = moved if how is np.multiply else max(one.moved, other.moved)
    return dataclasses.replace(
        found,
        lacking=(one.lacking + other.lacking + found.lacking) * (1 + 4 * UNIT),
        accuracy=one.accuracy + other.accuracy + found.accuracy,
        moved=moved + found.moved + UNIT,
    )


def _grid(one: Law, other: Law, how: np.ufunc, tail: float, fine: float) -> Floats:
    """Ends of cells for what joins two: 0, and where hardly any is below or above."""
    (value, mass), (more, weight) = _coarser(one), _coarser(other)
    value, mass = how.outer(value, more).ravel(), np.outer(mass, weight).ravel()
    order = np.argsort(value)
    value, mass = value[order], mass[order]
    below = np.cumsum(mass)
    above = np.cumsum((mass * value)[::-1])[::-1]
    # One deviation from the middle at either side, as a normal law has it.
    early, middle, late, low = value[
        np.minimum(
            np.searchsorted(
                below, np.array([0.16, 0.5, 0.84, _AWAY * tail]) * below[-1]
            ),
            value.size - 1,
        )
    ].tolist()
    last = int(np.searchsorted(-above, -_AWAY * tail * above[0]))
    high = float(value[min(last, value.size - 1)])
    deviation = max((late - early) / 2, 1e-12 * middle)  # some, at one point
    fine *= deviation
    far = min(_MIDDLE, -float(special.ndtri_exp(math.log(_AWAY * tail)))) * deviation

    ratio = max(_GEOMETRIC, math.log(high / low) / _MOST_CELLS)

    def width(at: float) -> float:
        out = abs(at - middle) - far
        return min(ratio * at, max(fine, ratio * out))

    ends = [middle]
    while ends[-1] < high:
        ends.append(ends[-1] + width(ends[-1]))
    ends.reverse()
    while ends[-1] > low:
        ends.append(ends[-1] - width(ends[-1]))
    return np.array([*ends, 0.0])[::-1]


def _coarser(law: Law) -> tuple[Floats, Floats]:
    """About the same law, at some hundred points: to look where it is."""
    size = -(-law.value.size // _COARSE)
    starts = np.arange(0, law.value.size, size)
    mass = np.add.reduceat(law.mass, starts)
    return np.add.reduceat(law.mass * law.value, starts) / mass, mass
