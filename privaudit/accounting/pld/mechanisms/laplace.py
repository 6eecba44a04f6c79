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

from privaudit.accounting.pld.cells import Masses, mix
from privaudit.accounting.pld.line import UNIT, Floats, sampled_loss, unsampled_loss


def total_variation(shift: float) -> float:
    """Total variation of Laplace at ``shift`` and at 0: 1 - exp(-shift / 2)."""
    return -math.expm1(-shift / 2)


def masses(edges: Floats, shift: Floats, rate: Floats, reach: float) -> Masses:
    """Logs of masses of Laplace at 0, and of its mixture; see `noise.masses`."""
    x = np.clip(0.5 * (unsampled_loss(edges, rate) + shift), 0.0, shift)
    low, high = (
        np.array([[sampled_loss(sign * m, q)] for m, q in zip(*of, strict=True)])
        for of in [(shift[:, 0].tolist(), rate[:, 0].tolist())]
        for sign in (-1, 1)
    )
    with np.errstate(divide="ignore"):
        body = np.log(-0.5 * np.expm1(-np.diff(x)))
    half = np.full(shift.shape, math.log(0.5))
    far = x - shift
    parts_a = _log_rest(-x[:, :1]), body - x[:, :-1], half - x[:, -1:]
    parts_c = half + far[:, :1], body + far[:, 1:], _log_rest(far[:, -1:])
    log_a, log_c = (np.concatenate(parts, axis=1) for parts in (parts_a, parts_c))
    # The atoms at the ends lie in a cell, where there is one.
    at = np.arange(len(shift))
    for loss, end, outer, values in (
        (low, -1, 0, (half, half - shift)),
        (high, 1, -1, (half - shift, half)),
    ):
        cell = np.searchsorted(edges, loss[:, 0], "right" if end < 0 else "left")
        inside = (cell > 0) & (cell < edges.size)
        for masses, value in zip((log_a, log_c), values, strict=True):
            here = masses[at[inside], cell[inside]]
            masses[at[inside], cell[inside]] = np.logaddexp(here, value[inside, 0])
            masses[inside, outer] = -np.inf
    return log_a, mix(rate, log_a, log_c), UNIT * (1024 + 32 * float(shift.max()))


def _log_rest(exponent: Floats) -> Floats:
    """log(1 - exp(exponent) / 2)."""
    return np.log1p(-0.5 * np.exp(exponent))
