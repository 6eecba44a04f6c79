"""Composition of grid measures by one Fourier transform, with all that it gets wrong.

The measures are tilted, p(l) exp(tilt l) / M, before they are transformed, so that the
part of the distribution that delta depends on is its bulk: rounding errors are then
relative to delta, however small that is. Every error is bounded and carried along:
rounding of transforms and logarithms per frequency, the series of the grouped steps,
and mass that leaves the window.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from privaudit.accounting.pld.cells import UNIT, Floats
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.scout import log_peak

_NEGLIGIBLE = -80.0  # log of a size of the characteristic function that is left out
_WINDOW = 18.0  # minus log of the tilted mass allowed outside the window, per side
MOST_POINTS = 1 << 21


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """Steps that are mixtures of the same few measures.

    Step k is measures[0] (1 - sum of weights[k]) + sum_m weights[k, m] measures[m + 1],
    taken counts[k] times. Weights are >= 0 with sums at most 1.
    """

    measures: tuple[GridMeasure, ...]
    weights: Floats  # (steps, measures - 1)
    counts: Floats  # (steps,)


@dataclasses.dataclass(frozen=True, slots=True)
class Tilted:
    """The composed loss under a tilt, on a window of the grid.

    delta(eps) = exp(log_moment - tilt eps) sum_s f(s) g(s - eps) with g(x) =
    exp(-tilt x) (1 - exp(-x))+, up to the errors here.

    Parameters
    ----------
    losses, mass
        The window's grid points s and f.
    error
        Bound on the Euclidean norm of the error of ``mass``.
    outside
        Bound on the tilted mass outside the window.
    infinite
        Mass at infinite loss.
    drift
        Sum over the steps of the relative error of the measures.
    """

    tilt: float
    log_moment: float
    losses: Floats
    mass: Floats
    error: float
    outside: float
    infinite: float
    drift: float

    def _sum(self, epsilon: float) -> tuple[float, float]:
        """sum f g and the bound on its error."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        x = self.losses[first:] - epsilon
        if x.size and self.tilt * x[-1] > 745:
            x = x[: int(np.searchsorted(x, 745 / self.tilt))]
        g = np.exp(-self.tilt * x) * -np.expm1(-x)
        value = float(self.mass[first : first + x.size] @ g)
        # Rounding of s - eps, of the exponential and of the sum.
        rounding = 1e-13 * float(np.abs(self.mass[first : first + x.size]) @ g)
        norm = math.sqrt(float(g @ g))
        off = self.error * norm + self.outside * math.exp(log_peak(self.tilt))
        return value, off + rounding + 1e-300

    def _scale(self, epsilon: float) -> tuple[float, float]:
        exponent = self.log_moment - self.tilt * epsilon
        wobble = self.drift + 64 * UNIT * (
            abs(self.log_moment) + self.tilt * abs(epsilon) + 1
        )
        return exponent, wobble

    def delta_above(self, epsilon: float) -> float:
        """At least delta of the measures composed, and of all that they dominate."""
        epsilon = epsilon - self.drift - 8 * UNIT * abs(epsilon)
        value, off = self._sum(epsilon)
        exponent, wobble = self._scale(epsilon)
        log_delta = exponent + wobble + math.log(max(value, 0.0) + off)
        if log_delta > 0:
            return 1.0
        return min(1.0, (self.infinite + math.exp(log_delta)) * (1 + 1e-14))

    def delta_below(self, epsilon: float) -> float:
        """At most delta of the measures composed, and of all that dominate them."""
        epsilon = epsilon + self.drift + 8 * UNIT * abs(epsilon)
        value, off = self._sum(epsilon)
        if not value > off:
            return 0.0
        exponent, wobble = self._scale(epsilon)
        return math.exp(min(0.0, exponent - wobble + math.log(value - off))) * (
            1 - 1e-14
        )


def compose(
    terms: Sequence[Term], spacing: float, tilt: float, deviation: float
) -> Tilted | None:
    """The composition of ``terms``; None if the window needs too many points."""
    bases = [_log_moment(term.measures[0], tilt, spacing) for term in terms]
    window = _window(terms, bases, spacing, tilt, deviation)
    if window is None:
        return None
    start, points, outside, log_moment = window
    log_phi, log_size, log_error, bound = _characteristic(
        terms, bases, spacing, tilt, points
    )
    keep = np.flatnonzero((log_size > _NEGLIGIBLE) & (log_error < 0.1))
    phi = np.zeros(points // 2 + 1, complex)
    phi[keep] = np.exp(log_size[keep] + 1j * log_phi[keep])
    # What is left out is at most its bound; what is kept is off by its log's error.
    off = np.exp(np.minimum(bound, 0.0) + 1e-9)
    off[keep] = np.abs(phi[keep]) * np.expm1(log_error[keep])
    double = np.full(off.size, 2.0)
    double[0] = 1.0
    if points % 2 == 0:
        double[-1] = 1.0
    size = math.sqrt(float(double @ np.abs(phi) ** 2) / points)
    error = math.sqrt(float(double @ off**2) / points)
    error += _transform_error(points) * size
    mass = fft.irfft(phi, points)
    mass = np.roll(mass, -(start % points))
    losses = (start + np.arange(points)) * spacing
    steps = [float(term.counts.sum()) for term in terms]
    infinite = sum(
        n * max(m.infinite for m in term.measures)
        for n, term in zip(steps, terms, strict=True)
    )
    largest = max(
        max(abs(m.start), abs(m.start + m.mass.size)) * spacing
        for term in terms
        for m in term.measures
    )
    drift = sum(
        n
        * (
            max(m.accuracy for m in term.measures)
            + UNIT * (64 + 8 * min(tilt * largest, 800.0) + 8 * abs(base))
        )
        for n, term, base in zip(steps, terms, bases, strict=True)
    )
    return Tilted(
        tilt, log_moment, losses, mass, error, outside, infinite, drift
    )


def _losses(measure: GridMeasure, spacing: float) -> Floats:
    return (measure.start + np.arange(measure.mass.size)) * spacing


def _tilt(measure: GridMeasure, tilt: float, spacing: float, base: float) -> Floats:
    exponent = tilt * _losses(measure, spacing) - base
    if max(abs(exponent[0]), abs(exponent[-1])) < 600:
        return measure.mass * np.exp(exponent)
    with np.errstate(divide="ignore"):
        return np.exp(np.log(measure.mass) + exponent)


def _log_moment(measure: GridMeasure, tilt: float, spacing: float) -> float:
    exponent = tilt * _losses(measure, spacing)
    if max(abs(exponent[0]), abs(exponent[-1])) < 600:
        return math.log(float(measure.mass @ np.exp(exponent)))
    with np.errstate(divide="ignore"):
        exponent = exponent + np.log(measure.mass)
    top = float(exponent.max())
    return top + math.log(float(np.exp(exponent - top).sum()))


def _mean_log_moments(
    term: Term, tilt: float, spacing: float, base: float
) -> float:
    """At least sum_k counts[k] (log of the tilted mass of step k), over ``base``.

    log is concave: the mean of the logs is at most the log of the mean.
    """
    steps = float(term.counts.sum())
    share = (term.counts @ term.weights) / steps
    logs = [_log_moment(m, tilt, spacing) - base for m in term.measures]
    parts = np.concatenate([[max(0.0, 1 - float(share.sum()))], share])
    top = max(logs)
    return steps * (
        top + math.log(float(parts @ np.exp(np.array(logs) - top))) + 1e-15
    )


def _window(
    terms: Sequence[Term],
    bases: list[float],
    spacing: float,
    tilt: float,
    deviation: float,
) -> tuple[int, int, float, float] | None:
    """First index, number of points, tilted mass outside, log of the whole moment."""
    steps = np.array([float(term.counts.sum()) for term in terms])
    whole = float(steps @ np.array(bases))
    relative = 0.0  # log of the tilted mass relative to the bases
    for term, base in zip(terms, bases, strict=True):
        if len(term.measures) > 1:
            masses = np.array(
                [
                    math.expm1(_log_moment(m, tilt, spacing) - base)
                    for m in term.measures[1:]
                ]
            )
            relative += float(term.counts @ np.log1p(term.weights @ masses))
    least = sum(
        n * min(m.start for m in t.measures) for n, t in zip(steps, terms, strict=True)
    )
    most = sum(
        n * max(m.start + m.mass.size - 1 for m in t.measures)
        for n, t in zip(steps, terms, strict=True)
    )
    ends: list[float] = []
    outside = 0.0
    for sign in (-1, 1):
        best, mass = (least, 0.0) if sign < 0 else (most, 0.0)
        best = sign * best + 1
        for strength in (3.0, 5.5):
            t = sign * strength / deviation
            log_ratio = -relative + sum(
                _mean_log_moments(term, tilt + t, spacing, base)
                for term, base in zip(terms, bases, strict=True)
            )
            # Tilted mass beyond x is at most exp(log_ratio - t x).
            end = math.ceil((log_ratio + _WINDOW) / abs(t) / spacing) + 1
            if end < best:
                best, mass = end, math.exp(-_WINDOW)
        ends.append(sign * best)
        outside += mass
    start, stop = int(ends[0]), int(ends[1])
    points = fft.next_fast_len(max(stop - start + 1, 64), real=True)
    if points > MOST_POINTS:
        return None
    return start, points, outside * 1.001, whole + relative


def _transform_error(points: int) -> float:
    """Bound on a transform's relative error: see "Rounding" in ``pld.md``."""
    return 24 * UNIT * (math.log2(points) + 2)


def _fold(mass: Floats, start: int, points: int) -> Floats:
    """``mass`` at its indices modulo ``points``."""
    begin = start % points
    turns = -(-(begin + mass.size) // points)
    padded = np.zeros(turns * points)
    padded[begin : begin + mass.size] = mass
    return padded.reshape(turns, points).sum(axis=0) if turns > 1 else padded


def _characteristic(
    terms: Sequence[Term],
    bases: list[float],
    spacing: float,
    tilt: float,
    points: int,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Phase, log size, error of the log, and bound on the log size, a frequency.

    Normalised to size 1 at frequency 0.
    """
    total = points // 2 + 1
    phase, size = np.zeros(total), np.zeros(total)
    error, bound = np.zeros(total), np.zeros(total)
    live = np.arange(total)  # frequencies that still matter
    transform = _transform_error(points)
    cache: dict[int, NDArray[np.complex128]] = {}
    order = sorted(range(len(terms)), key=lambda i: -terms[i].counts.sum())
    for i in order:
        term, base = terms[i], bases[i]
        n = float(term.counts.sum())
        spectra = []
        for measure in term.measures:
            spectrum = cache.get(id(measure))
            if spectrum is None:
                tilted = _tilt(measure, tilt, spacing, base)
                spectrum = fft.rfft(_fold(tilted, measure.start, points))
            spectra.append(spectrum)
        heads = [float(s[0].real) for s in spectra]
        spectra = [s[live] for s in spectra]
        first = spectra[0]
        modulus = np.abs(first)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            own = np.maximum.reduce(
                [np.abs(s) / h for s, h in zip(spectra, heads, strict=True)]
            )
            bound[live] += n * np.log(np.minimum(own + transform, 1.0))
            slip = transform * heads[0] / modulus
            size[live] += n * np.log(modulus / heads[0])
            angle = np.angle(first)
            phase[live] += n * angle
            error[live] += n * (slip / (1 - np.minimum(slip, 0.5)) + 32 * UNIT)
            error[live][slip > 0.5] = np.inf
            if len(spectra) > 1:
                change, mistake = _series(term, spectra, heads, transform)
                size[live] += change.real
                phase[live] += change.imag
                error[live] += mistake
        live = live[bound[live] > _NEGLIGIBLE]
    dead = np.ones(total, bool)
    dead[live] = False
    size[dead] = -np.inf
    return phase, np.minimum(size, 0.0), error, bound


def _series(
    term: Term,
    spectra: list[NDArray[np.complex128]],
    heads: list[float],
    transform: float,
) -> tuple[NDArray[np.complex128], Floats]:
    """sum_k n_k log(1 + w_k . r), r_m = F_m / F_0 - 1, over its value at frequency 0.

    log(1 + z) is its series up to z^d, in moments of the weights; the remainder is at
    most |z|^(d + 1) / ((d + 1) (1 - |z|)) a step.
    """
    steps = float(term.counts.sum())
    first = spectra[0]
    ratios = [s / first - 1 for s in spectra[1:]]
    largest = np.maximum.reduce([np.abs(r) for r in ratios])
    most = float(term.weights.sum(axis=1).max())
    z = largest * most
    good = z < 0.5
    reach = float(z[good].max()) if good.any() else 0.0
    limit = 40 if len(ratios) == 1 else (10 if len(ratios) == 2 else 7)
    degree = 1
    while degree < limit and steps * reach ** (degree + 1) > 1e-12:
        degree += 1
    result = np.zeros(first.size, complex)
    if len(ratios) == 1:
        weight = term.weights[:, 0]
        moments = [float(term.counts @ weight**d) for d in range(1, degree + 1)]
        for d in range(degree, 0, -1):
            sign = 1 if d % 2 else -1
            result += sign * moments[d - 1] / d
            result *= ratios[0]
    else:
        for d in range(1, degree + 1):
            sign = 1 if d % 2 else -1
            for powers in _powers(len(ratios), d):
                coefficient = sign / d * _multinomial(powers)
                moment = term.counts.copy()
                product = None
                for m, power in enumerate(powers):
                    if power:
                        moment *= term.weights[:, m] ** power
                        factor = ratios[m] ** power if power > 1 else ratios[m]
                        product = factor if product is None else product * factor
                result += coefficient * float(moment.sum()) * product
    scale = np.array([h / heads[0] - 1 for h in heads[1:]])
    result -= float(term.counts @ np.log1p(term.weights @ scale))
    z = np.minimum(z, 0.999)
    remainder = steps * z ** (degree + 1) / ((degree + 1) * (1 - z))
    # Errors of the ratios, at most 4 transform / |F_0| each, and of the sums.
    slip = 4 * transform * max(heads) / np.abs(first)
    rounding = steps * (slip + 64 * UNIT * z) / (1 - z)
    return result, np.where(good, remainder + rounding, np.inf)


def _powers(variables: int, degree: int):
    for cut in itertools.combinations_with_replacement(range(variables), degree):
        yield tuple(cut.count(v) for v in range(variables))


def _multinomial(powers: tuple[int, ...]) -> int:
    result = math.factorial(sum(powers))
    for power in powers:
        result //= math.factorial(power)
    return result
