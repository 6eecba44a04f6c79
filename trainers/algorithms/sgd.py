"""Stochastic gradient descent at one place, private if its oracle is."""

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
class Sgd:
    """theta <- theta - eta_k G(theta), with nothing sent.

    DP-SGD of Abadi et al. 2016 (Algorithm 1) where the oracle clips and adds noise: on
    one node the central baseline of Bayrooti et al. 2023, on several local training.
    """

    step_size: Schedule
    by_coordinate: ClassVar[bool] = True

    def init(self, start: Tensor) -> State:
        """All nodes at ``start``."""
        return State(theta=start)

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        """Nothing leaves a node."""
        return {}

    def round(
        self, state: State, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> State:
        """One step."""
        gradient = private.gradient(at=state.theta)
        return State(theta=state.theta - self.step_size(k) * gradient)

    def models(self, state: State) -> Tensor:
        """The parameters."""
        return state.theta
