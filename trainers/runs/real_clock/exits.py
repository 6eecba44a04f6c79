"""Exits of worker processes, and the steps that each began."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from privaudit.ledger import Ledger


@dataclasses.dataclass(frozen=True, slots=True)
class Death:
    """A worker that did not come to its end.

    Parameters
    ----------
    worker
        Which.
    made
        Steps of its own that it began, all of them in its ledger.
    at
        Steps of all that had begun by then.
    why
        What its process ended with.
    """

    worker: int
    made: int
    at: int
    why: str

    def __str__(self) -> str:
        return (
            f"worker {self.worker} died ({self.why}) after {self.made} of its own "
            f"steps, {self.at} of all: its steps are in its ledger, its model is in no "
            "figure"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of an asynchronous run over processes.

    Parameters
    ----------
    models
        Of the workers that lived, (dims,) each.
    ledgers
        Of the same, as their oracles wrote them.
    counts
        Steps that each worker began, dead ones too.
    staleness
        Of all steps of those that lived.
    deaths
        Of the others.
    lost
        Partners that a worker gave up, by worker.
    seconds
        From the first step on.
    """

    models: Mapping[int, Tensor]
    ledgers: Mapping[int, Ledger]
    counts: tuple[int, ...]
    staleness: tuple[int, ...]
    deaths: tuple[Death, ...]
    lost: Mapping[int, tuple[int, ...]]
    seconds: float
