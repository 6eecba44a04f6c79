"""From scores to a verdict: which bound decides about a claim, which stands beside it.

A bound that is valid for a family only is about programs of that family. privaudit's
own algorithms are of the family of their ledger, whose noise they add; of a user's
program nobody knows that. Its claim is refuted by a bound for any mechanism alone. One
for a family that is above the account contradicts it: then it may be the account of
another program, and decides nothing either way.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import msgspec

from privaudit.accounting import verdict_on
from privaudit.auditing.bounds import Bound, Estimator
from privaudit.auditing.bounds.ledger_family import FAMILY
from privaudit.ledger import Ledger
from privaudit.results import Claim, Finding, LowerBound, UpperBound

ANY = "any mechanism"
BEST = "best"

Named = Callable[[str], Estimator]


@dataclasses.dataclass(frozen=True, slots=True)
class Concluded:
    """A verdict with the two bounds of its scores.

    Parameters
    ----------
    verdict
        Its ``lower`` is ``main``.
    estimator, main
        What decides, at all of its confidence.
    other, beside
        What is said beside it, at a confidence of its own; None where there is none.
    """

    verdict: Finding
    estimator: Estimator
    main: Bound
    other: Estimator | None
    beside: Bound | None

    @property
    def shown(self) -> LowerBound | None:
        """The bound beside the verdict's."""
        return None if self.beside is None else self.beside.lower


def deciding(chosen: str, named: Named, *, ours: bool) -> str:
    """The name of the estimator that decides, where ``chosen`` is asked for.

    ``ours`` is whether the program is privaudit's own. Raises what ``named`` does.
    """
    return chosen if ours or named(chosen).valid_for == ANY else BEST


def conclude(
    claim: Claim,
    chosen: str,
    named: Named,
    bound: Callable[[Estimator], Bound],
    *,
    ledger: Ledger | None = None,
    upper: UpperBound | None = None,
    ours: bool = False,
) -> Concluded:
    """Conclude from scores, whose bounds ``bound`` computes.

    Parameters
    ----------
    claim
        What is tested.
    chosen
        The estimator that was asked for: it decides if it may, see `deciding`, and
        stands beside `BEST` otherwise. Beside one that decides stands that of the
        ledger's family, or `BEST` if that family's own decides.
    named
        From a name to an estimator. ``ValueError`` where there is none such.
    bound
        From an estimator to its bound, at all of the confidence.
    ledger, upper
        What was released, and its account; None if nobody says.
    ours
        Whether the program is one of privaudit's own.
    """
    name = deciding(chosen, named, ours=ours)
    beside = BEST if chosen == FAMILY else FAMILY
    if name != chosen:
        beside = chosen
    estimator = named(name)
    main, other = bound(estimator), None
    if ledger is not None or beside == chosen:
        # What has no noise, or passes over disjoint records, has no family.
        with contextlib.suppress(ValueError):
            other = named(beside)
    found = None if other is None else bound(other)
    verdict = Finding(claim=claim, lower=main.lower)
    if ledger is not None and upper is not None:
        shown = None if found is None else found.lower
        verdict = verdict_on(claim, ledger, upper, main.lower, shown)
        if verdict.misfit is not None and not ours:
            verdict = msgspec.structs.replace(verdict, proved=None)
    return Concluded(verdict, estimator, main, other, found)
