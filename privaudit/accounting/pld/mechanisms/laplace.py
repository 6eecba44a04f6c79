"""Laplace noise on a sum, unsampled or Poisson sampled: centred at 0 and at m.

m is the L1 sensitivity over the scale.
The loss is 2 x - m within [0, m], and -m and m beyond, where all outputs of one loss
are one atom.

*Dominates, in any number of coordinates.* If an output's centre moves by t times the
sensitivity, an event's probability p(t) has |dp/dt| <= m min(p, 1 - p): in one
coordinate, all others given, it is what Laplace noise allows, and min is concave, so
that this holds for the mean over the others (Jensen); over coordinates the rates add up
to the L1 norm. Half-lines attain it. So a half-line has the largest p(1) for its p(0),
and Laplace at m against Laplace at 0 dominates. Sampled, it does so by H_a = q
H_{(a - 1 + q) / q}, for ``add`` reversed. One coordinate of one record attains it.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.cells import Outputs, Step, grid_span, half_grid, mix
from privaudit.accounting.pld.line import UNIT, sampled_loss, unsampled_loss


def total_variation(shift: float) -> float:
    """Total variation of Laplace at ``shift`` and at 0: 1 - exp(-shift / 2)."""
    return -math.expm1(-shift / 2)


def outputs(step: Step, spacing: float, limit: int, offset: float) -> Outputs:
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
    return Outputs(
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
