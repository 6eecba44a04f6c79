"""What an audit found. Reading it back needs no torch."""

from __future__ import annotations

from typing import Any

import msgspec

from privaudit.auditing.bounds.contract import Evidence
from privaudit.results import LowerBound, Status, UpperBound, Verdict


class AuditResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What an audit found; ``verdict`` puts its three figures together."""

    verdict: Verdict
    status: Status
    evidence: Evidence
    nodes: tuple[UpperBound, ...]
    noise_multiplier: float
    accuracy: float
    member_runs: int
    non_member_runs: int
    seconds: float

    def upper(self) -> UpperBound:
        """The certified account of the worst node."""
        assert self.verdict.upper is not None
        return self.verdict.upper

    def lower(self) -> LowerBound:
        """The audit's bound."""
        assert self.verdict.lower is not None
        return self.verdict.lower

    def summary(self) -> dict[str, Any]:
        """The object that `privaudit audit --json` prints."""
        return {
            "claimed": self.verdict.claim.epsilon,
            "certified": self.upper().epsilon,
            "epsilon_lower": self.lower().epsilon,
            "confidence": self.lower().confidence,
            "delta": self.verdict.claim.delta,
            "relation": self.verdict.claim.relation,
            "runs": {
                "member": self.member_runs,
                "non_member": self.non_member_runs,
            },
            "method": self.lower().method,
            "threat_model": self.lower().threat_model,
            "noise_multiplier": self.noise_multiplier,
            "accuracy": self.accuracy,
            "seconds": self.seconds,
            "verdict": self.status,
        }
