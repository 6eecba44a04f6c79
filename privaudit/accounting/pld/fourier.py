"""Composition of grid measures by one Fourier transform, with its error bounds.

The measures are tilted, p(l) exp(tilt l) / M, before they are transformed, so that the
part of the distribution that delta depends on is its bulk: rounding errors are then
relative to delta, however small that is. Every error is bounded and carried along:
rounding of transforms and logarithms per frequency, the series of the grouped steps,
and mass that leaves the window.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.scout import LEFT_OUT, Guess, log_peak

Indices = NDArray[np.int64]
Sizes = Callable[[Indices], Floats]  # of what waves have in a sum; they fall

_NEGLIGIBLE = -46.0  # log of a size of the characteristic function that is left out
_LOG_LEAST = -600.0  # of delta, of which a part is left out
MOST_POINTS = 1 << 23
_AT_ONCE = 1 << 18  # frequencies of all kinds that are transformed together
_HELD = 1 << 22  # numbers of transforms that are kept together
_ALL_IN_ONE = 8  # times the points of a kind, for all to be on those of all
_BATCH = 1 << 15  # phases of kinds that are worked out together
_TABLED = 1 << 18  # points whose phases are kept
_SINE, _TRANSFORM = 25.0, 8.0  # what a point costs, beside a sum's product
_LOOKED_AT = 32  # frequencies
# Of which frequencies matter: in so many parts all steps tell, while what is left is by
# so much dearer than a transform; vectors that those told by their mean may have.
_PARTS, _DEARER, _VECTORS = 16, 4.0, 8
_BENT, _LEAST_LOOKED_AT = 0.1, 1 << 12  # log that looking at few may cost; the fewest
MOST_WORK = 2e9  # cells of all frequencies: some seconds
_CHANGES = np.array([1.0, 0.5, 0.25, 2.0])  # of the tilt, over what was guessed
_MOST_PRODUCTS = 1 << 24  # of masses, for their memory
_LEAST = 1e-280  # of a kind's masses in sum, for those that doubles lose to be none
_TERMS = 12  # of a series of rare masses
_SMALL_SQUARES = 1e-10  # of what steps differ by: what is bounded, not summed
# Cells of all frequencies, for kinds one by one where these are worth it, by how many
# times what may be left out their mean hides.
_OWN_WORK = 1e5
_SMALL_PAIRS = 1e-4  # of pairs of rare masses: the same


@dataclasses.dataclass(frozen=True)
class Tilted:
    """The composed loss under a tilt, on a window of the grid.

    delta(eps) = exp(log_moment - tilt eps) sum_s f(s) g(s - eps) with g(x) =
    exp(-tilt x) (1 - exp(-x))+, up to the errors here. f is a sum of waves, along each
    of which g is two geometric sums: see "Sums" in ``pld.md``.
    """

    tilt: float
    log_moment: float
    # start, points, spacing: the window: points (start + i) spacing, i < points
    start: int
    points: int
    spacing: float
    index: NDArray[np.intp]  # of the waves, in turns a window
    # the size of each, over points (1 - a) (1 - a b), where a point further g's first
    # part is a = exp(-tilt spacing) and a turn of the wave times as large, and its
    # second is a b, b = exp(-spacing)
    waves: NDArray[np.complex128]
    error: float  # bound on the Euclidean norm of the error of f
    outside: float  # bound on the tilted mass outside the window
    infinite: float  # mass at infinite loss, at most
    surely_infinite: float  # the same, at least
    # sum over the steps of the relative error of the measures, and the rounding of the
    # window's points
    drift: float
    offset: float = 0.0  # of all losses from the window's points
    rest: Tilted | None = None  # the composed losses that are left out here
    # the same error, wave by wave: the sum of its sizes, as ``waves`` have them; and of
    # waves that are left out
    apart: float = math.inf
    left: float = 0.0

    def _sum(self, epsilon: float) -> tuple[float, float]:
        """sum f g and the bound on its error."""
        peak = math.exp(log_peak(self.tilt))
        off = self.outside * peak + 1e-300
        stop = self.start + self.points
        if not epsilon < stop * self.spacing:
            return 0.0, off
        first = math.floor(epsilon / self.spacing) + 1
        at = min(max(first, self.start), stop)
        x = at * self.spacing - epsilon
        if at == first:  # but for rounding
            x = min(max(x, 0.0), self.spacing)
        value, largest, sizes, norm = 0.0, 0.0, 0.0, 0.0
        steps = math.expm1(-self.tilt * self.spacing)
        steps *= math.expm1(-(1 + self.tilt) * self.spacing)
        if self._turning:
            # Of the wave that does not turn both sums are long beside the window.
            each = x + self.spacing * np.arange(stop - at)
            g = np.exp(-self.tilt * each) * -np.expm1(-each)
            value = float(g.sum()) * steps * float(self.waves[0].real)
            off += 4 * UNIT * (128 + g.size + 8 * self.tilt * x) * abs(value)
        added = 128 + 2 * math.isqrt(self.waves.size) + 2
        # All from there on, less all from the window's end on.
        ends = ((1, at, x), (-1, stop, x + (stop - at) * self.spacing))
        for sign, place, far in ends:
            if self.tilt * far > 745:
                continue
            waves, ahead = self._at(place) if sign > 0 else self._end
            decay = math.exp(-self.tilt * far)
            one = -math.expm1(-far)
            near = self.spacing - far  # exp(-far) - exp(-spacing), from the larger
            other = math.exp(-min(far, self.spacing)) * -math.expm1(-abs(near))
            other = math.copysign(other, near)
            value += sign * decay * (one * waves + other * ahead)
            most = decay * (one + math.exp(-self.tilt * self.spacing) * abs(other))
            sizes += most
            largest += most * (added + 8 * self.tilt * far)
            if sign > 0:  # of the wave that does not turn: the sum of g
                end = far + (stop - at) * self.spacing
                top = min(peak, -math.expm1(-end))  # of g in the window; less
                top = top if self.tilt * far < 1 else decay * one  # beyond its peak
                total = min(most / steps, (stop - at) * top)
                norm = min(total, math.sqrt(top * total))
        each = self.apart * sizes + math.exp(_NEGLIGIBLE + 1) * norm
        wrong = self.left * sizes + min(self.error * norm, each)
        off += wrong * (1 + 1e-12)
        return value, off + 4 * UNIT * largest * self._size

    @functools.cached_property
    def _turning(self) -> int:
        """Index of the first wave that is summed by geometric series."""
        return int(self.tilt * self.points * self.spacing < 1 and 0 in self.index[:1])

    @functools.cached_property
    def _size(self) -> float:
        """Sum of the waves' sizes."""
        return float(np.abs(self.waves[self._turning :]).sum())

    def _turns(self, place: int) -> NDArray[np.complex128]:
        """Phase of each wave at a point."""
        turned = self.index * (place % self.points) % self.points
        return np.exp(2j * math.pi / self.points * turned)

    @functools.cached_property
    def _ahead(self) -> NDArray[np.complex128]:
        """The waves times a."""
        return self.waves * (math.exp(-self.tilt * self.spacing) * self._turns(1))

    def _at(self, place: int) -> tuple[float, float]:
        """Sums of the waves at a point, and times a, in blocks: rounded by few."""
        turn = self._turns(place)[self._turning :]
        blocks = np.arange(0, turn.size, math.isqrt(turn.size) + 1)
        if not blocks.size:
            return 0.0, 0.0
        here, next_ = (
            float(np.add.reduceat((each[self._turning :] * turn).real, blocks).sum())
            for each in (self.waves, self._ahead)
        )
        return here, next_

    @functools.cached_property
    def _end(self) -> tuple[float, float]:
        """The same at the window's end."""
        return self._at(self.start + self.points)

    def _side(self, epsilon: float, sign: int) -> tuple[float, float, float]:
        """Log of the sum's factor, at least (``sign`` 1) or at most; then `_sum`."""
        window = (abs(self.start) + self.points) * self.spacing
        far = abs(epsilon) + abs(self.offset) + window
        epsilon = epsilon - self.offset - sign * self.drift - sign * 16 * UNIT * far
        exponent = self.log_moment - self.tilt * epsilon
        size = abs(self.log_moment) + self.tilt * (abs(epsilon) + window) + 1
        wobble = self.drift + 64 * UNIT * size
        return exponent + sign * wobble, *self._sum(epsilon)

    def delta_above(self, epsilon: float) -> float:
        """At least delta of the measures composed, and of all that they dominate."""
        exponent, value, off = self._side(epsilon, 1)
        log_delta = exponent + math.log(max(value, 0.0) + off)
        if log_delta > 0:
            return 1.0
        known = self.infinite + math.exp(log_delta)
        if self.rest is not None:
            known += self.rest.delta_above(epsilon)
        return min(1.0, known * (1 + 1e-14) + 1e-300)

    def delta_below(self, epsilon: float) -> float:
        """At most delta of the measures composed, and of all that dominate them."""
        known = self.surely_infinite
        if self.rest is not None:  # of which infinite mass is
            known = self.rest.delta_below(epsilon)
        exponent, value, off = self._side(epsilon, -1)
        if value > off:
            known += math.exp(min(0.0, exponent + math.log(value - off)))
        return known * (1 - 1e-14)

    def blur(self, epsilon: float) -> float:
        """Range of log delta that numerical errors leave open."""
        below = self.delta_below(epsilon)
        return math.log(self.delta_above(epsilon) / below) if below else math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class Bundle:
    """Steps on one grid: of one kind, of few, or told by their mean."""

    index: Indices  # grid points that have mass
    mean: Floats  # mass of the mean step there, under the tilt and over exp(``base``)
    counts: Floats  # how often each kind of steps is taken; whole numbers
    # log moment of the mean step at the tilt; of kinds composed one by one, the mean of
    # theirs
    base: float
    accuracy: float  # bound on the relative error of every mass
    log_most: Floats  # logs of no less than ``mean``, which may have underflowed
    # what each kind differs by from the mean; shape (kinds, points), or None
    off: Floats | None = None
    # grid points, of all kinds or of each, and masses of shape (kinds, points), of
    # kinds that are composed one by one
    kinds: tuple[Indices, Floats] | None = None
    # grid points and each kind's masses of what is rare; and the largest mass of a kind
    rare: tuple[Indices, Floats] | None = None
    most_rare: float = 0.0
    rounded: float = 0.0  # by which kinds' masses are off, in sum, beside their sums
    # mass at infinite loss of all steps, at most, and of each, at least
    lost: float = 0.0
    surely: float = 0.0
    offset: float = 0.0  # of all steps' losses from grid points, in sum

    @classmethod
    def of(
        cls,
        index: Indices,
        masses: Floats,
        counts: Floats,
        base: float,
        accuracy: float,
        log_most: Floats | None,
        rare: tuple[Indices, Floats] | None = None,
        *,
        apart: bool,
    ) -> Bundle:
        """Tilted ``masses`` of each kind, over exp(``base``), and at most in logs.

        Without ``log_most`` they are no less than what they stand for. Kinds are
        composed one by one if they are ``apart``; ``index`` is then of all or of each.
        ``rare``: of these masses, as they are.
        """
        steps, sums = float(counts.sum()), masses.sum(axis=1)
        # Above, what underflows of a kind beside another is nothing to the mean alone.
        if apart and (index.ndim > 1 or sums.min() > _LEAST):
            masses = masses / sums[:, None]
            if rare is not None:
                rare = rare[0], rare[1] / sums[:, None]
            base += math.fsum((counts * np.log(sums)).tolist()) / steps
            least = float(sums.min())
            kinds, off = (index, masses), None
            if index.ndim > 1:
                index, where = np.unique(index, return_inverse=True)
                where = where.reshape(masses.shape)
                where = where + index.size * np.arange(counts.size)[:, None]
                every = np.zeros((counts.size, index.size))
                every += np.bincount(where.ravel(), masses.ravel(), every.size).reshape(
                    every.shape
                )
                if index.size < _ALL_IN_ONE * masses.shape[1]:
                    kinds = index, every
                masses = every
            mean = counts @ masses / steps
        else:
            mean = counts @ masses / steps
            least = float(mean.sum())
            mean /= least
            base += math.log(least)
            kinds, off = None, masses / least - mean
            if rare is not None:
                rare = rare[0], rare[1] / least
        with np.errstate(divide="ignore"):
            if log_most is None:
                log_most = np.log(masses.max(axis=0))
            else:
                log_most = log_most - math.log(least)
            # Where the mean is too small, of what it is at most.
            log_most = np.where(mean > 1e-290, np.log(mean), log_most)
        most = 0.0
        if rare is not None:
            most = float(rare[1].sum(axis=1).max()) * (1 + 1e-9)
        known = (index, mean, counts, base, accuracy, log_most)
        return cls(*known, off, kinds, rare, most)

    @classmethod
    def single(
        cls, measure: GridMeasure, often: float, tilt: float, spacing: float
    ) -> Bundle:
        """``often`` steps of one measure."""
        index = measure.start + np.arange(measure.mass.size)
        base = log_moment_of(measure, tilt, spacing)
        largest = float(np.abs(index[[0, -1]]).max()) * spacing
        rounded = UNIT * (64 + 8 * min(tilt * largest, 800.0) + 8 * abs(base))
        with np.errstate(divide="ignore"):
            logs = np.log(measure.mass) + tilt * _losses(measure, spacing) - base
        return cls(
            index,
            np.exp(logs),
            np.array([float(often)]),
            base,
            measure.accuracy + rounded,
            logs,
            lost=measure.infinite * often,
            surely=measure.infinite,
        )

    @property
    def steps(self) -> float:
        """Number of steps."""
        return float(self.counts.sum())

    @property
    def masses(self) -> tuple[Indices, Floats]:
        """Grid points, of all kinds or of each, and masses of shape (kinds, points)."""
        off = 0.0 if self.off is None else self.off
        return self.kinds or (self.index, self.mean + off)

    def fall(self, turns: Floats) -> Floats:
        """About the log of all steps' transform at frequencies, in turns a point."""
        waves = np.exp(-2j * math.pi * turns[:, None] * self.index)
        return self.steps * np.log(np.maximum(np.abs(waves @ self.mean), 1e-300))

    def log_moment(self, change: float, spacing: float, *, each: bool) -> float:
        """At least the log of all steps' moments at a tilt changed by ``change``.

        The mean of logarithms is at most that of the mean, and far from it where kinds
        are unlike: of ``each`` it is that of its own.
        """
        exponent = change * spacing * self.index + self.log_most
        top = float(exponent.max())
        grown = np.exp(exponent - top)
        known = self.steps * (self.base + top + math.log(float(grown.sum())))
        if self.counts.size == 1 or not each:
            return known
        index, masses = self.masses
        far = change * spacing * index
        most = float(far.max())
        sums = (np.maximum(masses, 0.0) * np.exp(far - most)).sum(axis=1)
        # And what a kind's may have been rounded by, or have underflowed.
        rounded = np.where(self.mean > 1e-290, 4 * UNIT, 1.0)
        beside = float(rounded @ np.exp(exponent - most)) if top - most < 700 else 1e300
        logs = np.log(sums + beside + 1e-300)
        found = self.steps * (self.base + most) + float(self.counts @ logs)
        return min(known, found)


def compose(bundles: Sequence[Bundle], spacing: float, guess: Guess) -> Tilted | None:
    """The composition of ``bundles``; None if it is too much work, or too fine.

    Where they tell what is rare, less the composition of all else of theirs.
    """
    tilt = guess.tilt
    if 8 * UNIT * sum(one.steps for one in bundles) > 1:
        return None  # of powers rounding is all
    log_moment = math.fsum(one.steps * one.base for one in bundles)
    window = _window(bundles, spacing, guess, log_moment)
    if window is None or not (tilt * spacing) * ((1 + tilt) * spacing) > 1e-290:
        return None
    start, points, outside = window
    offset = math.fsum(one.offset for one in bundles)
    ahead = guess.epsilon - offset
    sizes = functools.partial(_sizes, points, (tilt * spacing, (1 + tilt) * spacing))
    # Of all that is summed, and what a wave has at most beside its size.
    room = guess.log_delta - log_moment + tilt * ahead
    room = LEFT_OUT * math.exp(min(max(room, _LOG_LEAST), 0.0))
    end = (start + points) * spacing - ahead
    room /= -math.expm1(-spacing) + math.exp(min(-tilt * end, 0.0))
    known = _product(bundles, points, sizes, room)
    if known is None:
        return None
    index, whole, left = known
    double = np.where((index == 0) | (2 * index == points), 1.0, 2.0)
    turn = 2 * math.pi / points * index
    scale = (double / points).astype(complex)
    for fall in (tilt * spacing, (1 + tilt) * spacing):
        real = 2 * np.sin(0.5 * turn) ** 2 - math.expm1(-fall) * np.cos(turn)
        scale /= real - 1j * math.exp(-fall) * np.sin(turn)
    drift = math.fsum(one.steps * one.accuracy for one in bundles)
    drift += 8 * UNIT * (abs(start) * spacing + points * spacing)
    infinite = math.fsum(one.lost for one in bundles)
    surely = 0.0
    if infinite > 1e-9:  # enough for products to be less than sums
        infinite = min(infinite, _either(bundles, most=True) * (1 + 2 * min(drift, 1)))
        surely = _either(bundles, most=False) * (1 - 2 * min(drift, 0.5))

    drift += 8 * UNIT * math.fsum(abs(one.offset) for one in bundles)
    # Of kinds' masses, which sum to 1 but for rounding, and of these sums.
    rounded = math.exp(64 * UNIT * sum(one.steps for one in bundles)) * (1 + 1e-9)
    error = math.sqrt(float(double @ whole.wrong**2) / points)
    error += math.exp(_NEGLIGIBLE + 1)
    return Tilted(
        *(tilt, log_moment, start, points, spacing, index, scale * whole.value),
        *(error * rounded, outside, infinite, surely, drift, offset),
        apart=float(sizes(index) @ whole.wrong) * rounded,
        left=left * rounded,
    )


def _sizes(points: int, falls: tuple[float, float], waves: Indices) -> Floats:
    """Sizes of what waves of a window have in a sum, as `Tilted` has them."""
    half = waves * (math.pi / points)
    sine = np.sin(half)
    found: Floats = np.full(np.shape(half), 2.0 / points)
    for fall in falls:
        found /= np.hypot(math.expm1(-fall), 2 * math.exp(-fall / 2) * sine)
    return found


def _either(bundles: Sequence[Bundle], *, most: bool) -> float:
    """The chance that one of the steps has an infinite loss."""
    logs = []
    for one in bundles:
        each = one.lost / one.steps if most else one.surely
        if each >= 1:
            return 1.0
        logs.append(one.steps * math.log1p(-each))
    return float(-math.expm1(math.fsum(logs)))


def _losses(measure: GridMeasure, spacing: float) -> Floats:
    return (measure.start + np.arange(measure.mass.size, dtype=float)) * spacing


def log_moment_of(measure: GridMeasure, tilt: float, spacing: float) -> float:
    """log sum p exp(tilt l)."""
    exponent = tilt * _losses(measure, spacing)
    if max(abs(exponent[0]), abs(exponent[-1])) < 600:
        return math.log(float(measure.mass @ np.exp(exponent)))
    with np.errstate(divide="ignore"):
        exponent = exponent + np.log(measure.mass)
    top = float(exponent.max())
    return top + math.log(float(np.exp(exponent - top).sum()))


def _window(
    bundles: Sequence[Bundle], spacing: float, guess: Guess, whole: float
) -> tuple[int, int, float] | None:
    """First index, points, and tilted mass outside."""
    least = sum(one.steps * int(one.index[0]) for one in bundles)
    most = sum(one.steps * int(one.index[-1]) for one in bundles)
    ends: list[float] = []
    outside = 0.0
    for sign, guessed in ((-1, guess.down), (1, guess.up)):
        nearest = math.inf
        for each, t in itertools.product((False, True), guessed * _CHANGES):
            if each and nearest < guess.window:
                break
            moved = math.fsum(
                one.log_moment(sign * t, spacing, each=each) for one in bundles
            )
            # Tilted mass beyond x is at most exp(moved - whole - t x).
            excess = moved - whole + 1e-12 * (abs(moved) + abs(whole)) + guess.outside
            nearest = min(nearest, excess / t)  # nan never is
            if nearest < guess.window:
                break
        if not math.isfinite(nearest):
            return None
        end = math.ceil(nearest / spacing) + 1
        support = max(sign * least, sign * most) + 1
        if end < support:
            outside += math.exp(-guess.outside)
        ends.append(sign * min(end, support))
    start, stop = int(ends[0]), int(ends[1])
    if stop - start > MOST_POINTS:
        return None
    points = fft.next_fast_len(max(stop - start + 1, 64), real=True)
    return start, points, outside * 1.001


def transform_error(points: int) -> float:
    """Bound on a transform's relative error: see "Rounding" in ``pld.md``."""
    return 24 * UNIT * (math.log2(points) + 2)


def fold(mass: Floats, start: int, points: int) -> Floats:
    """``mass`` at its indices modulo ``points``."""
    begin = start % points
    turns = -(-(begin + mass.size) // points)
    padded = np.zeros(turns * points)
    padded[begin : begin + mass.size] = mass
    return padded.reshape(turns, points).sum(axis=0) if turns > 1 else padded


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """Values at some frequencies, and bounds on their errors."""

    value: NDArray[np.complex128]
    wrong: Floats

    def times(self, other: _Part) -> _Part:
        value = self.value * other.value
        size = np.abs(other.value)
        wrong = self.wrong * (size + other.wrong) + np.abs(self.value) * other.wrong
        return _Part(value, wrong + 8 * UNIT * np.abs(value))

    @property
    def most(self) -> Floats:
        """Sizes, at most."""
        return np.abs(self.value) + self.wrong


def _falling(bundles: Sequence[Bundle], points: int) -> list[Bundle]:
    """Those first that make most frequencies negligible."""
    if len(bundles) == 1:
        return list(bundles)
    turns = np.geomspace(1, points // 2, _LOOKED_AT).round() / points
    falls = np.stack([one.fall(turns) for one in bundles])
    total = falls.sum(axis=0)
    where = np.argmax(total < _NEGLIGIBLE) if total.min() < _NEGLIGIBLE else -1
    kinds = [1 if one.kinds is None else one.counts.size for one in bundles]
    return [bundles[i] for i in np.argsort(falls[:, where] / kinds)]


def _product(
    bundles: Sequence[Bundle], points: int, sizes: Sizes, room: float
) -> tuple[NDArray[np.intp], _Part, float] | None:
    """Frequencies that matter, the transform there, and what others add; or None.

    Less that of all that is not rare, if bundles tell what is. ``sizes``, ``room``:
    what each has in a sum, and how much may be left out.
    """
    bundles = _falling(bundles, points)
    alive, left = _alive(bundles, points, sizes, room)
    transform = _Transform(points, alive, sizes)
    parted = any(one.rare is not None for one in bundles)
    rare = _Rare.none(transform.live.size) if parted else None
    known = [one.kinds or (one.index, one.mean[None]) for one in bundles]
    ahead = sum(
        len(masses) * min(index.shape[-1] * transform.live.size, _TRANSFORM * points)
        for index, masses in known
    )
    if parted and ahead > MOST_WORK:  # nothing is left out on the way
        return None
    work = 0.0
    whole = _Part(np.ones(transform.live.size, complex), np.zeros(transform.live.size))
    share = min(sum(one.steps * one.most_rare for one in bundles), 1.0)
    for one in sorted(bundles, key=lambda one: one.off is not None):
        if one.off is not None:
            large = None if one.rare is None else one.rare[1]
            spread = _Spread.of(one.off, one.counts, large)
            each = min(one.index.size * transform.live.size, _TRANSFORM * points)
            if each * len(spread.vectors) > MOST_WORK:
                return None
            told = _power(one, transform, spread)
            beside = _Rare.told(one, told, spread)  # none, if none is rare
            off = told.part.wrong
            if rare is not None:
                off = share * off + told.part.most * np.minimum(beside.off, 1.0)
            loose = float(transform.sizes @ (whole.most * off)) / room
            own = _one_by_one(one)
            each *= one.counts.size
            if own is None or each > min(_OWN_WORK * loose, MOST_WORK - work):
                whole = whole.times(told.part)
                if rare is None:
                    whole, more = transform.pruned(whole, room)
                    left += more
                else:
                    rare.add(beside)
                continue
            one, part = own
            whole = whole.times(part)
        index, masses = one.kinds or (one.index, one.mean[None])
        some = slice(0)
        while some.stop < len(masses):
            many = _AT_ONCE // max(whole.wrong.size, 1)
            some = slice(some.stop, some.stop + max(many, 1))
            at = index if index.ndim == 1 else index[some]
            each = min(at.shape[-1] * transform.live.size, _TRANSFORM * points)
            work += each * len(masses[some])
            if one.kinds and work > MOST_WORK:
                return None
            spectra, slip = transform(at, masses[some])
            slip += one.rounded
            whole = whole.times(_powers(spectra, slip, one.counts[some]))
            if rare is None:
                whole, more = transform.pruned(whole, room)
                left += more
                continue
            if one.rare is None:
                continue
            at, large = one.rare[0], one.rare[1][some]
            part, more = transform(at if at.ndim == 1 else at[some], large)
            slip = max(slip, more + one.rounded)
            rare.add(_Rare.each((spectra, part), slip, large, one.counts[some]))
    return transform.live, whole if rare is None else rare.of(whole), left


def _one_by_one(one: Bundle) -> tuple[Bundle, _Part] | None:
    """Kinds of a bundle for masses that sum to 1, and what these sums add; or None."""
    masses = one.masses[1]
    sums = masses.sum(axis=1)
    if not sums.min() > _LEAST:
        return None
    rounded = 8 * UNIT * (2 + 1 / float(sums.min()))  # beside the mean, and by sums
    off = 4 * UNIT * float(one.counts @ (2 + 1 / sums))  # of true sums
    if not off < 0.1:
        return None
    rare = None if one.rare is None else (one.rare[0], one.rare[1] / sums[:, None])
    kinds = one.index, masses / sums[:, None]
    known = {"kinds": kinds, "off": None, "rare": rare, "rounded": rounded}
    logs = one.counts * np.log(sums)
    value = math.exp(math.fsum(logs.tolist()))
    wrong = UNIT * ((16 + one.index.size) * one.steps + 20 * float(np.abs(logs).sum()))
    wrong += off
    part = _Part(np.array([value + 0j]), np.array([value * math.expm1(wrong) + 1e-300]))
    return dataclasses.replace(one, **known), part


@dataclasses.dataclass(frozen=True, slots=True)
class _Rare:
    """Products F of all steps less those B of their masses that are not rare.

    Of each step F_k = B_k + R_k. prod F_k^n_k - prod B_k^n_k = prod F_k^n_k (1 -
    exp(-S)), S = -sum_k n_k log(1 - R_k / F_k), which is as small as the R_k are: see
    "Rare losses" in ``pld.md``.
    """

    sum: NDArray[np.complex128]  # S
    off: Floats  # bound on its error; infinity where nothing is known
    size: Floats  # log of what both products are at most in size

    @classmethod
    def none(cls, size: int) -> _Rare:
        return cls(np.zeros(size, complex), np.zeros(size), np.zeros(size))

    def add(self, other: _Rare) -> None:
        """Other steps, in place."""
        self.sum[...] += other.sum
        self.off[...] += other.off + 2 * UNIT * np.abs(self.sum)
        self.size[...] += other.size

    @classmethod
    def told(cls, one: Bundle, told: _Told, spread: _Spread) -> _Rare:
        """Steps told by their mean."""
        if one.rare is None or spread.rare is None:
            return cls.none(told.mean.size)
        most, z = one.most_rare, told.unlike
        rounded = UNIT * (64 + 4 * one.counts.size + 4 * one.index.size)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            relative = told.slip / np.abs(told.mean)
            least = np.abs(told.mean) * (1 - relative)
            whole = float(one.counts @ one.rare[1].sum(axis=1)) / least
            rounded *= 1 + spread.length * float(spread.each.sum()) / least
            share, over = most / least, 1 / (1 - z)
            off = whole * (z * z * over + spread.rest / least)
            # Of squares, whose divisor is the mean's; and of cubes and all after them.
            off += whole * share * (over * over - 1) / 2
            off += whole * over * (share * over) ** 2 / (3 * (1 - share * over))
            off += whole * (told.slip + 6 * relative + rounded)
            beside = 3 * told.slip * spread.length * float(np.abs(spread.rare).sum())
            beside += spread.squares_off(told.slip)
            off += beside / least**2
            off += np.abs(told.rare_squares) / least**2 * (3 * relative + 16 * UNIT)
            fits = (z < 0.5) & (relative < 0.5) & (share < 0.2)
            value = (told.rare + told.rare_squares / 2) / told.mean**2
            each = np.log(np.sqrt(told.square) + most) + 4 * UNIT
        value, off = np.where(fits, value, 0.0), np.where(fits, off, np.inf)
        return cls(value, off, one.steps * np.minimum(each, 0.0))

    @classmethod
    def each(
        cls,
        spectra: tuple[NDArray[np.complex128], NDArray[np.complex128]],
        slip: float,
        large: Floats,
        counts: Floats,
    ) -> _Rare:
        """Kinds by their own transforms, and those of their ``large`` losses."""
        whole, part = spectra
        most = large.sum(axis=1)[:, None] * (1 + 1e-9)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            relative = slip / np.abs(whole)
            share = most / (np.abs(whole) * (1 - relative))
            fits = ((relative < 0.5) & (share < 0.5)).all(axis=0)
            # The series of -log(1 - x), and what it leaves out, over x.
            x, most_share = part / whole, float(share[:, fits].max(initial=0.0))
            terms = 2
            while terms < _TERMS and most_share**terms > 1e-9:
                terms += 1
            value = np.full_like(x, 1 / terms)
            for term in range(terms - 1, 0, -1):
                value = value * x + 1 / term
            value = counts @ (value * x)
            rounded = (32 + 4 * counts.size) * UNIT
            off = 2 * slip + 4 * relative + rounded + share**terms
            off = counts @ (share * off)
            each = np.log(np.abs(whole) + slip + most) + 4 * UNIT
        value, off = np.where(fits, value, 0.0), np.where(fits, off, np.inf)
        return cls(value, off, counts @ np.minimum(each, 0.0))

    def of(self, whole: _Part) -> _Part:
        """The difference, of the product ``whole`` of all steps."""
        known = self.off + np.abs(self.sum) < 1.0
        some = np.where(known, self.sum, 0.0)
        off = np.where(known, self.off, 0.0)
        real, turn = some.real, some.imag
        left = 2 * np.sin(turn / 2) ** 2 - np.expm1(-real) * np.cos(turn)
        left = left + 1j * np.exp(-real) * np.sin(turn)  # 1 - exp(-S)
        value = whole.value * left
        # exp(-S) is off by no more than its size times expm1(off).
        wrong = whole.wrong * np.abs(left) + 160 * UNIT * whole.most * np.abs(some)
        wrong += whole.most * np.exp(-real) * np.expm1(off)
        return _Part(
            np.where(known, value, 0.0),
            np.where(known, wrong, 2 * np.exp(np.minimum(self.size, 0.0))),
        )


def _looked_at(bundles: Sequence[Bundle], points: int) -> int:
    """Number of points whose frequencies tell enough of those between, about."""
    apart = [one.index - one.index[one.mean.argmax()] for one in bundles]
    many = _LEAST_LOOKED_AT
    while many < points / 2:
        each = zip(bundles, apart, strict=True)
        if sum(one.steps * (one.mean @ _bend(far, many)) for one, far in each) < _BENT:
            return many
        many *= 2
    return points


def _bend(apart: Indices, points: int) -> Floats:
    """Excess of cosines over the larger value next to them on a circle's points.

    The line between is exceeded by the square of the distance, over 8, times the
    largest second derivative; and a cosine is no more than 2 above anything.
    """
    return np.minimum(0.5 * (math.pi / points * apart) ** 2, 2.0)


def _alive(
    bundles: Sequence[Bundle], points: int, sizes: Sizes, room: float
) -> tuple[NDArray[np.intp], float]:
    """Frequencies at which steps' transforms may be more than negligible together.

    And what the others add at most, as ``sizes`` tell, which is about ``room``.
    Told by one transform of some bundles at a time, while what is left is dearer: the
    size of prod x_k^n_k is at most (sum n_k |x_k|^2 / n)^(n / 2), and that sum is the
    transform of the kinds' mean autocorrelation, or of the mean's, and what they differ
    by. Between the frequencies that are looked at it is more by `_bend`. Without what
    is rare transforms are no more than those masses larger.
    """
    looked = _looked_at(bundles, points)
    parts = points // 2 + 1 if looked == points else looked // 2
    # Frequencies of each part, from one that is looked at to the next.
    starts = -(-np.arange(parts) * points // looked)
    numbers = np.diff(starts, append=points // 2 + 1)
    weights = numbers * sizes(starts)
    most = np.zeros(parts)
    live, beside = _seen(most, weights, room)
    left, each = list(bundles), _TRANSFORM * looked

    def work(one: Bundle) -> float:
        width = (one.kinds or (one.index,))[0].shape[-1]
        rows = one.counts.size if one.off is None else _VECTORS
        return rows * min(width * float(numbers[live].sum()), _TRANSFORM * points)

    part, before = sum(map(work, left)) / _PARTS, math.inf
    # A look that leaves more than half of them tells too little for its work.
    while left and sum(map(work, left)) > _DEARER * each and live.size < before / 2:
        before = live.size
        far: list[Indices] = []
        products: list[Floats] = []
        steps = spreads = above = done = 0.0
        while left and done < part and sum(map(len, far)) < each:
            one = left.pop(0)
            done += work(one)
            index, masses = one.kinds or (one.index, one.mean[None])
            count, width = masses.shape
            own = 1 if index.ndim == 1 else count
            if (one.kinds is None and one.off is None) or own * width**2 > min(
                count * points, _MOST_PRODUCTS
            ):
                continue
            share = one.counts[:, None] * masses if one.kinds else one.steps * masses
            if one.off is not None:
                spread = np.abs(one.off).sum(axis=1)
                spreads += float(one.counts @ spread**2)
                spreads += (64 + 4 * one.counts.size) * UNIT * one.steps
            if index.ndim == 1:
                products.append((share.T @ masses).ravel())
                far.append((index[:, None] - index).ravel())
            else:
                products.append((share[:, :, None] * masses[:, None, :]).ravel())
                far.append((index[:, :, None] - index[:, None, :]).ravel())
            steps += one.steps
            above = max(above, one.most_rare)
        if not steps:
            continue
        apart, squares = np.concatenate(far), np.concatenate(products)
        wrong = 2 * transform_error(looked) + UNIT * apart.size
        if looked < points:
            wrong += float(squares @ _bend(apart, looked)) / steps
        squares = fft.rfft(np.bincount(apart % looked, squares, looked)).real
        if looked < points:
            squares = np.maximum(squares[:-1], squares[1:])
        squares = (squares + spreads) / steps + wrong
        largest = np.sqrt(np.maximum(squares, 0.0)) + above
        most += steps * np.log(np.clip(largest, 1e-300, 1.0))
        live, beside = _seen(most, weights, room)
    if any(one.rare is not None for one in bundles):
        beside *= 2.0  # of both products
    many = numbers[live]
    within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    return np.repeat(starts[live], many) + within, beside


def _seen(most: Floats, sizes: Floats, room: float) -> tuple[NDArray[np.intp], float]:
    """Frequencies that matter of those of sizes exp(``most``); what all others add."""
    add = sizes * np.exp(most)
    few = (add < room / max(add.size, 1)) | (np.cumsum(add[::-1])[::-1] < room)
    none = most <= _NEGLIGIBLE
    return np.flatnonzero(~(few | none)), float(add @ (few & ~none)) * (1 + 1e-9)


def _turned(turns: Indices, points: int) -> NDArray[np.complex128]:
    angle = (2 * math.pi / points) * turns
    return np.cos(angle) - 1j * np.sin(angle)


class _Transform:
    """Transforms at the frequencies that matter, ``live``."""

    def __init__(self, points: int, live: NDArray[np.intp], sizes: Sizes) -> None:
        self.points, self.live = points, live
        self.sizes = sizes(live)
        self._cut()

    def _cut(self) -> None:
        """Blocks of frequencies that hold all that matter, and where these are."""
        sizes = 2 ** np.arange(14)
        new = [np.diff(self.live // size, prepend=-1) > 0 for size in sizes.tolist()]
        many = np.array([np.count_nonzero(one) for one in new])
        best = int(np.argmin(many * sizes + _SINE * (many + sizes)))
        self._size = int(sizes[best])
        self._rows = self.live[new[best]] // self._size
        self._place = (np.cumsum(new[best]) - 1) * self._size + self.live % self._size

    def _waves(self, turns: Indices) -> NDArray[np.complex128]:
        turns = turns % self.points
        if self.points <= _TABLED:
            return self._table[turns]
        return _turned(turns, self.points)

    @functools.cached_property
    def _table(self) -> NDArray[np.complex128]:
        """Phases at all points."""
        return _turned(np.arange(self.points), self.points)

    def __call__(
        self, index: Indices, vectors: Floats
    ) -> tuple[NDArray[np.complex128], float]:
        """Transforms of vectors at ``index``, and errors over the sum of sizes."""
        points, live = self.points, self.live
        kinds, width = vectors.shape
        at = index % points
        found = np.empty((kinds, live.size), complex)
        if self._rows.size * self._size * width < _TRANSFORM * points:
            # A wave is the product of two: one of its block, one from there on.
            steps = np.arange(self._size)
            rows = self._size * self._rows
            if at.ndim == 1:
                begun = vectors[:, None] * self._waves(rows[:, None] * at)
                begun = begun.reshape(-1, width) @ self._waves(at[:, None] * steps)
                found[:] = begun.reshape(kinds, -1)[:, self._place]
                return found, 4 * UNIT * (16 + width)
            many = _BATCH // ((rows.size + steps.size) * width) + 1
            for i in range(0, kinds, many):
                where, some = at[i : i + many], vectors[i : i + many]
                begun = some[:, None] * self._waves(rows[:, None] * where[:, None])
                begun = begun @ self._waves(where[:, :, None] * steps)
                found[i : i + many] = begun.reshape(len(some), -1)[:, self._place]
            return found, 4 * UNIT * (16 + width)
        for i, (row, vector) in enumerate(
            zip(np.broadcast_to(at, vectors.shape), vectors, strict=True)
        ):
            spectrum = fft.rfft(np.bincount(row, vector, points))
            found[i] = spectrum if live.size == spectrum.size else spectrum[live]
        return found, transform_error(points)

    def pruned(self, whole: _Part, room: float) -> tuple[_Part, float]:
        """Leave out, from here on, frequencies that are nothing; what they add."""
        most = np.clip(whole.most, 1e-300, 1.0)
        some, left = _seen(np.log(most), self.sizes, room)
        if some.size < 0.7 * most.size:
            self.live = self.live[some]
            whole = _Part(whole.value[some], whole.wrong[some])
            self.sizes = self.sizes[some]
            self._cut()
            return whole, left
        return whole, 0.0


def _powers(spectra: NDArray[np.complex128], slip: float, counts: Floats) -> _Part:
    """Product of the kinds' transforms, each as often as it is taken.

    Masses sum to 1. With r_k the relative errors, |prod y_k^n_k - prod x_k^n_k| is at
    most prod |x_k|^n_k (exp(sum n_k r_k) - 1).
    """
    value = np.ones(spectra.shape[1], complex)
    left, power = counts.astype(np.int64), spectra
    if (left != counts).any():
        raise ValueError(f"counts must be whole numbers, got {counts[left != counts]}")
    rounded = 8 * UNIT * float(counts.sum())
    while left.size:  # powers of two of those that are left
        value *= np.multiply.reduce(power[left % 2 == 1], axis=0)
        more = left > 1
        left, power = left[more] // 2, power[more] ** 2
    sizes = np.maximum(np.abs(spectra), slip)
    error = counts @ (slip / sizes) + rounded
    known = error < 0.1
    wrong = np.abs(value) * np.expm1(np.where(known, error, 0.0)) + 1e-300
    if not known.all():
        value[~known] = 0.0
        logs = np.log(sizes[:, ~known] + slip)
        wrong[~known] = np.exp(np.minimum(counts @ logs + 1e-9 + rounded, 0.0))
    return _Part(value, wrong)


@dataclasses.dataclass(frozen=True, slots=True)
class _Spread:
    """Differences of kinds of steps from their mean, by few vectors.

    Kind k differs by ``each[k]`` of the vectors, and by a rest whose sum of sizes is at
    most ``rest``; the sums of squares, times counts, are ``squares`` of each vector's,
    and at most ``rest_squares`` of all others.
    """

    vectors: Floats
    each: Floats
    squares: Floats
    rest: float
    rest_squares: float
    first: float  # size of the sum of what all differ by, which is rounding
    # sum of kinds' rare masses, times counts and their shares of each vector
    rare: Floats | None
    length: float  # the largest sum of a vector's sizes
    # vectors, the sum of whose squares is that of kinds' rare masses, times counts, and
    # the size of what that leaves out
    rare_squares: Floats
    rare_beside: float

    @classmethod
    def of(cls, off: Floats, counts: Floats, rare: Floats | None = None) -> _Spread:
        width = off.shape[1]
        weighted = np.sqrt(counts)[:, None] * off
        whole = float((weighted**2).sum())
        if len(off) <= width:
            values, sides = np.linalg.eigh(weighted @ weighted.T)
            sides = sides.T @ weighted / np.sqrt(np.maximum(values, 1e-300))[:, None]
        else:
            values, sides = np.linalg.eigh(weighted.T @ weighted)
            sides = sides.T
        order = np.argsort(-values)
        # Those of rounding are no vectors of length 1.
        seen = max(np.count_nonzero(values > len(values) * UNIT * values.max()), 1)
        order = order[:seen]
        values, sides = values[order], sides[order]
        left = whole - np.cumsum(values)
        many = int(np.argmax(left * width < _SMALL_SQUARES)) + 1
        many = max(many, 1) if (left * width < _SMALL_SQUARES).any() else len(values)
        sides = sides[:many]
        each = off @ sides.T
        beside = off - each @ sides
        squares = (counts[:, None] * each**2).sum(axis=0)
        # But for rounding, products of vectors, and of vectors and rests, sum to 0.
        cross = (counts[:, None] * each).T @ each
        length = float(np.abs(sides).sum(axis=1).max())
        loose = float(np.abs(cross - np.diag(squares)).sum()) * length**2
        mixed = float(np.abs((counts[:, None] * each).T @ beside).sum()) * 2
        rests = np.abs(beside).sum(axis=1)
        rest_squares = float(counts @ rests**2) + loose + mixed * length
        first = float(np.abs(counts @ off).sum())
        first += (64 + len(off)) * UNIT * float(counts @ np.abs(off).sum(axis=1))
        return cls(
            sides,
            np.abs(each).max(axis=0),
            squares,
            float(rests.max()) + 64 * UNIT,
            rest_squares + 1e-14 * whole * width,
            first,
            None if rare is None else (counts[:, None] * each).T @ rare,
            length,
            *_squares(np.zeros((counts.size, 1)) if rare is None else rare, counts),
        )

    def squares_off(self, slip: float) -> float:
        """Bound on the error of the sum of squares of rare masses' transforms."""
        sizes = np.abs(self.rare_squares).sum(axis=1)
        rounded = 3 * slip + (16 + 4 * len(sizes)) * UNIT
        return self.rare_beside + rounded * float(sizes @ sizes)


def _squares(masses: Floats, counts: Floats) -> tuple[Floats, float]:
    """Few vectors whose products in pairs sum to those of all, and by what not.

    A transform's square is the sum of products in pairs, each times a wave.
    """
    pairs = (counts[:, None] * masses).T @ masses
    if len(masses) < len(pairs):
        weighted = np.sqrt(counts)[:, None] * masses
        vectors = np.linalg.eigh(weighted @ weighted.T)[1].T[::-1] @ weighted
    else:
        values, sides = np.linalg.eigh(pairs)
        vectors = np.sqrt(np.maximum(values, 0.0))[::-1, None] * sides.T[::-1]
    whole, left = float(pairs.sum()), pairs
    many = 0
    while many < len(vectors):
        left = left - np.outer(vectors[many], vectors[many])
        many += 1
        if np.abs(left).sum() < _SMALL_PAIRS * whole:
            break
    vectors = vectors[:many]
    sizes = np.abs(vectors).sum(axis=1)
    rounded = (16 + 2 * counts.size) * whole + 4 * (many + 1) * float(sizes @ sizes)
    return vectors, float(np.abs(left).sum()) + UNIT * rounded + 1e-300


@dataclasses.dataclass(frozen=True, slots=True)
class _Told:
    """Product of a bundle's steps that are told by their mean, and what it rests on."""

    part: _Part
    mean: NDArray[np.complex128]  # its transform
    slip: float  # by which transforms are off, over the sum of sizes
    unlike: Floats  # the largest |d_k / m|
    square: Floats  # the mean square of kinds' transforms, at most
    rare: NDArray[np.complex128]  # sum_k n_k R_k (m - d_k), of rare masses' R_k
    rare_squares: NDArray[np.complex128]  # sum_k n_k R_k^2


def _power(one: Bundle, transform: _Transform, spread: _Spread) -> _Told:
    """Product of a bundle's steps.

    With m the mean's transform and d_k what kinds differ by, sum_k n_k d_k being 0,
    sum_k n_k log(m + d_k) = n log m - sum_k n_k d_k^2 / (2 m^2) + ..., the rest at most
    sum_k n_k |d_k / m|^3 / (3 (1 - z)), z the largest |d_k / m|.
    """
    n, rows = one.steps, np.concatenate([one.mean[None], spread.vectors])
    weights, squares = (np.append(0.0, of) for of in (spread.each, spread.squares))
    mean = turned = rare = pairs = np.zeros(transform.live.size, complex)
    largest, summed, slip = 0.0, 0.0, 0.0
    many = max(_HELD // max(transform.live.size, 1), 1)
    for first in range(0, len(rows), many):
        some = slice(first, first + many)
        spectra, more = transform(one.index, rows[some])
        mean, slip = mean if first else spectra[0], max(slip, more)
        sizes = np.abs(spectra)
        largest = largest + weights[some] @ sizes
        summed = summed + squares[some] @ sizes**2
        turned = turned + squares[some] @ spectra**2
        if one.rare is not None and spread.rare is not None:
            at, masses = one.rare
            large = np.concatenate([(one.counts @ masses)[None], -spread.rare])[some]
            others, more = transform(at, large)
            rare, slip = rare + (spectra * others).sum(axis=0), max(slip, more)
    if one.rare is not None:
        for vector in spread.rare_squares:
            (side,), more = transform(one.rare[0], vector[None])
            pairs, slip = pairs + side**2, max(slip, more)
    slips = slip * spread.length
    rounded = (64 + 2 * len(rows)) * UNIT
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        modulus = np.abs(mean)
        relative = slip / modulus
        log = n * (np.log(modulus) + 1j * np.angle(mean))  # far faster than np.log
        error = n * (relative / (1 - relative) + 32 * UNIT)
        largest = largest + slips * spread.each.sum()
        log -= 0.5 * turned / mean**2
        # With what each vector's transform is off by (Minkowski).
        most = (np.sqrt(summed) + slips * math.sqrt(spread.squares.sum())) ** 2
        most += spread.rest_squares
        square = (modulus + slip) ** 2
        square += (most + 2 * spread.first * (modulus + slip)) / n
        over = (1 + 2 * relative) / modulus  # at least one over the true mean's
        most *= over**2
        largest = (largest + spread.rest) * over
        error += most * largest / (3 * (1 - largest))
        error += spread.first * over
        error += (1 + rounded) * most - summed / modulus**2
        error[~(largest < 0.5)] = np.inf
        error += 8 * UNIT * np.abs(log)
        known = (error < 0.1) & (relative < 0.5)
        value = np.where(known, np.exp(np.where(known, log, 0.0)), 0.0)
        wrong = np.abs(value) * np.expm1(np.where(known, error, 0.0)) + 1e-300
        # Sizes at frequency 0 are no less, and the mean of squares than the geometric.
        bound = np.exp(n * np.minimum(0.5 * np.log(square) + 4 * UNIT, 0.0))
    part = _Part(value, np.where(known, wrong, bound))
    return _Told(part, mean, slip, largest, square, rare, pairs)
