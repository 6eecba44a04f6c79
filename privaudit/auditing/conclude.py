"""From scores to a finding: which bound decides about a claim, which stands beside it.

A bound that is valid for a family only is about programs of that family. privaudit's
own algorithms are of the family of their ledger, whose noise they add; of a user's
program nobody knows that. Its claim is refuted by a bound for any mechanism alone. One
for a family that is above the account contradicts it: then it may be the account of
another program, and decides nothing either way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable

import msgspec
from msgspec import UNSET, UnsetType

from privaudit.accounting import verdict_on
from privaudit.auditing.bounds import Bound, Estimator, most_shown
from privaudit.auditing.bounds.contract import ANY
from privaudit.auditing.bounds.ledger_family import BOTH, FAMILY
from privaudit.auditing.rates import AttackRates
from privaudit.auditing.scores import Scores
from privaudit.files.json import Summary
from privaudit.files.notebook import box
from privaudit.ledger import Ledger
from privaudit.results import Claim, Finding, LowerBound, Status, UpperBound

BEST = "best"

Named = Callable[[str], Estimator]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tested:
    """Scores of an attack, and how they are read."""

    scores: Scores  # of runs, or of the canaries of one run
    claim: Claim  # what is tested
    sees: str  # what the attacker saw
    confidence: float  # of each bound, as it is stated
    # at which a bound is computed, where several looks share the confidence; None: as
    # it is stated
    at: float | None = None
    seed: int = 0  # of the estimators' own coins

    @property
    def level(self) -> float:
        """The confidence at which bounds are computed."""
        return self.at or self.confidence

    def bound(self, estimator: Estimator) -> Bound:
        """The bound of the scores by ``estimator``."""
        found = estimator(
            self.scores,
            self.claim.delta,
            self.level,
            relation=self.claim.relation,
            threat_model=self.sees,
            seed=self.seed,
        )
        lower = msgspec.structs.replace(
            found.lower,
            unit=self.claim.unit,
            observer=self.claim.observer,
            confidence=self.confidence,
        )
        return dataclasses.replace(found, lower=lower)

    def most(self, estimator: Estimator) -> float:
        """The bound that an attack which never errs would have got."""
        scores = self.scores
        return most_shown(
            *(estimator, scores.member_runs, scores.non_member_runs),
            self.claim.delta,
            self.level,
            design=scores.design,
            seed=self.seed,
            worlds=scores.member,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Concluded:
    """A verdict with the two bounds of its scores."""

    verdict: Finding  # its ``lower`` is ``main``
    # estimator, main: what decides, at all of its confidence
    estimator: Estimator
    main: Bound
    # other, beside: what is said beside it, at a confidence of its own; None where
    # there is none
    other: Estimator | None
    beside: Bound | None

    @property
    def shown(self) -> LowerBound | None:
        """The bound beside the verdict's."""
        return None if self.beside is None else self.beside.lower

    @property
    def most(self) -> float:
        """The largest bound that so many scores could have given: `Finding.most`."""
        assert self.verdict.most is not UNSET
        return self.verdict.most


def deciding(chosen: str, named: Named, *, ours: bool) -> str:
    """The name of the estimator that decides, where ``chosen`` is asked for."""
    return chosen if ours or named(chosen).valid_for == ANY else BEST


def conclude(
    tested: Tested,
    chosen: str,
    named: Named,
    *,
    ledger: Ledger | None = None,
    upper: UpperBound | None = None,
    ours: bool = False,
    stronger: str | UnsetType = UNSET,
) -> Concluded:
    """Conclude from scores.

    ``chosen`` decides if it may, see `deciding`, and stands beside `BEST` otherwise;
    beside one that decides stands that of the ledger's family, or `BEST`. ``named``:
    from a name to an estimator, or ``ValueError``. ``ledger``, ``upper``: what was
    released, and its account. ``ours``: whether the program is privaudit's.
    ``stronger``: what would show more.
    """
    name = deciding(chosen, named, ours=ours)
    beside = BEST if chosen in (FAMILY, BOTH) else FAMILY
    if name != chosen:
        beside = chosen

    estimator = named(name)
    main, other = tested.bound(estimator), None
    if ledger is not None or beside == chosen:
        # What has no noise, or passes over disjoint records, has no family.
        with contextlib.suppress(ValueError):
            other = named(beside)
    found = None if other is None else tested.bound(other)
    claim = tested.claim
    verdict = Finding(claim=claim, lower=main.lower)
    if ledger is not None and upper is not None:
        shown = None if found is None else found.lower
        verdict = verdict_on(claim, ledger, upper, main.lower, shown)
        if verdict.misfit is not None and not ours:
            verdict = msgspec.structs.replace(verdict, proved=None)
    most, by = tested.most(estimator), UNSET
    if most == math.inf and other is not None:  # runs limit those for any mechanism
        most, by = tested.most(other), f"{other.name}, for {other.valid_for}"
    verdict = msgspec.structs.replace(verdict, most=most, most_by=by, stronger=stronger)
    return Concluded(verdict, estimator, main, other, found)


@dataclasses.dataclass(frozen=True, slots=True)
class AuditedScores:
    """The result of `privaudit.audit` or `Canaries.audit`: a verdict and its bounds.

    Parameters
    ----------
    verdict
        Claim, account and audit together.
    member_runs, non_member_runs
        Number of runs with, and without, the record under attack.
    most_shown
        The largest epsilon that so many runs could have shown by the verdict's method.
        Another method, such as one within a family, may show more.
    beside
        Another lower bound from the same scores: valid within the family of the
        ledger's releases, or, if the verdict used that one, for any mechanism.
    rates
        AUROC, and TPR at fixed FPR, with their intervals.
    """

    verdict: Finding
    member_runs: int
    non_member_runs: int
    most_shown: float
    beside: LowerBound | None = None
    rates: AttackRates | None = None

    @classmethod
    def of(
        cls, found: Concluded, scores: Scores, rates: AttackRates | None = None
    ) -> AuditedScores:
        """Conclusion from ``scores``."""
        counts = scores.member_runs, scores.non_member_runs
        return cls(found.verdict, *counts, found.most, found.shown, rates)

    @property
    def status(self) -> Status:
        """The verdict in a word: refuted, disproved, unproven or consistent."""
        return self.verdict.status

    @property
    def lower(self) -> LowerBound:
        """The lower bound on epsilon that the scores show."""
        assert self.verdict.lower is not None
        return self.verdict.lower

    @property
    def upper(self) -> UpperBound | None:
        """The ledger's upper bound on epsilon; None if no ledger was given."""
        return self.verdict.upper

    summary = Summary(
        "claimed=verdict.claim.epsilon certified=upper.epsilon "
        "epsilon_lower=lower.epsilon confidence=lower.confidence "
        "delta=verdict.claim.delta relation=verdict.claim.relation "
        "runs.member=member_runs runs.non_member=non_member_runs method=lower.method "
        "valid_for=lower.valid_for beside most_shown *rates "
        "account_contradicted=verdict.account_contradicted verdict=status"
    )

    def __str__(self) -> str:
        figures = (self.verdict.claim, self.upper, self.lower)
        known = [str(figure) for figure in figures if figure is not None]
        if self.beside is not None:
            known.append(f"for comparison, {self.beside}")
        most = self.verdict.limits
        rates = [] if self.rates is None else [str(self.rates)]
        return "\n".join([*known, most, *rates, str(self.verdict)])

    def _repr_html_(self) -> str:
        return box(self.status.capitalize(), str(self).splitlines())


_MORE_RUNS = "more runs would show more, a stronger attacker is not known"
_STRONGER = {
    "noisy-gradients": _MORE_RUNS,
    "observer": _MORE_RUNS,
    "neighbour": "noisy-gradients sees every release, also those that no message has",
    "releases": "noisy-gradients, which knows all records, and many runs show more",
    "final-models": (
        "of final models alone, gradients crafted anew for every step show more "
        "(Cebere et al. 2025), and so do crafted losses of other records; in a "
        "network each model holds the noise of all nodes, "
        "which final-models-colluding takes off, and noisy-gradients sees every release"
    ),
    "final-models-colluding": "noisy-gradients sees every release by itself",
    "all-models": "noisy-gradients sees every release by itself",
}


def stronger(adversary: str | None, canary: str) -> str:
    """Sentence on what would show more than an attack of ours."""
    crafted = "gradient" in canary
    more = _STRONGER.get(adversary or "", "neighbour and noisy-gradients see far more")
    if crafted or more != _MORE_RUNS:
        return more
    return "a crafted gradient, canary=gradient, shows more than any record"
