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

from privaudit.accounting.pld.cells import Masses, accuracy_of, mix
from privaudit.accounting.pld.line import Floats, log_normal_mass, unsampled_loss


def total_variation(shift: float) -> float:
    """Total variation of N(shift) and N(0): 2 Phi(shift / 2) - 1."""
    return math.erf(shift / math.sqrt(8))


def upper_reach(
    shift: float | Floats, rate: float | Floats, reach: float
) -> float | Floats:
    """Reach beyond the shift that leaves about Phi(-reach) of the mixture."""
    if not reach < math.inf:
        return reach
    log_tail = special.log_ndtr(-reach) - math.log(2)
    own = -special.ndtri_exp(np.minimum(log_tail - np.log(rate), -1.0))
    rest = -special.ndtri_exp(log_tail) - shift
    return np.minimum(np.maximum(own, rest), reach)


def masses(edges: Floats, shift: Floats, rate: Floats, reach: float) -> Masses:
    """Logs of masses of N(0), and of its mixture with N(shift); see `noise.masses`."""
    x = unsampled_loss(edges, rate) / shift + shift / 2
    x = np.clip(x, -reach, upper_reach(shift, rate, reach) + shift)
    log_a = _normal(x, 0.0)
    log_b = mix(rate, log_a, _normal(x, shift))
    return log_a, log_b, accuracy_of(x, float(shift.max()))


def _normal(x: Floats, centre: float | Floats) -> Floats:
    """Logs of the masses of N(centre, 1) below x, between, and above."""
    inner = log_normal_mass(x, centre)
    low = special.log_ndtr(x[:, :1] - centre)
    high = special.log_ndtr(centre - x[:, -1:])
    return np.concatenate([low, inner, high], axis=1)


def opposed(edges: Floats, shift: Floats, rate: Floats, reach: float) -> Masses:
    """(1 - q) N(0) + q N(m) against (1 - q) N(0) + q N(-m), m the shift.

    The loss at x is y where m x = y/2 + asinh((1 - q) sinh(y/2) exp(m^2/2) / q): set
    exp(m x) = w in the ratio of the densities and solve the quadratic in w.
    """
    size = np.abs(edges)
    with np.errstate(over="ignore", divide="ignore"):
        # asinh(z) = log(2 z) beyond exp(30), to the last place.
        log_sinh = size / 2 + np.log(-0.5 * np.expm1(-size))
        log_z = log_sinh + np.log1p(-rate) - np.log(rate) + shift**2 / 2
        near = np.arcsinh(np.exp(np.minimum(log_z, 30)))
        arc = np.where(log_z > 30, log_z + math.log(2), near)
    x = np.copysign((size / 2 + arc) / shift, edges)
    far = upper_reach(shift, rate, reach) + shift
    x = np.clip(x, -far, far)
    base = _normal(x, 0.0)
    log_p, log_q = (mix(rate, base, _normal(x, m)) for m in (shift, -shift))
    return log_p, log_q, 4 * accuracy_of(x, float(shift.max()))
