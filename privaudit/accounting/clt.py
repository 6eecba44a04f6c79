"""The account of the Dyn-D2P paper: a Gaussian limit of many sampled releases.

Poisson sampled Gaussian releases are taken to be mu_tot-GDP with mu_tot =
p sqrt(sum_k (exp(mu_k^2) - 1)). That holds as K grows with p sqrt(K) tending to a
constant and mu_k bounded. It is not a bound for any K, and can lie far below the truth:
`distance_from_limit` says how far it can be trusted.

References
----------
"Dyn-D2P: dynamic differentially private decentralized learning", equations 6 to 10.
Bu, Dong, Long and Su, "Deep learning with Gaussian differential privacy",
arXiv:1911.11607: the limit theorem. I. Shevtsova, arXiv:1111.6554: the constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from privaudit.accounting import gdp
from privaudit.schedules import HasValues, values_of

_BERRY_ESSEEN = 0.5600  # sums of independent variables that are not alike
_CHUNK = 500
_MOST_MU = 25.0


def clt_mu(mus: ArrayLike, rate: float) -> float:
    """mu_tot = p sqrt(sum_k (exp(mu_k^2) - 1)), eq. 6.

    Summed in log space; infinity where it exceeds the doubles.

    ``mus``: norm bound over noise of each step k = 0, ..., K - 1, shape (steps,).
    ``rate``: Poisson sampling rate p in [0, 1], the same at all steps. Raises
    ``ValueError`` if an argument is out of its range.

    >>> round(clt_mu([1.0] * 100, 0.01), 6)
    0.131083
    """
    log = _log_clt_mu(_checked(mus), _rate(rate))
    return math.exp(log) if log < 709 else math.inf


def _log_clt_mu(mus: NDArray[np.float64], rate: float) -> float:
    squares = mus[mus > 1e-150] ** 2  # those below are nothing beside a rounding
    if rate == 0 or not len(squares):
        return -math.inf
    # log(exp(y) - 1) = y + log(1 - exp(-y)), which overflows nowhere.
    logs = squares + np.log(-np.expm1(-squares))
    return math.log(rate) + float(special.logsumexp(logs)) / 2


def distance_from_limit(groups: Iterable[tuple[ArrayLike, float]]) -> float:
    """Distance, in probability, of the privacy loss from its normal limit, at most.

    0.56 sum_k rho_k / (sum_k v_k)^(3/2) (Berry and Esseen; Shevtsova), v_k the variance
    of step k's loss, rho_k its third absolute central moment: the larger for data with
    and without the record, at most 1; an overestimate without sampling, and moments are
    by the trapezoidal rule: a diagnosis, not a bound. A delta below it is finer than
    the limit is known to resolve. It falls as 1 / sqrt(K), and grows about as exp(3/2
    max mu_k^2). ``groups``: (mus, rate) of steps that differ in rate.
    """
    variance, third = np.zeros(2), np.zeros(2)  # (without, with) the record
    for mus, rate in groups:
        each, counts = np.unique(_checked(mus), return_counts=True)
        if _rate(rate) == 0 or not each.any():
            continue
        if each[-1] > _MOST_MU:
            return 1.0  # the moments overflow; nothing is left of the limit
        for start in range(0, len(each), _CHUNK):
            part = slice(start, start + _CHUNK)
            v, r = _moments(each[part], rate)
            variance += v @ counts[part]
            third += r @ counts[part]
    if not variance.all():
        return 0.0  # nothing is lost, and nothing approximated
    return float(min(1.0, (_BERRY_ESSEEN * third / variance**1.5).max()))


def _moments(
    mus: NDArray[np.float64], rate: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variances and third absolute central moments of the loss, each (2, steps)."""
    x = np.linspace(-9, 9 + mus[-1], 1200)
    step = x[1] - x[0]
    m = mus[:, None]  # (steps, points)
    ratio = np.exp(m * x - m * m / 2)
    normal = m * x - m * m / 2
    loss = normal if rate == 1 else np.log1p(rate * (ratio - 1))
    without = np.exp(-x * x / 2) * step / math.sqrt(2 * math.pi)
    worlds = np.broadcast_to(without, loss.shape), without * (1 + rate * (ratio - 1))
    variances, thirds = [], []
    for weight in worlds:
        deviation = np.abs(loss - (weight * loss).sum(1, keepdims=True))
        variances.append((weight * deviation**2).sum(1))
        thirds.append((weight * deviation**3).sum(1))
    return np.array(variances), np.array(thirds)


def initial_budget(
    mu_total: float, growth: HasValues | Iterable[float], rate: float, steps: int
) -> float:
    """mu0 of eq. 8: the largest for which mu_k = mu0 growth_k has mu_tot as asked.

    By bisection, to 1e-13, never above ``mu_total`` > 0. No bound, as eq. 6: for a
    budget that is kept use `privaudit.accounting.calibration`. ``growth``: schedule
    relative to mu0, or its values. ``rate``: p = 1/J in (0, 1]. ``steps``: K >= 1.
    """
    relative = values_of(growth, steps)
    target = math.log(_positive("mu_total", mu_total))
    if not _rate(rate) > 0 or steps < 1:
        raise ValueError(
            f"a budget is shared by at least one sampled step; got rate {rate} "
            f"and {steps} steps"
        )

    def meets(mu0: float) -> bool:
        return _log_clt_mu(mu0 * relative, rate) <= target

    # exp(y) - 1 >= y, so mu0 <= mu_tot / (p ||growth||).
    bad = mu_total / rate / float(np.linalg.norm(relative)) * (1 + 1e-9)
    # and sum_k (exp(mu_k^2) - 1) <= K exp(max mu_k^2) - K.
    logs = 2 * (target - math.log(rate)) - math.log(steps)
    good = math.sqrt(np.logaddexp(0.0, logs)) / float(relative.max()) * (1 - 1e-9)
    while not meets(good):  # a rounding, for tiny budgets
        good /= 2
    while bad - good > 1e-13 * bad:  # invariant: meets(good)
        middle = (bad + good) / 2
        if not good < middle < bad:
            break
        good, bad = (middle, bad) if meets(middle) else (good, middle)
    return good


def constant_budget(mu_total: float, rate: float, steps: int) -> float:
    """mu_bar = sqrt(log(mu_tot^2 / (p^2 K) + 1)), eq. 9; arguments as `initial_budget`.

    >>> mu_bar = constant_budget(0.5, 0.0004, 10_000)
    >>> round(clt_mu([mu_bar] * 10_000, 0.0004), 12)
    0.5
    """
    ratio = _positive("mu_total", mu_total) / _rate(rate)
    if steps < 1:
        raise ValueError(f"the number of steps must be >= 1, got {steps}")
    logs = 2 * math.log(ratio) - math.log(steps)
    return math.sqrt(
        np.logaddexp(0.0, logs) if logs > 0 else math.log1p(math.exp(logs))
    )


def noise_scale(
    mu_total: float,
    clips: HasValues | Iterable[float],
    relative_noise: HasValues | Iterable[float],
    rate: float,
    steps: int,
) -> float:
    """sigma~ of eq. 10: the factor on given noise levels that has mu_tot as asked.

    sigma~ = (p / mu_tot) sqrt(2 sum_k C_k^2 / sigma~_k^2), ``clips`` over
    ``relative_noise``; step k has mu_k = C_k / (sigma~ sigma~_k). ``ValueError`` if
    some mu_k^2 exceeds 1, where the proof's exp(x) - 1 < 2x is not available.
    """
    ratio = values_of(clips, steps) / values_of(relative_noise, steps)
    rate = _rate(rate)
    if rate == 0 or steps < 1:
        raise ValueError(
            f"there is nothing to scale with rate {rate} and {steps} steps"
        )
    scale = rate / _positive("mu_total", mu_total) * math.sqrt(2) * gdp.compose(ratio)
    mus = ratio / scale
    if (mus > 1).any():
        k = int(np.argmax(mus > 1))
        raise ValueError(
            f"equation 10 is proved for mu_k^2 <= 1 only, and step {k} has mu_k = "
            f"{mus[k]:.6g}; raise its relative noise, lower the budget, or calibrate "
            "with a certified account"
        )
    return scale


def _checked(mus: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(mus, dtype=np.float64).ravel()
    if not (array >= 0).all():
        k = int(np.argmax(~(array >= 0)))
        raise ValueError(f"mu of step {k} must be a number >= 0, got {array[k]}")
    return array


def _rate(rate: float) -> float:
    if not 0 <= rate <= 1:
        raise ValueError(f"a sampling rate must be in [0, 1], got {rate}")
    return float(rate)


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be > 0 and finite, got {value}")
    return float(value)
