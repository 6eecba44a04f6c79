"""Releases chosen as one goes, paid in copies of one pair: see ``filters.md``.

A budget is ``count`` units, each a copy of the pair of one typical release. What that
pair dominates costs a unit. Of any other release it is enough that it is dominated
*beside* ``reserve`` units that are left: its price is in parts, each a copy of the same
pair at a quarter of the rate, for which units are changed.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from privaudit.accounting.pld.cells import Direction, Step
from privaudit.accounting.pld.composition import Composition
from privaudit.accounting.pld.dots import GridMeasure, measure_above, measure_below
from privaudit.accounting.pld.families import Family
from privaudit.accounting.pld.fourier import (
    Bundle,
    compose,
    fold,
    log_moment_of,
    transform_error,
)
from privaudit.accounting.pld.grouping import MOST_CELLS, Grid
from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms.noise import loss_cells
from privaudit.accounting.pld.scout import Guess

Spectrum = NDArray[np.complex128]
_Measures = dict[Direction, tuple[Grid, list[GridMeasure | None]]]

_SHARE = 4  # by how much a part's rate is less
PARTS = _SHARE**2  # that a unit is worth, about
_FINE = 10.0  # grid points in a part's deviation
_MOST_POINTS = 1 << 19
_REST, _LOST = 0.02, 0.005  # of delta: what comparisons, and grids' ends, may add
_FITS = 0.97  # of delta: what the units may have
_MOST_UNITS = 1 << 40
_ROOM = math.log(1000.0)  # by which errors may grow beside delta


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A measure under a tilt: transform over its value at 0, and log of that."""

    spectrum: Spectrum
    error: float  # of each value of the spectrum
    log_moment: float
    further: float  # the log at a larger tilt


@dataclasses.dataclass(frozen=True)
class _View:
    """State of the search in one direction: the unit, its parts and the rest."""

    grid: Grid
    tilt: float
    slope: float
    one: GridMeasure
    part: GridMeasure
    part_below: GridMeasure | None
    count: int
    reserve: int
    log_allowed: float

    @functools.cached_property
    def _log_wraps(self) -> float:
        return self.log_allowed - 3.0  # 8 e^-3 of what is allowed is .4 of it

    @functools.cached_property
    def _ends(self) -> tuple[float, float]:
        """Epsilons that matter: below and above no more than what wraps around."""
        gain = self.log_moment(self.one, self.slope) - self.log_moment(self.one)
        most = (self.reserve + self.count / 4) * gain
        return self._log_wraps / self.tilt, (most - self._log_wraps) / self.slope

    @functools.cached_property
    def points(self) -> int:
        low, high = self._ends
        wanted = 2 * (high - low) / self.grid.spacing
        if not wanted <= _MOST_POINTS:
            return 0
        return fft.next_fast_len(max(math.ceil(wanted), 64), real=True)

    def log_moment(self, measure: GridMeasure, further: float = 0.0) -> float:
        """Logarithm of the mean of exp(tilt L), or of a further tilt."""
        return log_moment_of(measure, self.tilt + further, self.grid.spacing)

    def seen(self, measure: GridMeasure) -> _Seen | None:
        """None if its losses are out of range."""
        h = self.grid.spacing
        ends = np.abs([measure.start, measure.start + measure.mass.size])
        if (self.tilt + self.slope) * h * float(ends.max()) > 600:
            return None
        at = measure.start + np.arange(measure.mass.size)
        tilted = measure.mass * np.exp(self.tilt * h * at)
        moment = float(tilted.sum())
        spectrum = fft.rfft(fold(tilted / moment, measure.start, self.points))
        further = self.log_moment(measure, self.slope)
        error = UNIT * (64 + 8 * self.tilt * h * float(ends.max()))
        error += transform_error(self.points)
        return _Seen(spectrum, error, math.log(moment), further)

    @functools.cached_property
    def _kernel(self) -> tuple[Spectrum, Floats, Floats, float] | None:
        """Kernel of the reserve: spectrum, error, sizes of powers, norm of the gain."""
        one = self.seen(self.one)
        if one is None:
            return None
        x = np.arange(self.points) * self.grid.spacing
        gain = np.exp(-self.tilt * x) * -np.expm1(-x)
        power, off = self._power(one, self.reserve)
        spectrum = np.conj(fft.rfft(gain))
        size, norm = np.abs(spectrum), float(np.linalg.norm(gain))
        return spectrum * power, size * off, np.abs(power) + off, norm

    def _power(self, seen: _Seen, n: int) -> tuple[Spectrum, Floats]:
        """The n-th power, and a bound on its error."""
        size = np.abs(seen.spectrum)
        with np.errstate(under="ignore"):
            power = seen.spectrum**n
            most = (size + seen.error) ** n * (1 + 64 * n * UNIT)
            return power, np.maximum(most - size**n, 0.0) + 64 * n * UNIT * size**n

    @functools.cached_property
    def parts(self) -> tuple[_Seen, _Seen, _Seen] | None:
        """The unit, and its part from above and below; None if there is no grid."""
        if not self.points or self.part_below is None or self._kernel is None:
            return None
        one, above = self.seen(self.one), self.seen(self.part)
        below = self.seen(self.part_below)
        if one is None or above is None or below is None or below.log_moment <= 0:
            return None
        return one, above, below

    def adds(self, first: tuple[_Seen, int], other: tuple[_Seen, int]) -> float:
        """Largest by which ``first`` beside the reserve exceeds ``other``, at least."""
        assert self._kernel is not None
        kernel, kernel_off, power, norm = self._kernel
        parts = self.parts
        assert parts is not None
        spectra, off = [], np.zeros(kernel.size)
        whole = other[1] * other[0].log_moment
        for seen, n in (first, other):
            log_ratio = n * seen.log_moment - whole
            if log_ratio > 0:  # moments would grow
                return math.inf
            far = self.reserve * (parts[0].further - parts[0].log_moment)
            far += n * seen.further - whole - self._log_wraps
            if far > self._ends[1] * self.slope:
                return math.inf
            value, wrong = self._power(seen, n)
            ratio = math.exp(log_ratio)
            spectra.append(ratio * value)
            off += ratio * wrong
        size = np.abs(spectra[0] - spectra[1])
        gap = kernel * (spectra[0] - spectra[1])
        found = float(fft.irfft(gap, self.points).max())
        error = transform_error(self.points)
        # A tenth more pays for what rounds in means of numbers that are all positive.
        both = float(np.mean(kernel_off * (size + off) + np.abs(kernel) * off)) * 1.1
        size += off
        both += error * norm * math.sqrt(float(np.mean((power * size) ** 2)) * 1.1)
        both += error * math.sqrt(2.2 * float(np.mean(np.abs(gap) ** 2)))
        found = max(found, 0.0) + 2 * both + 8 * math.exp(self._log_wraps)
        return found * math.exp(self.tilt * self.grid.spacing)


class Units:
    """Filter that counts (epsilon, delta)-DP in units of one pair.

    ``step``: typical, Gaussian and sampled. ``count``: 0 if none fits. ``reserve``: how
    many must be left when anything but units is paid.
    """

    def __init__(self, step: Step, epsilon: float, delta: float) -> None:
        self.step, self.epsilon, self.delta = step, epsilon, delta
        one = np.ones(1)
        family = Family(step.noise, step.scheme, step.shift * one, step.rate * one, one)
        self._composition = Composition((family,))
        self._guessed = self._guess()
        self.count, self.reserve, self._views = 0, 0, {}
        if (measures := self._measures()) is not None:
            self._found(measures)

    @property
    def ways(self) -> tuple[Direction, ...]:
        return self._composition.directions

    def _at(self, count: int, way: Direction) -> Guess:
        family = self._composition.families[0]
        many = dataclasses.replace(family, count=np.full(1, float(count)))
        scout = Composition((many,))._scout(way)
        return scout.at_delta(math.log(self.delta * _FITS), _ROOM)

    def _guess(self) -> int:
        """About how many fit, at least 1: of few steps the guess is poor."""

        def fits(count: int) -> bool:
            return all(self._at(count, w).epsilon <= self.epsilon for w in self.ways)

        good, bad = 1, 2
        while bad < _MOST_UNITS and fits(bad):
            good, bad = bad, 4 * bad
        while bad - good > 0.02 * good + 1:  # invariant: fits(good), not fits(bad)
            middle = max(math.isqrt(good * bad), good + 1)
            good, bad = (middle, bad) if fits(middle) else (good, middle)
        return good

    def _measures(self) -> _Measures | None:
        """Measures by direction: the unit, its part, and the part from below."""
        shift, rate = self.step.shift, self.step.rate
        if shift > 20 or rate >= 1:
            return None
        # A thousandth of what may be lost: windows grow by little for it.
        tail = math.log(self.delta * _LOST * 1e-3 / (self._guessed * PARTS))
        reach = -float(special.ndtri_exp(tail))
        small = dataclasses.replace(self.step, rate=rate / _SHARE)
        found: _Measures = {}
        for way in self.ways:
            guess = self._at(self._guessed, way)
            spread = rate * min(1.0, math.sqrt(math.expm1(shift * shift)))
            least = 3 * (guess.window + 34 / guess.tilt) / _MOST_POINTS
            grid = Grid(max(spread / (_SHARE * _FINE), least), reach)
            cells = [
                loss_cells(one, way, grid.spacing, reach, MOST_CELLS)
                for one in (self.step, small)
            ]
            above = [measure_above(one, grid.spacing) for one in cells]
            found[way] = grid, [*above, measure_below(cells[1], grid.spacing)]
        return found

    def _found(self, measures: _Measures) -> None:
        accuracy = max(
            one.accuracy for _, held in measures.values() for one in held if one
        )

        def drift(count: int) -> float:
            return 16 * accuracy * PARTS * count

        def fits(count: int) -> bool:
            slip = drift(count)
            # Where errors of losses add up to a tenth, more steps are not worth it.
            if slip > 0.1 or not self.epsilon > slip:
                return False
            for way, (grid, (one, *_)) in measures.items():
                assert one is not None
                guess = self._at(count, way)
                many = Bundle.single(one, count, guess.tilt, grid.spacing)
                whole = compose([many], grid.spacing, guess)
                if whole is None:
                    return False
                most = self.delta * _FITS * math.exp(-slip) * (1 - 1e-12)
                if whole.delta_above(self.epsilon - slip) > most:
                    return False
            return True

        good, bad = 0, self._guessed
        step = max(1, self._guessed // 50)
        if fits(bad):
            good, bad = bad, bad + step
            while fits(bad):
                good, bad, step = bad, bad + 2 * step, 2 * step
        else:
            while bad > 1 and not fits(max(bad - step, 1)):
                bad, step = max(bad - step, 1), 2 * step
            good = max(bad - step, 1) if bad > 1 else 0
        while bad - good > max(1, good // 2000):  # invariant: fits(good), not fits(bad)
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(middle) else (good, middle)
        if not good:
            return
        self.count, self._accuracy = good, 4 * accuracy
        self.reserve = min(math.ceil(good ** (2 / 3)), good)
        self._lost = self.delta * _LOST * math.exp(-drift(good)) / (PARTS * good)
        for way, (grid, (one, part, below)) in measures.items():
            assert one is not None
            assert part is not None
            guess = self._at(good, way)
            known = (grid, guess.tilt, guess.up, one, part, below)
            view = _View(*known, good, self.reserve, 0.0)
            slip = drift(good)
            allowed = math.log(self.delta * _REST / (2 * PARTS * good)) - slip
            allowed += guess.tilt * (self.epsilon - slip)
            allowed -= good * view.log_moment(one) + 1e-9 + slip
            self._views[way] = dataclasses.replace(view, log_allowed=min(allowed, 0.0))

    @functools.cached_property
    def change(self) -> int:
        """Parts that one unit is changed for, beside the reserve; 0 if none are."""
        least = PARTS if self.count else 0  # the proof needs that it is no more
        for view in self._views.values():
            if view.parts is None:
                return 0
            one, above, _ = view.parts
            allowed = PARTS * math.exp(view.log_allowed)
            good, bad = 0, min(least, int(one.log_moment / above.log_moment)) + 1
            while bad - good > 1:
                middle = (good + bad) // 2
                fits = view.adds((above, middle), (one, 1)) <= allowed
                good, bad = (middle, bad) if fits else (good, middle)
            least = min(least, good)
        return least

    def price(self, release: Composition) -> int | None:
        """Parts that a release costs beside the reserve; None if it cannot be paid."""
        known = set(release.directions) <= set(self.ways)
        if not self.change or self.reserve > self.count or not known:
            return None
        seen, least, lost = [], 1, 0.0
        for way in self.ways:
            view = self._views[way]
            measure = measure_on(release, way, view.grid, _MOST_POINTS)
            if measure is None:
                return None
            found = view.seen(measure)
            assert view.parts is not None
            if found is None or measure.accuracy > self._accuracy:
                return None
            ratio = found.log_moment / view.parts[2].log_moment
            # Nine digits, of which logarithms of moments round the last.
            least = max(least, math.ceil(ratio * (1 + 1e-9)))
            lost = max(lost, measure.infinite)
            seen.append((view, found))
        most = self.count * PARTS // 4
        least = max(least, math.ceil(lost / self._lost))

        def pays(parts: int) -> bool:
            return all(
                view.adds((one, 1), (view.parts[2], parts))
                <= parts * math.exp(view.log_allowed)
                for view, one in seen
            )

        bad, good, step = least - 1, least, 1
        while good <= most and not pays(good):
            bad, good, step = good, good + step, 2 * step
        if good > most:
            return None
        while good - bad > max(1, good // 100):  # invariant: pays(good)
            middle = (good + bad) // 2
            good, bad = (middle, bad) if pays(middle) else (good, middle)
        return good


def measure_on(
    found: Composition, way: Direction, grid: Grid, most: int
) -> GridMeasure | None:
    """Measure of one release from above; None if longer than ``most`` points."""
    if not found.bounded or found._longest(grid.reach) > most * grid.spacing:
        return None
    measures = [
        measure_above(
            loss_cells(family.step(*each), way, grid.spacing, grid.reach, MOST_CELLS),
            grid.spacing,
        )
        for family in found.families
        for each in zip(family.shift, family.rate, strict=True)
    ]
    measures += [one.above(way, grid.spacing, grid.reach) for one, _ in found.others]
    # of none, nothing is known
    return measures[0] if len(measures) == 1 else None
