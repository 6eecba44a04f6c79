"""Gaussian noise on a sum, unsampled or Poisson sampled: (1 - q) N(0) + q N(m) by N(0).

m is the sensitivity over the noise's deviation, q the rate; masses of cells of the loss
are those of intervals, since it grows with the output.

*Dominates.* Let an event have probability p(t) when the output's centre has moved by t
times the sensitivity, in any direction of any number of coordinates. Then |dp/dt| <= m
phi(Phi^-1(p)), for half-spaces with equality (isoperimetry: on the line, and in many
coordinates by conditioning on all but one and Jensen, phi(Phi^-1) being concave). So a
half-line has the largest p(1) for its p(0): N(m) against N(0) dominates all smaller
shifts, also if they depend on the others' records. Sampled, it does so by H_a = q
H_{(a - 1 + q) / q}, for ``add`` reversed. One record at the norm bound and others whose
sum is 0 attain it.

*A record replaced, Poisson sampled.* (1 - q) N(0) + q N(m) against (1 - q) N(0) + q
N(-m): by the same rates a half-line is best against N(0) and N(-m) at once; ``pld.md``
has all of it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from privaudit.accounting.pld.cells import (
    Cells,
    Direction,
    Outputs,
    Step,
    accuracy_of,
    grid_span,
    half_grid,
    mix,
)
from privaudit.accounting.pld.dots import GridMeasure, measure_above, measure_below
from privaudit.accounting.pld.line import (
    Floats,
    log_normal_mass,
    sampled_loss,
    unsampled_loss,
)
from privaudit.accounting.pld.mechanisms.loss import (
    MOST_CELLS,
    Loss,
    sampled_divergence,
)

_PARTS = 128


def total_variation(shift: float) -> float:
    """Total variation of N(shift) and N(0): 2 Phi(shift / 2) - 1."""
    return math.erf(shift / math.sqrt(8))


def outputs(
    step: Step, spacing: float, reach: float, limit: int, offset: float
) -> Outputs:
    """Masses on a grid that ends where Phi(-reach) is left; see `loss_cells`."""
    shift, rate = step.shift, step.rate
    low = sampled_loss(shift * (-reach - shift / 2), rate)
    high = sampled_loss(shift * (reach + shift / 2), rate)
    start, stop = grid_span(low - offset, high - offset, spacing, limit)
    points = half_grid(start, stop, spacing) + offset
    x = unsampled_loss(points, rate) / shift + shift / 2
    log_a = log_normal_mass(x[:-1], x[1:])
    log_b = mix(rate, log_a, log_normal_mass(x[:-1], x[1:], shift))
    ends = np.array([x[0], -x[-1]])
    tail_a = special.log_ndtr(ends)
    tail_b = mix(rate, tail_a, special.log_ndtr(ends + np.array([-shift, shift])))
    return Outputs(
        start,
        log_a,
        log_b,
        (float(tail_a[0]), float(tail_b[0])),
        (float(tail_a[1]), float(tail_b[1])),
        accuracy_of(x, shift),
        x[::2],
        offset,
        None if offset == 0 else _split(x[-2 * start], x[-2 * start + 2], shift, rate),
    )


def _split(
    left: float, right: float, shift: float, rate: float
) -> tuple[Floats, Floats]:
    x = np.linspace(left, right, _PARTS + 1)
    log_a = log_normal_mass(x[:-1], x[1:])
    return log_a, mix(rate, log_a, log_normal_mass(x[:-1], x[1:], shift))


def opposed(step: Step, spacing: float, reach: float, limit: int) -> Cells:
    """(1 - q) N(0) + q N(m) against (1 - q) N(0) + q N(-m), m the shift.

    The loss at x is y where m x = y/2 + asinh((1 - q) sinh(y/2) exp(m^2/2) / q): set
    exp(m x) = w in the ratio of the densities and solve the quadratic in w.
    """
    shift, rate = step.shift, step.rate
    far = shift + reach
    gain = (1 - rate) / rate
    tilt = shift * far - shift * shift / 2
    high = sampled_loss(tilt, rate) - sampled_loss(-tilt - shift * shift, rate)
    stop = min(math.ceil(high / spacing), limit // 2) + 1
    y = half_grid(0, stop, spacing)
    if rate == 1:
        positive = y / (2 * shift)
    else:
        with np.errstate(over="ignore"):
            # asinh(z) = log(2 z) beyond exp(30), to the last place.
            log_z = _log_sinh(y / 2) + math.log(gain) + shift**2 / 2
            arc = np.where(
                log_z > 30,
                log_z + math.log(2),
                np.arcsinh(np.exp(np.minimum(log_z, 30))),
            )
        positive = (y / 2 + arc) / shift
    x = np.concatenate([-positive[:0:-1], positive])
    base = log_normal_mass(x[:-1], x[1:])
    log_p = mix(rate, base, log_normal_mass(x[:-1], x[1:], shift))
    log_q = log_p[::-1]
    end = np.array([-x[-1]])
    above_p = float(mix(rate, special.log_ndtr(end), special.log_ndtr(end + shift))[0])
    above_q = float(mix(rate, special.log_ndtr(end), special.log_ndtr(end - shift))[0])
    return Cells(
        -stop,
        log_p,
        log_q,
        (above_q, above_p),
        (above_p, above_q),
        0.0,
        4 * accuracy_of(x, shift),
        None,
    )


def _log_sinh(y: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return y + np.log(-0.5 * np.expm1(-2 * y))


class Gaussian(Loss):
    """N(shift) against N(0), sampled: as the account of Gaussian steps has it."""

    def __init__(self, shift: float, rate: float) -> None:
        self.step = Step("gaussian", "poisson", shift, rate)

    @property
    def symmetric(self) -> bool:  # pyrefly: ignore[bad-override]
        """True if both directions are the same pair."""
        return self.step.rate == 1

    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        """See `Loss`."""
        return measure_above(self._cells(way, spacing, reach), spacing)

    def below(self, way: Direction, spacing: float, reach: float) -> GridMeasure | None:
        """See `Loss`."""
        return measure_below(self._cells(way, spacing, reach), spacing)

    def _cells(self, way: Direction, spacing: float, reach: float) -> Cells:
        return outputs(self.step, spacing, reach, MOST_CELLS, 0.0).towards(way)

    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        """See `Loss`."""
        m, q = self.step.shift, self.step.rate
        far = 36 + 4 * m
        x = np.linspace(-far, far, int(min(max(10 * far, 400), 2000)))
        log_q = -0.5 * x * x - 0.5 * math.log(2 * math.pi) + math.log(x[1] - x[0])
        loss = m * x - m * m / 2
        if q < 1:
            loss = np.logaddexp(math.log1p(-q), math.log(q) + loss)
        return (loss, log_q) if way == "remove" else (-loss, log_q + loss)

    def length(self, reach: float) -> float:
        """See `Loss`."""
        m = self.step.shift
        return 2 * m * (reach + m / 2)

    def range(self, way: Direction) -> tuple[float, float]:
        """See `Loss`."""
        q = self.step.rate
        low = -math.log1p(-q) * (1 + 1e-14) if q < 1 else math.inf
        return (math.inf, low) if way == "remove" else (low, math.inf)

    def distance(self) -> float:
        """See `Loss`."""
        return self.step.rate * math.erf(self.step.shift / math.sqrt(8)) * (1 + 1e-13)

    def infinite(self, way: Direction) -> float:
        """See `Loss`."""
        return 0.0

    def divergence(self, order: float) -> float:
        """See `Loss`."""
        if order == math.inf:
            return math.inf
        whole = order * self.step.shift**2 / 2 * (1 + 1e-14)
        return sampled_divergence(whole, self.step.rate, order)
