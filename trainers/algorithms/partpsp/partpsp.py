"""PartPSP: part of each model is shared, by messages with noise; SGPDP and PEDFL."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from trainers.network.engine import Schedule
from trainers.oracles.messages.dpps import Sent
from trainers.oracles.messages.oracle import MessageOracle


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """``theta`` (runs, nodes, dims) is y where shared; ``sent`` what DPPS holds."""

    theta: Tensor
    sent: Sent


@dataclasses.dataclass(frozen=True, slots=True)
class PartPsp:
    """Local steps on local parameters; perturbed push-sum on the shared ones.

    Zhou, Xue and Chen, "Differentially private perturbed push-sum protocol and its
    application in non-convex optimization", Algorithm 2, with one batch a step::

        l_i <- l_i - gamma_l grad_l F(y_i, l_i);   g_i = clip(grad_s F(y_i, l_i), C)
        eps_i = -gamma_s g_i;   DPPS

    Shared states are kept in doubles, so that rounding is far below any noise. On
    doubly stochastic weights, which the paper needs, the weights of push-sum stay 1.

    SGPDP shares all. PEDFL (Chen et al. 2023) is here decentralised federated
    learning as the paper's comparison needs it: several clipped steps on the whole
    model between two messages, and no synchronisation; no code of it is published.

    The local parameters are never sent, and no account covers them: who publishes a
    node's whole model publishes unprotected parameters.
    """

    step_size: Schedule  # gamma_s
    shared: str = "layers:1"  # as `trainers.oracles.messages.oracle.shared_places`
    # as `trainers.algorithms.partpsp.family.PartPspOptions`; None: never
    sync_interval: int | None = None
    local_step_size: float | None = None  # gamma_l; None: gamma_s
    local_steps: int = 1  # steps between two messages
    broadcasts: bool = False  # whether nodes broadcast S_i

    def init(self, start: Tensor) -> State:
        """All nodes at ``start``; which entries are shared, the first round knows."""
        return State(start, Sent.begin(start[:, :, :0]))

    def bound(self, k: int, clip_norm: float) -> float:
        """Bound on what a node adds to its message in round ``k``, in L1 norm."""
        return self.local_steps * self.step_size(k) * clip_norm

    def local(self, state: State, private: MessageOracle, k: int) -> State:
        """Steps on a node's own data, and the message that they make."""
        shared, sent, theta = private.shared(self.shared), state.sent, state.theta
        if k == 0:
            sent = Sent.begin(theta[:, :, shared])
            private.channel.begin(sent.held.x)
        step = self.step_size(k)
        own = step if self.local_step_size is None else self.local_step_size
        view = sent.held.z  # y
        change = torch.zeros_like(view)
        for _ in range(self.local_steps):
            batch = private.batch()
            if len(shared) < theta.shape[2]:
                descent = private.exact(theta, batch)
                descent[:, :, shared] = 0
                theta = theta - own * descent
            change = change - step * private.clipped(theta, batch, shared)
            theta = _with(theta, shared, view + change)
        bound = self.bound(k, private.clip_norm)
        return State(theta, sent.perturbed(change, private.channel, bound))

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        return state.sent.messages(broadcasts=self.broadcasts)

    def round(
        self, state: State, inbox: Mapping[str, Tensor], private: MessageOracle, k: int
    ) -> State:
        sent = state.sent.received(inbox)
        return State(_with(state.theta, private.shared(self.shared), sent.held.z), sent)

    def models(self, state: State) -> Tensor:
        return state.theta


def _with(theta: Tensor, shared: Tensor, values: Tensor) -> Tensor:
    theta = theta.clone()
    theta[:, :, shared] = values.to(theta.dtype)
    return theta
