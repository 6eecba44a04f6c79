"""Runs collaborative training: turn by turn, the global updates one after another."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from torch import Tensor

from trainers.algorithms.collaborative.oracle import Participants
from trainers.network.engine import Watched
from trainers.network.mixing import Property
from trainers.network.over_ranks import Parcel, RankNetwork

Outcome = Literal["global", "local"]


@dataclasses.dataclass(frozen=True, slots=True)
class Collaborative:
    """Paper 002, Algorithm 1, as far as it is public."""

    # what a run gives: the global model, or each node's local one, which has no noise
    # and must stay where it is
    outcome: Outcome


@dataclasses.dataclass(frozen=True, slots=True)
class Shared:
    """State that all nodes share: the global model, (runs, nodes, dims), all equal."""

    model: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Collaboration:
    """Runs `Collaborative`; made like `trainers.network.engine.Network`.

    In a turn each node takes one batch; those that update the global model do so one
    after another, each on what the one before left. All hear all: of the mixing only
    the number of nodes counts. With a ``carrier`` the model goes on to nodes elsewhere.
    """

    algorithm: Collaborative
    mixing: Any
    needs: tuple[Property, ...] = ()
    carrier: RankNetwork | None = None

    def begin(self, start: Tensor) -> Shared:
        """The global model before the first turn: node 0's of ``start``."""
        return Shared(start[:, :1].clone().expand_as(start))

    def run(
        self, start: Tensor, private: Participants, rounds: int, **how: Any
    ) -> Tensor:
        """Train, and return the models, (runs, nodes, dims), as `Network.run`.

        Observers see "actions", (runs, nodes, classes), 1 for a global update, and
        "global", (runs, nodes, dims), the model as each node left it.
        """
        watched = Watched(**how)
        if rounds < 0:
            raise ValueError(f"rounds must be >= 0, got {rounds}")
        if start.shape[1] != private.nodes:
            raise ValueError(
                f"the data are of {private.nodes} nodes, the start of "
                f"{start.shape[1]}: they must be one number"
            )
        if watched.resume is None:
            private.begin(start)
        first, state = watched.resume or (0, self.begin(start))
        for turn in range(first, rounds):
            if turn < private.turns:
                state, sent = self._turn(state, private, turn)
                watched.sent(turn, sent)
            watched.done(turn + 1, state, lambda now: self._models(now, private))
        return self._models(state, private)

    def _turn(
        self, state: Shared, private: Participants, turn: int
    ) -> tuple[Shared, dict[str, Tensor]]:
        action = private.choose(turn)
        private.locally(turn, action)
        shared = self._passed(state.model[:, 0], turn)
        left = []
        for node in range(private.nodes):
            model = shared.unflatten(1, (-1, private.features))
            shared = private.publish(turn, node, action, model).flatten(1)
            left.append(shared)
        shared = self._told(shared, turn)
        sent = {"actions": action.to(shared.dtype), "global": torch.stack(left, 1)}
        return Shared(shared[:, None].expand(-1, private.nodes, -1)), sent

    def _passed(self, shared: Tensor, turn: int) -> Tensor:
        """The global model as the process before this one leaves it."""
        if self.carrier is None or self.carrier.ranks.rank == 0:
            return shared
        rank = self.carrier.ranks.rank
        return self._exchange([], [rank - 1], shared, self._stage(turn, rank))

    def _told(self, shared: Tensor, turn: int) -> Tensor:
        """The global model after the last node, at all: the last process tells it."""
        if self.carrier is None:
            return shared
        rank, last = self.carrier.ranks.rank, self.carrier.ranks.size - 1
        if rank < last:
            self._exchange([rank + 1], [], shared, self._stage(turn, rank + 1))
        to, by = ([*range(last)], []) if rank == last else ([], [last])
        return self._exchange(to, by, shared, self._stage(turn, last + 1))

    def _stage(self, turn: int, stage: int) -> int:
        """The number of an exchange: turns have one for each process, and one more."""
        assert self.carrier is not None
        return turn * (self.carrier.ranks.size + 1) + stage

    def _exchange(
        self, to: list[int], by: list[int], shared: Tensor, number: int
    ) -> Tensor:
        """Send ``shared``, (runs, dims), or receive what comes in its place."""
        assert self.carrier is not None
        rows = shared[:, None].contiguous()
        going = [Parcel(rank, "global", [0], rows) for rank in to]
        coming = [Parcel(rank, "global", [0], torch.empty_like(rows)) for rank in by]
        for parcel in going:
            self.carrier.traffic.add(parcel.rows)
        self.carrier.carry(going, coming, number)
        return coming[0].rows[:, 0] if coming else shared

    def _models(self, state: Shared, private: Participants) -> Tensor:
        if self.algorithm.outcome == "local":
            return private.local_models.flatten(2)
        return state.model.clone()
