"""The result of an audit. Reading it needs no torch."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from privaudit.auditing.bounds.contract import Evidence
from privaudit.auditing.experiments.looks import Stopped
from privaudit.auditing.rates import AttackRates
from privaudit.files.json import Summary
from privaudit.results import (
    Finding,
    LowerBound,
    Status,
    UpperBound,
    round_down,
    round_up,
)

_EXACT = 1e-3  # relative; slack of an account below is not told


class Gap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gap between certified and shown epsilon, in parts, for one estimator."""

    certified: float  # upper bound of the canary's node
    # what the mechanism that was accounted attains, proved: the rest of ``certified``
    # is slack of the account
    attained: float
    # about the bound that the best attack on that mechanism gives in so many runs: the
    # rest of ``attained`` is for want of runs, or of a sharper estimator
    reachable: float
    found: float  # the bound: the rest of ``reachable`` is what the attack did not get
    # the bound that so many runs give to an attack that never errs, whatever the
    # mechanism; infinity where the estimator is for a family, whose least noise is its
    # only limit
    most: float
    counted: str = "runs"  # what there are so many of: runs, or the canaries of one run

    @property
    def account(self) -> float:
        """Slack of the account, >= 0."""
        return max(0.0, self.certified - self.attained)

    @property
    def statistics(self) -> float:
        """Part that no attack could have shown in so many runs."""
        return self.attained - self.reachable

    @property
    def attack(self) -> float:
        """Part that the best attack would have shown and this one did not, or minus."""
        return self.reachable - self.found

    @property
    def overshoot(self) -> float:
        """Excess of the audit over the account; at most 0 where there is a gap."""
        return self.found - self.certified

    def __str__(self) -> str:
        many = f"so many {self.counted}"
        most = (
            ""
            if self.most == math.inf
            else f" With {many} no attack can show more than {round_down(self.most)} "
            "by this method, whatever the mechanism."
        )
        if self.overshoot > 0:
            return (
                f"No gap: audited {round_down(self.found)} is {self.overshoot:.3g} "
                "above what the account says, by chance or because more was released "
                f"than accounted.{most}"
            )
        slack = f"{self.account:.3g} because the account is not exact"
        parts = [
            f"{self.statistics:.3g} because {many} cannot show more",
            f"{self.attack:.3g} because the attack is weaker than the best one"
            if self.attack >= 0
            else f"of which {-self.attack:.3g} comes off because the attack showed "
            "more than the best one usually does (by chance, or because more was "
            "released than accounted)",
            *([slack] if self.account > _EXACT * self.certified else []),
        ]
        said = ", ".join(part for part in parts if not part.startswith("0 "))
        gap = (
            f"Gap of {-self.overshoot:.3g} between account {round_up(self.certified)} "
            f"and audit {round_down(self.found)}"
        )
        return f"{f'{gap}: {said}' if said else gap}.{most}"

    summary = Summary("account statistics attack most_shown=most")


class Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds that scores of two worlds show; ``verdict`` puts the figures together.

    ``beside``: another bound, of the family or for any mechanism, with its own
    confidence. ``rates``: how well the worlds were told apart. ``stopped``: after how
    many runs.
    """

    verdict: Finding
    status: Status
    evidence: Evidence
    member_runs: int
    non_member_runs: int
    seconds: float
    gap: Gap | None = None
    beside: LowerBound | None = None
    beside_gap: Gap | None = None
    rates: AttackRates | None = None
    stopped: Stopped | None = None

    def lower(self) -> LowerBound:
        """The audit's bound."""
        assert self.verdict.lower is not None
        return self.verdict.lower

    def limits(self) -> list[str]:
        """The parts of the gap, and the bound beside the verdict's, in sentences."""
        lines = []
        if self.gap is not None:
            lines.append(f"  {self.gap}")
        if self.beside is not None:
            lines.append(f"for comparison, {self.beside}")
        return lines

    summary = Summary(
        "claimed=verdict.claim.epsilon certified=verdict.upper.epsilon "
        "certified_lower=verdict.certified_lower standing=verdict.upper.standing "
        "epsilon_lower=lower.epsilon confidence=lower.confidence "
        "delta=verdict.claim.delta relation=verdict.claim.relation "
        "runs.member=member_runs runs.non_member=non_member_runs stopped "
        "method=lower.method valid_for=lower.valid_for gap beside=_beside *rates "
        "seconds account_contradicted=verdict.account_contradicted verdict=status"
    )

    def _beside(self) -> dict[str, Any] | None:
        if self.beside is None:
            return None
        gap = None if self.beside_gap is None else self.beside_gap.summary()
        return {**self.beside.summary(), "gap": gap}


class AuditResult(Outcome, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Finding of an audit of an algorithm."""

    nodes: tuple[UpperBound, ...]
    noise_multiplier: float | tuple[float, ...]
    accuracy: float | None

    def upper(self) -> UpperBound:
        """The certified account of the worst node."""
        assert self.verdict.upper is not None
        return self.verdict.upper

    summary = Outcome.summary + (
        "canaries=_canaries threat_model=lower.threat_model observer=upper.observer "
        "noise_multiplier accuracy"
    )

    def _canaries(self) -> int | None:
        canaries = self.member_runs + self.non_member_runs
        return canaries if self.lower().in_one_run else None
