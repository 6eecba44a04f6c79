"""One asynchronous training, a process a worker, by `trainers.runs.supervisor`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from privaudit.ledger import Ledger
from trainers.runs.real_clock.messages import (
    Counters,
    Death,
    Failure,
    Outcome,
    Ready,
    Report,
    Shutdown,
    Stopped,
    connect,
    counted,
)
from trainers.runs.real_clock.worker import Agreement, Job, Worker
from trainers.runs.supervisor import Exit, Supervisor

PATIENCE = 60.0  # seconds that a process may take to start, or to make a step


class WorkerPool:
    """Runs an `Agreement` over one process a worker, each with the pickled ``job``."""

    def __init__(self, plan: Agreement, job: Callable[[int], Job]) -> None:
        self._plan = plan
        self.job = job
        self._workers = range(plan.clock.nodes)
        self._store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False
        )
        self._counters = Counters(self._store)
        self._supervisor = Supervisor(_work)
        self._awaited = set(self._workers)  # before anybody begins
        self._began = 0.0
        self._heard: dict[int, tuple[int, float]] = {}  # steps when last looked, when
        self._stopped: set[int] = set()
        self._left = 0.0  # when one last stopped, or left
        self._latest: dict[int, Tensor] = {}
        self._done = 0  # of the latest report
        self._shutdowns: dict[int, Shutdown] = {}
        self._deaths: list[Death] = []
        self._made: dict[int, int] = {}  # by those who died

    def counts(self) -> list[int]:
        """Steps that each worker began, by the counter or, if more, the journal."""
        written = counted(self._plan.journal, len(self._workers))
        counts = [max(self._counters.begun(k), written[k]) for k in self._workers]
        # What comes to the counter after a death was asked for by one who did not live
        # to be answered, and so asked nothing of the data.
        return [self._made.get(k, count) for k, count in enumerate(counts)]

    def run(
        self,
        # called with the number of steps made and models of all who live, (dims,)
        # each, once each of them has sent one since the last time
        report: Callable[[int, Mapping[int, Tensor]], None] = lambda done, models: None,
        died: Callable[[Death], None] = lambda death: None,  # called at every death
    ) -> Outcome:
        """Start all, listen until the last has ended, and leave none behind."""
        with self._supervisor as supervisor:
            for worker in self._workers:
                supervisor.start(worker, self._plan, self.job, self._store.port)
            while supervisor.workers:
                for worker, message in supervisor.listen(1.0):
                    self._heard[worker] = (-1, time.monotonic())
                    if isinstance(message, Exit):
                        self._died(worker, message, died)
                    else:
                        self._take(worker, message, report)
                for worker in supervisor.workers:
                    if self._is_silent(worker):
                        supervisor.kill(worker)
            seconds = time.monotonic() - self._began
        last = dict(sorted(self._shutdowns.items()))
        return Outcome(
            models={k: torch.from_numpy(each.model) for k, each in last.items()},
            ledgers={k: Ledger.from_json(each.ledger) for k, each in last.items()},
            counts=tuple(self.counts()),
            staleness=tuple(s for each in last.values() for s in each.staleness),
            deaths=tuple(self._deaths),
            lost={k: tuple(each.lost) for k, each in last.items() if each.lost},
            seconds=seconds,
        )

    def _go(self, ready: int) -> None:
        """``ready`` need not be waited for; when nobody need, all begin."""
        self._awaited.discard(ready)
        if not self._awaited and not self._began:
            now = self._began = time.monotonic()
            self._heard = {worker: (-1, now) for worker in self._workers}
            self._left = now
            self._counters.go()

    def _is_silent(self, worker: int) -> bool:
        """Return whether nothing came of it, or of all, for too long."""
        now = time.monotonic()
        if not self._began:
            return False
        if worker in self._stopped:  # it may wait for others that still step
            waits = self._stopped < self._supervisor.workers
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
                everybody = self._latest.keys() == self._supervisor.workers
                if everybody and not self._shutdowns:
                    report(self._done, dict(sorted(self._latest.items())))
                    self._latest.clear()
            case Stopped():
                self._stopped.add(worker)
                self._left = time.monotonic()
            case Shutdown():
                self._shutdowns[worker] = message
                self._supervisor.leave(worker)
                self._forget(worker)
            case Failure(message=why):
                raise ValueError(f"worker {worker}: {why}")

    def _died(self, worker: int, how: Exit, died: Callable[[Death], None]) -> None:
        self._forget(worker)
        counts = self.counts()
        self._made[worker] = counts[worker]
        self._deaths.append(Death(worker, counts[worker], sum(counts), str(how)))
        self._latest.pop(worker, None)
        self._go(worker)
        died(self._deaths[-1])

    def _forget(self, worker: int) -> None:
        self._stopped.discard(worker)
        self._left = time.monotonic()


def _work(
    pipe: Connection, worker: int, plan: Agreement, job: Callable[[int], Job], port: int
) -> None:
    """Serve as a worker's process."""
    try:
        store = connect(port, plan.patience)
        one = Worker(worker, plan, job(worker), store, pipe.send)
        pipe.send(Ready())
        Counters(store).wait()
        pipe.send(one.run())
    except ValueError as error:
        pipe.send(Failure(str(error)))
    except dist.DistError:
        os._exit(3)  # who started it has gone
