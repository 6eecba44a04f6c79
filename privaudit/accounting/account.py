"""All accounts by name: from ledger, delta and relation to an upper bound."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import msgspec

from privaudit.accounting import closed_forms, rdp
from privaudit.accounting.certificate import Certificate
from privaudit.ledger import Entry, Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    SamplingWithoutReplacement,
)
from privaudit.results import (
    Relation,
    Sampling,
    Standing,
    UpperBound,
    check_delta,
)

Entries = tuple[Entry, ...]
Worth = Callable[[Certificate, float], float]


@dataclasses.dataclass(frozen=True, slots=True)
class Method:
    """An account, as a name that a user types and what it says of a certificate."""

    name: str
    # (certificate, delta in (0, 1)) to the epsilon that the account gives. Raises
    # ``ValueError`` for a release, a relation or a delta that it is not valid for
    epsilon: Worth
    source: str  # the theorem or paper behind it
    standing: Standing  # what the figure is worth
    # the account is valid for smaller epsilon only, and raises
    # `privaudit.accounting.closed_forms.OutsideTheorem` where it would give more
    epsilon_below: float = math.inf


def _certified(certificate: Certificate, delta: float) -> float:
    return certificate.epsilon(delta, sides="upper").upper


def _alone(epsilon: Callable[[Entries, float, Relation], float]) -> Worth:
    """Worth of one account alone, for releases in sequence, with noise."""
    return lambda certificate, delta: certificate.upper_by(epsilon, delta)


def _pld_epsilon(entries: Entries, delta: float, relation: Relation) -> float:
    from privaudit.accounting.events import pld_epsilon  # dp-accounting is slow to load

    return pld_epsilon(entries, delta, relation)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "certified",
            _certified,
            "the best of closed forms, pure bound, total variation, privacy loss "
            "distributions and Renyi divergences, all numerical error bounded "
            "(privaudit/accounting/provers.py)",
            "certified",
        ),
        Method(
            "pld",
            _alone(_pld_epsilon),
            "privacy loss distributions by connect-the-dots (Doroshenko et al. 2022), "
            "dp-accounting",
            "certified",
        ),
        Method(
            "rdp",
            _alone(rdp.rdp_epsilon),
            "Renyi differential privacy (Mironov 2017; Mironov, Talwar, Zhang 2019; "
            "Canonne, Kamath, Steinke 2020)",
            "certified",
        ),
        Method(
            "gdp",
            _alone(closed_forms.gdp_epsilon),
            "Gaussian differential privacy, exact (Dong, Roth, Su 2019)",
            "certified",
        ),
        Method(
            "gdp-clt",
            _alone(closed_forms.clt_epsilon),
            "central limit of Gaussian differential privacy (Bu et al. 2020; Dyn-D2P, "
            "equation 6)",
            "asymptotic",
        ),
        Method(
            "analytic-gaussian",
            _alone(closed_forms.analytic_epsilon),
            "analytic Gaussian mechanism (Balle and Wang 2018)",
            "certified",
        ),
        Method(
            "classical-gaussian",
            _alone(closed_forms.classical_epsilon),
            "classical Gaussian mechanism (Dwork and Roth 2014, Theorem A.1)",
            "certified",
            epsilon_below=1.0,
        ),
    )
}


def method_named(name: str) -> Method:
    """The account called ``name``; ``ValueError`` lists those that there are."""
    try:
        return METHODS[name]
    except KeyError:
        raise ValueError(
            f"there is no account {name!r}; choose one of {', '.join(sorted(METHODS))}"
        ) from None


def account_nodes(
    ledger: Ledger,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
) -> tuple[UpperBound, ...]:
    """One upper bound a node, for the records that this node holds.

    Each node's releases are taken as seen by all, a record touched by its own node's
    alone, and by one of those on disjoint records; unless the ledger says that it may
    be at more nodes. What the ledger assumes makes it conditional. ``method``: a name
    in ``METHODS``.
    """
    known: dict[Certificate, UpperBound] = {}  # nodes alike are accounted once
    whole = Certificate.of(ledger, relation)
    nodes = [whole.held_by(index) for index in range(len(ledger.nodes))]
    for one in nodes:
        if one not in known:
            known[one] = msgspec.structs.replace(
                bound_of(one, delta, method), overlap=whole.told_overlap
            )
    return tuple(known[one] for one in nodes)


def account(
    ledger: Ledger,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
) -> UpperBound:
    """The upper bound of the worst node, for all records; as `account_nodes`."""
    bounds = account_nodes(ledger, delta, relation, method)
    hidden = [b for node, b in enumerate(bounds) if node not in ledger.observing]
    return max(hidden, key=lambda bound: bound.epsilon)


def check_delta_of(method: Method, delta: float) -> float:
    """``delta`` if the account takes it, else ``ValueError``."""
    return 0.0 if delta == 0 and method.name == "certified" else check_delta(delta)


def bound_of(
    certificate: Certificate, delta: float, method: str = "certified"
) -> UpperBound:
    """The upper bound of a certificate, at delta 0 too; see `account_nodes`."""
    chosen = method_named(method)
    delta = check_delta_of(chosen, delta)
    assumes, standing = certificate.ledger.assumptions, chosen.standing
    return UpperBound(
        epsilon=chosen.epsilon(certificate, delta),
        delta=delta,
        relation=certificate.relation,
        unit=certificate.ledger.unit,
        method=chosen.name,
        source=chosen.source,
        standing=certificate.standing if standing == "certified" else standing,
        sampling=_sampling(certificate.ledger),
        assumes=assumes,
        observer=certificate.ledger.observer,
        overlap=certificate.told_overlap,
    )


def _sampling(ledger: Ledger) -> Sampling:
    names: dict[type, Sampling] = {
        PoissonSampling: "poisson",
        SamplingWithoutReplacement: "without-replacement",
        RandomAllocation: "random-allocation",
        NoSampling: "none",
    }
    found: set[Sampling] = {
        "reshuffled"
        if isinstance(how, RandomAllocation) and how.shuffled is True
        else names[type(how)]
        for entries in ledger.nodes
        for how in (entry.release.sampling for entry in entries)
    }
    if not found:
        return "none"
    return found.pop() if len(found) == 1 else "mixed"
