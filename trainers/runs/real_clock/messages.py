"""Messages of a worker's process to the one that started it; models are arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """A worker waits for the others."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A worker's model, (dims,), after the ``done``-th step of all."""

    done: int
    model: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class Shutdown:
    """Shutdown message of a worker: steps' ``staleness``, and ``lost`` partners."""

    model: np.ndarray
    ledger: str
    staleness: Sequence[int]
    lost: Sequence[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Stopped:
    """A worker makes no more steps, but may still have to answer others."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A ``ValueError`` of a worker."""

    message: str
