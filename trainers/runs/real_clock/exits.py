"""Exits of worker processes, and the steps that each began."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from privaudit.ledger import Ledger


@dataclasses.dataclass(frozen=True, slots=True)
class Death:
    """A worker that did not come to its end."""

    worker: int  # which
    made: int  # steps of its own that it began, all of them in its ledger
    at: int  # steps of all that had begun by then
    why: str  # what its process ended with

    def __str__(self) -> str:
        return (
            f"worker {self.worker} died ({self.why}) after {self.made} of its own "
            f"steps, {self.at} of all: its steps are in its ledger, its model is in no "
            "figure"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of an asynchronous run over processes."""

    models: Mapping[int, Tensor]  # of the workers that lived, (dims,) each
    ledgers: Mapping[int, Ledger]  # of the same, as their oracles wrote them
    counts: tuple[int, ...]  # steps that each worker began, dead ones too
    staleness: tuple[int, ...]  # of all steps of those that lived
    deaths: tuple[Death, ...]  # of the others
    lost: Mapping[int, tuple[int, ...]]  # partners that a worker gave up, by worker
    seconds: float  # from the first step on
