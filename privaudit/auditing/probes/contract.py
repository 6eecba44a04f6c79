"""Report of a probe."""

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
