"""Decentralised stochastic gradient tracking, private if its oracle is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from trainers.network.engine import Gradients, Schedule


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """All (runs, nodes, dims); ``last`` is the gradient that the tracker has now."""

    theta: Tensor
    tracker: Tensor
    last: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Dsgt:
    """theta_i <- sum_j w_ij (theta_j - eta_k y_j); y_i <- G_i + sum_j w_ij y_j - G_i'.

    DP-DSGT of Bayrooti, Gao and Prorok 2023 (Algorithm 2) where the oracle clips and
    adds noise, plain DSGT where it does not. G_i is a fresh (noisy) gradient at the new
    theta_i, G_i' the one before; both start at 0. As W is doubly stochastic, the mean
    of the trackers is that of the last gradients. The first round only mixes, and the
    last gradient is accounted though nobody hears it: K rounds are K releases, on one
    node K - 1 steps.
    """

    step_size: Schedule
    by_coordinate: ClassVar[bool] = True

    def init(self, start: Tensor) -> State:
        zero = torch.zeros_like(start)
        return State(theta=start, tracker=zero, last=zero)

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        return {"theta": state.theta, "tracker": state.tracker}

    def round(
        self, state: State, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> State:
        tracker = inbox["tracker"]
        theta = inbox["theta"] - self.step_size(k) * tracker
        gradient = private.gradient(at=theta)
        return State(
            theta=theta, tracker=gradient + (tracker - state.last), last=gradient
        )

    def models(self, state: State) -> Tensor:
        return state.theta
