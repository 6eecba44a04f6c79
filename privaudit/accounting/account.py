"""One call for every account: ledger, delta and relation in, an upper bound out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from privaudit.accounting import closed_forms, from_dp_accounting, rdp
from privaudit.accounting.parallel import outside_passes, views
from privaudit.accounting.pld import compose_entries
from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, PoissonSampling, SamplingWithoutReplacement
from privaudit.results import Relation, Sampling, Standing, UpperBound

Entries = tuple[Entry, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Method:
    """An account, as a name that a user types and a function of one node's entries.

    Parameters
    ----------
    epsilon
        (entries, delta, relation) to the epsilon that the account gives. Entries
        without noise never reach it, nor passes over disjoint records: it is asked for
        every way through them (`privaudit.accounting.parallel`). Raises
        ``ValueError`` for a release, a relation or a delta that it is not valid for.
    source
        The theorem or paper behind it.
    standing
        What the figure is worth.
    epsilon_below
        The account is valid for smaller epsilon only, and raises
        `privaudit.accounting.gaussian.OutsideTheorem` where it would give more.
    meets
        (entries, delta, relation, epsilon) to whether epsilon is proved to be met, for
        accounts that can tell sooner than they can compute their epsilon.
    """

    name: str
    epsilon: Callable[[Entries, float, Relation], float]
    source: str
    standing: Standing
    epsilon_below: float = math.inf
    meets: Callable[[Entries, float, Relation, float], bool] | None = None


def _certified_meets(
    entries: Entries, delta: float, relation: Relation, epsilon: float
) -> bool:
    """Whether a certified bound is within ``epsilon``, by the widest that tells."""
    composition = compose_entries(entries, relation)
    for width in (0.1, 0.02, 0.004, 0.001):
        bracket = composition.epsilon(delta, width)
        if bracket.upper <= epsilon:
            return True
        if bracket.lower > epsilon:
            return False
    return False


def _certified_epsilon(entries: Entries, delta: float, relation: Relation) -> float:
    return compose_entries(entries, relation).epsilon(delta, 1e-3).upper


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "certified",
            _certified_epsilon,
            "privacy loss distributions, all numerical error bounded "
            "(privaudit/accounting/pld.md)",
            "certified",
            meets=_certified_meets,
        ),
        Method(
            "pld",
            from_dp_accounting.pld_epsilon,
            "privacy loss distributions by connect-the-dots (Doroshenko et al. 2022), "
            "dp-accounting",
            "certified",
        ),
        Method(
            "rdp",
            rdp.rdp_epsilon,
            "Renyi differential privacy (Mironov 2017; Mironov, Talwar, Zhang 2019; "
            "Canonne, Kamath, Steinke 2020)",
            "certified",
        ),
        Method(
            "gdp",
            closed_forms.gdp_epsilon,
            "Gaussian differential privacy, exact (Dong, Roth, Su 2019)",
            "certified",
        ),
        Method(
            "gdp-clt",
            closed_forms.clt_epsilon,
            "central limit of Gaussian differential privacy (Bu et al. 2020; Dyn-D2P, "
            "equation 6)",
            "asymptotic",
        ),
        Method(
            "analytic-gaussian",
            closed_forms.analytic_epsilon,
            "analytic Gaussian mechanism (Balle and Wang 2018)",
            "certified",
        ),
        Method(
            "classical-gaussian",
            closed_forms.classical_epsilon,
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
        known = ", ".join(sorted(METHODS))
        raise ValueError(
            f"there is no account {name!r}; choose one of {known}"
        ) from None


def check_delta(delta: float) -> float:
    """``delta`` if it is in (0, 1), else ``ValueError``."""
    if not 0 < delta < 1:
        raise ValueError(
            f"delta must be in (0, 1), got {delta}; "
            "choose well below one over the number of records"
        )
    return float(delta)


def check_epsilon(epsilon: float) -> float:
    """``epsilon`` if it is a positive number, else ``ValueError``."""
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be > 0 and finite, got {epsilon}")
    return float(epsilon)


def account_nodes(
    ledger: Ledger,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
) -> tuple[UpperBound, ...]:
    """One upper bound a node, for the records that this node holds.

    Every node's releases are taken as seen by all; nodes hold disjoint records, so that
    a record is touched by its own node's releases only, and of those on disjoint
    records by one. Where the ledger assumes something, what would be certified is
    conditional.

    Parameters
    ----------
    ledger
        What was released.
    delta
        In (0, 1).
    relation
        The neighbouring relation.
    method
        A name in ``METHODS``.

    Raises
    ------
    ValueError
        If an argument is out of its range, or the account is not valid for a release.
    """
    chosen = method_named(method)
    delta = check_delta(delta)
    known: dict[Entries, UpperBound] = {}  # nodes alike are accounted once
    for entries in ledger.nodes:
        if entries not in known:
            known[entries] = _bound(chosen, entries, delta, relation, ledger)
    return tuple(known[entries] for entries in ledger.nodes)


def account(
    ledger: Ledger,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
) -> UpperBound:
    """The upper bound of the node that is worst off; arguments as `account_nodes`.

    It holds for every record of the network.
    """
    return max(
        account_nodes(ledger, delta, relation, method), key=lambda bound: bound.epsilon
    )


def is_met(
    ledger: Ledger, epsilon: float, delta: float, relation: Relation, method: str
) -> bool | None:
    """Whether every node is proved to meet (epsilon, delta), as fast as can be told.

    None if the account has no faster way than to compute its epsilon.
    """
    chosen = method_named(method)
    if chosen.meets is None:
        return None
    left = check_delta(delta) - ledger.failure
    return all(
        all(entry.release.is_private for entry in view)
        and left > 0
        and chosen.meets(view, left, relation, epsilon)
        for entries in dict.fromkeys(ledger.nodes)
        if entries
        for view in views(entries, relation)
    )


def certified_lower(
    entries: Entries, bound: UpperBound, width: float = 1e-3, *, failure: float = 0.0
) -> tuple[float, dict[str, float]]:
    """What epsilon is no less than, proved, and the upper bound of each direction.

    The lower side of a certified ``bound`` on ``entries``: 0 where nothing was
    released, infinity where no noise was. Releases of a pass over disjoint records, and
    of a unit larger than a record, add nothing to it: no data are known to attain what
    they are accounted as; nor of anything with a chance of ``failure``, which both
    directions pay. These are a record removed and a record added, or the first alone if
    the relation is its own mirror image.
    """
    if not entries:
        return 0.0, {"remove": 0.0}
    if bound.epsilon == math.inf and not all(e.release.is_private for e in entries):
        return math.inf, {"remove": math.inf}
    left = bound.delta - failure
    if not left > 0:
        return 0.0, {"remove": math.inf}
    lower, each = 0.0, {}
    for view in views(entries, bound.relation):
        composition = compose_entries(view, bound.relation)
        for way, bracket in composition.epsilon_each(left, width).items():
            lower = max(lower, bracket.lower)
            each[str(way)] = max(each.get(str(way), 0.0), bracket.upper)
    shared = outside_passes(entries)
    if bound.unit != "record" or failure > 0:
        lower = 0.0
    elif len(shared) < len(entries):
        rest = compose_entries(shared, bound.relation)
        lower = rest.epsilon(bound.delta, width).lower
    return lower, each


def _bound(
    method: Method, entries: Entries, delta: float, relation: Relation, ledger: Ledger
) -> UpperBound:
    left = delta - ledger.failure
    if not entries:
        epsilon = 0.0
    elif not all(entry.release.is_private for entry in entries) or not left > 0:
        epsilon = math.inf
    else:
        epsilon = max(
            method.epsilon(view, left, relation) for view in views(entries, relation)
        )
    assumes = ledger.assumptions
    conditional = assumes and method.standing == "certified"
    return UpperBound(
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        unit=ledger.unit,
        method=method.name,
        source=method.source,
        standing="conditional" if conditional else method.standing,
        sampling=_sampling(entries),
        assumes=assumes,
    )


def _sampling(entries: Entries) -> Sampling:
    names: dict[type, Sampling] = {
        PoissonSampling: "poisson",
        SamplingWithoutReplacement: "without-replacement",
        NoSampling: "none",
    }
    found = {names[type(entry.release.sampling)] for entry in entries}
    if not found:
        return "none"
    return found.pop() if len(found) == 1 else "mixed"
