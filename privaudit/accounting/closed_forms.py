"""Accounts by a closed formula, from a node's entries to epsilon.

References
----------
Dwork and Roth, "The algorithmic foundations of differential privacy" (2014), Theorem
A.1. Balle and Wang, "Improving the Gaussian mechanism for differential privacy",
ICML 2018, arXiv:1805.06530, Theorem 8.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting import clt, gdp
from privaudit.ledger import Entry
from privaudit.release import NoSampling, PoissonSampling, Release
from privaudit.results import Relation, check_delta

Entries = tuple[Entry, ...]

_UNIT = 2.0**-53


class OutsideTheorem(ValueError):
    """A theorem that says nothing for this little noise; for more it may."""


def classical_sigma(epsilon: float, delta: float) -> float:
    """Noise sqrt(2 ln(1.25/delta)) / epsilon over the L2 sensitivity, rounded up.

    Theorem A.1 of Dwork and Roth, proved for ``epsilon`` and ``delta`` in (0, 1), else
    `OutsideTheorem` and ``ValueError``.

    >>> round(classical_sigma(0.5, 1e-5), 4)
    9.6896
    """
    if not 0 < epsilon < 1:
        raise OutsideTheorem(
            f"the classical Gaussian mechanism is proved for epsilon in (0, 1) only, "
            f"got {epsilon:.6g}; use the analytic one"
        )
    found = math.sqrt(2 * math.log(1.25 / check_delta(delta))) / epsilon
    return found * (1 + 16 * _UNIT)


def gdp_epsilon(entries: Entries, delta: float, relation: Relation) -> float:
    """Exact epsilon of Gaussian releases without sampling, rounded up."""
    return float(gdp.epsilon(total_mu(entries, relation), delta))


def total_mu(entries: Entries, relation: Relation) -> float:
    """The mu of all ``entries``, Gaussian, unsampled, rounded up: root of squares."""
    parts = []
    for entry in entries:
        release = entry.release
        _only_gaussian("gdp", release)
        if not isinstance(release.sampling, NoSampling):
            raise ValueError(
                f"the gdp account is exact for releases without sampling only, got "
                f"{release.sampling}; use pld or rdp (gdp-clt is its limit, no bound)"
            )
        mu = (1 + 2 * _UNIT) * _shift(release, relation)
        parts.append(mu * math.sqrt(entry.count) * (1 + 2 * _UNIT))
    return gdp.compose(parts)


def clt_epsilon(entries: Entries, delta: float, relation: Relation) -> float:
    """Epsilon by equation 6 of the Dyn-D2P paper: a limit, and no bound.

    ``ValueError`` for other noise, sampling than Poisson, and replace-one.
    """
    parts = [
        clt.clt_mu([mu], rate) * math.sqrt(count)
        for mu, rate, count in _poisson_steps(entries, relation)
    ]
    return float(gdp.epsilon(gdp.compose(parts), delta))


def clt_distance(entries: Entries) -> float:
    """Distance of the gdp-clt account from its limit, as `clt.distance_from_limit`."""
    return clt.distance_from_limit(
        (np.full(count, mu), rate)
        for mu, rate, count in _poisson_steps(entries, "add-or-remove-one")
    )


def analytic_epsilon(entries: Entries, delta: float, relation: Relation) -> float:
    """Exact epsilon of a single Gaussian release without sampling, rounded up.

    Theorem 8 of Balle and Wang is the duality of `privaudit.accounting.gdp`.
    """
    _check_single("analytic-gaussian", entries)
    return gdp_epsilon(entries, delta, relation)


def classical_epsilon(entries: Entries, delta: float, relation: Relation) -> float:
    """Epsilon of a single Gaussian release by the classical theorem, if below 1."""
    _check_single("classical-gaussian", entries)
    shift = _shift(entries[0].release, relation)
    if shift == 0:
        return 0.0
    epsilon = classical_sigma(0.5, delta) * 0.5 * shift * (1 + 4 * _UNIT)
    classical_sigma(epsilon, delta)  # raises where it is not proved
    return epsilon


def _poisson_steps(
    entries: Entries, relation: Relation
) -> list[tuple[float, float, int]]:
    if relation != "add-or-remove-one":
        raise ValueError(
            f"the gdp-clt account is for add-or-remove-one, got {relation}; use pld"
        )
    steps = []
    for entry in entries:
        release = entry.release
        _only_gaussian("gdp-clt", release)
        if not isinstance(release.sampling, PoissonSampling):
            raise ValueError(
                f"the gdp-clt account is for Poisson sampling, got {release.sampling}; "
                "use gdp without sampling, rdp for a sample of fixed size"
            )
        steps.append((_shift(release, relation), release.sampling.rate, entry.count))
    return steps


def _shift(release: Release, relation: Relation) -> float:
    """Sensitivity of ``release`` over its noise; infinity without noise."""
    multiplier = release.noise_over_sensitivity(relation)
    return 1 / multiplier if multiplier > 1e-300 else math.inf


def _check_single(account: str, entries: Entries) -> None:
    if len(entries) != 1 or entries[0].count != 1:
        count = sum(entry.count for entry in entries)
        raise ValueError(
            f"the {account} account is for a single release, got {count}; use gdp"
        )
    release = entries[0].release
    _only_gaussian(account, release)
    if not isinstance(release.sampling, NoSampling):
        raise ValueError(
            f"the {account} account is for a release without sampling, got "
            f"{release.sampling}; use pld or rdp"
        )


def _only_gaussian(account: str, release: Release) -> None:
    if release.mechanism != "gaussian":
        raise ValueError(
            f"the {account} account is for Gaussian noise, got {release.mechanism}; "
            "use pld or rdp"
        )
