"""The account of a training for one observer: what its budget is held to."""

from __future__ import annotations

from privaudit.accounting.account import account_nodes
from privaudit.accounting.views.butterfly import observed
from privaudit.accounting.views.figures import Pair, diluted
from privaudit.accounting.views.observer import ANY_NODE, Observer
from privaudit.ledger import Ledger
from privaudit.results import Relation, UpperBound

# Algorithms whose ledgers alone say what each observer learns, and how they sum.
_PROVED = {
    "dp-butterfly": "butterfly",
    "dp-chain": "chain",
    "dp-mf-butterfly": "butterfly",
}


def check_observer(algorithm: str, observer: str, nodes: int) -> str:
    """``observer``, as it is written down; ``ValueError`` if there is none such."""
    if algorithm not in _PROVED:
        raise ValueError(
            f"a budget for an observer is proved for {', '.join(_PROVED)}, not for "
            f"{algorithm}: leave --observer out, and see what each node learns with "
            "`privaudit views`"
        )
    if observer == ANY_NODE:
        return observer
    who = Observer.parse(observer)
    who.check(nodes)
    if len(who.nodes) == nodes:
        raise ValueError(
            f"observer {who.name}: nobody is left to be protected, all nodes collude"
        )
    return str(who.name)


def observed_by(
    algorithm: str, ledger: Ledger, observer: str | None, relation: Relation
) -> Ledger:
    """``ledger`` as ``observer`` sees it; as it is, if that is None."""
    if observer is None:
        return ledger
    check_observer(algorithm, observer, len(ledger.nodes))
    return observed(ledger, observer, relation, _PROVED[algorithm])


def pairs_observed(
    algorithm: str, ledger: Ledger, delta: float, relation: Relation
) -> tuple[Pair, ...]:
    """Bounds of each node for each other one; none where no ledger alone says so."""
    if algorithm not in _PROVED or not any(ledger.nodes) or ledger.most_nodes > 1:
        return ()
    return diluted(ledger, delta, None, relation, _PROVED[algorithm])


def account_observed(
    algorithm: str,
    ledger: Ledger,
    observer: str | None,
    delta: float,
    relation: Relation,
    method: str = "certified",
) -> tuple[UpperBound, ...]:
    """As `account_nodes`, for ``observer``; for its own nodes of all releases."""
    seen = observed_by(algorithm, ledger, observer, relation)
    told = account_nodes(seen, delta, relation, method)
    if not seen.observing:
        return told
    every = account_nodes(ledger, delta, relation, method)
    return tuple(
        every[node] if node in seen.observing else told[node]
        for node in range(len(told))
    )
