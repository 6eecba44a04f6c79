"""Gaussian differential privacy: duality with (epsilon, delta), and composition.

A mechanism is mu-GDP if telling two neighbouring data sets apart from its output is at
least as hard as telling N(0, 1) from N(mu, 1). A Gaussian release of L2 sensitivity s
and standard deviation sigma is mu-GDP with mu = s / sigma.

The account of sampled releases, a central limit, is in `privaudit.accounting.clt`.

References
----------
Dong, Roth and Su, "Gaussian Differential Privacy", arXiv:1905.02383.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]

_UNIT = 2.0**-53  # one rounding
# Relative. scipy's erfcx and log_ndtr and the quadrature below were measured against
# mpmath at 60 digits to be within 2e-14; this allows fifty times that.
_SLACK = 1e-12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)
_LOG_SQRT_TAU = 0.5 * math.log(2 * math.pi)
_TINY = 5e-324


def log_delta(mu: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Log of the least delta for which mu-GDP implies (epsilon, delta)-DP, rounded up.

    Corollary 2.13 of Dong, Roth and Su: delta = Phi(mu/2 - epsilon/mu) -
    e^epsilon Phi(-mu/2 - epsilon/mu).

    ``mu``, ``epsilon``: >= 0; scalars or arrays that broadcast. Either may be infinity.
    Returns natural logarithms, at most 0, in the shape of the arguments together;
    -infinity where delta is zero. Never below the true value: the roundings are
    counted, those inside scipy's special functions measured. Raises ``ValueError`` if
    an argument is negative or nan.
    """
    mu, epsilon = np.broadcast_arrays(
        _at_least_zero("mu", mu), _at_least_zero("epsilon", epsilon)
    )
    result = np.full(mu.shape, -np.inf)
    result[np.isinf(mu) & np.isfinite(epsilon)] = 0.0
    some = (mu > 0) & np.isfinite(mu) & np.isfinite(epsilon)
    with np.errstate(over="ignore"):
        result[some] = _log_delta(mu[some], epsilon[some])
    return result


def _log_delta(mu: Floats, epsilon: Floats) -> Floats:
    # With x = epsilon/mu - mu/2 and Mills' ratio M(x) = Phi(-x)/phi(x), the identity
    # phi(x) = e^epsilon phi(x + mu) gives delta = phi(x) (M(x) - M(x + mu)).
    ratio = epsilon / mu
    x = ratio - mu / 2
    value = np.empty_like(x)

    # M(x) - M(x + mu) is the integral over t > 0 of exp(-x t - t^2/2)(1 - exp(-mu t)),
    # in which nothing cancels; for small mu the difference itself would lose all
    # digits. Cut where the exponent is 45, which leaves out e^-45 of it.
    small = mu <= 1
    y, m = x[small, None], mu[small, None]
    half = 45 / (y + np.hypot(y, math.sqrt(90)))
    t = half * (_NODES + 1)
    with np.errstate(invalid="ignore"):
        terms = np.exp(-y * t - t * t / 2) * -np.expm1(-m * t) * half
    mills = np.where(np.isfinite(y[:, 0]), terms @ _WEIGHTS, 0.0)
    with np.errstate(divide="ignore"):
        value[small] = np.log(mills) - y[:, 0] ** 2 / 2 - _LOG_SQRT_TAU

    tail = ~small & (x > 0)
    y, m = x[tail], mu[tail]
    with np.errstate(divide="ignore"):
        value[tail] = np.log(_mills(y) - _mills(y + m)) - y * y / 2 - _LOG_SQRT_TAU

    # Here delta is not small; one minus it is a sum of two positive terms.
    body = ~small & (x <= 0)
    y, m = x[body], mu[body]
    density = np.exp(-y * y / 2 - _LOG_SQRT_TAU)
    value[body] = np.log1p(-(special.ndtr(y) + density * _mills(y + m)))

    # x^2/2 carries the roundings of the quotient, the difference and the square.
    slack = _SLACK + 4 * _UNIT * np.abs(x) * (ratio + np.abs(x) + mu)
    # Far out M(x) - M(x + mu) rounds to zero, and M(x) < 1 alone is a bound; where x^2
    # overflows, it is at least the largest double.
    lost = np.isneginf(value)
    far = np.where(x < 1e150, -x * x / 2, -8.9e307)
    value[lost], slack[lost] = far[lost], np.where(x < 1e150, slack, 0.0)[lost]
    return np.minimum(value + slack, 0.0)


def _mills(x: Floats) -> Floats:
    return _SQRT_HALF_PI * special.erfcx(x / math.sqrt(2))


def delta(mu: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Least delta for which mu-GDP implies (epsilon, delta)-DP, rounded up.

    Corollary 2.13 of Dong, Roth and Su; arguments, shapes and errors as `log_delta`.
    Below the range of doubles the least positive one is returned, which is above it.

    >>> float(delta(0.0, 1.0))
    0.0
    >>> round(float(delta(1.0, 1.0)), 6)
    0.126937
    """
    logs = log_delta(mu, epsilon)
    return np.where(np.isneginf(logs), 0.0, np.maximum(np.exp(logs), _TINY))[()]


def epsilon(mu: ArrayLike, delta: ArrayLike) -> Floats:
    """Least epsilon for which mu-GDP implies (epsilon, delta)-DP, rounded up.

    By bisection on `log_delta`: the end that was seen to meet delta is returned, within
    a relative 1e-12 of the other. ``mu``: >= 0; scalar or array. ``delta``: in (0, 1),
    down to 1e-300; broadcasts with ``mu``. Raises ``ValueError`` if an argument is out
    of its range.

    >>> round(float(epsilon(1.0, 1e-5)), 6)
    4.377178
    """
    mu, delta = np.broadcast_arrays(_at_least_zero("mu", mu), _probability(delta))
    target = np.log(delta) * (1 + 2 * _UNIT)  # <= 0, so rounded down
    # delta(epsilon) <= Phi(-x) <= exp(-x^2/2)/2 for x = epsilon/mu - mu/2 >= 0.
    with np.errstate(over="ignore"):  # infinity is then the bound
        high = mu * np.sqrt(-2 * target) + mu * mu / 2
    high = high * (1 + 1e-9)
    finite = np.isfinite(high)
    needs = finite & (log_delta(mu, 0.0) > target)
    while True:  # a rounding may leave the first bracket short
        short = needs & (log_delta(mu, np.where(needs, high, 0.0)) > target)
        if not short.any():
            break
        high = np.where(short, 2 * high, high)
    good = _bisect(
        lambda e: log_delta(mu, e) <= target,
        np.zeros_like(high),
        np.where(needs, high, 0.0),
        lambda low, high: (low + high) / 2,
    )
    return np.where(finite, good, np.inf)[()]


def mu(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    """Largest mu such that mu-GDP implies (epsilon, delta)-DP, rounded down.

    Eq. 4 of the Dyn-D2P paper solved for mu: a budget, to be spent by noise. It is not
    a bound for a mechanism known to be (epsilon, delta)-DP only, which need not be
    Gaussian DP at all.

    ``epsilon``: >= 0 and finite; scalar or array. ``delta``: in (0, 1), down to 1e-300;
    broadcasts with ``epsilon``. Raises ``ValueError`` if an argument is out of its
    range.

    >>> round(float(mu(1.0, 1e-5)), 6)
    0.268051
    """
    epsilon, delta = np.broadcast_arrays(
        _at_least_zero("epsilon", epsilon), _probability(delta)
    )
    if not np.isfinite(epsilon).all():
        raise ValueError("epsilon must be finite to have a largest mu, got infinity")
    target = np.log(delta) * (1 + 2 * _UNIT)
    # delta(mu, epsilon) <= delta(mu, 0) <= mu / sqrt(2 pi), so 2 delta is below.
    low = 2.0 * delta
    high = np.maximum(low, 1.0)
    while (short := log_delta(high, epsilon) <= target).any():
        high = np.where(short, 2 * high, high)
    # Searched as 1/mu, so that the good end is the upper one.
    inverse = _bisect(
        lambda inverse: log_delta(1 / inverse, epsilon) <= target,
        1 / high,
        1 / low,
        lambda low, high: np.sqrt(low) * np.sqrt(high),
    )
    return (1 / inverse * (1 - 4 * _UNIT))[()]


def _bisect(
    meets: Callable[[Floats], NDArray[np.bool_]],
    bad: Floats,
    good: Floats,
    middle: Callable[[Floats, Floats], Floats],
) -> Floats:
    """The good ends, each within 1e-12 (relative) of a bad one; ``bad <= good``."""
    for _ in range(1100):  # invariant: meets(good); 1100 halvings empty any bracket
        if not (good - bad > 1e-12 * good).any():
            break
        point = middle(bad, good)
        met = meets(point)
        good, bad = np.where(met, point, good), np.where(met, bad, point)
    return good


def compose(mus: Iterable[float]) -> float:
    """The mu of several mechanisms one after another, rounded up: the root of squares.

    Corollary 3.3 of Dong, Roth and Su; exact for Gaussian releases without sampling.

    ``mus``: each >= 0; they may differ, but must not depend on the data. Raises
    ``ValueError`` if one is negative or nan.

    >>> compose([3.0, 4.0]) >= 5.0, compose([])
    (True, 0.0)
    """
    each = _at_least_zero("mu", np.fromiter(mus, dtype=np.float64))
    largest = float(each.max(initial=0.0))
    if largest in (0.0, math.inf):
        return largest
    total = math.fsum(((each / largest) ** 2).tolist())
    # One step further up, for sums below the normal doubles.
    return math.nextafter(largest * math.sqrt(total) * (1 + 8 * _UNIT), math.inf)


def _at_least_zero(name: str, value: ArrayLike) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if not (array >= 0).all():
        wrong = array[~(array >= 0)].flat[0]
        raise ValueError(f"{name} must be a number >= 0, got {wrong}")
    return array


def _probability(delta: ArrayLike) -> Floats:
    array = np.asarray(delta, dtype=np.float64)
    inside = (array > 0) & (array < 1)
    if not inside.all():
        raise ValueError(
            f"delta must be in (0, 1), got {array[~inside].flat[0]}; "
            "choose well below one over the number of records"
        )
    return array
