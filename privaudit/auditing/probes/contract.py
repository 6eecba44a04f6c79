"""Report of a probe."""

from __future__ import annotations

import msgspec


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that was looked at.

    Parameters
    ----------
    name
        A word or two.
    what
        What holds if there are no findings, in words.
    findings
        What was found wrong, in sentences.
    skipped
        Why it was not looked at; empty if it was.
    """

    name: str
    what: str
    findings: tuple[str, ...] = ()
    skipped: str = ""

    def __post_init__(self) -> None:
        if self.findings and self.skipped:
            raise ValueError(f"{self.name} was skipped and cannot have findings")

    @property
    def status(self) -> str:
        """ok, a finding, or not looked at."""
        if self.skipped:
            return "not looked at"
        return "finding" if self.findings else "ok"
