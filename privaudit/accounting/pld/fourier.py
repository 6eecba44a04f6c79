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
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mixture import Term, log_ratio
from privaudit.accounting.pld.scout import Guess, log_peak

_NEGLIGIBLE = -80.0  # log of a size of the characteristic function that is left out
MOST_POINTS = 1 << 21
_MOST_HELD = 1 << 24  # values of spectra at once


@dataclasses.dataclass(frozen=True)
class Tilted:
    """The composed loss under a tilt, on a window of the grid.

    delta(eps) = exp(log_moment - tilt eps) sum_s f(s) g(s - eps) with g(x) =
    exp(-tilt x) (1 - exp(-x))+, up to the errors here. f is a sum of waves, along each
    of which g is two geometric sums: see "Sums" in ``pld.md``.

    Parameters
    ----------
    start, points, spacing, offset
        The window: points (start + i) spacing + offset, i < points.
    index
        Of the waves, in turns a window.
    waves
        The size of each, over points (1 - a) (1 - a b), where a point further g's first
        part is a = exp(-tilt spacing) and a turn of the wave times as large, and its
        second is a b, b = exp(-spacing).
    error
        Bound on the Euclidean norm of the error of f.
    outside
        Bound on the tilted mass outside the window.
    infinite
        Mass at infinite loss, at most.
    surely_infinite
        The same, at least.
    drift
        Sum over the steps of the relative error of the measures, and the rounding of
        the window's points.
    """

    tilt: float
    log_moment: float
    start: int
    points: int
    spacing: float
    offset: float
    index: NDArray[np.intp]
    waves: NDArray[np.complex128]
    error: float
    outside: float
    infinite: float
    surely_infinite: float
    drift: float

    def _sum(self, epsilon: float) -> tuple[float, float]:
        """sum f g and the bound on its error."""
        peak = math.exp(log_peak(self.tilt))
        off = self.outside * peak + 1e-300
        stop = self.start + self.points
        if not epsilon < stop * self.spacing + self.offset:
            return 0.0, off
        first = math.floor((epsilon - self.offset) / self.spacing) + 1
        at = min(max(first, self.start), stop)
        x = at * self.spacing + self.offset - epsilon
        if at == first:  # but for rounding
            x = min(max(x, 0.0), self.spacing)
        value, largest = 0.0, 0.0
        steps = math.expm1(-self.tilt * self.spacing)
        steps *= math.expm1(-(1 + self.tilt) * self.spacing)
        turning = 0
        if self.tilt * self.points * self.spacing < 1 and 0 in self.index[:1]:
            # Of the wave that does not turn both sums are long beside the window.
            each = x + self.spacing * np.arange(stop - at)
            g = np.exp(-self.tilt * each) * -np.expm1(-each)
            value = float(g.sum()) * steps * float(self.waves[0].real)
            off += 4 * UNIT * (128 + g.size + 8 * self.tilt * x) * abs(value)
            turning = 1
        size = float(np.abs(self.waves[turning:]).sum())
        waves, ahead = self.waves[turning:], self._ahead[turning:]
        # All from there on, less all from the window's end on.
        ends = ((1, at, x), (-1, stop, x + (stop - at) * self.spacing))
        for sign, place, far in ends:
            if self.tilt * far > 745:
                continue
            turn = self._turns(place)[turning:] if sign > 0 else self._end[turning:]
            decay = math.exp(-self.tilt * far)
            one = -math.expm1(-far)
            near = self.spacing - far  # exp(-far) - exp(-spacing), from the larger
            other = math.exp(-min(far, self.spacing)) * -math.expm1(-abs(near))
            other = math.copysign(other, near)
            part = one * float((waves @ turn).real) + other * float((ahead @ turn).real)
            value += sign * decay * part
            most = decay * (one + math.exp(-self.tilt * self.spacing) * abs(other))
            largest += most * (128 + waves.size + 8 * self.tilt * far)
            if sign > 0:  # of the wave that does not turn: the sum of g
                end = far + (stop - at) * self.spacing
                top = min(peak, -math.expm1(-end))  # of g in the window; less
                top = top if self.tilt * far < 1 else decay * one  # beyond its peak
                total = min(most / steps, (stop - at) * top)
                norm = min(total, math.sqrt(top * total))
                off += self.error * norm * (1 + 1e-12)
        return value, off + 4 * UNIT * largest * size

    def _turns(self, place: int) -> NDArray[np.complex128]:
        """Phase of each wave at a point."""
        turned = self.index * (place % self.points) % self.points
        return np.exp(2j * math.pi / self.points * turned)

    @functools.cached_property
    def _ahead(self) -> NDArray[np.complex128]:
        """The waves times a."""
        return self.waves * (math.exp(-self.tilt * self.spacing) * self._turns(1))

    @functools.cached_property
    def _end(self) -> NDArray[np.complex128]:
        """Phase of each wave at the window's end."""
        return self._turns(self.start + self.points)

    def _scale(self, epsilon: float) -> tuple[float, float]:
        exponent = self.log_moment - self.tilt * epsilon
        size = abs(self.log_moment) + self.tilt * (abs(epsilon) + self._far) + 1
        return exponent, self.drift + 64 * UNIT * size

    @property
    def _far(self) -> float:
        return abs(self.offset) + (abs(self.start) + self.points) * self.spacing

    def delta_above(self, epsilon: float) -> float:
        """At least delta of the measures composed, and of all that they dominate."""
        epsilon = epsilon - self.drift - 16 * UNIT * (abs(epsilon) + self._far)
        value, off = self._sum(epsilon)
        exponent, wobble = self._scale(epsilon)
        log_delta = exponent + wobble + math.log(max(value, 0.0) + off)
        if log_delta > 0:
            return 1.0
        return min(1.0, (self.infinite + math.exp(log_delta)) * (1 + 1e-14) + 1e-300)

    def delta_below(self, epsilon: float) -> float:
        """At most delta of the measures composed, and of all that dominate them."""
        epsilon = epsilon + self.drift + 16 * UNIT * (abs(epsilon) + self._far)
        value, off = self._sum(epsilon)
        if not value > off:
            return self.surely_infinite
        exponent, wobble = self._scale(epsilon)
        finite = math.exp(min(0.0, exponent - wobble + math.log(value - off)))
        return (self.surely_infinite + finite) * (1 - 1e-14)


def compose(
    measures: Sequence[GridMeasure],
    terms: Sequence[Term],
    spacing: float,
    guess: Guess,
) -> Tilted | None:
    """The composition of ``terms``; None if the window needs too many points.

    None as well if the spacing is too small for the sums of waves.

    Of ``guess`` the tilt is taken, and the changes of it that bound the window.
    """
    tilt = guess.tilt
    window = _window(measures, terms, spacing, guess)
    if window is None or not (tilt * spacing) * ((1 + tilt) * spacing) > 1e-290:
        return None
    start, points, outside, bases, log_moment = window
    index, phase, log_size, log_error, bound = _characteristic(
        measures, terms, bases, spacing, tilt, points
    )
    keep = (log_size > _NEGLIGIBLE) & (log_error < 0.1)
    phi = np.exp(log_size[keep] + 1j * phase[keep])
    # What is left out is at most its bound; what is kept is off by its log's error.
    off = np.exp(np.minimum(bound, 0.0) + 1e-9)
    off[keep] = np.abs(phi) * np.expm1(log_error[keep])
    double = np.where((index == 0) | (2 * index == points), 1.0, 2.0)
    error = math.sqrt(float(double @ off**2) / points) + math.exp(_NEGLIGIBLE + 1)
    index = index[keep]
    turn = 2 * math.pi / points * index
    waves = (double[keep] / points).astype(complex) * phi
    for fall in (tilt * spacing, (1 + tilt) * spacing):
        real = 2 * np.sin(0.5 * turn) ** 2 - math.expm1(-fall) * np.cos(turn)
        waves /= real - 1j * math.exp(-fall) * np.sin(turn)
    offset = _total_offset(measures, terms)
    largest = max(max(abs(m.start), abs(m.start + m.mass.size)) for m in measures)
    exponent = min(tilt * largest * spacing, 800.0)
    drift = sum(
        term.steps
        * max(
            measures[i].accuracy + UNIT * (64 + 8 * exponent + 8 * abs(bases[i]))
            for i in term.measures
        )
        for term in terms
    )
    drift += 8 * UNIT * (abs(offset) + abs(start) * spacing + points * spacing)
    most = [max(measures[i].infinite for i in term.measures) for term in terms]
    infinite = sum(n.steps * each for n, each in zip(terms, most, strict=True))
    surely = 0.0
    if infinite > 1e-9:  # enough for products to be less than sums
        least = [min(measures[i].infinite for i in term.measures) for term in terms]
        infinite = min(infinite, _either(terms, most) * (1 + 2 * min(drift, 1.0)))
        surely = _either(terms, least) * (1 - 2 * min(drift, 0.5))
    return Tilted(
        tilt,
        log_moment,
        start,
        points,
        spacing,
        offset,
        index,
        waves,
        error,
        outside,
        infinite,
        surely,
        drift,
    )


def _either(terms: Sequence[Term], each: list[float]) -> float:
    """The chance that one of the steps has an infinite loss.

    What is finite of a step has at most one minus its chance.
    """
    if max(each) >= 1:
        return 1.0
    logs = [n.steps * math.log1p(-one) for n, one in zip(terms, each, strict=True)]
    return float(-math.expm1(math.fsum(logs)))


def _total_offset(measures: Sequence[GridMeasure], terms: Sequence[Term]) -> float:
    """The measures of a term have one offset."""
    return math.fsum(term.steps * measures[term.measures[0]].offset for term in terms)


def _losses(measure: GridMeasure, spacing: float) -> Floats:
    index = measure.start + np.arange(measure.mass.size, dtype=float)
    return index * spacing + measure.offset


def _tilt(measure: GridMeasure, tilt: float, spacing: float, base: float) -> Floats:
    exponent = tilt * _losses(measure, spacing) - base
    if max(abs(exponent[0]), abs(exponent[-1])) < 600:
        return measure.mass * np.exp(exponent)
    with np.errstate(divide="ignore"):
        return np.exp(np.log(measure.mass) + exponent)


def log_moment_of(measure: GridMeasure, tilt: float, spacing: float) -> float:
    """log sum p exp(tilt l)."""
    exponent = tilt * _losses(measure, spacing)
    if max(abs(exponent[0]), abs(exponent[-1])) < 600:
        return math.log(float(measure.mass @ np.exp(exponent)))
    with np.errstate(divide="ignore"):
        exponent = exponent + np.log(measure.mass)
    top = float(exponent.max())
    return top + math.log(float(np.exp(exponent - top).sum()))


def _total_log_moment(terms: Sequence[Term], logs: Floats, *, exact: bool) -> float:
    """sum_k log of the moment of step k; if not ``exact``, at least that, and faster.

    log is concave: the mean of logs is at most the log of the mean.
    """
    total = 0.0
    for term in terms:
        first = logs[term.measures[0]]
        total += term.steps * first
        if len(term.measures) == 1:
            continue
        gains = logs[list(term.measures[1:])] - first
        if exact:
            total += float(term.counts @ log_mixture(term.weights, gains))
        else:
            share = (term.counts @ term.weights) / term.steps
            total += term.steps * float(log_mixture(share, gains))
    return total


def log_mixture(weights: Floats, gains: Floats) -> Floats:
    """log(1 + weights @ (exp(gains) - 1)), whatever the size of ``gains``."""
    top = max(0.0, float(gains.max()))
    if top < 600:
        return np.log1p(weights @ np.expm1(gains))
    rest = np.maximum(1 - weights.sum(axis=-1), 0.0) * math.exp(-top)
    with np.errstate(divide="ignore"):  # what nothing has a part in
        return top + np.log(rest + weights @ np.exp(gains - top))


def _window(
    measures: Sequence[GridMeasure],
    terms: Sequence[Term],
    spacing: float,
    guess: Guess,
) -> tuple[int, int, float, Floats, float] | None:
    """First index, points, tilted mass outside, log moments: each, and in all."""

    def logs(at: float) -> Floats:
        return np.array([log_moment_of(m, at, spacing) for m in measures])

    offset = _total_offset(measures, terms)
    tilt = guess.tilt
    bases = logs(tilt)
    whole = _total_log_moment(terms, bases, exact=True)
    least = sum(t.steps * min(measures[i].start for i in t.measures) for t in terms)
    most = sum(
        t.steps * max(measures[i].start + measures[i].mass.size for i in t.measures)
        for t in terms
    )
    ends: list[float] = []
    outside = 0.0
    for sign, t in ((-1, guess.down), (1, guess.up)):
        moved = _total_log_moment(terms, logs(tilt + sign * t), exact=False)
        # Tilted mass beyond x is at most exp(moved - whole - t x).
        excess = moved - whole + 1e-12 * (abs(moved) + abs(whole)) + guess.outside
        if not math.isfinite(excess):
            return None
        end = math.ceil((excess / t - sign * offset) / spacing) + 1
        support = max(sign * least, sign * most) + 1
        if end < support:
            outside += math.exp(-guess.outside)
        ends.append(sign * min(end, support))
    start, stop = int(ends[0]), int(ends[1])
    if stop - start > MOST_POINTS:
        return None
    points = fft.next_fast_len(max(stop - start + 1, 64), real=True)
    return start, points, outside * 1.001, bases, whole


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


def _characteristic(
    measures: Sequence[GridMeasure],
    terms: Sequence[Term],
    bases: Floats,
    spacing: float,
    tilt: float,
    points: int,
) -> tuple[NDArray[np.intp], Floats, Floats, Floats, Floats]:
    """Frequencies that matter: index, phase, log size, its error, and bound.

    Normalised to size 1 at frequency 0. All others are below what is negligible.
    """
    known = _Spectra(measures, bases, spacing, tilt, points)
    for term in terms:
        known.wanted[list(term.measures)] += 1
    parts = [np.zeros(known.live.size) for _ in range(3)]
    held: list[Term] = []

    def settle() -> None:
        """Work out what is held, of the frequencies that are left."""
        for term in held:
            own = _log_of(term, [known.values[i] for i in term.measures], known)
            for part, more in zip(parts, own, strict=True):
                part += more
            parts[2] += 4 * UNIT * (np.abs(parts[0]) + np.abs(parts[1]))
            known.wanted[list(term.measures)] -= 1
        held.clear()
        known.forget()

    bound = parts[0].copy()
    # Those of the largest fall first, and most frequencies with them.
    for term in sorted(terms, key=lambda term: -term.steps):
        sizes = [np.abs(known.spectrum(i)) for i in term.measures]
        own = functools.reduce(np.maximum, sizes) + known.transform
        with np.errstate(divide="ignore"):
            bound += term.steps * np.log(np.minimum(own, 1.0))
        held.append(term)
        keep = bound > _NEGLIGIBLE
        if np.count_nonzero(keep) < 0.7 * keep.size:
            bound, parts = bound[keep], [part[keep] for part in parts]
            known.keep(keep)
        if known.size > _MOST_HELD:
            settle()
    settle()
    size, phase, error = parts
    size[np.isnan(size)] = -np.inf
    return known.live, phase, np.minimum(size, 0.0), error, bound


class _Spectra:
    """Transforms of tilted measures, at frequencies that matter."""

    def __init__(
        self,
        measures: Sequence[GridMeasure],
        bases: Floats,
        spacing: float,
        tilt: float,
        points: int,
    ) -> None:
        self._measures, self.bases = measures, bases
        self._spacing, self._tilt, self._points = spacing, tilt, points
        self.transform = transform_error(points)
        self.live = np.arange(points // 2 + 1)
        self.wanted = np.zeros(len(measures), int)  # by how many terms
        self.values: dict[int, NDArray[np.complex128]] = {}

    @property
    def size(self) -> int:
        return len(self.values) * self.live.size

    def spectrum(self, i: int) -> NDArray[np.complex128]:
        if i not in self.values:
            one = self._measures[i]
            tilted = _tilt(one, self._tilt, self._spacing, float(self.bases[i]))
            values = fft.rfft(fold(tilted, one.start, self._points))
            whole = self.live.size == values.size
            self.values[i] = values if whole else values[self.live]
        return self.values[i]

    def keep(self, some: NDArray[np.bool_]) -> None:
        self.live = self.live[some]
        self.values = {i: values[some] for i, values in self.values.items()}

    def forget(self) -> None:
        self.values = {i: v for i, v in self.values.items() if self.wanted[i]}


def _log_of(
    term: Term, spectra: list[NDArray[np.complex128]], known: _Spectra
) -> tuple[Floats, Floats, Floats]:
    """Log of a term's size, its phase, and the error of both."""
    n = term.steps
    first = spectra[0]
    modulus = np.abs(first)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slip = known.transform / modulus
        mistake = n * (slip / (1 - slip) + 32 * UNIT)
        mistake[~(slip < 0.5)] = np.inf
        size = n * np.log(modulus)
        phase = n * np.angle(first)
        if len(spectra) > 1:
            bases = known.bases
            heads = np.exp(bases[list(term.measures)] - bases[term.measures[0]])
            extra, more = log_ratio(term, spectra, heads, known.transform)
            size += extra.real
            phase += extra.imag
            mistake += more
    return size, phase, mistake
