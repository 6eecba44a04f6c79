"""One Gaussian release without sampling: the classical account and the exact one.

References
----------
Dwork and Roth, "The algorithmic foundations of differential privacy" (2014), Theorem
A.1. Balle and Wang, "Improving the Gaussian mechanism for differential privacy",
ICML 2018, arXiv:1805.06530, Theorem 8.
"""

from __future__ import annotations

import math

from privaudit.accounting import gdp

_UNIT = 2.0**-53


class OutsideTheorem(ValueError):
    """A theorem that says nothing for this little noise; for more it may."""


def classical_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Noise sigma = sensitivity sqrt(2 ln(1.25/delta)) / epsilon, rounded up.

    Theorem A.1 of Dwork and Roth.

    ``epsilon``: in (0, 1): the theorem is proved there, and fails for large epsilon.
    ``delta``: in (0, 1). ``sensitivity``: L2 sensitivity, >= 0, in the unit of the
    noise. Raises ``ValueError`` if an argument is out of its range; for epsilon >= 1
    use `analytic_epsilon`.

    >>> round(classical_sigma(0.5, 1e-5), 4)
    9.6896
    """
    _check_classical(epsilon)
    factor = math.sqrt(2 * math.log(1.25 / _delta(delta)))
    return _sensitivity(sensitivity) * factor / epsilon * (1 + 16 * _UNIT)


def classical_epsilon(sigma: float, delta: float, sensitivity: float = 1.0) -> float:
    """The epsilon of the classical theorem for a given noise, rounded up.

    Arguments as `classical_sigma`, with ``sigma`` > 0 or zero.

    Raises ``ValueError`` if the epsilon would be 1 or more, where the theorem says
    nothing.
    """
    sensitivity = _sensitivity(sensitivity)
    if sensitivity == 0:
        return 0.0
    factor = math.sqrt(2 * math.log(1.25 / _delta(delta)))
    sigma = _sigma(sigma)
    epsilon = sensitivity * factor / sigma * (1 + 16 * _UNIT) if sigma else math.inf
    _check_classical(epsilon)
    return epsilon


def analytic_epsilon(sigma: float, delta: float, sensitivity: float = 1.0) -> float:
    """Least epsilon of one release with noise ``sigma``, rounded up.

    Theorem 8 of Balle and Wang: a release is (epsilon, delta)-DP exactly if
    Phi(s/(2 sigma) - epsilon sigma/s) - e^epsilon Phi(-s/(2 sigma) - epsilon sigma/s)
    is at most delta, which is the duality of `privaudit.accounting.gdp`. Infinity
    without noise. Arguments as `classical_epsilon`, for any delta in (0, 1).

    >>> round(analytic_epsilon(3.730632, 1e-5), 6)
    1.0
    """
    return float(gdp.epsilon(_mu(sigma, sensitivity), _delta(delta)))


def _mu(sigma: float, sensitivity: float) -> float:
    sensitivity, sigma = _sensitivity(sensitivity), _sigma(sigma)
    if sensitivity == 0:
        return 0.0
    return sensitivity / sigma * (1 + 2 * _UNIT) if sigma else math.inf


def _check_classical(epsilon: float) -> None:
    if not 0 < epsilon < 1:
        raise OutsideTheorem(
            f"the classical Gaussian mechanism is proved for epsilon in (0, 1) only, "
            f"got {epsilon:.6g}; use the analytic one"
        )


def _delta(delta: float) -> float:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    return float(delta)


def _sigma(sigma: float) -> float:
    if not 0 <= sigma < math.inf:
        raise ValueError(f"sigma must be >= 0 and finite, got {sigma}")
    return float(sigma)


def _sensitivity(sensitivity: float) -> float:
    if not 0 <= sensitivity < math.inf:
        raise ValueError(f"a sensitivity must be >= 0 and finite, got {sensitivity}")
    return float(sensitivity)
