"""The privacy profile of sampled Gaussians by inverting its Mellin transform.

delta(epsilon) is an integral over a line of exp(K(tau) - tau epsilon) / (tau (1 +
tau)), where K(tau) = log E_P[exp(tau L)] is a sum over the steps (`moments`). The
trapezoidal rule on that line adds copies of the profile far away, which are >= 0; so
the sum is a bound from above, and less what the copies can be it is one from below. No
grid of losses enters: both sides agree to many digits, whatever the number of steps.
The proofs are in ``inversion.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.grouping import Family
from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass
from privaudit.accounting.pld.moments import (
    Complexes,
    TooHard,
    log_moments,
    most_log_moment,
)
from privaudit.accounting.pld.scout import Guess, Scout, log_peak

_LEAST_STEPS = 100  # fewer keep |exp(K)| from falling
_MOST_FREQUENCIES = 4000
_FURTHER = np.array([0.05, 0.1, 0.2, 0.5, 1.0])  # tilts, over the guessed change
_APART = np.arange(0.6, 4.3, 0.3)  # widths of intervals of outputs
_LEFTS = np.arange(-3.0, 3.1, 0.5)
_REACHES = math.pi / (
    3.0 * np.float64(1.5) ** np.arange(14)
)  # over a deviation, for `_Decay`
_AT_ONCE = 512  # kinds of steps whose arrays fit a cache
_OUTPUTS, _FIRST = 24, (0, 6)  # cells of outputs, and where intervals begin
_MOST_SPREAD = 20_000  # different steps, beyond which it takes too long
_SINC = 0.4547  # at least |sin(u) / u| from u = 2 on


@dataclasses.dataclass(frozen=True, slots=True)
class Inverted:
    """Bounds on delta at every epsilon; see `invert`.

    Parameters
    ----------
    tilt, log_moment
        The real part t of the line, and K(t).
    frequency, terms, wrong
        The points of the line, exp(K(tau) - K(t)) / (tau (1 + tau)) times the spacing,
        and bounds on the errors of those.
    rest
        Bound on what all further points add.
    period
        How far the copies are apart.
    slip
        Bound on the error of ``log_moment``.
    near
        Tilts less and more than t, with upper bounds on K there.
    """

    tilt: float
    log_moment: float
    frequency: Floats
    terms: Complexes
    wrong: float
    rest: float
    period: float
    slip: float
    near: tuple[tuple[float, float], ...]

    @property
    def surely_infinite(self) -> float:
        return 0.0

    def _sum(self, epsilon: float) -> tuple[float, float]:
        turn = np.exp(-1j * self.frequency * epsilon)
        value = float((self.terms * turn).real.sum())
        far = 64 + self.terms.size + 8 * float(self.frequency[-1]) * abs(epsilon)
        rounding = UNIT * far * float(np.abs(self.terms).sum())
        return value, self.wrong + self.rest + rounding

    def _scale(self, epsilon: float) -> tuple[float, float]:
        exponent = self.log_moment - self.tilt * epsilon
        size = abs(self.log_moment) + self.tilt * abs(epsilon) + 1
        return exponent, self.slip + 64 * UNIT * size

    def delta_above(self, epsilon: float) -> float:
        """At least delta."""
        value, off = self._sum(epsilon)
        exponent, slip = self._scale(epsilon)
        log_delta = exponent + slip + math.log(max(value, 0.0) + off + 1e-300)
        return min(1.0, math.exp(min(log_delta, 0.0)) * (1 + 1e-14) + 1e-300)

    def delta_below(self, epsilon: float) -> float:
        """At most delta."""
        value, off = self._sum(epsilon)
        exponent, slip = self._scale(epsilon)
        # A copy n periods up is at most exp(n step); all of them, a geometric series.
        copies = 0.0
        for tilt, moment in self.near:
            apart = abs(tilt - self.tilt) * self.period
            away = (self.tilt - tilt) * epsilon
            size = moment - self.log_moment + away + log_peak(tilt) - apart + 2 * slip
            copies += math.exp(min(size, 600.0)) / -math.expm1(-apart)
        if not value > (off + copies) * (1 + 1e-12):
            return 0.0
        least = exponent - slip + math.log(value - (off + copies) * (1 + 1e-12))
        return math.exp(min(least, 0.0)) * (1 - 1e-14)


@dataclasses.dataclass(frozen=True, slots=True)
class Chernoff:
    """Bound on delta from one moment: exp(K(tilt) - tilt epsilon) times a constant."""

    tilt: float
    log_moment: float

    @classmethod
    def of(
        cls, families: tuple[Family, ...], way: Direction, tilt: float
    ) -> Chernoff | None:
        """None if the moment is not to be had."""
        try:
            with np.errstate(all="ignore"):  # what is not finite is refused
                found = _most(families, way, tilt)
        except (TooHard, OverflowError):
            return None
        return cls(tilt, found) if math.isfinite(found) else None

    @property
    def surely_infinite(self) -> float:
        return 0.0

    def delta_above(self, epsilon: float) -> float:
        """At least delta."""
        size = 1 + abs(self.log_moment) + self.tilt * abs(epsilon)
        log_delta = self.log_moment - self.tilt * epsilon + log_peak(self.tilt)
        return math.exp(min(log_delta + 64 * UNIT * size, 0.0))


def invert(
    families: tuple[Family, ...],
    way: Direction,
    scout: Scout,
    guess: Guess,
    aim: float,
) -> Inverted | None:
    """Bounds on the profile near ``guess``, relatively ``aim`` apart if all goes well.

    None if there are too few steps, other noise than Gaussian, or it is too much work.
    """
    if sum(family.steps for family in families) < _LEAST_STEPS:
        return None
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused
            return _invert(families, way, scout, guess, aim)
    except (TooHard, OverflowError):
        return None


def _order(tau: Any, way: Direction) -> Any:
    """The s with E_P[exp(tau L)] = E_Q[r^s]."""
    return 1 + tau if way == "remove" else -tau


def _invert(
    families: tuple[Family, ...],
    way: Direction,
    scout: Scout,
    guess: Guess,
    aim: float,
) -> Inverted:
    tilt = guess.tilt
    decay = _Decay.of(families, _order(tilt, way), guess.deviation)
    width = max(tilt * (1 + tilt) * guess.deviation * math.sqrt(2 * math.pi), 1.0)
    # Copies so far away that they are that small beside delta.
    near, period = [], 0.0
    here = scout.log_moment(tilt)
    for others in ((0.0, 0.5 * tilt, tilt - guess.down), tilt + guess.up * _FURTHER):

        def apart(other: float, moment: float) -> float:
            size = moment - here + (tilt - other) * guess.epsilon + log_peak(other)
            return (size + math.log(8 * width / aim) + 1) / abs(other - tilt)

        # The scout does not see far tails: where they count, nearer ones are left.
        tries = sorted(
            (other for other in others if other >= 0 and other != tilt),
            key=lambda other: apart(other, scout.log_moment(other)),
        )
        near.append(_first(families, way, tries))
        period = max(period, apart(*near[-1]))
    if not 0 < period < math.inf:  # a poor guess
        raise TooHard
    # Of few digits, so that its multiples are exact.
    mantissa, power = math.frexp(2 * math.pi / period)
    spacing = math.ldexp(math.floor(mantissa * 2.0**20), power - 20)
    # As far as what is beyond is that small beside delta.
    wanted = math.log(aim / 4) - math.log(width) + math.log(math.pi)
    count = 8
    while decay.log(count * spacing) - math.log(count * spacing) > wanted:
        count = math.ceil(count * 1.2)
        if count > _MOST_FREQUENCIES:
            raise TooHard
    frequency = np.arange(count + 1, dtype=np.float64) * spacing
    tau = tilt + 1j * frequency
    room = np.minimum(-np.array([decay.log(w) for w in frequency.tolist()]), 30.0)
    size = 1 / np.abs(tau * (1 + tau))
    share = size[0] * np.exp(room) / (size * (1 + room))
    hoped = np.minimum(aim / 8 * share, 0.02)
    moments = np.zeros(tau.shape, complex)
    errors = np.zeros(tau.shape)
    for family in families:
        if (family.rate == 1).all():  # N(m), which is exact
            some = float(family.count @ family.shift**2) * 0.5 * tau * (1 + tau)
            moments += some
            errors += 16 * UNIT * np.abs(some)
            continue
        value, error = log_moments(family, _order(tau, way), hoped)
        moments += value
        errors += error
    errors += 8 * UNIT * np.abs(moments)
    base = float(moments[0].real)
    line = moments - base
    scale = np.full(count + 1, spacing / math.pi)
    scale[0] /= 2
    with np.errstate(over="ignore"):
        terms = scale * np.exp(line) / (tau * (1 + tau))
        wrong = np.abs(terms) * np.expm1(errors)
    if not np.isfinite(wrong).all():
        raise TooHard
    last = decay.log(count * spacing) + float(errors[0])
    rest = math.exp(last) / (math.pi * count * spacing)
    return Inverted(
        tilt,
        base,
        frequency,
        terms,
        float(wrong.sum()) * (1 + 1e-9),
        rest * (1 + 1e-9),
        period,
        float(errors[0]),
        tuple(near),
    )


def _first(
    families: tuple[Family, ...], way: Direction, tries: list[float]
) -> tuple[float, float]:
    """The first tilt whose moment can be bounded, and the bound."""
    for tilt in tries:
        try:
            return tilt, _most(families, way, tilt)
        except TooHard:
            continue
    raise TooHard


def _most(families: tuple[Family, ...], way: Direction, tilt: float) -> float:
    """At least K at a real tilt >= 0."""
    if not tilt:
        return 0.0
    total = 0.0
    for family in families:
        if (family.rate == 1).all():
            total += float(family.count @ family.shift**2) * 0.5 * tilt * (1 + tilt)
        else:
            order = 1 + tilt if way == "remove" else -tilt
            total += most_log_moment(family, order)
    return total * (1 + 1e-12)


@dataclasses.dataclass(frozen=True)
class _Decay:
    """How fast |exp(K)| falls along the line: at least, and for all frequencies beyond.

    In an interval of outputs the loss has a density of at least w; as long as it is
    D, that is a part w D of it which is uniform, and |E exp(i omega L)| <= 1 - w D (1 -
    |sin(u) / u|), u = omega D / 2. And where losses l are in an interval whose length
    is D < pi / omega, |E exp(i omega L)|^2 <= 1 - E (l - l')^2 2 sin(u)^2 / D^2.

    Parameters
    ----------
    lengths, weights
        D, and the sum of w D over the steps whose D is at least that: of one choice of
        intervals a row.
    square
        Sum of the squares of the unsampled shifts.
    reaches, spreads
        D, falling, and the sum over the steps of at least that E (l - l')^2, of two
        losses that are both in the interval.
    """

    lengths: Floats
    weights: Floats
    square: float
    reaches: Floats
    spreads: Floats

    @classmethod
    def of(cls, families: tuple[Family, ...], order: float, deviation: float) -> _Decay:
        """``deviation``: of the sum of all losses, about."""
        square, lengths, weights = 0.0, [], []
        reaches = deviation * _REACHES
        spreads = np.zeros(reaches.shape)
        for family in families:
            if family.noise != "gaussian" or family.scheme != "poisson":
                raise TooHard
            if (family.rate == 1).all():
                square += float(family.count @ family.shift**2) * (1 - 1e-12)
                continue
            most = _most_moment(family, order)
            length, weight = _uniform_parts(family, order, most)
            lengths.append(length)
            weights.append(weight)
            if family.shift.size <= _MOST_SPREAD:
                spreads += _spreads(family, order, reaches) / most**2
        if not lengths:
            lengths = weights = [np.zeros((1, 1))]
        return cls(
            np.concatenate(lengths, axis=1),
            np.concatenate(weights, axis=1),
            square,
            reaches,
            spreads,
        )

    def log(self, frequency: float) -> float:
        """log of the bound from ``frequency`` on."""
        # All that is gained grows up to an end, where the others have to do.
        ends, gains = self._ends
        least = min([self._gain(frequency), *gains[ends > frequency].tolist()])
        return -least - 0.5 * self.square * frequency**2

    @functools.cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        ends = (1 - 1e-9) * math.pi / self.reaches
        return ends, np.array([self._gain(end) for end in ends.tolist()])

    def _gain(self, frequency: float) -> float:
        """Minus the log of the bound, of what grows from ``frequency`` on."""
        angle = self.reaches * frequency
        near = angle < (1 - 2e-9) * math.pi
        turn = np.sin(0.5 * angle[near]) / self.reaches[near]
        spread = float((turn**2 * self.spreads[near]).max(initial=0.0))
        return max(spread * (1 - 1e-8), self._uniform(frequency))

    def _uniform(self, frequency: float) -> float:
        u = 0.5 * frequency * self.lengths
        # At most 1 - sin(u) / u; by its series where that would have no digits.
        small = u * u / 6 * (1 - u * u / 20)
        some = np.clip(u, 0.1, 2.0)
        fall = np.where(u < 2, 1 - np.sin(some) / some, 1 - _SINC)
        fall = np.where(u < 0.1, small, fall)
        return float((self.weights * fall * (1 - 1e-9)).sum(axis=1).max())


def _most_moment(family: Family, order: float) -> float:
    """At least psi(order) of any step: that of the largest shift and rate."""
    top = Family.of(
        "gaussian",
        "poisson",
        np.array([family.shift.max()]),
        np.array([family.rate.max()]),
        np.ones(1),
    )
    moment, error = log_moments(top, np.array([order + 0j]), np.array([1e-3]))
    return math.exp(float(moment[0].real + error[0]))


def _spreads(family: Family, order: float, reaches: Floats) -> Floats:
    """For `_Decay`, times the square of psi, by ``reaches``."""
    starts = range(0, family.shift.size, _AT_ONCE)
    parts = [slice(start, start + _AT_ONCE) for start in starts]
    each = [_spreads_of(family, part, order, reaches) for part in parts]
    return np.sum(each, axis=0) * (1 - 1e-8)


def _spreads_of(family: Family, rows: slice, order: float, reaches: Floats) -> Floats:
    far = 4.0 + max(order, 0.0) * float(family.shift.max())
    edges = np.linspace(-3.5, far, _OUTPUTS + 1)
    normal = np.exp(log_normal_mass(edges[:-1], edges[1:]))
    # The mean of a normal output in a cell, and how far it is from the lower end.
    density = np.exp(-0.5 * edges**2) / math.sqrt(2 * math.pi)
    mean = np.clip(-np.diff(density) / normal, edges[:-1], edges[1:])
    share = (mean - edges[:-1]) / np.diff(edges)
    m, q = family.shift[rows, None], family.rate[rows, None]
    ends, low = (np.log1p(q * np.expm1(m * (x - 0.5 * m))) for x in (edges, mean))
    high = ends[:, :-1] + share * np.diff(ends, axis=1)
    mass = normal * np.exp(order * (ends[:, :-1] if order > 0 else ends[:, 1:]))
    best = np.zeros((len(m), reaches.size))
    for first in _FIRST:
        start, part = ends[:, first, None], mass[:, first:]
        left, right = low[:, first:] - start, high[:, first:] - start
        # Of l in a cell and l' in one below, whose means are at least that far apart.
        moved = part * right
        below = [
            np.cumsum(each, axis=1) - each for each in (part, moved, moved * right)
        ]
        square = left * (left * below[0] - 2 * below[1]) + below[2]
        total = 2 * np.cumsum(part * np.maximum(square, 0.0), axis=1)
        inside = (ends[:, first + 1 :] - start)[:, :, None] <= reaches
        last = inside.sum(axis=1)
        # What is that small beside the losses would be their rounding.
        size = np.maximum(np.abs(start), np.abs(ends[:, first + 1 :]))
        size = size * np.maximum(part.sum(axis=1, keepdims=True), 1.0)
        total = np.where(total > 1e-12 * size**2, total, 0.0)
        total = np.concatenate([np.zeros_like(start), total], axis=1)
        best = np.maximum(best, np.take_along_axis(total, last, axis=1))
    return family.count[rows] @ best


def _uniform_parts(family: Family, order: float, most: float) -> tuple[Floats, Floats]:
    """Lengths (rows: choices; columns: bins of steps) and weights for `_Decay`."""
    middle = family.shift.size // 2
    m, q = family.shift[middle], family.rate[middle]
    left, wide = (a.ravel() for a in np.meshgrid(_LEFTS, _APART))
    long, dense = _part(m, q, left, left + wide, order)
    chosen = {int(np.argmax(dense * long ** (1 + power))) for power in (2.0, 1.0, 0.0)}
    lengths, weights = [], []
    for i in sorted(chosen):
        long, dense = _part(
            family.shift, family.rate, left[i], left[i] + wide[i], order
        )
        part = np.minimum(long * dense / most, 1.0) * family.count
        # Bins of lengths, each as long as its shortest.
        low = float(long.min())
        if not low > 0:
            raise TooHard
        index = np.floor(np.log2(long / low) * 8 + 1e-9).astype(np.int64)
        index = np.minimum(index, 63)
        lengths.append(low * 2 ** (np.arange(64) / 8.0 - 1e-6))
        weights.append(np.bincount(index, weights=part, minlength=64))
    while len(lengths) < 3:
        lengths.append(lengths[0])
        weights.append(weights[0])
    return np.stack(lengths), np.stack(weights)


def _part(m: Any, q: Any, left: Any, right: Any, order: float) -> tuple[Floats, Floats]:
    """Length of the losses between two outputs, and their least density times psi."""
    log_ratio = m * left - 0.5 * m * m
    loss = [np.log1p(q * np.expm1(m * x - 0.5 * m * m)) for x in (left, right)]
    # Not as a difference of losses, which may be equal but for rounding.
    length = np.log1p(q * np.exp(log_ratio - loss[0]) * np.expm1(m * (right - left)))
    # phi(x) exp(-g) r^(order + 1) / (q m): log-concave times monotone.
    normal = [-0.5 * x * x - m * x + 0.5 * m * m for x in (left, right)]
    least = np.minimum(*normal) + np.minimum(*((order + 1) * one for one in loss))
    dense = np.exp(least) / (math.sqrt(2 * math.pi) * q * m) * (1 - 1e-9)
    return length * (1 - 1e-9), dense
