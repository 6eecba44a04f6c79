"""Renyi divergence of one release, sampled or not: an upper bound at a given order.

Closed forms, and the Poisson sampled Gaussian under add-or-remove-one at integer
orders, come from dp-accounting. What it lacks is here, each with its proof:

*A profile bounds the divergence.* For alpha > 1 the divergence's exponential A_alpha =
E_Q[(P/Q)^alpha] is an integral of hockey-stick divergences: with f(r) = r^alpha, and
H_g(P, Q) = E_Q[(P/Q - g)+], A_alpha - 1 is the integral over g > 1 of f''(g) H_g(P, Q)
+ g^-3 f''(1/g) H_g(Q, P). If both H_g(P, Q) and H_g(Q, P) are at most H_g(P*, Q*) for
all g > 1, then with R = P*/Q*

    A_alpha - 1 <= E_Q*[(R^(alpha-1) - 1)(R - R^(1-alpha)); R > 1],

every factor of which is positive: nothing cancels.

*Replacing one record under Poisson sampling.* Given the other records' coins, the two
outputs are (1-q) N(0) + q N(u) and (1-q) N(0) + q N(v) with ||u||, ||v|| <= C. For
g >= 1, H_g is the largest (1-q)(1-g) N(0)(S) + q N(u)(S) - g q N(v)(S) over sets S. Of
all sets of one N(u)(S), the half-spaces towards u have the least N(0)(S), by Neyman and
Pearson, the less the longer u is; those towards u - v have the least N(v)(S), the less
the longer u - v is. At u = -v of length C one half-space is both, so that this pair
dominates for g >= 1, and its mirror image for g < 1. It is P*, Q*, with equality above.
C is the norm bound even if u - v can be no longer than that: a small u - v far from 0
is not hidden by N(0).

*Replacing one record of a sample without replacement.* H_(1+q(g-1)) <= q H_g of the
mechanism without sampling (Balle, Barthe and Gaboardi 2018, Theorem 11), which is the
profile of P* = (1-q) N(0) + q N(2C) against Q* = N(0).

*Between integers* the Poisson sampled Gaussian is integrated in the same way, in the
direction that is worse by Theorem 5 of Mironov, Talwar and Zhang.

*Laplace* noise on a vector: the divergence of scalar Laplace noise is convex in the
shift and zero at zero, so that a vector costs at most what its L1 norm costs in one
coordinate. Under Poisson sampling the binomial sum of Mironov, Talwar and Zhang needs
only these at integer orders; that the other direction is no worse is their Theorem 5,
with the mirror image x -> u - x. Without replacement: Theorem 9 of Wang, Balle and
Kasiviswanathan. Between integers (alpha-1) D_alpha is convex, so its chord is a bound.

References
----------
Mironov, Talwar and Zhang, arXiv:1908.10530. Wang, Balle and Kasiviswanathan,
arXiv:1808.00087. Balle, Barthe and Gaboardi, arXiv:1807.01647.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from msgspec import UnsetType
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting.pld.mechanisms import loss_of
from privaudit.mechanisms import Mechanism
from privaudit.release import NoSampling, PoissonSampling, RandomAllocation, Release
from privaudit.results import Relation

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_WIDEST_CELL = 0.02
_CELLS = 20_000


@functools.lru_cache(maxsize=1 << 16)
def divergence(release: Release, relation: Relation, order: float) -> float:
    """Upper bound on the Renyi divergence of one release between any neighbours.

    ``order``: alpha > 1; at infinity pure epsilon, of Laplace. ``ValueError`` where
    none is known.
    """
    if not order > 1:
        raise ValueError(f"a Renyi order must be > 1, got {order}")
    if isinstance(release.sampling, RandomAllocation):
        raise ValueError(
            "the rdp account has no bound for one release of a random allocation; use "
            "certified"
        )
    if not isinstance(release.details, UnsetType):
        return _of_details(release, release.details, relation, order)
    multiplier = release.noise_over_sensitivity(relation)
    rate = release.sampling.rate
    if multiplier == math.inf or rate == 0:
        return 0.0
    poisson = isinstance(release.sampling, PoissonSampling)
    unsampled = isinstance(release.sampling, NoSampling) or rate == 1
    if release.mechanism == "laplace":
        if poisson and relation == "replace-one" and not unsampled:
            raise ValueError(
                "the rdp account has no bound for Laplace noise under Poisson sampling "
                "and replace-one; account it under add-or-remove-one"
            )
        pure = 1 / multiplier if multiplier > 1e-300 else math.inf
        if pure == math.inf:
            return math.inf
        if order == math.inf:
            amplified = math.log1p(rate * math.expm1(pure)) if pure < 700 else pure
            return amplified * (1 + (8 + 4 * pure) * _UNIT)  # exp of a rounded pure
        if unsampled:
            return float(_laplace(pure, np.array([order]))[0])
        return _interpolated(lambda n: _sampled_laplace(pure, rate, n, poisson), order)
    if order == math.inf:
        return math.inf
    if multiplier > 1e100:  # its square, and what is divided by it, leave the doubles
        return order * 1e-200
    inverse = 1 / multiplier if multiplier > 1e-150 else math.inf
    whole = order / 2 * inverse * inverse * (1 + 8 * _UNIT)
    if unsampled or whole == math.inf:
        return whole
    if not poisson:
        found = _shifted(1 / multiplier, rate, order)
    elif relation == "add-or-remove-one":
        found = _poisson_gaussian(multiplier, rate, order)
    else:
        found = _antipodal(release.opposed_norm() / release.noise, rate, order)
    # Sampling never costs more than none (the divergence is quasi-convex); that is also
    # the answer where a sum overflowed.
    return found if found < whole else whole


def _of_details(
    release: Release, details: Mechanism, relation: Relation, order: float
) -> float:
    """Divergence of another mechanism, at most; under replace-one as if unsampled."""
    rate = release.sampling.rate
    if not release.sensitivity_under(relation) or not rate:
        return 0.0
    if relation == "replace-one":
        rate = 1.0
    return loss_of(details, relation, rate).divergence(order) * (1 + 4 * _UNIT)


def _poisson_gaussian(multiplier: float, rate: float, order: float) -> float:
    if not order.is_integer():  # dp-accounting's series converges slowly there, if ever
        return _one_sided(1 / multiplier, rate, order)
    from privaudit.accounting.events import divergences  # slow to load

    found = float(divergences(multiplier, [order], rate)[0])
    # It adds up order + 1 terms in log space, each with the rounding of its largest
    # part. Near zero these leave the result low, or negative.
    largest = (
        special.gammaln(order + 2)
        + order * abs(math.log(rate) + math.log1p(-rate))
        + order * order / 2 / multiplier / multiplier
    )
    allowance = 8 * _UNIT * (largest + order) / (order - 1)
    if allowance > 1e-4 * found:
        return _one_sided(1 / multiplier, rate, order)
    return found + allowance


def _laplace(pure: float, orders: Floats) -> Floats:
    """D of Laplace noise at each order, shape (orders,)."""
    from privaudit.accounting.events import divergences

    found = divergences(1 / pure, orders.tolist(), kind="laplace")
    # A difference of numbers as large as ``pure``, and at most that itself.
    bound = np.maximum(found, 0.0) + 16 * _UNIT * pure
    return np.minimum(bound, pure * (1 + 2 * _UNIT))


def _interpolated(integer: Callable[[int], float], order: float) -> float:
    """A bound at any order from ``integer``, which bounds D at integers from 2 on."""
    low, high = math.floor(order), math.ceil(order)
    if low == high:
        return integer(low)
    share = order - low
    # (alpha - 1) D_alpha, which is zero at order 1.
    chord = share * (high - 1) * integer(high)
    if low > 1:
        chord += (1 - share) * (low - 1) * integer(low)
    return chord / (order - 1) * (1 + 8 * _UNIT)


def _sampled_laplace(pure: float, rate: float, order: int, poisson: bool) -> float:
    """D at a whole order, of a Poisson sample or of one without replacement."""
    j = np.arange(2, order + 1)
    base = (j - 1) * _laplace(pure, j.astype(np.float64))  # (j - 1) D_j
    log_binomial = -special.betaln(order - j + 1, j + 1) - math.log(order + 1)
    terms = log_binomial + j * math.log(rate)
    if poisson:
        # Minus one in each term: the binomial weights add up to one.
        terms += (order - j) * math.log1p(-rate) + base + np.log(-np.expm1(-base))
    else:
        log_odds = pure + math.log(-math.expm1(-pure))  # log(e^pure - 1)
        factor = base + np.minimum(math.log(2), j * log_odds)
        first = math.log(4) + base[0] + math.log(-math.expm1(-base[0]))
        factor[0] = min(factor[0], first)
        terms += factor
    return _from_log_excess(float(special.logsumexp(terms)), order)


def _antipodal(c: float, rate: float, order: float) -> float:
    """D of (1-q) N(0) + q N(c) against (1-q) N(0) + q N(-c), rounded up."""
    # Beyond the last edge, R <= (1-q)^-1 e^(cx) and R <= e^(2cx), Q <= N(0).
    stretch = order * (-math.log(rate) - math.log1p(-rate)) + order * c * c / 2
    last = min(
        c * order + math.sqrt(2 * (40 + stretch)),
        2 * c * order + math.sqrt(2 * (40 + 2 * (c * order) ** 2)),
    )
    x = _edges(0.0, last, 2 * c * order)
    tail = min(
        -order * math.log1p(-rate)
        + (order * c) ** 2 / 2
        + float(special.log_ndtr(c * order - last)),
        2 * (order * c) ** 2 + float(special.log_ndtr(2 * c * order - last)),
    )
    outside, inside = math.log1p(-rate), math.log(rate)
    zero = outside + _log_mass(x)
    log_p = np.logaddexp(zero, inside + _log_mass(x - c))
    log_q = np.logaddexp(zero, inside + _log_mass(x + c))
    up, down = c * x - c * c / 2, -c * x - c * c / 2
    loss = _log_mixture(rate, up) - _log_mixture(rate, down)
    return _from_cells(x, log_p, log_q, loss, _log_two_sided(loss, order), tail, order)


def _shifted(mu: float, rate: float, order: float) -> float:
    """Bound on D from the profile of (1-q) N(0) + q N(mu) against N(0), rounded up."""
    x, log_p, log_q, loss, tail = _mixed(mu, rate, order, mu / 2)
    return _from_cells(x, log_p, log_q, loss, _log_two_sided(loss, order), tail, order)


def _one_sided(mu: float, rate: float, order: float) -> float:
    """D of (1-q) N(0) + q N(mu) against N(0), rounded up."""
    x, log_p, log_q, loss, right = _mixed(mu, rate, order, -9.0)
    # Before the first edge 1 - q <= R <= 1.
    left = float(special.log_ndtr(x[0]) + _log_gap(np.log1p([-rate]), order)[0])
    heights, tail = _log_gap(loss, order), float(np.logaddexp(left, right))
    return _from_cells(x, log_p, log_q, loss, heights, tail, order)


def _mixed(
    mu: float, rate: float, order: float, first: float
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Cells from ``first`` on of (1-q) N(0) + q N(mu) and N(0), and what is beyond.

    Edges, log masses of both, losses at the edges, and log of the tail.
    """
    stretch = -order * math.log(rate) + order * mu * mu / 2
    last = mu * order + mu / 2 + math.sqrt(2 * (40 + stretch))
    x = _edges(first, last, mu * order)
    log_q = _log_mass(x)
    log_p = np.logaddexp(math.log1p(-rate) + log_q, math.log(rate) + _log_mass(x - mu))
    loss = _log_mixture(rate, mu * x - mu * mu / 2)
    # Beyond the last edge R <= e^(mu x).
    tail = (order * mu) ** 2 / 2 + float(special.log_ndtr(mu * order - last))
    return x, log_p, log_q, loss, tail


def _log_gap(loss: Floats, order: float) -> Floats:
    """log(r^alpha - 1 - alpha (r - 1)) for r = e^loss: convex in r, zero at 1."""
    far = order * loss > 30
    safe = np.where(far, 0.0, loss)
    with np.errstate(divide="ignore", over="ignore"):
        # Both parts are of second order, and of a ratio that alpha keeps from 1.
        near = np.log(np.maximum(_second(order * safe) - order * _second(safe), 0.0))
        y = np.where(far, loss, 1.0)
        rest = order * y + np.log1p(
            (order - 1) * np.exp(-order * y) - order * np.exp((1 - order) * y)
        )
    return np.where(far, rest, near) + 1e-13 * order / (order - 1)


def _second(y: Floats) -> Floats:
    """e^y - 1 - y, by its series near zero."""
    small = np.abs(y) < 0.3
    z = np.where(small, y, 0.0)
    series = np.zeros_like(z)
    for k in range(14, 1, -1):
        series = series * z + 1 / math.factorial(k)
    return np.where(small, series * z * z, np.expm1(y) - y)


def _edges(first: float, last: float, slope: float) -> Floats:
    """Edges of cells in which the loss times the order grows by at most 0.04."""
    width = min(_WIDEST_CELL, 0.04 / max(slope, 1e-300))
    return np.linspace(first, last, 1 + min(_CELLS, math.ceil((last - first) / width)))


def _log_mixture(rate: float, log_ratio: Floats) -> Floats:
    """log(1 - q + q e^y), without cancellation near y = 0 or overflow."""
    small = np.abs(log_ratio) < 1
    near = np.log1p(rate * np.expm1(np.where(small, log_ratio, 0.0)))
    far = np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio)
    return np.where(small, near, far)


def _log_mass(x: Floats) -> Floats:
    """Log of the standard normal mass of each cell, shape (edges - 1,)."""
    left, right = x[:-1], x[1:]
    mirror = left + right < 0
    near = np.where(mirror, -right, left)
    far = np.where(mirror, -left, right)
    top = special.log_ndtr(-near)
    return top + np.log(-np.expm1(special.log_ndtr(-far) - top))


def _log_two_sided(loss: Floats, order: float) -> Floats:
    """log((r^(alpha-1) - 1)(r - r^(1-alpha))) for r = e^loss >= 1: convex in r."""
    loss = np.maximum(loss, 0.0)  # it is zero at the first edge
    with np.errstate(divide="ignore"):
        return (
            order * loss
            + np.log(-np.expm1(-(order - 1) * loss))
            + np.log(-np.expm1(-order * loss))
        )


def _from_cells(
    x: Floats,
    log_p: Floats,
    log_q: Floats,
    loss: Floats,
    heights: Floats,
    tail: float,
    order: float,
) -> float:
    """D from the masses of cells, and the losses and log heights at their edges.

    By Edmundson and Madansky, since heights are convex in r = e^loss: an upper bound.
    """
    # Rounding of a log mass: that of log_ndtr over the width of the cell.
    far = 1 + np.abs(x).max()
    slack = 1e-13 + 16 * _UNIT * far * (far + 1 / (x[1] - x[0]))
    low, high = heights[:-1], heights[1:]
    rise = loss[1:] - loss[:-1]
    mean = log_p - log_q - loss[:-1] + np.where(high > low, slack, -slack)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(rise > 0, np.expm1(mean) / np.expm1(rise), high > low)
        share = np.clip(share, 0.0, 1.0)
        chord = np.logaddexp(np.log1p(-share) + low, np.log(share) + high)
        total = np.logaddexp(special.logsumexp(chord + log_q), tail)
    return _from_log_excess(float(total) + slack, order)


def _from_log_excess(log_excess: float, order: float) -> float:
    """D = log(A) / (alpha - 1) from log(A - 1), with an allowance for rounding."""
    allowance = 1e-11 + 64 * _UNIT * (abs(log_excess) + order)
    if not log_excess < 1e15:  # overflow
        return math.inf
    return float(np.logaddexp(0.0, log_excess + allowance)) / (order - 1) * (1 + 1e-12)
