"""Looking at an audit before its runs are spent, without losing its confidence.

After a sixteenth of them, an eighth, a quarter, a half, all: shares of alpha, all
together one, so that all bounds hold at once (union bound). One may stop at any.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from privaudit.results import Claim, Status

_LEAST = 40  # runs at a look; fewer refute next to nothing
_LAST = 0.5  # share of alpha that the last look has


class Looks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of runs at which an audit was, or would have been, looked at."""

    planned: int  # runs in all, both worlds together
    at: tuple[int, ...]  # runs after which the claim is tested, rising

    @classmethod
    def of(cls, runs: int, block: int) -> Looks:
        """Looks at whole blocks of runs.

        >>> Looks.of(1000, 50).at
        (100, 150, 250, 500, 1000)
        """
        parts = {-(-runs // (block * 2**power)) * block for power in range(1, 5)}
        early = sorted(part for part in parts if _LEAST <= part < runs)
        return cls(planned=runs, at=(*early, runs))

    def share(self, runs: int) -> float:
        """Share of alpha at the look after ``runs``; ``ValueError`` if none."""
        if runs not in self.at:
            raise ValueError(
                f"{runs:,} runs are none of those after which this audit looks: "
                f"{', '.join(f'{one:,}' for one in self.at)}"
            )
        if len(self.at) == 1:
            return 1.0
        early = (1 - _LAST) / (len(self.at) - 1)
        return _LAST if runs == self.planned else early

    def confidence(self, runs: int, overall: float) -> float:
        """Confidence of the look after ``runs``, so that all hold at ``overall``."""
        return 1 - self.share(runs) * (1 - overall)


class Asked(Protocol):
    """Those settings of an audit, of whatever, that its bounds depend on."""

    @property
    def claim(self) -> Claim: ...
    @property
    def seed(self) -> int: ...
    @property
    def one_run(self) -> bool: ...
    @property
    def runs(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def confidence(self) -> float: ...
    @property
    def stop_when_refuted(self) -> bool: ...


def stages(audit: Asked) -> tuple[int, ...]:
    """Runs after which an audit may end."""
    if not audit.stop_when_refuted:
        return (audit.runs,)
    return Looks.of(audit.runs, audit.block).at


def level(audit: Asked, runs: int) -> tuple[float, Stopped | None]:
    """The confidence of a bound after ``runs``; and the look, if there are several."""
    if not audit.stop_when_refuted:
        return audit.confidence, None
    looks = Looks.of(audit.runs, audit.block)
    return looks.confidence(runs, audit.confidence), Stopped.at(looks, runs)


class Stopped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End of an audit that stops once its claim is refuted."""

    # runs, planned: made, and at most to be made, both worlds together
    runs: int
    planned: int
    # look, looks: at which of how many looks it ended
    look: int
    looks: int

    @classmethod
    def at(cls, looks: Looks, runs: int) -> Stopped:
        """After ``runs``."""
        return cls(
            runs=runs,
            planned=looks.planned,
            look=looks.at.index(runs) + 1,
            looks=len(looks.at),
        )

    def check(self, status: Status) -> None:
        """Raise ``ValueError`` if it ended early, and not because it refuted."""
        if self.runs < self.planned and status != "refuted":
            raise ValueError(
                f"the audit ended after {self.runs:,} of {self.planned:,} runs, and "
                "the claim was not refuted"
            )

    def __str__(self) -> str:
        ended = "refuted and stopped" if self.runs < self.planned else "ended"
        return (
            f"{ended} after {self.runs:,} of {self.planned:,} runs, at look "
            f"{self.look} of {self.looks}; the confidence holds for all looks together"
        )
