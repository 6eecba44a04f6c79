"""Workers as processes: started, listened to, and missed when they die."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from privaudit.ledger import Ledger
from trainers.runs.real_clock.counters import Counters, connect
from trainers.runs.real_clock.exits import Death, Outcome
from trainers.runs.real_clock.journal import counted
from trainers.runs.real_clock.messages import Failure, Farewell, Ready, Report, Stopped
from trainers.runs.real_clock.worker import Job, Plan, Worker

PATIENCE = 60.0  # seconds that a process may take to start, or to make a step


# What every process would import, the last two late: once, before they are forked.
_PRELOADED = [
    "trainers.runs.real_clock.worker",
    "trainers.runs.problem",
    "sklearn.datasets",
    "torch._dynamo",
]


class WorkerPool:
    """Runs a `Plan` over one process a worker.

    Parameters
    ----------
    plan
        What is done.
    job
        Called in each process with the worker's number; it is pickled.
    """

    def __init__(self, plan: Plan, job: Callable[[int], Job]) -> None:
        self._plan = plan
        self.job = job
        self._workers = range(plan.clock.nodes)
        self._store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False
        )
        self._counters = Counters(self._store)
        self._processes: dict[int, Any] = {}
        self._pipes: dict[int, Connection] = {}
        self._awaited = set(self._workers)  # before anybody begins
        self._began = 0.0
        self._heard: dict[int, tuple[int, float]] = {}  # steps when last looked, when
        self._stopped: set[int] = set()
        self._left = 0.0  # when one last stopped, or left
        self._latest: dict[int, Tensor] = {}
        self._done = 0  # of the latest report
        self._farewells: dict[int, Farewell] = {}
        self._deaths: list[Death] = []
        self._made: dict[int, int] = {}  # by those who died

    def counts(self) -> list[int]:
        """Steps that each worker began so far, by the counter and by the journal.

        Where these differ, because one of them was lost, it is the larger.
        """
        written = counted(self._plan.journal, len(self._workers))
        counts = [max(self._counters.begun(k), written[k]) for k in self._workers]
        # What comes to the counter after a death was asked for by one who did not live
        # to be answered, and so asked nothing of the data.
        return [self._made.get(k, count) for k, count in enumerate(counts)]

    def run(
        self,
        report: Callable[[int, Mapping[int, Tensor]], None] = lambda done, models: None,
        died: Callable[[Death], None] = lambda death: None,
    ) -> Outcome:
        """Start all, listen until the last has ended, and leave none behind.

        Parameters
        ----------
        report
            Called with the number of steps made and models of all who live, (dims,)
            each, once each of them has sent one since the last time.
        died
            Called at every death.

        Raises
        ------
        ValueError
            If a worker raised it.
        """
        try:
            self._start()
            while self._processes:
                for worker, message in self._listen(died):
                    self._take(worker, message, report)
            seconds = time.monotonic() - self._began
        finally:
            for process in self._processes.values():
                process.kill()
                process.join()
        farewells = dict(sorted(self._farewells.items()))
        return Outcome(
            models={
                k: torch.from_numpy(farewell.model) for k, farewell in farewells.items()
            },
            ledgers={k: Ledger.from_json(f.ledger) for k, f in farewells.items()},
            counts=tuple(self.counts()),
            staleness=tuple(s for f in farewells.values() for s in f.staleness),
            deaths=tuple(self._deaths),
            lost={k: tuple(f.lost) for k, f in farewells.items() if f.lost},
            seconds=seconds,
        )

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        for worker in self._workers:
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=_process,
                args=(worker, self._plan, self.job, self._store.port, there),
                name=f"worker {worker}",
                daemon=True,
            )
            process.start()
            there.close()  # so that its end is seen
            self._processes[worker], self._pipes[worker] = process, here

    def _go(self, ready: int) -> None:
        """``ready`` need not be waited for; when nobody need, all begin."""
        self._awaited.discard(ready)
        if not self._awaited and not self._began:
            now = self._began = time.monotonic()
            self._heard = {worker: (-1, now) for worker in self._workers}
            self._left = now
            self._counters.go()

    def _listen(self, died: Callable[[Death], None]) -> list[tuple[int, Any]]:
        """Messages that came within a second; deaths are written down."""
        of = {pipe: worker for worker, pipe in self._pipes.items()}
        found = []
        for pipe in wait(list(of), timeout=1.0):
            worker = of[pipe]  # type: ignore[index]  # wait gives back what it was given
            try:
                found.append((worker, self._pipes[worker].recv()))
                self._heard[worker] = (-1, time.monotonic())
            except (EOFError, OSError):
                self._bury(worker, died)
        for worker in list(self._pipes):
            if self._is_silent(worker):
                self._processes[worker].kill()  # its pipe ends, and it is buried
        return found

    def _is_silent(self, worker: int) -> bool:
        """Whether nothing came of it, or of all, for too long."""
        now = time.monotonic()
        if not self._began:
            return False
        if worker in self._stopped:  # it may wait for others that still step
            waits = self._stopped < self._pipes.keys()
            return not waits and now - self._left > 2 * self._plan.patience
        steps = self._counters.begun(worker)
        known, when = self._heard[worker]
        if steps != known:
            self._heard[worker] = (steps, now)
            return False
        return now - when > 2 * self._plan.patience

    def _take(
        self,
        worker: int,
        message: Any,
        report: Callable[[int, Mapping[int, Tensor]], None],
    ) -> None:
        match message:
            case Ready():
                self._go(worker)
            case Report(done=done, model=model):
                self._latest[worker] = torch.from_numpy(model)
                self._done = max(self._done, done)
                # Who has handed in its model has stopped: the end is measured anyway.
                if (
                    self._latest.keys() == self._processes.keys()
                    and not self._farewells
                ):
                    report(self._done, dict(sorted(self._latest.items())))
                    self._latest.clear()
            case Stopped():
                self._stopped.add(worker)
                self._left = time.monotonic()
            case Farewell():
                self._farewells[worker] = message
                self._leave(worker)
            case Failure(message=why):
                raise ValueError(f"worker {worker}: {why}")

    def _bury(self, worker: int, died: Callable[[Death], None]) -> None:
        code = self._leave(worker)
        why = (
            f"killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"exit status {code}"
        )
        counts = self.counts()
        self._made[worker] = counts[worker]
        self._deaths.append(Death(worker, counts[worker], sum(counts), why))
        self._latest.pop(worker, None)
        self._go(worker)
        died(self._deaths[-1])

    def _leave(self, worker: int) -> int | None:
        """Forget its process, which has ended or is about to; its exit status."""
        process = self._processes.pop(worker)
        self._pipes.pop(worker).close()
        self._stopped.discard(worker)
        self._left = time.monotonic()
        process.join()
        return process.exitcode


def _process(
    worker: int, plan: Plan, job: Callable[[int], Job], port: int, pipe: Connection
) -> None:
    """What a worker's process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it decides
    torch.set_num_threads(1)
    try:
        store = connect(port, plan.patience)
        one = Worker(worker, plan, job(worker), store, pipe.send)
        pipe.send(Ready())
        Counters(store).wait()
        pipe.send(one.run())
    except ValueError as error:
        with contextlib.suppress(OSError):
            pipe.send(Failure(str(error)))
    except (dist.DistError, BrokenPipeError):
        os._exit(3)  # who started it has gone
