"""One process of an asynchronous run: its steps, counted before they are released."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.algorithms.asynchronous.clock import Clock
from trainers.algorithms.asynchronous.real_time import Model
from trainers.network.engine import Schedule
from trainers.oracles.oracle import Oracle
from trainers.runs.real_clock.messages import (
    Counters,
    Journal,
    Report,
    Shutdown,
    Stopped,
)

_FOREVER = datetime.timedelta(days=365)


class LineLostError(OSError):
    """The partner has ended, or did not answer in time."""


class Line:
    """Line between a sender and a receiver, at either end; neither is locked.

    A connection a pair: a process's end breaks nothing between others. Senders are
    never asked, and receivers never ask: none wait in a circle (Lian et al. 2018).
    """

    def __init__(
        self,
        store: dist.Store,  # where the two find each other
        # sender, receiver: their numbers
        sender: int,
        receiver: int,
        *,
        at: int,  # which of them this process is
        dims: int,  # of models
        # seconds in which the partner must come, and in which a receiver must answer
        patience: float,
    ) -> None:
        self._end = 0 if at == sender else 1
        self._other = 1 - self._end
        self._patience = datetime.timedelta(seconds=patience)
        self._group: Any  # the stubs have no send and recv
        self._inbox = torch.empty(1 + dims)  # 1 and a model, or 0: no more will come
        try:
            self._group = dist.ProcessGroupGloo(
                dist.PrefixStore(f"line/{sender}/{receiver}", store),
                self._end,
                2,
                self._patience,
            )
        except RuntimeError as error:
            raise LineLostError(str(error).splitlines()[0]) from error

    def ask(self, model: Model) -> None:
        """Average with the receiver; ``model`` stays as it was on `LineLostError`."""

        def swap(own: Tensor) -> Tensor:
            self._send(own)
            return self._receive(self._patience)

        model.average(swap)

    def answer(self, model: Model) -> bool:
        """Wait until the sender asks, and average; False if it never will again."""
        other = self._receive(_FOREVER)
        if self._inbox[0] == 0:
            return False

        def swap(own: Tensor) -> Tensor:
            self._send(own)
            return other

        model.average(swap)
        return True

    def end(self) -> None:
        """Tell the receiver that nothing more will be asked."""
        self._put(torch.zeros_like(self._inbox))

    def _send(self, own: Tensor) -> None:
        self._put(torch.cat((own.new_ones(1), own)))

    def _put(self, content: Tensor) -> None:
        try:
            self._group.send([content], self._other, 0).wait(self._patience)
        except RuntimeError as error:
            raise LineLostError(str(error).splitlines()[0]) from error

    def _receive(self, patience: datetime.timedelta) -> Tensor:
        try:
            self._group.recv([self._inbox], self._other, 0).wait(patience)
        except RuntimeError as error:
            raise LineLostError(str(error).splitlines()[0]) from error
        return self._inbox[1:].clone()


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Job of a worker; made in its own process."""

    private: Oracle  # of its data
    start: Tensor  # (dims,): where it begins
    step_size: Schedule  # of the global step


@dataclasses.dataclass(frozen=True, slots=True)
class Agreement:
    """Settings that all workers agree on."""

    # who may average with whom, and how much slower than others each is made
    clock: Clock
    steps: int  # of all workers together: the global counter stops them
    most: int  # of one worker: more it never makes
    step_time: float  # seconds that a step of speed 1 takes at least
    report_every: int  # global steps between two reports of a worker's model
    patience: float  # seconds in which a worker must answer another
    journal: pathlib.Path  # where steps are counted


class Worker:
    """Makes the steps of one worker, and answers those that average with it."""

    def __init__(
        self,
        number: int,  # its own
        # plan, job: what it does
        plan: Agreement,
        job: Job,
        store: dist.Store,  # `connect`
        tell: Callable[[Any], None],  # takes a `Report`, and in the end `Stopped`
    ) -> None:
        self._number = number
        self._plan = plan
        self._job = job
        self._counters = Counters(store)
        self._tell = tell
        self._journal = Journal(plan.journal)
        self._model = Model(job.start)
        self._rng = plan.clock.generators()[number]
        self._staleness: list[int] = []
        self._lost: list[int] = []
        self._lines: dict[int, Line] = {}
        for sender, receivers in enumerate(plan.clock.partners):  # in one order for all
            for receiver in receivers:
                if number in (sender, receiver):
                    self._join(store, sender, receiver)

    def _join(self, store: dist.Store, sender: int, receiver: int) -> None:
        partner = receiver if self._number == sender else sender
        try:
            self._lines[partner] = Line(
                store,
                sender,
                receiver,
                at=self._number,
                dims=len(self._job.start),
                patience=self._plan.patience,
            )
        except LineLostError:
            self._lost.append(partner)

    def run(self) -> Shutdown:
        """All steps up to the limit; partners are answered, and the model handed in."""
        asks = bool(self._plan.clock.partners[self._number])
        answering = [] if asks else self._answer()
        seen, copy = self._counters.applied(), self._model.copy()
        while len(self._staleness) < self._plan.most and self._begin():
            began = time.monotonic()
            gradient = self._job.private.gradient(copy[None, None])[0, 0]
            self._slow_down(began)
            self._exchange()
            done = self._counters.apply()
            copy = self._model.step(-self._job.step_size(done) * gradient)
            self._staleness.append(done - seen)
            self._report(seen, done + 1, copy)
            seen = done + 1
            time.sleep(self._plan.clock.link_time * self._plan.step_time)
        self._tell(Stopped())
        if asks:
            self._end()
        for thread in answering:
            thread.join()
        return Shutdown(
            model=self._model.copy().numpy(),
            ledger=self._job.private.ledger.to_json(),
            staleness=tuple(self._staleness),
            lost=tuple(self._lost),
        )

    def _begin(self) -> bool:
        """Count a step, if there is one left, before anything is asked of the data."""
        if not self._counters.begin(self._number, self._plan.steps):
            return False
        self._journal.count(self._number)
        return True

    def _slow_down(self, began: float) -> None:
        """Wait until the step took as long as the clock says."""
        speed = self._plan.clock.speed.draw(self._rng, self._number)
        passed = time.monotonic() - began
        time.sleep(max(0.0, speed * self._plan.step_time - passed))

    def _exchange(self) -> None:
        """Average with one of those that this worker asks, if one is left."""
        choice = self._plan.clock.partners[self._number]
        choice = [partner for partner in choice if partner not in self._lost]
        if not choice:
            return
        partner = choice[int(self._rng.integers(len(choice)))]
        try:
            self._lines[partner].ask(self._model)
        except LineLostError:
            self._lost.append(partner)

    def _report(self, before: int, done: int, model: Tensor) -> None:
        every = self._plan.report_every
        if done // every > before // every:
            self._tell(Report(done, model.numpy()))

    def _answer(self) -> list[threading.Thread]:
        """Answer every sender that there is, each in a thread that waits for it."""

        def serve(sender: int) -> None:
            try:
                while self._lines[sender].answer(self._model):
                    pass
            except LineLostError:
                self._lost.append(sender)

        threads = [
            threading.Thread(target=serve, args=(sender,), daemon=True)
            for sender in self._lines
        ]
        for thread in threads:
            thread.start()
        return threads

    def _end(self) -> None:
        for partner, line in self._lines.items():
            if partner not in self._lost:
                with contextlib.suppress(LineLostError):
                    line.end()
