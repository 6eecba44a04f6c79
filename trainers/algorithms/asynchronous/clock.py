"""Virtual time: when each worker finishes a step, by a public seed."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

Draw = Callable[[np.random.Generator, int], float]  # seconds of one step of a worker

_NUMBER = r"([0-9.eE+-]+)"


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One worker's step, in the order of virtual time."""

    worker: int  # whose gradient is applied
    partner: int | None  # with whom it averages first; None if it does not
    time: float  # when, in seconds
    staleness: int  # how many steps of others were applied since it copied its model


@dataclasses.dataclass(frozen=True, slots=True)
class Speed:
    """Time that workers take for a step, by name.

    ``constant``: a second each; ``random-slowdown:F``: F seconds with probability 1/K,
    else one (with a barrier: of one worker a round, drawn at random); ``one-slow:F``:
    worker 0 always takes F seconds; ``uniform:A,B``; ``exponential:MEAN``;
    ``lognormal:SIGMA`` with median 1.
    """

    name: str
    nodes: int

    def __post_init__(self) -> None:
        _ = self.draw

    @property
    def draw(self) -> Draw:
        """Seconds of a worker's next step, from a generator of its own."""
        kind, _, text = self.name.partition(":")
        numbers = [float(n) for n in re.findall(_NUMBER, text)]
        first, share = numbers[0] if numbers else 1.0, 1 / self.nodes
        draws: dict[str, tuple[int, Draw]] = {  # of so many numbers
            "constant": (0, lambda rng, worker: 1.0),
            "random-slowdown": (
                1,
                lambda rng, _: first if rng.random() < share else 1.0,
            ),
            "one-slow": (1, lambda rng, worker: first if worker == 0 else 1.0),
            "uniform": (2, lambda rng, worker: rng.uniform(first, numbers[1])),
            "exponential": (1, lambda rng, worker: rng.exponential(first)),
            "lognormal": (1, lambda rng, worker: rng.lognormal(sigma=first)),
        }
        if kind not in draws:
            raise ValueError(
                f"there is no speed {self.name!r}; choose one of constant, "
                "random-slowdown:FACTOR, one-slow:FACTOR, uniform:LOW,HIGH, "
                "exponential:MEAN, lognormal:SIGMA"
            )
        count, draw = draws[kind]
        if len(numbers) != count or not all(0 < n < np.inf for n in numbers):
            raise ValueError(
                f"the speed {kind} takes {count} numbers > 0 after a colon, "
                f"got {self.name!r}"
            )
        if kind == "uniform" and numbers[0] > numbers[1]:
            raise ValueError(f"uniform:LOW,HIGH needs LOW <= HIGH, got {self.name!r}")
        return draw


@dataclasses.dataclass(frozen=True)
class Clock:
    """The steps of an asynchronous run, before it runs.

    A worker copies its model, computes, averages with a partner, applies its gradient,
    and begins anew after ``link_time``. Steps of one instant do not see each other's.
    """

    # by worker: with whom it may average when its step is done; one is drawn uniformly.
    # None for a worker that only waits to be drawn
    partners: tuple[tuple[int, ...], ...]
    speed: Speed  # of steps
    link_time: float = 0.0  # seconds that an exchange takes, >= 0
    seed: int = 0  # of all draws. Public: nothing here may depend on data

    def __post_init__(self) -> None:
        if not 0 <= self.link_time < np.inf:
            raise ValueError(f"link_time must be finite and >= 0, got {self.link_time}")
        for worker, partners in enumerate(self.partners):
            if worker in partners:
                raise ValueError(f"worker {worker} cannot average with itself")

    @property
    def nodes(self) -> int:
        return len(self.partners)

    def steps(self, count: int) -> tuple[Step, ...]:
        return _steps(self, count)

    def counts(self, count: int) -> list[int]:
        """Number of the first ``count`` steps that each worker makes."""
        made = [0] * self.nodes
        for step in self.steps(count):
            made[step.worker] += 1
        return made

    def instants(self, count: int) -> Iterator[Sequence[Step]]:
        """The first ``count`` steps, those of one time together, each worker once."""
        steps = self.steps(count)
        first, here = 0, set()
        for last, step in enumerate(steps):
            if step.time != steps[first].time or step.worker in here:
                yield steps[first:last]
                first, here = last, set()
            here.add(step.worker)
        if steps:
            yield steps[first:]

    def barriers(self, rounds: int) -> np.ndarray:
        """Times at which rounds end if all wait for the slowest, (rounds,): seconds."""
        rngs = self.generators()
        draw = self.speed.draw
        kind, _, number = self.speed.name.partition(":")
        if kind == "random-slowdown":
            slowest = np.full(rounds, max(1.0, float(number)))
        else:
            workers = range(self.nodes)
            drawn = [max(draw(rngs[i], i) for i in workers) for _ in range(rounds)]
            slowest = np.array(drawn)
        return np.cumsum(slowest + self.link_time)

    def partner(self, worker: int, rng: np.random.Generator) -> int | None:
        """Draw with whom ``worker`` averages; None if it asks nobody."""
        choice = self.partners[worker]
        return choice[int(rng.integers(len(choice)))] if choice else None

    def generators(self) -> list[np.random.Generator]:
        """Generators of each worker's speeds and partners, at the beginning."""
        seeds = np.random.SeedSequence(self.seed).spawn(self.nodes)
        return [np.random.default_rng(seed) for seed in seeds]


@functools.lru_cache(maxsize=8)
def _steps(clock: Clock, count: int) -> tuple[Step, ...]:
    rngs = clock.generators()
    copied = [0] * clock.nodes  # steps that were applied when the model was copied
    queue = [(clock.speed.draw(rng, worker), worker) for worker, rng in enumerate(rngs)]
    heapq.heapify(queue)
    found: list[Step] = []
    while len(found) < count:
        time, worker = heapq.heappop(queue)
        partner = clock.partner(worker, rngs[worker])
        found.append(Step(worker, partner, time, len(found) - copied[worker]))
        copied[worker] = len(found)
        wait = clock.link_time + clock.speed.draw(rngs[worker], worker)
        heapq.heappush(queue, (time + wait, worker))
    return tuple(found)


def bipartite_ring(nodes: int) -> tuple[tuple[int, ...], ...]:
    """Partners on a ring of senders (even numbers) and receivers: Xu et al., section V.

    A sender draws one of all receivers (communication randomisation); a receiver waits.
    A last sender without a receiver beside it, on an odd ring, is a sender as well.
    """
    if nodes < 2:
        raise ValueError(f"a ring of senders and receivers needs 2 nodes, got {nodes}")
    receivers = tuple(range(1, nodes, 2))
    return tuple(receivers if worker % 2 == 0 else () for worker in range(nodes))


def any_neighbour(hears: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Partners along the edges of an undirected graph: any worker draws a neighbour.

    ``hears``, (nodes, nodes) bool. Raises ``ValueError`` if it is directed.
    """
    if not (hears == hears.T).all():
        raise ValueError("two workers average with each other: the graph is undirected")
    return tuple(
        tuple(int(j) for j in np.flatnonzero(row) if j != i)
        for i, row in enumerate(hears)
    )
