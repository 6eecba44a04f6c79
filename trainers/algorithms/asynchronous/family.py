"""A(DP)2SGD, its plain form AD-PSGD, and SYNC, the barrier that they are held against.

Xu, Zhang and Wang, "A(DP)2SGD: asynchronous decentralized parallel stochastic gradient
descent with differential privacy". Lots have a fixed size and are drawn without
replacement, so that the relation is replace-one; every gradient is clipped, as a
network's are not bounded.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from privaudit.accounting.papers.xu_theorem_2 import TheoremTwo
from privaudit.ledger import Ledger, Recorder
from trainers.algorithms.asynchronous.clock import (
    Clock,
    Speed,
    any_neighbour,
    bipartite_ring,
)
from trainers.algorithms.asynchronous.virtual_time import (
    Adp2sgd,
    Asynchronous,
    OverProcesses,
)
from trainers.algorithms.entry import Options
from trainers.network.engine import Gradients, Inbox, Network, Schedule
from trainers.network.graphs import complete
from trainers.network.mixing import Mixing, Property
from trainers.oracles.oracle import Mechanism

if TYPE_CHECKING:
    from trainers.runs.problem import Problem
    from trainers.runs.training import Training

NoiseOn = Literal["mean", "sum"]


class ClockOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When workers finish, and on what the paper's noise is taken to be.

    Parameters
    ----------
    speed
        See `trainers.algorithms.asynchronous.clock.Speed`.
    link_time
        Seconds of an exchange, where a step takes one.
    clock_seed
        Of who is slow when, and who is whose partner.
    pairing
        "bipartite-ring", senders draw receivers; or "graph", any worker draws one of
        its neighbours in the training's graph.
    noise_on
        What the sigma of Theorem 2 is added to under ``--calibrate paper``: the mean of
        a batch, as the proof has it, or the sum, as the listing has it.
    """

    speed: str = "constant"
    link_time: float = 0.0
    clock_seed: int = 0
    pairing: Literal["bipartite-ring", "graph"] = "bipartite-ring"
    noise_on: NoiseOn = "mean"

    def __post_init__(self) -> None:
        Clock((), Speed(self.speed, 1), self.link_time)
        if self.clock_seed < 0:
            raise ValueError(f"clock_seed must be >= 0, got {self.clock_seed}")

    def arguments(self, rounds: int) -> dict[str, Any]:
        """Itself: the clock waits for the graph."""
        return {"options": self}

    def clock_of(self, mixing: Mixing) -> Clock:
        """The clock of the workers of ``mixing``."""
        if self.pairing == "graph":
            partners = any_neighbour(mixing.at(0) > 0)
        else:
            partners = bipartite_ring(mixing.nodes)
        speed = Speed(self.speed, mixing.nodes)
        return Clock(partners, speed, self.link_time, self.clock_seed)


class WorkerOptions(
    ClockOptions, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """As those, and whether workers are processes.

    Parameters
    ----------
    clock
        "virtual": events in one process, the same for a seed. "real": a process a
        worker, as fast as it is, never the same twice.
    step_time
        By the real clock: seconds that a step of speed 1 takes at least; a slower one
        waits for longer. 0: none waits.
    most_steps
        By the real clock: steps that one worker may make, for which the noise is
        planned. None: twice an equal share, and all together at most.
    """

    clock: Literal["virtual", "real"] = "virtual"
    step_time: float = 0.0
    most_steps: int | None = None

    def __post_init__(self) -> None:
        ClockOptions.__post_init__(self)
        if not 0 <= self.step_time < math.inf:
            raise ValueError(f"step_time must be finite and >= 0, got {self.step_time}")
        if self.most_steps is not None and self.most_steps < 1:
            raise ValueError(f"most_steps must be >= 1, got {self.most_steps}")
        if self.clock == "virtual":
            for name in ("step_time", "most_steps"):
                if getattr(self, name):
                    raise ValueError(f"{name} is of the real clock; set clock=real")
            return
        if self.pairing != "bipartite-ring":
            raise ValueError(
                "by the real clock senders ask and receivers answer, so that none wait "
                f"in a circle: pairing must be bipartite-ring, got {self.pairing}"
            )
        if self.step_time == 0 and (self.speed != "constant" or self.link_time):
            raise ValueError(
                "a speed or a link_time of the real clock is a multiple of step_time: "
                "set step_time > 0, such as 0.01 seconds"
            )

    def arguments(self, rounds: int) -> dict[str, Any]:
        """Itself, and how many steps there are."""
        return {"options": self, "steps": rounds}

    def most(self, steps: int, workers: int) -> int:
        """Of ``steps``, those that one of ``workers`` may make."""
        return min(steps, self.most_steps or 2 * -(-steps // workers))


DEFAULT = WorkerOptions()


@dataclasses.dataclass(frozen=True, slots=True)
class Untimed:
    """An `Adp2sgd` that waits for its graph, to be run for ``steps``."""

    step_size: Schedule
    options: WorkerOptions = DEFAULT
    steps: int = 1


def asynchronous(
    algorithm: Untimed, mixing: Mixing, needs: tuple[Property, ...]
) -> Asynchronous:
    """The runner, with the clock of ``mixing``."""
    options = algorithm.options
    timed = Adp2sgd(algorithm.step_size, options.clock_of(mixing))
    if options.clock == "virtual":
        return Asynchronous(timed, mixing, needs)
    most = options.most(algorithm.steps, mixing.nodes)
    return OverProcesses(timed, mixing, needs, most, options.step_time)


def fixed_lots(training: Training, noise_multiplier: float) -> Mechanism:
    """Lots of a fixed size, one clip norm, one noise multiplier; or neither."""
    if not training.entry.private:
        return Mechanism(training.lot_size, sampling="without-replacement")
    return Mechanism(
        training.lot_size,
        training.clip_norm,
        noise_multiplier,
        sampling="without-replacement",
    )


def ledger_of_turns(problem: Problem, noise_multiplier: float) -> Ledger:
    """Of each worker, the steps that it makes; by a real clock, the most it may."""
    mechanism = problem.training.mechanism(noise_multiplier)
    runner = problem.network
    assert isinstance(runner, Asynchronous)
    if isinstance(runner, OverProcesses):
        counts = [runner.most] * len(problem.sizes)
    else:
        counts = runner.algorithm.clock.counts(problem.training.rounds)
    recorder = Recorder(len(problem.sizes))
    for worker, (size, count) in enumerate(zip(problem.sizes, counts, strict=True)):
        recorder.record(worker, mechanism.release(0, size), count)
    return recorder.ledger()


def by_theorem_two(problem: Problem, epsilon: float, delta: float) -> float:
    """The noise multiplier of Theorem 2's least sigma, on the mean or on the sum.

    Raises ``ValueError`` if no mu is admissible: the theorem then says nothing.
    """
    training = problem.training
    options = training.algorithm_options()
    assert isinstance(options, ClockOptions)
    sigma, _ = TheoremTwo(
        steps=training.rounds,
        workers=len(problem.sizes),
        records=min(problem.sizes),
        batch=training.lot_size,
        epsilon=epsilon,
        delta=delta,
        lipschitz=training.clip_norm,
    ).least_sigma()
    scale = training.lot_size if options.noise_on == "mean" else 1.0
    return sigma * scale / training.clip_norm


def remark_one(epsilon: float, done: int, steps: int) -> float:
    """What Remark 1 says of the model after ``done`` of ``steps``: epsilon sqrt(t/T).

    A claim, not a guarantee. Raises ``ValueError`` for steps out of range.
    """
    if not 0 <= done <= steps or steps < 1:
        raise ValueError(f"done must be in [0, {steps}], got {done}")
    return epsilon * math.sqrt(done / steps)


@dataclasses.dataclass(frozen=True, slots=True)
class SyncState:
    """(runs, nodes, dims)"""

    model: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Sync:
    """w <- mean over all of (w_i - eta G_i(w_i)): one barrier a round.

    SYNC of Xu et al., section V; all workers keep one model.
    """

    step_size: Schedule
    options: ClockOptions = DEFAULT

    def init(self, start: Tensor) -> SyncState:
        """All workers at ``start``."""
        return SyncState(start)

    def local(self, state: SyncState, private: Gradients, k: int) -> SyncState:
        """One step of everybody's own."""
        step = self.step_size(k) * private.gradient(at=state.model)
        return SyncState(state.model - step)

    def messages(self, state: SyncState, k: int) -> dict[str, Tensor]:
        """The models."""
        return {"theta": state.model}

    def round(
        self, state: SyncState, inbox: Inbox, private: Gradients, k: int
    ) -> SyncState:
        """The mean of all."""
        return SyncState(inbox["theta"])

    def models(self, state: SyncState) -> Tensor:
        """The models."""
        return state.model


def all_reduce(algorithm: Sync, mixing: Mixing, needs: tuple[Property, ...]) -> Network:
    """The runner of SYNC: whatever the graph, everybody hears everybody."""
    return Network(algorithm, Mixing.of(complete(mixing.nodes), "uniform"), needs)


def remarks(training: Training) -> tuple[str, ...]:
    """Of the clock: how stale steps are, or that nothing of it is the same twice."""
    options = training.algorithm_options()
    assert isinstance(options, WorkerOptions)
    if options.clock == "real":
        most = options.most(training.rounds, training.nodes)
        return (
            "by a real clock: not reproducible, whatever the seed; a worker makes at "
            f"most {most:,} steps, for which the noise is planned",
        )
    clock = options.clock_of(training.mixing())
    mean, most = staleness(clock, training.rounds)
    return (
        f"by a virtual clock: {training.rounds:,} steps, staleness {mean:.2f} on "
        f"average and {most} at most",
    )


def staleness(clock: Clock, steps: int) -> tuple[float, int]:
    """Mean and maximum of tau over the first ``steps``; the paper assumes a bound."""
    found = np.array([step.staleness for step in clock.steps(steps)])
    return (float(found.mean()), int(found.max())) if steps else (0.0, 0)
