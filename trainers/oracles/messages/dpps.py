"""DPPS: push-sum whose messages are noisy, usable with or without training.

Zhou, Xue and Chen, "Differentially private perturbed push-sum protocol and its
application in non-convex optimization", Algorithm 1::

    s_i <- s_i + eps_i;   send s_i + gamma_n n_i and a_i
    s_i <- sum_j w_ij (s_j + gamma_n n_j);   a_i <- sum_j w_ij a_j;   y_i = s_i / a_i

`Channel` adds the noise and writes it down. Every so many rounds, all nodes hear all
others instead of those that the graph names, and are equal after: the *synchronisation*
of its section 3. `with_synchronisation` puts such rounds into the weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from privaudit.ledger import Ledger
from trainers.network.engine import Inbox
from trainers.network.mixing import Mixing, Property
from trainers.network.push_sum import PushSum
from trainers.oracles.messages.channel import Channel

# Definition 1 and Assumption 1 of the paper.
NEEDS: tuple[Property, ...] = ("doubly stochastic", "connected")
_MOST_MATRICES = 10_000


def with_synchronisation(mixing: Mixing, interval: int | None) -> Mixing:
    """``mixing``, but every ``interval``-th round sets all states to their mean."""
    if interval is None:
        return mixing
    period = math.lcm(mixing.period, interval)
    if period > _MOST_MATRICES:
        raise ValueError(
            f"a graph that repeats after {mixing.period} rounds and a sync_interval of "
            f"{interval} make a cycle of {period:,} rounds; choose one that divides "
            "the other"
        )
    matrices = np.stack([mixing.at(k) for k in range(period)])
    matrices[interval - 1 :: interval] = 1 / mixing.nodes
    return Mixing(matrices)


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """State of a node that decided what to send: ``held`` is it without the noise.

    ``message``: (runs, nodes, dims); ``said``, (runs, nodes, 1): its sensitivity.
    """

    held: PushSum
    message: Tensor
    said: Tensor

    @classmethod
    def begin(cls, start: Tensor) -> Sent:
        """All nodes at ``start``, (runs, nodes, dims), kept in doubles."""
        held = PushSum.begin(start.double())
        return cls(held, held.x[:, :, :0], torch.zeros_like(held.weight))

    def perturbed(self, change: Tensor | None, channel: Channel, bound: float) -> Sent:
        """Add ``change``, of L1 norm <= ``bound``, and make the message."""
        held = self.held if change is None else self.held.plus(change)
        message, said = channel.send(held.x, change, bound=bound)
        return Sent(held, message, said)

    def messages(self, *, broadcasts: bool) -> dict[str, Tensor]:
        """All that leaves a node: s, a, and S_i where nodes ``broadcasts`` it."""
        sent = {"s": self.message, "a": self.held.weight}
        return {**sent, "S": self.said} if broadcasts else sent

    def received(self, inbox: Mapping[str, Tensor]) -> Sent:
        held = PushSum.received({"x": inbox["s"], "w": inbox["a"]})
        return Sent(held, self.message[:, :, :0], self.said)


def average(
    vectors: Tensor,  # (runs, nodes, dims), of L1 norm at most ``bound`` each
    # how they are sent, with the weights of all rounds, synchronisation included
    channel: Channel,
    rounds: int,
    *,
    bound: float,
    # called with the number of rounds done and the views
    after_round: Callable[[int, Tensor], None] | None = None,
) -> tuple[Tensor, Ledger]:
    """Each node's view of the mean of ``vectors`` after ``rounds`` rounds, privately.

    Returns the views, (runs, nodes, dims), and what was released. ``ValueError`` if a
    vector exceeds the bound, weights are not valid for push-sum, or noise grows beyond
    all bounds.
    """
    channel.begin(vectors.double(), bound=bound)
    channel.mixing.require(("column stochastic", "connected"), "AVERAGING")
    state = Sent.begin(vectors)
    for k in range(rounds):
        state = state.perturbed(None, channel, 0.0)
        sent = state.messages(broadcasts=channel.noise.broadcasts)
        state = state.received(Inbox(sent, channel.mixing, k))
        if after_round is not None:
            after_round(k + 1, state.held.z)
    return state.held.z, channel.ledger
