"""The verdict on a claim that accounts give, from above and below."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from privaudit.accounting.certificate import Certificate
from privaudit.ledger import Ledger
from privaudit.results import (
    Bracket,
    Claim,
    Finding,
    LowerBound,
    UpperBound,
    worst_bound,
)


def verdict_by_node(
    claim: Claim,
    budgets: Sequence[float] | None,
    ledger: Ledger,
    nodes: Sequence[UpperBound],
) -> Finding:
    """The verdict on a claim of all ``nodes``, by their accounts and ``budgets``."""
    for node, (own, bound) in enumerate(zip(budgets or (), nodes, strict=False)):
        if not bound.epsilon <= own:
            alone = msgspec.structs.replace(ledger, nodes=(ledger.nodes[node],))
            return verdict_on(msgspec.structs.replace(claim, epsilon=own), alone, bound)
    return verdict_on(claim, ledger, worst_bound(nodes))


_WIDTHS = (0.1, 1e-3)  # most claims that are false are so by more than a tenth


def verdict_on(
    claim: Claim,  # what is promised of what was released
    ledger: Ledger,  # what was released
    upper: UpperBound,  # its account, of the worst node
    lower: LowerBound | None = None,  # what an audit showed
    # what its scores show by another method; see `Finding.held_against`
    beside: LowerBound | None = None,
) -> Finding:
    """The verdict on ``claim``, with a proved lower side where that may decide."""
    known = Finding(claim=claim, upper=upper, lower=lower).held_against(beside)
    met = (
        upper.standing in ("certified", "conditional")  # else it bounds nothing
        and upper.delta <= claim.delta
        and upper.epsilon <= claim.epsilon
    )
    if met or known.status == "refuted" or claim.observer is not UNSET:
        # No lower side of the same releases could change it, or none is known of what
        # an observer sees.
        return known
    return msgspec.structs.replace(known, proved=_lower_side(claim, ledger))


def _lower_side(claim: Claim, ledger: Ledger) -> Bracket | None:
    """Lower side of epsilon, as narrow as it takes to disprove the claim; or None."""
    found = None
    try:
        certificate = Certificate.of(ledger, claim.relation)
        for width in _WIDTHS:
            found = certificate.epsilon(claim.delta, width, "lower")
            if found.lower > claim.epsilon:
                break
    except ValueError:  # releases that only another account has a meaning for
        return None
    return found
