"""Finding from scores of a user's own training."""

from __future__ import annotations

import dataclasses

from privaudit.auditing.conclude import Concluded
from privaudit.auditing.rates import AttackRates
from privaudit.auditing.scores import Scores
from privaudit.files.json import Summary
from privaudit.files.notebook import box
from privaudit.results import Finding, LowerBound, Status, UpperBound


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
        cls,
        found: Concluded,
        scores: Scores,
        beside: LowerBound | None,
        rates: AttackRates | None = None,
    ) -> AuditedScores:
        """Conclusion from ``scores``."""
        counts = scores.member_runs, scores.non_member_runs
        return cls(found.verdict, *counts, found.most, beside, rates)

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
