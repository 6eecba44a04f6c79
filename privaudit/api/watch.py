"""Progress that public functions report while they work."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from privaudit.results import Claim

if TYPE_CHECKING:
    from privaudit.auditing.experiments.sweep_run import Progress as SweepProgress
    from privaudit.auditing.selfcheck import Row
    from trainers.runs.run import Progress


class Watch:
    """Is told the progress of long calls. Override the methods that you need."""

    def note(self, message: str) -> None:
        """Take a sentence about what is going on."""

    def warn(self, message: str) -> None:
        """Take a sentence that whoever runs the call must read; logged by default.

        It may say what only they may know of private data.
        """
        logging.getLogger("privaudit").warning(message)

    def runs(self) -> contextlib.AbstractContextManager[Callable[[int, int], None]]:
        """Return a function that an audit calls with (runs done, all runs)."""
        return contextlib.nullcontext(lambda done, total: None)

    def training(
        self, algorithm: str, claim: Claim | None
    ) -> contextlib.AbstractContextManager[Callable[[Progress], None]]:
        """Return a function that a training calls after every round."""
        return contextlib.nullcontext(lambda now: None)

    def sweep(
        self, audits: int
    ) -> contextlib.AbstractContextManager[Callable[[SweepProgress], None]]:
        """Return a function that a sweep calls with the progress of each audit."""
        return contextlib.nullcontext(lambda state: None)

    def row(self, row: Row) -> None:
        """Take a finished row of `privaudit.auditing.selfcheck`."""


SILENT = Watch()
