"""Probability masses of two neighbouring outputs in cells of the privacy loss.

A step is, up to domination, a pair of mixtures on the line whose privacy loss grows
with the output: a Gaussian or a Laplace variable, moved by ``shift`` with probability
``rate``. So the mass of a cell of losses is the mass of an interval, in closed form.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np
from scipy import special

from privaudit.accounting.pld.line import (
    UNIT,
    Floats,
    log_normal_mass,
    sampled_loss,
    unsampled_loss,
)

Noise = Literal["gaussian", "laplace"]
Scheme = Literal["poisson", "replace", "fixed"]
Direction = Literal["remove", "add"]

_PARTS = 128


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One release, as far as its privacy loss goes.

    Parameters
    ----------
    noise
        The shape of the noise.
    scheme
        ``poisson``: (1 - rate) N(0) + rate N(shift) against N(0), and reversed.
        ``replace``: (1 - rate) N(0) + rate N(shift) against (1 - rate) N(0) + rate
        N(-shift). ``fixed``: the profile of the first for losses above 0, and of its
        reverse below.
    shift
        Sensitivity over the noise's standard deviation or scale.
    rate
        Probability of being in the batch; 1 without sampling.
    """

    noise: Noise
    scheme: Scheme
    shift: float
    rate: float


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """The masses of one cell, at ``index``, in many parts in order of loss."""

    index: int
    log_p: Floats
    log_q: Floats


@dataclasses.dataclass(frozen=True, slots=True)
class Cells:
    """Masses of P and Q by privacy loss, on half cells of a grid.

    Parameters
    ----------
    start, offset
        The first grid point is ``start * spacing + offset``.
    log_p, log_q
        Of the half cells, in order of loss; shape (2 * number of cells,).
    below, above
        Logs of the masses of P and of Q at losses below the grid and above it.
    atom
        Mass of P (and of Q) at loss 0 exactly, not in any cell.
    accuracy
        Bound on the relative error of every mass, and on how far the loss of the
        interval's true ends is from the grid point.
    edges
        Outputs at the grid points, in order of loss; None if the step has no tangents.
    split
        The cell next to most of the losses, where the grid is coarse beside them.
    infinite
        Mass of P where Q has none, on top of what lies above the grid.
    """

    start: int
    log_p: Floats
    log_q: Floats
    below: tuple[float, float]
    above: tuple[float, float]
    atom: float
    accuracy: float
    edges: Floats | None
    offset: float = 0.0
    split: Split | None = None
    infinite: float = 0.0

    def __len__(self) -> int:
        return self.log_p.size // 2


def total_variation(step: Step) -> float:
    """Of the unsampled pair: 2 Phi(shift / 2) - 1, or 1 - exp(-shift / 2)."""
    if step.noise == "gaussian":
        return math.erf(step.shift / math.sqrt(8))
    return -math.expm1(-step.shift / 2)


def loss_cells(
    step: Step,
    direction: Direction,
    spacing: float,
    reach: float,
    limit: int,
    offset: float = 0.0,
) -> Cells:
    """The masses of ``step`` on a grid that covers all but its far tails.

    Parameters
    ----------
    step, direction
        The pair: as `Step` says, or reversed for ``add``.
    spacing
        Distance of the grid points.
    reach
        The grid ends where less than Phi(-reach) of any of the mixed variables is left.
    limit
        Largest number of cells; what lies further out is counted as below or above.
    offset
        Added to every grid point, for Poisson sampled pairs (subtracted for ``add``).
    """
    if step.scheme == "replace":
        return _replace_cells(step, spacing, reach, limit)
    if step.noise == "gaussian":
        cells = _gaussian_cells(step, spacing, reach, limit, offset)
    else:
        cells = _laplace_cells(step, spacing, limit, offset)
    if step.scheme == "fixed":
        return _symmetric(cells, (1 - step.rate) * total_variation(step))
    return cells.reversed() if direction == "add" else cells.forward()


@dataclasses.dataclass(frozen=True, slots=True)
class _Outputs:
    """Masses of N(0) (a) and of the mixture (b) by the loss log(b / a)."""

    start: int
    log_a: Floats
    log_b: Floats
    below: tuple[float, float]  # logs, of a and of b
    above: tuple[float, float]
    accuracy: float
    edges: Floats | None
    offset: float
    split: tuple[Floats, Floats] | None  # logs, of the cell above ``offset``

    def forward(self) -> Cells:
        return Cells(
            self.start,
            self.log_b,
            self.log_a,
            self.below[::-1],
            self.above[::-1],
            0.0,
            self.accuracy,
            self.edges,
            self.offset,
            None if self.split is None else Split(-self.start, *self.split[::-1]),
        )

    def reversed(self) -> Cells:
        return Cells(
            -(self.start + self.log_a.size // 2),
            self.log_a[::-1],
            self.log_b[::-1],
            self.above,
            self.below,
            0.0,
            self.accuracy,
            None if self.edges is None else self.edges[::-1],
            -self.offset,
            None
            if self.split is None
            else Split(
                self.log_a.size // 2 - 1 + self.start,
                self.split[0][::-1],
                self.split[1][::-1],
            ),
        )


def half_grid(start: int, stop: int, spacing: float) -> Floats:
    """Points half a spacing apart, from ``start`` to ``stop`` spacings."""
    return np.arange(2 * start, 2 * stop + 1, dtype=float) * (0.5 * spacing)


def grid_span(low: float, high: float, spacing: float, limit: int) -> tuple[int, int]:
    """Grid indices around [low, high], and around 0, at most ``limit`` cells."""
    first = max(math.floor(max(low, -1e300) / spacing), -limit // 2)
    last = min(math.ceil(high / spacing), first + limit)
    return min(first, -1), max(last, 1)


def _accuracy(outputs: Floats, shift: float) -> float:
    # exp, log, expm1, log1p and log_ndtr are taken to be within 8 units in the last
    # place of their value; the exponent of a normal density is at most x^2 / 2, an
    # output's error at most 8 units of |x| + shift + |g| / shift, and the loss moves
    # by at most shift times that. The constant covers the logarithm of the rate.
    finite = outputs[np.isfinite(outputs)]
    far = (float(np.max(np.abs(finite))) if finite.size else 0.0) + shift
    return UNIT * (1024 + 32 * far * far)


def mix(rate: float, log_first: Floats, log_second: Floats) -> Floats:
    """log of (1 - rate) first + rate second."""
    if rate == 1:
        return log_second
    return np.logaddexp(math.log1p(-rate) + log_first, math.log(rate) + log_second)


def _gaussian_cells(
    step: Step, spacing: float, reach: float, limit: int, offset: float
) -> _Outputs:
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
    return _Outputs(
        start,
        log_a,
        log_b,
        (float(tail_a[0]), float(tail_b[0])),
        (float(tail_a[1]), float(tail_b[1])),
        _accuracy(x, shift),
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


def _laplace_cells(step: Step, spacing: float, limit: int, offset: float) -> _Outputs:
    """Laplace at 0 and at ``shift``: losses 2 x - shift within, atoms at both ends."""
    shift, rate = step.shift, step.rate
    low, high = sampled_loss(-shift, rate), sampled_loss(shift, rate)
    start, stop = grid_span(low - offset, high - offset, spacing, limit)
    points = half_grid(start, stop, spacing) + offset
    x = np.clip(0.5 * (unsampled_loss(points, rate) + shift), 0.0, shift)
    # Masses within, as log(exp(-left) (1 - exp(-width)) / 2), and mirrored.
    width = np.diff(x)
    with np.errstate(divide="ignore"):
        body = np.log(-0.5 * np.expm1(-width))
    log_a = body - x[:-1]
    log_c = body + (x[1:] - shift)
    half = math.log(0.5)
    below_a = below_c = -math.inf
    # The atom at the lower end lies in the last half cell that starts at or below it.
    at_low = int(np.clip(np.searchsorted(points, low, "right") - 1, 0, width.size - 1))
    at_high = int(np.clip(np.searchsorted(points, high, "left") - 1, 0, width.size - 1))
    if points[0] > low:  # the limit cut the grid short
        below_a = math.log1p(-0.5 * math.exp(-float(x[0])))
        below_c = half + float(x[0]) - shift
    else:
        log_a[at_low] = np.logaddexp(log_a[at_low], half)
        log_c[at_low] = np.logaddexp(log_c[at_low], half - shift)
    above_a = above_c = -math.inf
    if points[-1] < high:
        above_a = half - float(x[-1])
        above_c = math.log1p(-0.5 * math.exp(float(x[-1]) - shift))
    else:
        log_a[at_high] = np.logaddexp(log_a[at_high], half - shift)
        log_c[at_high] = np.logaddexp(log_c[at_high], half)
    outside_a = np.array([below_a, above_a])
    outside_b = mix(rate, outside_a, np.array([below_c, above_c]))
    return _Outputs(
        start,
        log_a,
        mix(rate, log_a, log_c),
        (below_a, float(outside_b[0])),
        (above_a, float(outside_b[1])),
        UNIT * (1024 + 32 * shift),
        None,
        offset,
        None,
    )


def _replace_cells(step: Step, spacing: float, reach: float, limit: int) -> Cells:
    """(1 - q) N(0) + q N(m) against (1 - q) N(0) + q N(-m), m the shift.

    The loss at x is y where m x = y/2 + asinh((1 - q) sinh(y/2) exp(m^2/2) / q): set
    exp(m x) = w in the ratio of the densities and solve the quadratic in w.
    """
    if step.noise != "gaussian":
        raise ValueError(
            "Poisson sampling under replace-one is accounted for Gaussian noise only, "
            f"got {step.noise}; account the release unsampled"
        )
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
        4 * _accuracy(x, shift),
        None,
    )


def _log_sinh(y: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return y + np.log(-0.5 * np.expm1(-2 * y))


def _symmetric(cells: _Outputs, atom: float) -> Cells:
    """Losses above 0 from the pair, below 0 from its reverse, the rest of P at 0."""
    skip = -2 * cells.start
    log_a, log_b = cells.log_a[skip:], cells.log_b[skip:]
    return Cells(
        -(log_a.size // 2),
        np.concatenate([log_a[::-1], log_b]),
        np.concatenate([log_b[::-1], log_a]),
        cells.above,
        cells.above[::-1],
        atom,
        cells.accuracy,
        None,
    )
