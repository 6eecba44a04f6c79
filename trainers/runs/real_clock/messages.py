"""Messages of workers to the process that started them, its counters and journal."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import torch.distributed as dist
from torch import Tensor

from privaudit.files.folder import opened_to_append
from privaudit.ledger import Ledger

_RECORD = struct.Struct("<H")  # a worker's number


class Journal:
    """A file to which all workers append, each its number before every step.

    At one go, before anything is asked of the data: it has at least the steps of which
    something may have left a process that died. ``OSError`` for a link.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = opened_to_append(path)

    def count(self, worker: int) -> None:
        """A step of ``worker`` begins. ``OSError`` if that cannot be written."""
        if os.write(self._file, _RECORD.pack(worker)) != _RECORD.size:
            raise OSError(
                "a step could not be written to the journal; is the disk full?"
            )

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)


def counted(path: pathlib.Path, workers: int) -> list[int]:
    """Steps that each of ``workers`` began; half a record at the end is one of each."""
    content = path.read_bytes() if path.exists() else b""
    whole = len(content) - len(content) % _RECORD.size
    counts = [int(whole < len(content))] * workers
    for (worker,) in _RECORD.iter_unpack(content[:whole]):
        if worker >= workers:
            raise ValueError(f"{path} has a step of worker {worker} of {workers}")
        counts[worker] += 1
    return counts


class Counters:
    """Counters of all workers, kept in the process that started them."""

    def __init__(self, store: dist.Store) -> None:
        self._store = store

    def begin(self, worker: int, steps: int) -> bool:
        """Count one more step of ``worker``, if not all ``steps`` were begun."""
        if self._store.add("begun", 1) > steps:
            return False
        self._store.add(f"begun/{worker}", 1)
        return True

    def begun(self, worker: int) -> int:
        """Steps that ``worker`` began."""
        return self._store.add(f"begun/{worker}", 0)

    def wait(self) -> None:
        """Wait for `go`."""
        self._store.wait(["go"], datetime.timedelta(days=1))

    def go(self) -> None:
        """Let all begin."""
        self._store.set("go", "")

    def apply(self) -> int:
        """One more step was made; how many were before."""
        return self._store.add("applied", 1) - 1

    def applied(self) -> int:
        """Steps that were made."""
        return self._store.add("applied", 0)


def connect(port: int, patience: float) -> dist.Store:
    """The store of the process that started this one."""
    wait = datetime.timedelta(seconds=patience)
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=wait)


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
