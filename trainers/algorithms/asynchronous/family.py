"""A(DP)2SGD, its plain form AD-PSGD, and SYNC, after Xu, Zhang and Wang.

"A(DP)2SGD: asynchronous decentralized parallel stochastic gradient descent with
differential privacy". Batches are of fixed size (replace-one), gradients are clipped.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from privaudit.accounting.papers.xu_theorem_2 import TheoremTwo
from privaudit.ledger import Ledger, Recorder
from privaudit.task_settings import AtLeastOne, Natural, NotNegative
from trainers.algorithms.asynchronous.clock import (
    Clock,
    Speed,
    any_neighbour,
    bipartite_ring,
)
from trainers.algorithms.asynchronous.real_time import RealTime
from trainers.algorithms.asynchronous.virtual_time import Adp2sgd, Asynchronous
from trainers.algorithms.dsgd import StepFirst
from trainers.algorithms.family import Family
from trainers.algorithms.setting import Options, OptionsType, Setting
from trainers.network.engine import Network, Schedule
from trainers.network.graphs import complete
from trainers.network.mixing import Mixing
from trainers.oracles.oracle import Mechanism

NoiseOn = Literal["mean", "sum"]


class ClockOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clock of the workers, and the scale of the paper's noise.

    Parameters
    ----------
    speed
        How long workers take for a step: constant, random-slowdown:FACTOR,
        one-slow:FACTOR, uniform:LOW,HIGH, exponential:MEAN or lognormal:SIGMA.
    link_time
        Seconds of an exchange between two workers.
    clock_seed
        Seed of who is slow when, and who is whose partner.
    pairing
        "bipartite-ring", senders draw receivers; or "graph", any worker draws one of
        its neighbours in the training's graph.
    noise_on
        What the sigma of Theorem 2 is added to under ``--calibrate paper``: the mean of
        a batch, as the proof has it, or the sum, as the listing has it.
    """

    speed: str = "constant"
    link_time: float = 0.0
    clock_seed: Natural = 0
    pairing: Literal["bipartite-ring", "graph"] = "bipartite-ring"
    noise_on: NoiseOn = "mean"

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        Clock((), Speed(self.speed, 1), self.link_time)

    def arguments(self, rounds: int) -> dict[str, Any]:
        """None: SYNC waits for all, by any clock."""
        return {}

    def clock_of(self, mixing: Mixing) -> Clock:
        if self.pairing == "graph":
            partners = any_neighbour(mixing.at(0) > 0)
        else:
            partners = bipartite_ring(mixing.nodes)
        speed = Speed(self.speed, mixing.nodes)
        return Clock(partners, speed, self.link_time, self.clock_seed)


class WorkerOptions(ClockOptions, frozen=True, kw_only=True):
    """As those, and by which clock.

    Parameters
    ----------
    clock
        "virtual": events in one process, the same for a seed. "real": workers of one
        process, or at parties, as fast as they are, never the same twice.
    step_time
        By the real clock: seconds that a step of speed 1 takes at least; a slower one
        waits for longer. 0: none waits.
    most_steps
        By the real clock: steps that one worker may make, for which the noise is
        planned. None: twice an equal share, and all together at most.
    """

    clock: Literal["virtual", "real"] = "virtual"
    step_time: NotNegative = 0.0
    most_steps: AtLeastOne | None = None

    def __post_init__(self) -> None:
        ClockOptions.__post_init__(self)
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
        """Itself, as the clock waits for the graph, and how many steps there are."""
        return {"options": self, "steps": rounds}

    def most(self, steps: int, workers: int) -> int:
        """Largest number of ``steps`` that one of ``workers`` may make."""
        return min(steps, self.most_steps or 2 * -(-steps // workers))


@dataclasses.dataclass(frozen=True, slots=True)
class Untimed:
    """An `Adp2sgd` that waits for its graph, to be run for ``steps``."""

    step_size: Schedule
    options: WorkerOptions = WorkerOptions()  # noqa: RUF009  # frozen
    steps: int = 1


class FixedBatches(Family[OptionsType]):
    """Batches of a fixed size, drawn without replacement."""

    def mechanism(
        self, setting: Setting[OptionsType], noise_multiplier: float
    ) -> Mechanism:
        private = Family.mechanism(self, setting, noise_multiplier)
        return dataclasses.replace(private, sampling="without-replacement")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers(FixedBatches[WorkerOptions]):
    """A(DP)2SGD and AD-PSGD, by a virtual clock or a real one."""

    over_ranks: bool = False
    one_process: str = (
        "averages two workers' models in one step, by a virtual clock in one process "
        "(clock=real has parties)"
    )
    takes_optimisers = False  # there are no rounds of all nodes

    def runner(self, algorithm: Untimed, mixing: Mixing) -> Asynchronous:
        options = algorithm.options
        timed = Adp2sgd(algorithm.step_size, options.clock_of(mixing))
        if options.clock == "virtual":
            return Asynchronous(timed, mixing, self.needs)
        most = options.most(algorithm.steps, mixing.nodes)
        return RealTime(timed, mixing, self.needs, most, options.step_time)

    def releases(self, setting: Setting[WorkerOptions]) -> int:
        """Releases of a worker, on average: rounds are steps of any of them."""
        return -(-setting.rounds // setting.nodes)

    def ledger(
        self, setting: Setting[WorkerOptions], noise_multiplier: float
    ) -> Ledger:
        """Ledger of each worker's steps; by a real clock, of the most it may make."""
        mechanism = self.mechanism(setting, noise_multiplier)
        runner = self.runner(self.algorithm(setting), setting.mixing)
        if isinstance(runner, RealTime):
            counts = [runner.most] * len(setting.sizes)
        else:
            counts = runner.algorithm.clock.counts(setting.rounds)
        recorder = Recorder(len(setting.sizes))
        for worker, (size, count) in enumerate(zip(setting.sizes, counts, strict=True)):
            recorder.record(worker, mechanism.release(0, size), count)
        return recorder.ledger()

    def whole(self, setting: Setting[WorkerOptions]) -> str:
        """By a real clock, parties share no memory."""
        return "" if setting.options.clock == "real" else self.one_process

    def plans_at_most(self, setting: Setting[WorkerOptions]) -> bool:
        """By a real clock, a worker may make fewer steps."""
        return setting.options.clock == "real"

    def remarks(self, setting: Setting[WorkerOptions]) -> tuple[str, ...]:
        options = setting.options
        if options.clock == "real":
            most = options.most(setting.rounds, setting.nodes)
            return (
                "by a real clock: not reproducible, whatever the seed; a worker makes "
                f"at most {most:,} steps, for which the noise is planned",
            )
        mean, most = staleness(options.clock_of(setting.mixing), setting.rounds)
        return (
            f"by a virtual clock: {setting.rounds:,} steps, staleness {mean:.2f} on "
            f"average and {most} at most",
        )


class PrivateWorkers(Workers):
    """A(DP)2SGD, which has a theorem of its own."""

    def paper_noise(
        self, setting: Setting[WorkerOptions], epsilon: float, delta: float
    ) -> float:
        """Noise multiplier of Theorem 2's least sigma, on the mean or on the sum."""
        options = setting.options
        sigma, _ = TheoremTwo(
            steps=setting.rounds,
            workers=len(setting.sizes),
            records=min(setting.sizes),
            batch=setting.batch_size,
            epsilon=epsilon,
            delta=delta,
            lipschitz=setting.clip_norm,
        ).least_sigma()
        scale = setting.batch_size if options.noise_on == "mean" else 1.0
        return sigma * scale / setting.clip_norm


@dataclasses.dataclass(frozen=True, slots=True)
class Sync(StepFirst):
    """w <- mean over all of (w_i - eta G_i(w_i)): SYNC of Xu et al., section V."""


class AllReduce(FixedBatches[ClockOptions]):
    """SYNC: whatever the graph, everybody hears everybody."""

    def runner(self, algorithm: Sync, mixing: Mixing) -> Network:
        everybody = Mixing.of(complete(mixing.nodes), "uniform")
        return Network(algorithm, everybody, self.needs)


def staleness(clock: Clock, steps: int) -> tuple[float, int]:
    """Mean and maximum of tau over the first ``steps``; the paper assumes a bound."""
    found = np.array([step.staleness for step in clock.steps(steps)])
    return (float(found.mean()), int(found.max())) if steps else (0.0, 0)
