"""Progress that public functions report while they work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from privaudit.results import Claim

if TYPE_CHECKING:
    from privaudit.auditing.experiments.sweep_run import Progress as SweepProgress
    from privaudit.auditing.selfcheck import Row
    from trainers.runs.run import Progress


class Watch:
    """Is told how far work is. Says nothing: override what you want to hear of."""

    def note(self, message: str) -> None:
        """A sentence about what is going on."""

    def runs(self) -> contextlib.AbstractContextManager[Callable[[int, int], None]]:
        """What is called with the runs done and all runs of an audit."""
        return contextlib.nullcontext(lambda done, total: None)

    def training(
        self, algorithm: str, claim: Claim | None
    ) -> contextlib.AbstractContextManager[Callable[[Progress], None]]:
        """What is called after every round of a training."""
        return contextlib.nullcontext(lambda now: None)

    def sweep(
        self, audits: int
    ) -> contextlib.AbstractContextManager[Callable[[SweepProgress], None]]:
        """What is called whenever something is known of one of so many audits."""
        return contextlib.nullcontext(lambda state: None)

    def row(self, row: Row) -> None:
        """A row of `privaudit.auditing.selfcheck` is known."""


SILENT = Watch()
