"""Counters of workers in several processes."""

from __future__ import annotations

import datetime

import torch.distributed as dist


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
