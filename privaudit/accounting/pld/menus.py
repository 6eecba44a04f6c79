"""Releases chosen from a menu as one goes: the exact game on a grid, from above.

A state is how often each kind was released. What an adversary who sees all outcomes can
still reach from it, at each epsilon, is worked out backwards from the states at which
nothing more is admitted; so which states are admitted is chosen before, and proved by
what the first one reaches. The proof: "Filter of a menu" in ``filters.md``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from privaudit.accounting.pld.adaptive import measure_on
from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.composition import Composition
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.fourier import fold, transform_error
from privaudit.accounting.pld.grouping import Grid
from privaudit.accounting.pld.line import UNIT, Floats

Counts = tuple[int, ...]

_MOST_STATES = 2500  # a second of transforms or some
_MOST_KINDS = 8
_MOST_POINTS = 1 << 15  # of values
_SLACK = 0.01  # of delta: what a grid may add, about
_LOST = 1e-6  # of delta: what the ends of all grids may add, about
_LEAST = 1e-9  # of tilted mass: what is moved from a lower end
_MOST_TILTED = 500.0  # its exponential is a double, with room
_SEEN = 1e-4
_ABOVE = 15.0  # log of how much larger a constant is, tilted, at the upper end
_ROOM = math.log(1000.0)  # by which errors may grow beside delta
_ENOUGH = 0.98  # of delta
_TRIES = 10  # of how much a number fixed beforehand may have
_MOST_GROWN = 12_000  # states looked at for one more, some seconds


def _norm(values: Floats) -> float:
    """Euclidean norm; a product of vectors would start the library's threads."""
    return math.sqrt(float(np.square(values).sum())) * (1 + 1e-12)


@dataclasses.dataclass(frozen=True)
class _Bundle:
    """Some equal releases: masses times exp(tilt loss), on a grid."""

    start: int
    tilted: Floats
    infinite: float

    @classmethod
    def of(
        cls, one: GridMeasure, count: int, rate: float, lost: float
    ) -> _Bundle | None:
        """``rate``: tilt a point; ``lost``: at most so much of P is taken for infinite.

        None if it is too long.
        """
        ends = np.abs([one.start, one.start + one.mass.size])
        if rate * float(ends.max()) > _MOST_TILTED:
            return None
        tilted = one.mass * np.exp(rate * (one.start + np.arange(one.mass.size)))
        single = cls(one.start, tilted * (1 + 64 * UNIT), one.infinite)
        found = single = single._cut(rate, lost)
        for bit in bin(count)[3:]:  # by squares
            for other in (found, single)[: 1 + int(bit)]:
                found = found._with(other)
                if rate * max(map(abs, found.ends)) > _MOST_TILTED:
                    return None
                found = found._cut(rate, lost)
        return found

    @property
    def ends(self) -> tuple[int, int]:
        return self.start, self.start + self.tilted.size - 1

    def _with(self, other: _Bundle) -> _Bundle:
        size = self.tilted.size + other.tilted.size - 1
        points = fft.next_fast_len(size, real=True)
        spectrum = fft.rfft(self.tilted, points) * fft.rfft(other.tilted, points)
        found = np.maximum(fft.irfft(spectrum, points)[:size], 0.0)
        whole = float(self.tilted.sum()) * float(other.tilted.sum())
        found += 4 * transform_error(points) * whole
        infinite = (self.infinite + other.infinite) * (1 + 4 * UNIT)
        return _Bundle(self.start + other.start, found, infinite)

    def _cut(self, rate: float, lost: float) -> _Bundle:
        """Without ends of no weight: losses there are taken for larger ones."""
        log = rate * (self.start + np.arange(self.tilted.size))
        mass = self.tilted * np.exp(-log)
        beyond = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        stop = max(int(np.argmax(beyond <= lost)), 1)
        before = np.cumsum(mass[:stop]) * np.exp(log[:stop])  # if moved to there
        first = int(np.argmax(before > _LEAST * self.tilted.sum()))
        kept = self.tilted[first:stop].copy()
        kept[0] = before[first]
        kept *= 1 + 4 * self.tilted.size * UNIT
        infinite = (self.infinite + float(beyond[stop])) * (1 + 1e-12)
        return _Bundle(self.start + first, kept, infinite)


class _View:
    """Values in one direction: at epsilon + k h under a tilt, k around 0."""

    def __init__(
        self,
        bundles: Sequence[_Bundle],
        grid: Grid,
        tilt: float,
        wide: float,
        # epsilon, factor: a lower one, and what delta is more by, for what rounds
        epsilon: float,
        factor: float,
    ) -> None:
        self.bundles, self.h, self.tilt = bundles, grid.spacing, tilt
        self.epsilon, self.factor = epsilon, factor
        self.zero = math.ceil(wide / self.h)  # index of epsilon
        # Further up tilted values are all that rounding adds, and matter to nobody.
        self.size = self.zero + 1 + math.ceil(min(wide, _ABOVE / tilt) / self.h)
        self.left = max(*(b.ends[1] for b in bundles), 0)
        self.right = max(*(-b.ends[0] for b in bundles), 0)
        self.points = fft.next_fast_len(self.left + self.size + self.right, real=True)
        self.at = (np.arange(self.size) - self.zero) * self.h
        self.scale = np.exp(tilt * self.at)
        self.spectra = [fft.rfft(fold(b.tilted, b.start, self.points)) for b in bundles]
        self.norms = [_norm(b.tilted) for b in bundles]
        low = -self.h * np.arange(self.left, 0, -1)  # from the first point on
        self._low = np.exp(low), np.exp(tilt * (low + self.at[0]))
        high = self.h * np.arange(1, self.right + 1) + self.at[-1]
        self._high = np.exp(tilt * high)
        self.stop = np.maximum(0.0, -np.expm1(self.at + epsilon)) * self.scale
        self.stop *= 1 + 16 * UNIT

    def spectrum(self, value: Floats) -> tuple[NDArray[np.complex128], float]:
        """Transform of a tilted value, and its size.

        Beyond the grid a value is no more than its chord in exp(epsilon), and its end.
        """
        rest = min(1.0, float(value[0] / self.scale[0]) * (1 + 16 * UNIT))
        chord = (1 - (1 - rest) * self._low[0] * (1 - 64 * UNIT)) * self._low[1]
        over = float(value[-1] / self.scale[-1]) * self._high
        whole = np.concatenate([chord, value, over]) * (1 + 64 * UNIT)
        return fft.rfft(whole, self.points), _norm(whole)

    def before(self, seen: tuple[NDArray[np.complex128], float], which: int) -> Floats:
        """Value before a bundle of one kind, of what is ``seen`` after it."""
        found = fft.irfft(seen[0] * self.spectra[which], self.points)
        found = np.maximum(found[self.left : self.left + self.size], 0.0)
        # Three transforms: by Parseval each is off by its part of what goes in.
        error = 4 * math.sqrt(self.points) * transform_error(self.points)
        found += error * seen[1] * self.norms[which]
        return found + self.bundles[which].infinite * self.scale

    def kernel(self) -> NDArray[np.complex128]:
        """Return the kernel that takes products of spectra to H at epsilon, about."""
        index = np.arange(self.points)
        index[index > self.points - self.zero // 2] -= self.points
        x = index * self.h - self.epsilon
        gain = np.where(x > 0, -np.expm1(-np.abs(x)), 0.0)
        gain *= np.exp(-self.tilt * self.h * np.maximum(index, 0))
        weights = np.full(self.points // 2 + 1, 2.0 / self.points)
        weights[0] /= 2
        if not self.points % 2:
            weights[-1] /= 2
        return np.conj(fft.rfft(gain)) * weights


def _reached(view: _View, admitted: frozenset[Counts]) -> float:
    """Value of the game at its start."""
    kinds = range(len(view.bundles))
    by_level: dict[int, list[Counts]] = {}
    for counts in admitted:
        by_level.setdefault(sum(counts), []).append(counts)
    values: dict[Counts, Floats] = {}
    for level in sorted(by_level, reverse=True):
        below: dict[Counts, Floats] = {}
        for counts in by_level[level]:
            value = values.get(counts, view.stop)
            if not level:
                return float(value[view.zero]) * view.factor
            seen = view.spectrum(value)
            for i in kinds:
                if counts[i]:
                    to = (*counts[:i], counts[i] - 1, *counts[i + 1 :])
                    found = view.before(seen, i)
                    below[to] = np.maximum(below.get(to, view.stop), found)
        values = below
    return math.inf


@dataclasses.dataclass(frozen=True)
class Menu:
    """Numbers of each kind that keep to (epsilon, delta), whoever chooses by outcomes.

    ``bundles``: so many of a kind are counted as one; ``admitted``: bundles of each.
    """

    bundles: Counts
    admitted: frozenset[Counts]
    reached: float  # of delta, by the game

    def room(self, counts: Counts, i: int) -> int:
        """Number of releases of kind ``i`` that still fit after ``counts``."""
        state = [-(-n // each) for n, each in zip(counts, self.bundles, strict=True)]
        while tuple(state) in self.admitted:
            state[i] += 1
        return (state[i] - 1) * self.bundles[i] - counts[i]

    @classmethod
    def of(
        cls,
        # kinds: one release of each; alone: how many fit by themselves
        kinds: Sequence[Composition],
        alone: Counts,
        epsilon: float,
        delta: float,
    ) -> Menu | None:
        """None if no grid holds them."""
        if not kinds or len(kinds) > _MOST_KINDS or not all(alone):
            return None
        bundles = tuple(1 for _ in alone)
        ways = tuple(dict.fromkeys(w for one in kinds for w in one.directions))
        while True:
            found = [_view(kinds, alone, bundles, w, (epsilon, delta)) for w in ways]
            views = [one for one in found if one is not None]
            if len(views) < len(ways):
                return None
            bundles, wanted = _coarser(alone, bundles), bundles
            if whole := _totals(views, delta):
                break
        good, low, high, share = None, 0.0, 1.0, 1.0
        for _ in range(_TRIES):  # invariant: low is 0 or has good; high is too much
            admitted = frozenset(c for c, d in whole.items() if d <= share * delta)
            reached = max(_reached(one, admitted) for one in views) / delta
            if reached <= 1:
                good, low = cls(wanted, admitted, reached), share
                if share == 1 or reached > _ENOUGH:
                    break
            else:
                high = share
            share = (low + high) / 2 if low else share * min(0.99 / reached, 0.95)
        return good and good._grown(views, whole, delta)

    def _grown(
        self, views: Sequence[_View], whole: dict[Counts, float], delta: float
    ) -> Menu:
        """With states one by one, where shares of ``whole`` go by large steps."""
        found, refused, left = self, set(), _MOST_GROWN
        while found.reached <= _ENOUGH and left > 0:
            edge = [
                state
                for state in whole.keys() - found.admitted - refused
                if all(
                    (*state[:i], n - 1, *state[i + 1 :]) in found.admitted
                    for i, n in enumerate(state)
                    if n
                )
            ]
            if not edge:
                break
            least = min(edge, key=lambda state: (whole[state], state))
            admitted = found.admitted | {least}
            reached = max(_reached(one, admitted) for one in views) / delta
            left -= len(admitted)
            if reached <= 1:
                found = Menu(self.bundles, admitted, reached)
            else:
                refused.add(least)
        return found


def _view(
    kinds: Sequence[Composition],
    alone: Counts,
    bundles: Counts,
    way: Direction,
    budget: tuple[float, float],
) -> _View | None:
    """The grid and tilt that suit as many of each kind as fit by themselves."""
    epsilon, delta = budget
    guesses = [
        _times(one, n)._scout(way).at_delta(math.log(delta), _ROOM)
        for one, n in zip(kinds, alone, strict=True)
    ]
    # Values at epsilon are then no less than this part of those at 0.
    tilt = max(math.log(_SEEN / delta), 1.0) / epsilon
    steep = [one.tilt for one in guesses if one.deviation > one.window / 99]
    steep = max([tilt, *steep])
    wide = max(2 * epsilon, *(min(one.window, 40 * epsilon) for one in guesses))
    # Chords add a sixth of its square to a release's variance, and that moves log delta
    # by tilt (1 + tilt) / 2 as much.
    spacing = math.sqrt(12 * _SLACK / (steep * (1 + steep) * max(alone)))
    spacing = max(spacing, 2 * wide / _MOST_POINTS)
    log_lost = math.log(delta * _LOST / sum(alone))
    grid = Grid(spacing, -float(special.ndtri_exp(log_lost)))
    found, accuracy = [], 0.0
    for one, n in zip(kinds, bundles, strict=True):
        measure = measure_on(one, way, grid, _MOST_POINTS)
        if measure is None:
            return None
        bundle = _Bundle.of(measure, n, tilt * spacing, math.exp(log_lost))
        if bundle is None:
            return None
        found.append(bundle)
        accuracy = max(accuracy, measure.accuracy)
    # Masses and losses are off by their accuracy: as a factor and a shift of epsilon,
    # which the value of a lower epsilon, lowered by it, pays for.
    slip = 16 * accuracy * sum(alone) * len(kinds)
    if not slip < min(0.01, epsilon / 2):
        return None
    return _View(found, grid, tilt, wide, epsilon - slip, math.exp(slip))


def _times(one: Composition, count: int) -> Composition:
    families = (
        dataclasses.replace(f, count=f.count * float(count)) for f in one.families
    )
    others = tuple((loss, often * count) for loss, often in one.others)
    return dataclasses.replace(one, families=tuple(families), others=others)


def _coarser(alone: Counts, bundles: Counts) -> Counts:
    """Larger bundles of the kind that has most of them."""
    numbers = [n / each for n, each in zip(alone, bundles, strict=True)]
    i = numbers.index(max(numbers))
    return (*bundles[:i], math.ceil(1.25 * bundles[i]), *bundles[i + 1 :])


def _totals(views: Sequence[_View], delta: float) -> dict[Counts, float]:
    """Delta, about, of all fixed numbers of bundles that keep to it.

    Empty if there are too many.
    """
    kernels = [one.kernel() for one in views]
    start = (0,) * len(views[0].bundles)
    found, todo = {}, {start: [np.ones(k.shape, complex) for k in kernels]}
    infinite = [[b.infinite for b in one.bundles] for one in views]
    while todo:
        following: dict[Counts, list[NDArray[np.complex128]]] = {}
        for counts, spectra in todo.items():
            most = max(
                float((k * s).real.sum())
                + math.fsum(n * x for n, x in zip(counts, lost, strict=True))
                for k, s, lost in zip(kernels, spectra, infinite, strict=True)
            )
            if not most <= delta:
                continue
            found[counts] = most
            if len(found) > _MOST_STATES:
                return {}
            last = max((i for i, n in enumerate(counts) if n), default=0)
            for i in range(last, len(counts)):
                more = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
                following[more] = [
                    s * one.spectra[i] for s, one in zip(spectra, views, strict=True)
                ]
        todo = following
    return found
