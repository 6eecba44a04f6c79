"""Accounts by a closed formula, from a node's entries to epsilon."""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting import clt, gaussian, gdp
from privaudit.ledger import Entry
from privaudit.release import NoSampling, PoissonSampling, Release
from privaudit.results import Relation

Entries = tuple[Entry, ...]

_UNIT = 2.0**-53


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
    return clt.distance_of_groups(
        (np.full(count, mu), rate)
        for mu, rate, count in _poisson_steps(entries, "add-or-remove-one")
    )


def analytic_epsilon(entries: Entries, delta: float, relation: Relation) -> float:
    """Exact epsilon of a single Gaussian release without sampling, rounded up."""
    release = _single("analytic-gaussian", entries)
    return gaussian.analytic_epsilon(
        release.noise, delta, release.sensitivity_under(relation)
    )


def classical_epsilon(entries: Entries, delta: float, relation: Relation) -> float:
    """Epsilon of a single Gaussian release by the classical theorem, if below 1."""
    release = _single("classical-gaussian", entries)
    return gaussian.classical_epsilon(
        release.noise, delta, release.sensitivity_under(relation)
    )


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
        mu = _shift(release, relation)
        steps.append((mu, release.sampling.rate, entry.count))
    return steps


def _shift(release: Release, relation: Relation) -> float:
    """Sensitivity over noise."""
    multiplier = release.noise_over_sensitivity(relation)
    return 1 / multiplier if multiplier > 1e-300 else math.inf


def _single(account: str, entries: Entries) -> Release:
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
    return release


def _only_gaussian(account: str, release: Release) -> None:
    if release.mechanism != "gaussian":
        raise ValueError(
            f"the {account} account is for Gaussian noise, got {release.mechanism}; "
            "use pld or rdp"
        )
