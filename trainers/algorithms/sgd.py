"""Stochastic gradient descent at one place, private if its oracle is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from trainers.algorithms.dsgd import OfParameters, State
from trainers.network.engine import Gradients


@dataclasses.dataclass(frozen=True, slots=True)
class Sgd(OfParameters):
    """theta <- theta - eta_k G(theta), with nothing sent.

    DP-SGD of Abadi et al. 2016 (Algorithm 1) where the oracle clips and adds noise: on
    one node the central baseline of Bayrooti et al. 2023, on several local training.
    """

    by_coordinate: ClassVar[bool] = True

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        return {}

    def round(
        self, state: State, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> State:
        gradient = private.gradient(at=state.theta)
        return State(theta=state.theta - self.step_size(k) * gradient)
