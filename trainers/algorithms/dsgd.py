"""Decentralised stochastic gradient descent, private if its oracle is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from trainers.network.engine import Gradients, Schedule


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """(runs, nodes, dims)"""

    theta: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class OfParameters:
    """An algorithm whose nodes keep their parameters alone, and send them."""

    step_size: Schedule

    def init(self, start: Tensor) -> State:
        return State(theta=start)

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        return {"theta": state.theta}

    def models(self, state: State) -> Tensor:
        return state.theta


@dataclasses.dataclass(frozen=True, slots=True)
class StepFirst(OfParameters):
    """theta_i <- sum_j w_ij (theta_j - eta_k G_j(theta_j)): steps are sent."""

    def local(self, state: State, private: Gradients, k: int) -> State:
        gradient = private.gradient(at=state.theta)
        return State(theta=state.theta - self.step_size(k) * gradient)

    def round(
        self, state: State, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> State:
        return State(theta=inbox["theta"])


@dataclasses.dataclass(frozen=True, slots=True)
class Dsgd(OfParameters):
    """theta_i <- sum_j w_ij theta_j - eta_k G_i(theta_i), with W doubly stochastic.

    DP-DSGD of Bayrooti, Gao and Prorok 2023 (Algorithm 1) where the oracle clips and
    adds noise, plain DSGD where it does not. Gradients are taken before mixing.
    """

    by_coordinate: ClassVar[bool] = True

    def round(
        self, state: State, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> State:
        gradient = private.gradient(at=state.theta)
        return State(theta=inbox["theta"] - self.step_size(k) * gradient)
