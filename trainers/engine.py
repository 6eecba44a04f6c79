"""Rounds over stacked node states: many runs of a whole network as one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from trainers.graphs import Mixing
from trainers.oracle import Oracle

Schedule = Callable[[int], float]  # of the round, never of the data


class Gradients(Protocol):
    """What an algorithm is given of the private data: `trainers.oracle.Oracle`."""

    def gradient(self, at: Tensor) -> Tensor:
        """A (noisy) gradient at ``at``, (runs, nodes, dims)."""
        ...


class Algorithm(Protocol):
    """An algorithm: how it starts, what it sends, and one round.

    A state holds nothing of other nodes but what came as a message; all of its tensors
    are (runs, nodes, ...).
    """

    def init(self, start: Tensor) -> Any:
        """The state before the first round, from ``start`` (runs, nodes, dims)."""
        ...

    def messages(self, state: Any, k: int) -> dict[str, Tensor]:
        """All that leaves a node in round ``k``: what others can see."""
        ...

    def round(
        self, state: Any, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> Any:
        """The state after round ``k``, from the mixed messages and the oracle."""
        ...

    def models(self, state: Any) -> Tensor:
        """Each node's model, (runs, nodes, dims)."""
        ...


class Observer(Protocol):
    """Sees messages as they are sent, before they are mixed."""

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        """See what all nodes send in round ``k``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """An algorithm on a graph."""

    algorithm: Algorithm
    mixing: Mixing

    def run(
        self,
        start: Tensor,
        private: Oracle,
        rounds: int,
        *,
        observers: Sequence[Observer] = (),
        after_round: Callable[[int, Tensor], None] | None = None,
    ) -> Tensor:
        """Train, and return each node's final model, (runs, nodes, dims).

        Parameters
        ----------
        start
            (runs, nodes, dims)
        private
            The oracle of this block of runs.
        rounds
            How many.
        observers
            Shown what every node sends, each round.
        after_round
            Called with the number of rounds done and the models; for curves.
        """
        if rounds < 0:
            raise ValueError(f"rounds must be >= 0, got {rounds}")
        if start.shape[1] != self.mixing.nodes or private.nodes != self.mixing.nodes:
            raise ValueError(
                f"the graph has {self.mixing.nodes} nodes, the data {private.nodes}, "
                f"the start {start.shape[1]}: they must be one number"
            )
        state = self.algorithm.init(start)
        for k in range(rounds):
            sent = self.algorithm.messages(state, k)
            for observer in observers:
                observer.messages(k, sent)
            inbox = {name: self.mixing(message) for name, message in sent.items()}
            state = self.algorithm.round(state, inbox, private, k)
            if after_round is not None:
                after_round(k + 1, self.algorithm.models(state))
        return self.algorithm.models(state)
