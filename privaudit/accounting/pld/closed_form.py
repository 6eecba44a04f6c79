"""Compositions of unsampled Gaussians: a bracket in closed form."""

from __future__ import annotations

import math

from scipy import special

from privaudit.accounting.pld.targets import Sides, crossing


def _gaussian_log_delta(shift: float, epsilon: float) -> float:
    """log(Phi(m/2 - e/m) - exp(e) Phi(-m/2 - e/m)) (Balle and Wang 2018, theorem 8)."""
    first = special.log_ndtr(shift / 2 - epsilon / shift)
    second = epsilon + special.log_ndtr(-shift / 2 - epsilon / shift)
    if second >= first:
        return -math.inf
    return float(first + math.log(-math.expm1(second - first)))


def _gaussian_error(shift: float, epsilon: float) -> float:
    """Bound on the error of `_gaussian_log_delta`.

    The two logs are off by 8 units of their size and of their arguments' squares; the
    difference of their exponentials multiplies that by the first over the difference.
    """
    far = shift / 2 + epsilon / shift
    first = special.log_ndtr(shift / 2 - epsilon / shift)
    loss = float(first) - _gaussian_log_delta(shift, epsilon)
    off = 2.0**-50 * (8 + far * far + epsilon)
    return off * (1 + math.exp(min(max(loss, 0.0), 700.0)))


def gaussian_delta(shift: float, epsilon: float, width: float) -> Sides:
    log_delta = _gaussian_log_delta(shift, epsilon)
    error = _gaussian_error(shift, epsilon)
    upper = math.exp(min(0.0, log_delta + error)) + 1e-300
    lower = math.exp(log_delta - error)
    return Sides(lower, upper, width, upper <= (1 + width) * lower, "remove")


def gaussian_epsilon(shift: float, delta: float, width: float) -> Sides:
    target = math.log(delta)

    def excess(epsilon: float, sign: int) -> float:
        error = _gaussian_error(shift, epsilon)
        found = _gaussian_log_delta(shift, epsilon) + sign * error - target
        return sign * math.inf if math.isnan(found) else found

    start = shift * (shift / 2 + math.sqrt(max(-2 * target, 0.0)))
    slope = max(start / shift / shift, 1e-300)
    fine = 0.01 * min(width, 1e-9)
    upper = crossing(lambda e: excess(e, 1), start, slope, fine)[1]
    lower = crossing(lambda e: excess(e, -1), start, slope, fine)[0]
    return Sides(lower, upper, width, upper <= (1 + width) * lower, "remove")
