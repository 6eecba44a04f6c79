"""Epsilon of mu-Gaussian DP, rounded down (Dong, Roth and Su 2022, Corollary 2.13)."""

from __future__ import annotations

import math

from scipy import special

_SLACK = 1e-8  # relative; the error against mpmath is below it for mu >= _FLOOR
_FLOOR = 1e-4  # below this cancellation wins, and 0 is returned instead


def delta_down(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP at ``epsilon``, never above the true one; 0 below ``_FLOOR``."""
    if mu < _FLOOR:
        return 0.0
    near = mu / 2 - epsilon / mu
    far = near - mu
    if near > 0:
        delta = special.ndtr(near) - math.exp(epsilon + special.log_ndtr(far))
    else:
        # Both terms share the factor exp(-near^2 / 2).
        scaled = special.erfcx(-near / math.sqrt(2)) - special.erfcx(
            -far / math.sqrt(2)
        )
        delta = math.exp(-near * near / 2) * scaled / 2
    return max(0.0, float(delta) * (1 - _SLACK))


def epsilon_down(mu: float, delta: float) -> float:
    """Least epsilon at which mu-GDP has ``delta``, never above the true one.

    Infinity at ``delta`` 0 unless mu is 0: no Gaussian has a pure guarantee.

    >>> round(epsilon_down(1.0, 1e-5), 4)
    4.3772
    """
    if mu < _FLOOR or delta_down(mu, 0.0) <= delta:
        return 0.0
    if delta == 0:
        return math.inf
    low, high = 0.0, 1.0
    while delta_down(mu, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if delta_down(mu, middle) > delta:
            low = middle
        else:
            high = middle
    return low


def mu_up(epsilon: float, delta: float) -> float:
    """A mu whose epsilon at ``delta`` in (0, 1) is ``epsilon`` or hardly more."""
    low, high = 0.0, 1.0
    while epsilon_down(high, delta) < epsilon or delta_down(high, 0.0) <= delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        enough = epsilon_down(middle, delta) >= epsilon
        if enough and delta_down(middle, 0.0) > delta:
            high = middle
        else:
            low = middle
    return high
