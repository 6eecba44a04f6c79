"""The family of a run's own releases, with more or less noise than was accounted."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
from numpy.typing import NDArray

from privaudit.accounting import Certificate
from privaudit.accounting.allocation import is_allocated
from privaudit.accounting.pld import compose_entries
from privaudit.auditing.bounds.best import Best, BestOf
from privaudit.auditing.bounds.contract import Estimator
from privaudit.auditing.bounds.family_ranks import RanksOfFamily
from privaudit.auditing.bounds.top_half import NoiseFamily, TopHalfOfFamily
from privaudit.ledger import Entry, Ledger
from privaudit.results import Relation

Floats = NDArray[np.float64]

FAMILY = "family"  # the estimator's name where estimators are named
BOTH = "both"  # that one and the best for any mechanism, whichever is larger
_WIDTH = 2e-3  # of the brackets, relative


def has_family(entries: tuple[Entry, ...]) -> bool:
    """Return whether all releases are sums with noise to scale, and there are any."""
    return bool(entries) and all(
        entry.release.is_private and entry.release.details is msgspec.UNSET
        for entry in entries
    )


def noise_family(entries: tuple[Entry, ...], relation: Relation) -> NoiseFamily:
    """Mechanisms that release what ``entries`` say, all noise times a common factor."""
    if Certificate.of(Ledger(nodes=(entries,)), relation).has_passes:
        raise ValueError(
            "a family of noise scales has no curve of passes over disjoint records: "
            "use an estimator for any mechanism, such as best"
        )
    if not has_family(entries):
        raise ValueError(
            "a family of noise scales needs noisy sums: use an estimator for any "
            "mechanism, such as best"
        )

    @functools.cache
    def certificate(factor: float) -> Certificate:
        return Certificate.of(Ledger(nodes=(scaled(entries, factor),)), relation)

    # Bounds from several scores ask at the same factors: theirs are halvings.
    @functools.cache
    def delta_up(factor: float, epsilon: float) -> float:
        return certificate(factor).delta(epsilon, _WIDTH, "upper").upper

    @functools.cache
    def epsilon_down(factor: float, delta: float) -> float:
        return certificate(factor).epsilon(delta, _WIDTH).lower

    @functools.cache
    def lines(factor: float) -> tuple[Floats, Floats]:
        (releases,) = certificate(factor).ledger.nodes
        # A member is one record more, or the canary in a record's place.
        return compose_entries(releases, relation).lines("remove")

    allocated = any(map(is_allocated, entries))
    return NoiseFamily(
        name="this run's releases with more or less noise",
        delta_up=delta_up,
        epsilon_down=epsilon_down,
        least_noise=0.05,
        most_noise=50.0,
        lines=None if allocated else lines,
    )


def both(entries: tuple[Entry, ...], relation: Relation) -> Estimator:
    """The larger of the best bound and the family's, each at half of alpha."""
    return BestOf((Best(), family_bound(entries, relation)))


def scaled(entries: tuple[Entry, ...], factor: float) -> tuple[Entry, ...]:
    """The same releases with ``factor`` times the noise."""
    return tuple(
        Entry(
            msgspec.structs.replace(entry.release, noise=entry.release.noise * factor),
            entry.count,
        )
        for entry in entries
    )


@functools.lru_cache(maxsize=8)  # its curves serve further audits of such releases
def family_bound(entries: tuple[Entry, ...], relation: Relation) -> Estimator:
    """The estimator within the family of ``entries``: by ranks, or by the top half."""
    family = noise_family(entries, relation)
    return TopHalfOfFamily(family) if family.lines is None else RanksOfFamily(family)
