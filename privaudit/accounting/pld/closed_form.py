"""Compositions of unsampled Gaussians: a bracket in closed form."""

from __future__ import annotations

import math

from scipy import special

from privaudit.accounting.pld.targets import Sides, crossing


def _gaussian_log_delta(shift: float, epsilon: float, sign: int) -> float:
    """log(Phi(m/2 - e/m) - exp(e) Phi(-m/2 - e/m)) (Balle and Wang 2018, theorem 8).

    At least that (sign 1) or at most (-1): the two logs are off by 8 units of their
    size and of their arguments' squares, and so their difference by twice as much.
    delta is at most its value at 0, below m / sqrt(2 pi).
    """
    far = shift / 2 + epsilon / shift
    off = 2.0**-50 * (64 + far * far + epsilon)
    first = float(special.log_ndtr(shift / 2 - epsilon / shift))
    gap = first - epsilon - float(special.log_ndtr(-shift / 2 - epsilon / shift))
    gap = (max(0.0, gap) if sign > 0 else gap) + sign * 2 * off  # nan: nothing known
    found = first + sign * off + math.log(-math.expm1(-gap)) if gap > 0 else -math.inf
    # No more than the total variation, about shift / (2 pi)^(1/2): log(2.5) is .92.
    most = min(0.0, math.log(shift) - 0.9)
    return found if sign < 0 or found < most else most


def gaussian_delta(shift: float, epsilon: float, width: float) -> Sides:
    # exp rounds by an ulp or two; below 1e-300 numbers lose digits.
    upper = math.exp(_gaussian_log_delta(shift, epsilon, 1)) * (1 + 1e-14) + 1e-300
    upper = min(upper, 1.0)
    lower = math.exp(_gaussian_log_delta(shift, epsilon, -1)) * (1 - 1e-14)
    return Sides(lower, upper, width, upper <= (1 + width) * lower, "remove")


def gaussian_epsilon(shift: float, delta: float, width: float) -> Sides:
    target = math.log(delta)

    def excess(epsilon: float, sign: int) -> float:
        return _gaussian_log_delta(shift, epsilon, sign) - target

    start = shift * (shift / 2 + math.sqrt(max(-2 * target, 0.0)))
    fine = 0.01 * min(width, 1e-9)  # a closed form costs the same to the last digits
    slope = start / shift / shift
    upper = crossing(lambda e: excess(e, 1), start, slope, fine)[1]
    lower = crossing(lambda e: excess(e, -1), start, slope, fine)[0]
    return Sides(lower, upper, width, upper <= (1 + width) * lower, "remove")


def epsilon_down(mu: float, delta: float) -> float:
    """Least epsilon at which mu-GDP has ``delta``, never above the true one.

    Infinity at ``delta`` 0 unless mu is 0: no Gaussian has a pure guarantee.

    >>> round(epsilon_down(1.0, 1e-5), 4)
    4.3772
    """
    if mu < 1e-100:
        return 0.0
    return gaussian_epsilon(mu, delta, 1e-9).lower if delta else math.inf
