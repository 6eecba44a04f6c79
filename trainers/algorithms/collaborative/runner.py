"""Runs collaborative training: turn by turn, the global updates one after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from trainers.algorithms.collaborative.oracle import Participants
from trainers.network.engine import Observer
from trainers.network.mixing import Property

Outcome = Literal["global", "local"]


@dataclasses.dataclass(frozen=True, slots=True)
class Collaborative:
    """Paper 002, Algorithm 1, as far as it is public.

    Parameters
    ----------
    outcome
        What a run gives: the global model, or each node's local one, which has no noise
        and must stay where it is.
    """

    outcome: Outcome


@dataclasses.dataclass(frozen=True, slots=True)
class Shared:
    """What all nodes know: the global model, (runs, dims)."""

    model: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Collaboration:
    """Runs `Collaborative`; made like `trainers.network.engine.Network`.

    Everybody hears everybody: the mixing's graph says how many nodes there are, and no
    more. In a turn each node takes one batch. Those that update the global model do so
    one after another, in the order of their numbers, each on what the one before left.
    """

    algorithm: Collaborative
    mixing: Any
    needs: tuple[Property, ...] = ()

    def begin(self, start: Tensor) -> Shared:
        """The global model before the first turn: node 0's of ``start``."""
        return Shared(start[:, 0].clone())

    def run(
        self,
        start: Tensor,
        private: Participants,
        rounds: int,
        *,
        observers: Sequence[Observer] = (),
        after_round: Callable[[int, Tensor], None] | None = None,
        keep: Callable[[int, Any], None] | None = None,
        resume: tuple[int, Any] | None = None,
    ) -> Tensor:
        """Train, and return the models, (runs, nodes, dims), as `Network.run`.

        Turns after the last batch do nothing. Observers see, each turn, "actions",
        (runs, nodes, classes), 1 for a global update, and "global", (runs, nodes,
        dims), the global model as each node left it.
        """
        if rounds < 0:
            raise ValueError(f"rounds must be >= 0, got {rounds}")
        if start.shape[1] != private.nodes:
            raise ValueError(
                f"the data are of {private.nodes} nodes, the start of "
                f"{start.shape[1]}: they must be one number"
            )
        if resume is None:
            private.begin(start)
        first, state = (0, self.begin(start)) if resume is None else resume
        for turn in range(first, rounds):
            if turn < private.turns:
                state, sent = self._turn(state, private, turn)
                for observer in observers:
                    observer.messages(turn, sent)
            if after_round is not None:
                after_round(turn + 1, self._models(state, private))
            if keep is not None:
                keep(turn + 1, state)
        return self._models(state, private)

    def _turn(
        self, state: Shared, private: Participants, turn: int
    ) -> tuple[Shared, dict[str, Tensor]]:
        shared = state.model.unflatten(1, (-1, private.features))
        action = private.choose(turn)
        private.locally(turn, action)
        left = []
        for node in range(private.nodes):
            shared = private.publish(turn, node, action, shared)
            left.append(shared.flatten(1))
        sent = {"actions": action.to(shared.dtype), "global": torch.stack(left, 1)}
        return Shared(shared.flatten(1)), sent

    def _models(self, state: Shared, private: Participants) -> Tensor:
        if self.algorithm.outcome == "local":
            return private.local_models.flatten(2)
        return state.model[:, None].repeat(1, private.nodes, 1)
