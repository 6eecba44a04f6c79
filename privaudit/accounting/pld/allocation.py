"""An epoch of random allocation: its dominating pair on a grid of losses, from above.

Each record is by itself in one of t batches; L = (l_1 + ... + l_t) / t is the
likelihood ratio, the l_i independent and log-normal under Q. Each l_i is moved to a
grid in convex order, the sum is one Fourier transform, and the law of log L is a pair
for the account of different steps. The proofs, rounding included, are in
``allocation.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.line import (
    LONG,
    LONG_UNIT,
    UNIT,
    Floats,
    log_normal_mass,
)

_MOST_POINTS = 1 << 20
_FINENESS = 0.05  # grid step over the deviation of an l_i
_COARSEST = 2.0
_MOST_NODES, _MOST_KINDS = 33, 1024
_MOST_SHIFT = 6.0  # beyond, a grid of equal steps holds no log-normal variable
_LEAST_TAIL = 1e-30
_LOST = 100.0  # times the tail, from which on what is lost matters
_STRONGEST = 30.0  # tilt over a window
_WRAPPED = 1e-4  # what mass counted twice is worth, at ratios that hardly count
Laws = list[tuple[Floats, Floats]]


@dataclasses.dataclass(frozen=True, slots=True)
class Epoch:
    """Batches of which a record is in just one, all equally likely.

    Parameters
    ----------
    shifts, counts
        Sensitivity over noise of each kind of batch, and how many of it were released.
    batches
        How many the epoch has; those that were not released tell nothing.
    """

    shifts: tuple[float, ...]
    counts: tuple[int, ...]
    batches: int


@dataclasses.dataclass(frozen=True, slots=True)
class Law:
    """The law of L under Q on a grid, above it in convex order up to what is said.

    Parameters
    ----------
    ratio, mass
        Values of L and their masses under Q.
    remove, add
        What H_g of the pair and of its reverse may lack, at every g.
    accuracy
        Bound on the relative error of all masses together.
    coarseness
        The grid's step over the deviation of an l_i.
    """

    ratio: Floats
    mass: Floats
    remove: float
    add: float
    accuracy: float
    coarseness: float


def epoch_measure(
    epoch: Epoch, way: Direction, spacing: float, tail: float
) -> GridMeasure | None:
    """A measure that dominates ``epoch`` in one direction.

    None if a grid cannot hold it: where there is so little noise that the likelihood
    ratio's deviation is thousands.

    Parameters
    ----------
    epoch, way
        The pair, mixture against noise alone for ``remove``, reversed for ``add``.
    spacing
        Of the losses.
    tail
        About how much probability may be counted as lost, in (0, 1).
    """
    law = epoch_law(epoch, way, tail)
    if law is None:
        return None
    some = law.mass > 0
    ratio, mass = law.ratio[some], law.mass[some]
    nothing = float(mass[ratio == 0].sum())
    ratio, mass = ratio[ratio > 0], mass[ratio > 0]
    loss = np.log(ratio)
    p, q, infinite = ratio * mass, mass, law.remove
    if way == "add":
        loss, p, q, infinite = -loss, mass, ratio * mass, law.add + nothing
    accuracy = UNIT * (64 + 16 * float(np.abs(loss).max()))
    index = np.floor(loss / spacing).astype(np.int64)
    start, stop = _bounds(index, p, tail)
    infinite += float(p[index >= stop].sum())
    inside = index < stop
    low = inside & (index < start)  # raised to the lower end of the grid
    below = float(p[low].sum())
    index, loss, p, q = (
        values[inside & ~low] for values in (index - start, loss, p, q)
    )
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
    infinite = float(infinite) * (1 + 1e-12)
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
    """About what the losses are, and logs of their masses under Q: no bound."""
    law = _law(epoch, way, tail, long=False) or epoch_law(epoch, way, tail)
    if law is None:
        return None
    loss = np.log(np.maximum(law.ratio, 1e-300))
    edges = np.linspace(loss[0], loss[-1], 4001)
    where = np.clip(np.searchsorted(edges, loss) - 1, 0, 3999)
    weights = law.mass if way == "remove" else law.mass * law.ratio
    sums = np.bincount(where, weights=weights, minlength=4000)
    some = sums > 1e-30
    middle = 0.5 * (edges[1:] + edges[:-1])[some]
    return (middle if way == "remove" else -middle), np.log(sums[some])


def epoch_law(epoch: Epoch, way: Direction, tail: float) -> Law | None:
    """L under Q, for one direction; None if no grid holds it.

    Long numbers are several times as slow, where rounding matters. Of heavy tails less
    is lost if they are cut earlier, which makes the grid shorter.
    """

    def cost(law: Law) -> tuple[bool, float]:
        """Key of a law: whether little is lost, then how coarse its grid is."""
        lost = getattr(law, way)
        little = lost < _LOST * tail
        return not little, max(law.coarseness, 2 * _FINENESS) if little else lost

    best = _law(epoch, way, tail, long=False)
    for more in (1.0, 30.0, 1000.0):
        if best is not None and cost(best) == (False, 2 * _FINENESS):
            break
        if more * tail >= 1e-3:
            break
        other = _law(epoch, way, more * tail, long=True)
        if other is not None and (best is None or cost(other) < cost(best)):
            best = other
    return best


@functools.lru_cache(maxsize=48)
def _law(epoch: Epoch, way: Direction, tail: float, *, long: bool) -> Law | None:
    tail = max(tail, _LEAST_TAIL)
    kinds = _grouped(epoch)
    top_shift = float(kinds.nodes[-1])
    if top_shift > _MOST_SHIFT:
        return None
    far = -float(special.ndtri_exp(math.log(tail)))
    top = math.exp(top_shift * (far + _end(top_shift, way)))
    variance = kinds.count @ kinds.mixed(np.expm1(kinds.nodes**2)) / kinds.batches
    deviation = math.sqrt(float(variance))  # of a typical l
    step = _FINENESS * deviation
    if way == "add" and kinds.nodes.size == 1 and kinds.batches == epoch.batches:
        # All l in their first cells is an infinite loss: that must be rare enough.
        low = float(special.ndtri_exp(math.log(0.1 * tail) / kinds.batches))
        step = min(step, math.exp(top_shift * (low - top_shift / 2)))
    step = max(step, top / (_MOST_POINTS / 2))
    while step <= _COARSEST * deviation:
        found = _sum(epoch, kinds, way, step, far, tail, long=long)
        if found is not None:
            return dataclasses.replace(found, coarseness=step / deviation)
        step *= 1.5
    return None


def _end(s: Any, way: Direction) -> Any:
    """The grid of l ends at exp(s (far + this)): few are beyond, of P or of Q."""
    return s / 2 if way == "remove" else -s / 2


@dataclasses.dataclass(frozen=True, slots=True)
class _Kinds:
    """Kinds of batches as mixtures of nodes: a share of the next one, the rest of one.

    Attributes
    ----------
    nodes
        Shifts, rising.
    at, share, count
        Of each kind: its node, how much of the next node, and how many batches.
    """

    nodes: Floats
    at: NDArray[np.int64]
    share: Floats
    count: Floats

    @property
    def batches(self) -> float:
        return float(self.count.sum())

    def mixed(self, values: Floats) -> Floats:
        """Mean over the law, by kind, of a quantity of every node."""
        after = values[np.minimum(self.at + 1, self.nodes.size - 1)]
        return (1 - self.share) * values[self.at] + self.share * after


def _grouped(epoch: Epoch) -> _Kinds:
    """At most 1024 kinds, rounded up, between at most 33 nodes."""
    shifts = np.array(epoch.shifts, float) * (1 + 4 * UNIT)
    counts = np.array(epoch.counts, float)
    if shifts.size > _MOST_KINDS:
        levels = np.linspace(shifts.min(), shifts.max(), _MOST_KINDS)
        levels[-1] = shifts.max()
        shifts = levels[np.searchsorted(levels, shifts)]
    kinds, where = np.unique(shifts, return_inverse=True)
    counts = np.bincount(where.ravel(), weights=counts).astype(np.float64)
    if kinds.size <= _MOST_NODES:
        at = np.arange(kinds.size)
        return _Kinds(kinds, at, np.zeros(kinds.size), counts)
    nodes = np.linspace(kinds[0], kinds[-1], _MOST_NODES)
    nodes[-1] = kinds[-1]
    at = np.clip(np.searchsorted(nodes, kinds, "right") - 1, 0, nodes.size - 2)
    tau = -2 * special.ndtr(-nodes / 2)
    gap = tau[at + 1] - tau[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (-2 * special.ndtr(-kinds / 2) - tau[at] + 64 * UNIT) / gap
    share = np.where(gap > 1e-12, np.clip(share, 0.0, 1.0), 1.0)
    return _Kinds(nodes, at, share, counts)


@dataclasses.dataclass(frozen=True, slots=True)
class _Spread:
    """One l on the grid: masses at index * step, and what is beyond of its mean."""

    index: NDArray[np.int64]
    mass: Floats
    lacking: float
    accuracy: float


def _spread(s: float, step: float, far: float, way: Direction) -> _Spread:
    """l = exp(s x - s^2 / 2) moved to the ends of its cell, its mean kept.

    Where rounding leaves the mean open it is raised for ``remove``, lowered for
    ``add``.
    """
    first = max(0, math.floor(math.exp(-s * far - s * s / 2) / step))
    last = math.ceil(math.exp(s * (far + _end(s, way))) / step)
    index = np.arange(first, last + 1)
    if first > 0:  # one cell for all below
        index = np.concatenate([[0], index])
    edges = index * step
    with np.errstate(divide="ignore"):
        x = np.log(edges) / s + s / 2
    x = np.append(x, np.inf)
    log_q, log_p = log_normal_mass(x[:-1], x[1:]), log_normal_mass(x[:-1], x[1:], s)
    mass, mean = np.exp(log_q), np.exp(log_p)
    finite = x[np.isfinite(x)]
    reach = float(np.abs(finite).max()) + s
    accuracy = UNIT * (1024 + 32 * reach * reach)
    width = np.diff(edges)
    inner, of_inner = mass[:-1], mean[:-1]
    slack = 8 * accuracy * (of_inner + edges[:-1] * inner)
    slack = slack if way == "remove" else -slack
    upper = np.clip((of_inner - edges[:-1] * inner + slack) / width, 0.0, inner)
    found = np.zeros(index.size)
    found[:-1] = inner - upper
    found[1:] += upper
    found[-1] += mass[-1]
    return _Spread(index, found, float(mean[-1]) * (1 + accuracy), 16 * accuracy)


def _sum(
    epoch: Epoch,
    kinds: _Kinds,
    way: Direction,
    step: float,
    far: float,
    tail: float,
    *,
    long: bool,
) -> Law | None:
    """The law on a grid of sums; None if it has too many points.

    ``long``: its transform is of long doubles, where these are longer.
    """
    real, unit = (LONG, LONG_UNIT) if long else (np.float64, UNIT)
    spreads = [_spread(float(s), step, far, way) for s in kinds.nodes]
    blank = epoch.batches - kinds.batches
    ends = _window(spreads, kinds, step, tail)
    if ends is None:
        return None
    low, high, log_below, log_above, log_above_p = ends
    points = fft.next_fast_len(max(high - low + 1, 64), real=True)
    if points > _MOST_POINTS:
        return None
    total = points // 2 + 1
    size, phase, error, bound = (np.zeros(total, real) for _ in range(4))
    transform = 24 * unit * (math.log2(points) + 2)
    ratio = ((low + np.arange(points)) * step + blank) / epoch.batches
    weight = ratio if way == "remove" else np.ones(points)
    rounding = 2 * kinds.batches * transform
    beyond = math.exp(log_above) + math.exp(log_above_p)
    tilt, sums = _tilt(spreads, kinds, weight, low, rounding, beyond)
    spectra = [
        fft.rfft(
            np.bincount(
                one.index % points,
                weights=one.mass * np.exp(tilt * one.index),
                minlength=points,
            ).astype(real)
        )
        for one in spreads
    ]
    live = np.arange(total)  # frequencies that still matter
    for at, share, n, whole in zip(
        kinds.at, kinds.share, kinds.count, sums, strict=True
    ):
        values = spectra[at][live] / whole
        if share:
            values = (1 - share) * values + share * spectra[at + 1][live] / whole
        modulus = np.abs(values)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            bound[live] += n * np.log(modulus + 2 * transform)
            slip = 2 * transform / modulus
            mistake = n * (slip / (1 - slip) + 32 * unit)
            mistake[~(slip < 0.5)] = np.inf
            size[live] += n * np.log(modulus)
            turn = n * np.angle(values)
        phase[live] += turn
        error[live] += mistake + 4 * unit * (np.abs(turn) + np.abs(phase[live]))
        live = live[bound[live] > -80]
    dead = np.ones(total, bool)
    dead[live] = False
    size[dead] = -np.inf
    keep = np.flatnonzero((size > -80) & (error < 0.1))
    spectrum = np.zeros(total, np.result_type(real, complex))
    spectrum[keep] = np.exp(size[keep] + 1j * phase[keep])
    off = np.exp(np.minimum(bound, 1e-6) + 1e-9)
    off[keep] = np.abs(spectrum[keep]) * np.expm1(error[keep])
    double = np.full(total, 2.0)
    double[0] = 1.0
    if points % 2 == 0:
        double[-1] = 1.0
    norm = math.sqrt(float(double @ np.abs(spectrum) ** 2) / points)
    wrong = math.sqrt(float(double @ off**2) / points) + transform * norm
    mass = np.roll(fft.irfft(spectrum, points), -(low % points)).astype(np.float64)
    scale = _untilted(tilt, sums, kinds, low, points)
    mass = np.clip(mass, 0.0, None) * scale
    # What rounding of the transform may take from H_g, by Cauchy and Schwarz.
    lost_p = wrong * float(np.linalg.norm(ratio * scale)) * (1 + 1e-9)
    lost_q = wrong * float(np.linalg.norm(scale)) * (1 + 1e-9)
    below, above = math.exp(log_below), math.exp(log_above)
    lacking = kinds.count @ kinds.mixed(np.array([one.lacking for one in spreads]))
    floor = max(low * step + blank, 0.0) / epoch.batches
    remove = lacking / epoch.batches + math.exp(log_above_p) + floor * below + lost_p
    remove += blank / epoch.batches * above
    accuracy = kinds.batches * max(one.accuracy for one in spreads) + 64 * UNIT
    if tilt:  # of exp in each factor, and of the logarithms that come back as one
        longest = max(float(one.index[-1]) for one in spreads)
        each = 1 + tilt * longest + float(np.abs(np.log(sums)).max())
        accuracy += 64 * UNIT * (kinds.batches * each + tilt * (low + points))
    add = below + above + lost_q
    return Law(
        *(ratio, mass, float(remove) * 1.001, float(add) * 1.001, float(accuracy)),
        coarseness=math.nan,
    )


def _tilt(
    spreads: list[_Spread],
    kinds: _Kinds,
    weight: Floats,
    low: int,
    wrong: float,
    beyond: float,
) -> tuple[float, Floats]:
    """Tilt of the law before its transform, and the tilted sums by kind.

    Rounding is alike at all points. Where tails are heavy, large ratios are far more of
    them than matters; tilted up, and down again, there is less of it there, and what
    wraps around from ``beyond`` comes as much larger. ``wrong`` is the rounding of a
    point, about, and ``weight`` what it is counted with.
    """
    points = weight.size
    best = wrong * float(np.linalg.norm(weight)), 0.0, np.ones(len(kinds.at))
    reach = max(1.0, max(float(one.index[-1]) for one in spreads) / points)
    for tilt in (np.arange(2.0, _STRONGEST, 2.0) / reach / points).tolist():
        wraps = _WRAPPED * beyond * math.exp(tilt * points)
        if wraps > best[0]:
            break
        nodes = [float(one.mass @ np.exp(tilt * one.index)) for one in spreads]
        sums = kinds.mixed(np.array(nodes))
        scale = _untilted(tilt, sums, kinds, low, points)
        lost = wrong * float(np.linalg.norm(weight * scale)) + wraps
        if lost < best[0]:
            best = lost, tilt, sums
    return best[1:]


def _untilted(
    tilt: float, sums: Floats, kinds: _Kinds, low: int, points: int
) -> Floats:
    """Factors that turn the tilted law's masses back."""
    if not tilt:
        return np.ones(points)
    whole = math.fsum((kinds.count * np.log(sums)).tolist())
    with np.errstate(over="ignore"):  # then another tilt is better
        return np.exp(whole - tilt * (low + np.arange(points)))


def _window(
    spreads: list[_Spread], kinds: _Kinds, step: float, tail: float
) -> tuple[int, int, float, float, float] | None:
    """Indices between which the sum lies, and logs of bounds on what is beyond.

    Under Q below and above, and of the mean (without blanks, over the number of
    batches) above: Chernoff's bounds, E[S; S >= x] <= M'(theta) exp(-theta x).
    """
    target = math.log(0.05 * tail)

    whole_laws: Laws = [
        ((one.index * step).astype(np.float64), one.mass) for one in spreads
    ]
    rough_laws = [_coarser(*law) for law in whole_laws]  # good for the upper end only

    def moments(theta: float, laws: Laws = whole_laws) -> tuple[float, float]:
        """log M and (log M)' at ``theta``."""
        logs, slopes = np.zeros(len(spreads)), np.zeros(len(spreads))
        for i, (values, mass) in enumerate(laws):
            with np.errstate(divide="ignore"):
                exponent = np.log(mass) + theta * values
            top = float(exponent.max())
            weights = np.exp(exponent - top)
            whole = float(weights.sum())
            logs[i], slopes[i] = top + math.log(whole), weights @ values / whole
        after = np.minimum(kinds.at + 1, len(spreads) - 1)
        with np.errstate(divide="ignore"):
            first = np.log1p(-kinds.share) + logs[kinds.at]
            second = np.log(kinds.share) + logs[after]
        each = np.logaddexp(first, second)
        slope = np.exp(first - each) * slopes[kinds.at]
        slope += np.exp(second - each) * slopes[after]
        return float(kinds.count @ each), float(kinds.count @ slope)

    mean = moments(0.0)[1]
    largest = max(int(one.index[-1]) for one in spreads)
    most = int(kinds.batches) * largest
    squares = np.array([float(one.mass @ (one.index * step) ** 2) for one in spreads])
    deviation = math.sqrt(float(kinds.count @ kinds.mixed(squares)))
    ends: list[tuple[float, float]] = []
    scales = [1 / deviation, 40 / (largest * step)]
    thetas = np.geomspace(0.3 * min(scales), 12 * max(scales), 18).tolist()
    for sign, laws in ((-1, whole_laws), (1, rough_laws)):
        # Of sign * S, where Chernoff's bound is the target.
        found = [(moments(sign * theta, laws)[0] - target) / theta for theta in thetas]
        ends.append(min(zip(found, thetas, strict=True)))
    slack = 1e-9 * (1 + abs(mean))
    low = max(0, math.floor((-ends[0][0] - slack) / step) - 1)
    high = min(math.ceil((ends[1][0] + slack) / step) + 1, most + 1)
    if high - low > _MOST_POINTS:
        return None

    def beyond(sign: int, theta: float, end: float) -> tuple[float, float]:
        log_m, slope = moments(sign * theta)
        log_q = log_m - sign * theta * end + 1e-9 * (1 + abs(log_m))
        return log_q, log_q + math.log(max(slope, 1e-300) / kinds.batches)

    below = -math.inf if low == 0 else beyond(-1, ends[0][1], low * step)[0]
    above = above_p = -math.inf
    if high < most + 1:
        above, above_p = beyond(1, ends[1][1], high * step)
    return low, high, below, above, above_p


def _coarser(values: NDArray[Any], mass: Floats) -> tuple[Floats, Floats]:
    """About the same law, at some thousand points: to look where bounds are good."""
    size = -(-values.size // 2000)
    if size == 1:
        return values, mass
    starts = np.arange(0, values.size, size)
    sums = np.add.reduceat(mass, starts)
    means = np.add.reduceat(mass * values, starts)
    return np.divide(means, sums, out=values[starts], where=sums > 0), sums
