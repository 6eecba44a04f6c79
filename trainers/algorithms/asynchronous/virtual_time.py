"""Asynchronous runs: one worker's step after another, in virtual time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.algorithms.asynchronous.clock import Clock, Step
from trainers.network.engine import Observer, Schedule, Watched
from trainers.network.mixing import Mixing, Property
from trainers.numerics.device import placed
from trainers.oracles.oracle import Oracle


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """Models, and copies of which gradients are computed: (runs, nodes, dims)."""

    model: Tensor
    copy: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Adp2sgd:
    """w_k <- (w_k + w_j) / 2 - eta G_k(copy of w_k): one worker, one step.

    A(DP)2SGD of Xu, Zhang and Wang (Algorithm 1) where the oracle clips and adds noise,
    AD-PSGD (Lian et al. 2018) where it does not. The partner j takes the average too.
    """

    step_size: Schedule  # a schedule of the global step
    clock: Clock  # whose turn it is


@dataclasses.dataclass(frozen=True, slots=True)
class Asynchronous:
    """Runs `Adp2sgd` by its clock; a *round* is one global step."""

    algorithm: Adp2sgd  # with its clock
    mixing: Mixing  # the graph, whose nodes the clock's workers are
    needs: tuple[Property, ...] = ()  # what must be true of it

    def __post_init__(self) -> None:
        self.mixing.require(self.needs, "A(DP)2SGD")

    def begin(self, start: Tensor) -> State:
        return State(model=start.clone(), copy=start.clone())

    def run(self, start: Tensor, private: Oracle, rounds: int, **how: Any) -> Tensor:
        """As `trainers.network.engine.Network.run`, in ``rounds`` global steps.

        ``after_round`` and ``keep`` are called after each instant. Observers see each
        exchange, (runs, nodes, dims): rows of the two that exchange, zeros elsewhere.
        """
        nodes = self.algorithm.clock.nodes
        if start.shape[1] != nodes or private.nodes != nodes:
            raise ValueError(
                f"the clock has {nodes} workers, the data {private.nodes}, the start "
                f"{start.shape[1]}: they must be one number"
            )
        watched = Watched(**how)
        done, state = watched.resume or (0, self.begin(start))
        passed = 0
        for instant in self.algorithm.clock.instants(rounds):
            passed += len(instant)
            if passed <= done:
                continue
            state = self.instant(state, instant, private, passed, watched.observers)
            watched.done(passed, state, lambda now: now.model)
        return state.model

    def instant(
        self,
        state: State,
        steps: Sequence[Step],
        private: Oracle,
        done: int,
        observers: Sequence[Observer] = (),
    ) -> State:
        """All ``steps`` of a time, up to number ``done``: averages, then gradients."""
        model, copy = state.model.clone(), state.copy.clone()
        workers = [step.worker for step in steps]
        where = model.device
        gradient = torch.empty_like(model[:, placed(tuple(workers), where)])
        for group in _equal_turns(workers, private):
            rows = placed(tuple(map(workers.index, group)), where)
            asked = copy[:, placed(tuple(group), where)]
            gradient[:, rows] = private.gradient(asked, group)
        first = done - len(steps)
        for offset, step in enumerate(steps):
            if step.partner is None:
                continue
            pair = placed((step.worker, step.partner), where)
            if observers:
                sent = torch.zeros_like(model)
                sent[:, pair] = model[:, pair]
                for observer in observers:
                    observer.messages(first + offset, {"theta": sent})
            model[:, pair] = model[:, pair].mean(1, keepdim=True)
        for offset, step in enumerate(steps):
            size = self.algorithm.step_size(first + offset)
            model[:, step.worker] -= size * gradient[:, offset]
        everyone = placed(tuple(workers), where)
        copy[:, everyone] = model[:, everyone]
        return State(model=model, copy=copy)


def _equal_turns(workers: list[int], private: Oracle) -> list[list[int]]:
    """Workers by how often they asked before: the oracle serves such together."""
    turns: dict[int, list[int]] = {}
    for worker in workers:
        turns.setdefault(private.releases_of(worker), []).append(worker)
    return list(turns.values())
