"""Decentralised stochastic gradient tracking, private if its oracle is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

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
    adds noise, plain DSGT where it does not. G_i is a fresh gradient at the new
    theta_i, G_i' the one before; both start at 0. The tracker takes the *noisy*
    gradients, and as W is doubly stochastic, the mean of the trackers is the mean of
    the last gradients in every round.

    The first round only mixes, and the last round's gradient is released to nobody but
    accounted: K rounds are K releases. On one node y is the last gradient, so that K
    rounds are K - 1 steps of stochastic gradient descent, with the step sizes of rounds
    1, ..., K - 1.
    """

    step_size: Schedule

    def init(self, start: Tensor) -> State:
        """All nodes at ``start``, nothing tracked."""
        zero = torch.zeros_like(start)
        return State(theta=start, tracker=zero, last=zero)

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        """The parameters and the tracker."""
        return {"theta": state.theta, "tracker": state.tracker}

    def round(
        self, state: State, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> State:
        """Step along the mixed tracker, and track the gradient found there."""
        tracker = inbox["tracker"]
        theta = inbox["theta"] - self.step_size(k) * tracker
        gradient = private.gradient(at=theta)
        return State(
            theta=theta, tracker=gradient + (tracker - state.last), last=gradient
        )

    def models(self, state: State) -> Tensor:
        """The parameters."""
        return state.theta
