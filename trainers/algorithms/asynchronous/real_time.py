"""The real clock: workers that are each as fast as they are, at parties or at one.

Who asks is never asked (`bipartite_ring`): none wait in a circle (Lian et al. 2018).
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor

from trainers.algorithms.asynchronous.virtual_time import Asynchronous
from trainers.network.engine import Watched
from trainers.network.exchange import Exchange, InProcess
from trainers.network.over_ranks import PartyNetwork
from trainers.network.ranks import RankLostError, Ranks
from trainers.oracles.oracle import Oracle

_STEP, _TURN = "step", "turn"  # what is asked of party 0, which counts, and told by it
_LOOK = 0.5  # seconds between looks at whether a party was lost


class _Begun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Number of steps that a party's workers began, in all processes."""

    steps: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Model:
    """A worker's model, (dims,): its steps and averages change it in turn."""

    def __init__(self, start: Tensor) -> None:
        self._value = start.clone()
        self._turn = threading.Lock()

    def copy(self) -> Tensor:
        with self._turn:
            return self._value.clone()

    def step(self, change: Tensor) -> Tensor:
        """Add ``change``; what comes out, (dims,)."""
        with self._turn:
            self._value += change
            return self._value.clone()

    def average(self, swap: Callable[[Tensor], Tensor]) -> None:
        """Become the mean of itself and ``swap(it)``; as it was if that raises."""
        with self._turn:
            other = swap(self._value)
            self._value = (self._value + other) / 2

    def swapped(self, other: Tensor) -> Tensor:
        """Become the mean of itself and of ``other``; as it was before, (dims,)."""
        found = []

        def swap(own: Tensor) -> Tensor:
            found.append(own.clone())
            return other

        self.average(swap)
        return found[0]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """Models, (1, nodes here, dims); steps made here, how stale in all and at most."""

    model: Tensor
    steps: int = 0
    stale: int = 0
    most: int = 0

    def __str__(self) -> str:
        mean = self.stale / max(1, self.steps)
        return (
            f"{self.steps:,} steps were made here and are in the models; staleness "
            f"{mean:.2f} on average and {self.most} at most"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class RealTime(Asynchronous):
    """`Asynchronous` by a real clock: workers at parties, or all at one."""

    # steps of one worker: it makes no more, so that its ledger is bounded beforehand
    most: int = 1
    step_time: float = 0.0  # seconds that a step of speed 1 takes at least
    # what joins this party to others, if any; some of the workers are here
    carrier: PartyNetwork | None = None
    told: list[str] = dataclasses.field(default_factory=list)  # how it went, in words

    def alone(self) -> RealTime:
        """The same with all workers here: one party, that is joined to no other."""
        (exchange,) = InProcess.all(1)
        ranks = Ranks(exchange.rank, exchange.size, self.mixing.nodes)
        algorithm: Any = self.algorithm  # whose rounds are no network's
        carrier = PartyNetwork(
            *(algorithm, self.mixing, self.needs), ranks=ranks, exchange=exchange
        )
        return dataclasses.replace(self, carrier=carrier)

    def begin(self, start: Tensor) -> Any:
        return State(start.clone())

    def run(self, start: Tensor, private: Oracle, rounds: int, **how: Any) -> Tensor:
        """Until all parties together made ``rounds`` steps, or each worker its most.

        What was released after the kept state stays in the ledger, and is released no
        more.
        """
        if self.carrier is None:
            raise ValueError(
                "with clock=real no two runs are the same, and only `privaudit train` "
                "makes them; audits and probes take clock=virtual"
            )
        watched = Watched(**how)
        done, state = watched.resume or (0, self.begin(start))
        private.skip_begun()

        def after(done: int, state: State) -> None:
            watched.done(done, state, lambda now: now.model)

        if done < rounds:
            if watched.keep is not None:
                watched.keep(done, state)
            state = _Workers(self, self.carrier, private, state).run(rounds, after)
        self.told.append(str(state))
        if not state.steps:
            logging.getLogger("privaudit").warning(
                "no step that was made here is in the models; what was released before "
                "the run was stopped and went on, if it was, is paid for all the same"
            )
        return state.model


class _Counter:
    """Counter of all workers' steps: begun, and made."""

    def __init__(self, steps: int, begun: int) -> None:
        self._steps, self._begun, self._made = steps, begun, begun
        self._turn = threading.Lock()

    def turn(self, was_made: bool, wants: bool) -> tuple[int, bool]:
        """Count a step made; return how many were before, and whether to begin one."""
        with self._turn:
            before = self._made
            self._made += was_made
            granted = wants and self._begun < self._steps
            self._begun += granted
            return before, granted


class _Workers:
    """The workers of one party: the main thread steps, one for each party answers."""

    def __init__(
        self, network: RealTime, carrier: PartyNetwork, private: Oracle, state: State
    ) -> None:
        self._network, self._carrier = network, carrier
        self._others: Exchange = carrier.exchange
        self._private, self._state = private, state
        self._clock = network.algorithm.clock
        self._held = carrier.ranks.held
        self._models = dict(zip(self._held, map(Model, state.model[0]), strict=True))
        self._rngs = self._clock.generators()
        self._awaited = ""  # whose message the main thread waits for
        self._came: queue.SimpleQueue[Tensor] = queue.SimpleQueue()
        self._steps = 0  # of all workers
        self._counting = threading.Lock()  # of what is sent
        self._counter: _Counter | None = None  # party 0's

    def run(self, steps: int, after: Callable[[int, State], None]) -> State:
        """All steps, until no worker asks any more; ``after`` is called after each."""
        own = _Begun(sum(map(self._private.releases_of, range(len(self._held)))))
        said = self._others.told("steps begun", own, _Begun)
        for other, each in enumerate(said):
            most = self._network.most * len(self._carrier.ranks.held_by(other))
            if each.steps > most:
                self._others.refuse(
                    other, f"{each.steps:,} steps begun, where {most:,} are the most"
                )
        self._steps = steps
        if self._others.rank == 0:
            self._counter = _Counter(steps, sum(each.steps for each in said))
        self._others.due({o: self._due(o) for o in range(self._others.size)})
        for other in range(self._others.size):
            if other != self._others.rank:
                threading.Thread(target=self._serve, args=(other,), daemon=True).start()
        # When which worker's step ends, its gradient, and what was made as it began.
        under_way: list[tuple[float, int, Tensor, int]] = []
        for node in self._held:
            made, granted = self._turn(node, was_made=False)
            if granted:
                heapq.heappush(under_way, self._begun(node, made))
        while under_way:
            when, node, gradient, seen = heapq.heappop(under_way)
            self._wait(when)
            self._exchange(node)
            made, granted = self._turn(node, was_made=True)
            self._models[node].step(-self._network.algorithm.step_size(made) * gradient)
            self._note(made - seen)
            if made + 1 < steps:
                after(made + 1, self._state)
            if granted:
                rest = self._clock.link_time * self._network.step_time
                heapq.heappush(under_way, self._begun(node, made + 1, rest))
        self._others.told("stopped", True, bool)
        self._others.due({})  # nobody is asked any more
        self._note()
        after(steps, self._state)
        return self._state

    # ---- steps

    def _begun(
        self, node: int, made: int, rest: float = 0.0
    ) -> tuple[float, int, Tensor, int]:
        """A step of ``node``, from ``rest`` seconds from now: end, gradient, number."""
        began = time.monotonic() + rest
        at = self._models[node].copy()[None, None]
        gradient = self._private.gradient(at, [node - self._held.start])[0, 0]
        self._private.sync()  # before anything of it is sent
        speed = self._clock.speed.draw(self._rngs[node], node)
        return began + speed * self._network.step_time, node, gradient, made

    def _turn(self, node: int, was_made: bool) -> tuple[int, bool]:
        """See `_Counter.turn`; no worker makes more than its most."""
        wants = self._private.releases_of(node - self._held.start) < self._network.most
        if self._counter is not None:
            return self._counter.turn(was_made, wants)
        self._awaited = _TURN
        self._others.send(0, torch.tensor([was_made, wants]).long(), 0, _STEP)
        before, granted = self._next(0).tolist()
        if not 0 <= before <= self._steps or granted > wants:
            self._others.refuse(0, f"a count of steps that cannot be ({before:,})")
        return before, bool(granted)

    def _exchange(self, node: int) -> None:
        """Average with one of those that ``node`` asks, if it asks any."""
        partner = self._clock.partner(node, self._rngs[node])
        if partner is None:
            return

        def swap(own: Tensor) -> Tensor:
            if partner in self._models:
                return self._models[partner].swapped(own)
            self._awaited = f"{partner}-{node}"
            self._send(own, node, partner)
            return self._next(self._carrier.ranks.holder(partner))

        self._models[node].average(swap)

    def _note(self, staleness: int | None = None) -> None:
        """Put the models, and a step made, if there was one, into the state."""
        models = torch.stack([self._models[node].copy() for node in self._held])[None]
        stale, step = staleness or 0, staleness is not None
        old = self._state
        steps, most = old.steps + step, max(old.most, stale)
        self._state = State(models, steps, old.stale + stale, most)

    def _wait(self, until: float) -> None:
        """Until that moment; `RankLostError` if a party is lost meanwhile."""
        while (left := until - time.monotonic()) > 0:
            self._others.check()
            time.sleep(min(left, _LOOK))

    def _next(self, other: int) -> Tensor:
        """Wait for the next message of ``other``."""
        until = time.monotonic() + self._others.patience
        while True:
            self._others.check()
            if time.monotonic() > until:
                self._others.hangs(other)
            with contextlib.suppress(queue.Empty):
                return self._came.get(timeout=_LOOK)

    # ---- messages

    def _send(self, model: Tensor, node: int, partner: int) -> None:
        if not model.isfinite().all():
            raise ValueError(
                f"training diverges: the model of node {node} has numbers that are not "
                "finite; lower the step size"
            )
        with self._counting:
            self._carrier.traffic.add(model[None, None])
        to = self._carrier.ranks.holder(partner)
        self._others.send(to, model, 0, f"{node}-{partner}")

    def _due(self, other: int) -> list[tuple[str, Tensor]]:
        """Messages that ``other`` may send: models along the graph, counts of steps."""
        if other == self._others.rank:
            return []
        model = next(iter(self._models.values())).copy()
        there = self._carrier.ranks.held_by(other)
        found = [
            (f"{a}-{b}", model)
            for one, partners in enumerate(self._clock.partners)
            for two in partners
            for a, b in ((one, two), (two, one))
            if a in there and b in self._held
        ]
        numbers = torch.zeros(2, dtype=torch.int64)
        if self._others.rank == 0:
            found.append((_STEP, numbers))
        return [*found, (_TURN, numbers)] if other == 0 else found

    def _serve(self, other: int) -> None:
        """Answer what ``other`` asks, and take what it answers, until its end."""
        with contextlib.suppress(RankLostError):  # the main thread raises it
            try:
                while True:
                    self._take(other, *self._others.any_due(other))
            except ValueError as error:
                self._others.refuse(self._others.rank, str(error))

    def _take(self, other: int, name: str, rows: Tensor) -> None:
        if name == _STEP and self._counter is not None:
            was_made, wants = (bool(number) for number in rows.tolist())
            turn = torch.tensor(self._counter.turn(was_made, wants))
            self._others.send(other, turn, 0, _TURN)
            return
        if name != _TURN:
            asker, asked = map(int, name.split("-"))
            if self._clock.partners[asker]:
                self._send(self._models[asked].swapped(rows), asked, asker)
                return
        if name != self._awaited:
            self._others.refuse(other, f"an answer, {name}, that nobody asked for")
        self._awaited = ""
        self._came.put(rows)
