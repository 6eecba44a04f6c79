"""Deterministic probes: what most privacy bugs show in a few runs, without statistics.

Runs under equal streams differ by one record alone, or by the noise alone; what differs
is held against the ledger. What is random in a check is allowed five standard
deviations, so that right code is not accused.
"""

from __future__ import annotations

import msgspec

from privaudit.files.json import Summary


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that was looked at."""

    name: str  # a word or two
    what: str  # what holds if there are no findings, in words
    findings: tuple[str, ...] = ()  # what was found wrong, in sentences
    skipped: str = ""  # why it was not looked at; empty if it was

    summary = Summary("name what findings skipped status")

    def __post_init__(self) -> None:
        if self.findings and self.skipped:
            raise ValueError(f"{self.name} was skipped and cannot have findings")

    @property
    def status(self) -> str:
        """ok, a finding, or not looked at."""
        if self.skipped:
            return "not looked at"
        return "finding" if self.findings else "ok"
