"""The result of an audit. Reading it needs no torch."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from privaudit.auditing.bounds.contract import Evidence
from privaudit.auditing.experiments.looks import Stopped
from privaudit.auditing.rates import AttackRates
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

    def summary(self) -> dict[str, float]:
        """The parts, and the most, for JSON."""
        return {
            "account": self.account,
            "statistics": self.statistics,
            "attack": self.attack,
            "most_shown": self.most,
        }


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

    def summary(self) -> dict[str, Any]:
        """All figures, for JSON."""
        upper, lower, claim = self.verdict.upper, self.lower(), self.verdict.claim
        return {
            "claimed": claim.epsilon,
            "certified": None if upper is None else upper.epsilon,
            "certified_lower": self.verdict.certified_lower,
            "standing": None if upper is None else upper.standing,
            "epsilon_lower": lower.epsilon,
            "confidence": lower.confidence,
            "delta": claim.delta,
            "relation": claim.relation,
            "runs": {"member": self.member_runs, "non_member": self.non_member_runs},
            "stopped": None
            if self.stopped is None
            else msgspec.structs.asdict(self.stopped),
            "method": lower.method,
            "valid_for": lower.valid_for,
            "gap": None if self.gap is None else self.gap.summary(),
            "beside": None
            if self.beside is None
            else {
                "epsilon_lower": self.beside.epsilon,
                "method": self.beside.method,
                "valid_for": self.beside.valid_for,
                "gap": None if self.beside_gap is None else self.beside_gap.summary(),
            },
            **({} if self.rates is None else self.rates.summary()),
            "seconds": self.seconds,
            "account_contradicted": self.verdict.account_contradicted,
            "verdict": self.status,
        }


class AuditResult(Outcome, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Finding of an audit of an algorithm."""

    nodes: tuple[UpperBound, ...]
    noise_multiplier: float | tuple[float, ...]
    accuracy: float | None

    def upper(self) -> UpperBound:
        """The certified account of the worst node."""
        assert self.verdict.upper is not None
        return self.verdict.upper

    def summary(self) -> dict[str, Any]:
        """The object that `privaudit audit --json` prints."""
        canaries = self.member_runs + self.non_member_runs
        return {
            **super().summary(),
            "canaries": canaries if self.lower().in_one_run else None,
            "threat_model": self.lower().threat_model,
            "observer": self.upper().observer or None,
            "noise_multiplier": self.noise_multiplier,
            "accuracy": self.accuracy,
        }
