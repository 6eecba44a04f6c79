"""The contract of adversaries, and what every adversary knows.

One is made an audit, from what is public; `Adversary.watch` gives a watcher a block of
runs, which is shown what its adversary sees and scores each run in the end.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import ClassVar

from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE, Canary, is_silent
from trainers.algorithms.family import Noise
from trainers.gradients.differentiator import Differentiator
from trainers.network.engine import Observer
from trainers.oracles.oracle import Mechanism, ReleaseObserver
from trainers.runs.problem import Problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """Knowledge of every adversary of a training: all but coins, batches and noise."""

    problem: Problem  # the algorithm, its settings and all records but the canary
    canary: Canary  # what may be planted: at node 0, or several of one run at theirs
    # what the mechanism makes its noise from, at all nodes or at each
    noise_multiplier: Noise
    start: Tensor  # (dims,): where all nodes of all runs start
    replaces: bool = False  # whether the canary comes in the place of a record
    # who attacks, as `Observer.parse` takes it, or ``any-node``; None: as the adversary
    # says
    observer: str | None = None

    @functools.cached_property
    def mechanism(self) -> Mechanism:
        """Mechanism that makes gradients private."""
        return self.problem.mechanism(self.noise_multiplier)

    @functools.cached_property
    def rates(self) -> tuple[float, ...]:
        """Each node's sampling rate, of the part whose turn it is."""
        return tuple(map(self.mechanism.turn_rate, self.problem.sizes))

    @functools.cached_property
    def divisors(self) -> tuple[float, ...]:
        """Divisor of each node's sums; 1 where they are given as sums."""
        return self.mechanism.divisors(self.problem.sizes)

    @property
    def rate(self) -> float:
        """The sampling rate of the canary's node."""
        return self.rates[CANARY_NODE]

    def scales(self, index: int, node: int = CANARY_NODE) -> tuple[float, float]:
        """Clip norm and noise of a node's ``index``-th sum; 1 and the clip if none."""
        clip, multiplier = self.mechanism.of(node).at(index)
        clip = clip if clip < float("inf") else 1.0
        return clip, clip * (multiplier or 1.0)

    @functools.cached_property
    def silent(self) -> bool:
        """Return whether no other record can reach the canary's crafted direction."""
        direction = self.canary.direction
        return direction is not None and is_silent(self.problem, self.start, direction)


class Watcher(abc.ABC):
    """Shown one block of runs; a higher score says "member"."""

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Observers of the messages of every round; none by default."""
        return ()

    @property
    def release_observers(self) -> tuple[ReleaseObserver, ...]:
        """Observers of every release; none by default."""
        return ()

    def after_round(self, done: int, models: Tensor) -> None:  # noqa: B027  # few look
        """See the models, (runs, nodes, dims), after ``done`` rounds."""

    @abc.abstractmethod
    def score(self, models: Tensor) -> Tensor:
        """(runs,) or (runs, canaries), given the final models, (runs, nodes, dims)."""


class Adversary(abc.ABC):
    """Knows a scene, and watches blocks of its runs; ``ValueError`` where it cannot."""

    name: ClassVar[str]
    sees: str  # the threat model, in words
    reads_models: ClassVar[bool] = True

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @property
    def told(self) -> str:
        """The threat model in words, and how many canaries there are to be told."""
        many = len(self.scene.canary)
        return f"{self.sees}; {many} canaries a run" if many > 1 else self.sees

    @abc.abstractmethod
    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        """A watcher for a block; ``gradients`` are for this block's thread alone."""
