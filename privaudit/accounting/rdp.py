"""The account by Renyi differential privacy.

References
----------
Mironov, "Renyi differential privacy", arXiv:1702.07476. Canonne, Kamath and Steinke,
"The discrete Gaussian for differential privacy", arXiv:2004.00010, Proposition 12: the
conversion to (epsilon, delta).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

from privaudit.accounting.renyi import divergence
from privaudit.ledger import Entry
from privaudit.release import NoSampling
from privaudit.results import Relation

_FIRST = (1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0)
_FIRST += (23.0, 32.0, 45.0, 64.0, 91.0, 128.0)
_LEAST_ORDER = 1 + 1e-6
# A sampled release costs time in proportion to the order.
_MOST_ORDER, MOST_SAMPLED_ORDER = 1e12, 2.0**16
_INTEGERS_FROM = 6  # above, only integers: fractional orders gain less than they cost


def rdp_epsilon(entries: tuple[Entry, ...], delta: float, relation: Relation) -> float:
    """Upper bound on epsilon by Renyi differential privacy.

    Gaussian: any sampling (fixed under replace-one); Laplace the same, but for Poisson
    sampling under replace-one. Divergences and proofs: `privaudit.accounting.renyi`.
    """
    total, most = _total(entries, relation)
    best, _ = least_epsilon(total, delta, most=most)
    return min(best, total(math.inf))


def rdp_delta(entries: tuple[Entry, ...], epsilon: float, relation: Relation) -> float:
    """Upper bound on delta at ``epsilon`` >= 0; all else as `rdp_epsilon`."""
    total, most = _total(entries, relation)
    best, _ = best_order(
        lambda order: delta_at(order, total(order), epsilon), most=most
    )
    return 0.0 if total(math.inf) <= epsilon else best


def _total(
    entries: tuple[Entry, ...], relation: Relation
) -> tuple[Callable[[float], float], float]:
    """Order to the divergence of all releases, rounded up, and the largest order."""

    def total(order: float) -> float:
        each = (
            entry.count * float(divergence(entry.release, relation, order))
            for entry in entries
        )
        return math.fsum(each) * (1 + 1e-15)

    # An order beyond the doubles' reach costs infinity, not an error.
    sampled = any(not isinstance(e.release.sampling, NoSampling) for e in entries)
    return total, MOST_SAMPLED_ORDER if sampled else _MOST_ORDER


def least_epsilon(
    rdp: Callable[[float], float], delta: float, *, most: float = _MOST_ORDER
) -> tuple[float, float]:
    """Least epsilon over all orders, and the order that gives it.

    Every order gives a valid bound. From a coarse grid, widened until the best order is
    inside; three times refined. ``rdp``: divergence by order, up to ``most``.
    """
    return best_order(lambda order: epsilon_at(order, rdp(order), delta), most=most)


def best_order(bound: Callable[[float], float], *, most: float) -> tuple[float, float]:
    """The least bound over all orders, and its order."""
    at = functools.cache(bound)
    orders = [order for order in _FIRST if order <= most]
    while True:
        best = min(orders, key=at)
        if best == orders[-1] and best * 2 <= most:
            orders.append(best * 2)
        elif best == orders[0] and best > _LEAST_ORDER:
            orders.insert(0, 1 + (best - 1) / 2)
        else:
            break
    for _ in range(3):
        place = orders.index(best)
        ends = orders[max(0, place - 1)], best, orders[min(len(orders) - 1, place + 1)]
        for low, high in itertools.pairwise(ends):
            orders += [_between(low, high, share) for share in (0.25, 0.5, 0.75)]
        orders = sorted(set(orders))
        best = min(orders, key=at)
    return at(best), best


def _between(low: float, high: float, share: float) -> float:
    order = 1 + (low - 1) ** (1 - share) * (high - 1) ** share
    return float(round(order)) if order >= _INTEGERS_FROM else order


def epsilon_at(order: float, rdp: float, delta: float) -> float:
    """The epsilon at ``delta`` of a divergence ``rdp`` at one order, rounded up.

    epsilon = rdp + log(1 - 1/alpha) - (log delta + log alpha) / (alpha - 1), by
    Proposition 12 of Canonne, Kamath and Steinke; zero where the total variation
    distance, at most sqrt(1 - exp(-rdp)) by Bretagnolle and Huber, is within delta.

    Raises ``ValueError`` if a divergence is negative, which is none.

    >>> round(epsilon_at(10.0, 0.5, 1e-5), 4)
    1.418
    """
    if not rdp >= 0:
        raise ValueError(f"a Renyi divergence must be >= 0, got {rdp}")
    if rdp == math.inf:
        return math.inf
    if math.sqrt(-math.expm1(-rdp)) * (1 + 1e-15) <= delta:
        return 0.0
    parts = (rdp, *_converted(order, delta))
    rounding = 1e-15 * math.fsum(abs(part) for part in parts)
    return max(0.0, math.fsum(parts) + rounding)


def _converted(order: float, delta: float) -> tuple[float, float, float]:
    """Parts of the sum by which epsilon is more than a divergence."""
    logs = -math.log(delta) / (order - 1), -math.log(order) / (order - 1)
    return math.log1p(-1 / order), *logs


def divergence_for(order: float, epsilon: float, delta: float) -> float:
    """The largest divergence at one order that keeps (epsilon, delta)-DP, rounded down.

    The inverse of `epsilon_at` in its divergence, perhaps 0; ``epsilon`` itself at
    order infinity.

    >>> round(divergence_for(10.0, 1.418, 1e-5), 4)
    0.5
    """
    if order == math.inf:
        return epsilon
    distance = -math.log1p(-delta * delta) * (1 - 1e-14)
    if not delta:
        return 0.0
    parts = (epsilon, *(-part for part in _converted(order, delta)))
    rounding = 1e-15 * math.fsum(abs(part) for part in parts)
    return max(distance, math.fsum(parts) - rounding)


def delta_at(order: float, rdp: float, epsilon: float) -> float:
    """The delta at ``epsilon`` >= 0 of a divergence ``rdp`` at one order, rounded up.

    The inverse of `epsilon_at`: log delta = (alpha - 1) (rdp - epsilon + log(1 -
    1/alpha)) - log alpha, and at most the bound on the total variation distance.

    >>> round(epsilon_at(10.0, 0.5, delta_at(10.0, 0.5, 1.418)), 4)
    1.418
    """
    if not rdp >= 0:
        raise ValueError(f"a Renyi divergence must be >= 0, got {rdp}")
    if rdp == math.inf:
        return 1.0
    parts = (rdp, -epsilon, math.log1p(-1 / order), -math.log(order) / (order - 1))
    rounding = 1e-14 * math.fsum(abs(part) for part in parts)
    log_delta = (order - 1) * (math.fsum(parts) + rounding)
    distance = math.sqrt(-math.expm1(-rdp)) * (1 + 1e-15)
    if log_delta >= 0:
        return min(1.0, distance)
    return min(distance, math.exp(log_delta) * (1 + 1e-14) + 5e-324)
