"""Starts worker processes, hears them and ends them; see sweeps."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Set
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Self

import torch

_PATIENCE = 10.0  # seconds that a worker which says no more may take to end
# What every process would import, the last two late: once, before they are forked.
_PRELOADED = ["trainers.runs.problem", "sklearn.datasets", "torch._dynamo"]


@dataclasses.dataclass(frozen=True, slots=True)
class Exit:
    """A worker's process has ended, with this status."""

    status: int | None

    def __str__(self) -> str:
        if self.status is not None and self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


class Supervisor:
    """Listens to worker processes; as a context, leaves none behind.

    Workers end when this process does. Ctrl-C is this one's alone. ``work`` is a
    module's function, called with its end of a pipe and what `start` is given; one
    thread of torch's.
    """

    def __init__(self, work: Callable[..., None]) -> None:
        self._work = work
        # Torch does not survive a fork of a process that has computed with it.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            ["privaudit", work.__module__, *_PRELOADED]  # the first finds the second
        )
        self._workers: dict[int, tuple[BaseProcess, Connection]] = {}
        self._started = 0

    @property
    def workers(self) -> Set[int]:
        """The numbers of those that run, counted up from 0."""
        return self._workers.keys()

    def start(self, *arguments: Any) -> int:
        """Start one more worker; return its number."""
        number = self._started
        self._started += 1
        here, there = self._context.Pipe()
        process = self._context.Process(
            target=_process,
            args=(self._work, there, arguments),
            name=f"worker {number}",
            daemon=True,
        )
        process.start()
        there.close()  # so that its end is seen
        self._workers[number] = process, here
        return number

    def send(self, worker: int, message: Any) -> None:
        """Tell a worker; one that has ended is heard of by `listen`."""
        with contextlib.suppress(OSError):
            self._workers[worker][1].send(message)

    def listen(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        """Wait, seconds at most, for what workers send; an `Exit` is their last."""
        of = {pipe: worker for worker, (_, pipe) in self._workers.items()}
        for pipe in wait(list(of), timeout):
            worker = of[pipe]  # type: ignore[index]  # wait gives back what it was given
            try:
                yield worker, self._workers[worker][1].recv()
            except (EOFError, OSError):
                yield worker, self.leave(worker)

    def leave(self, worker: int) -> Exit:
        """Forget one that has ended, or is about to."""
        process, pipe = self._workers.pop(worker)
        pipe.close()
        process.join(_PATIENCE)
        process.kill()
        process.join()
        return Exit(process.exitcode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process, pipe in self._workers.values():
            process.kill()
            process.join()
            pipe.close()
        self._workers.clear()


def _process(
    work: Callable[..., None], pipe: Connection, arguments: tuple[Any, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        work(pipe, *arguments)
    except BrokenPipeError:
        os._exit(3)  # who started it has gone
    except EOFError:  # of the pipe too, which may be closed before the sentinel
        if _parent_ends(within=1.0):
            os._exit(3)
        raise


def _parent_ends(within: float | None = None) -> bool:
    parent = multiprocessing.parent_process()
    assert parent is not None
    return bool(wait([parent.sentinel], within))


def _end_with_parent() -> None:
    _parent_ends()
    os._exit(1)  # files are whole at any moment
