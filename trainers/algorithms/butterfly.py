"""Descent along sums of all nodes' gradients, at a model that all share.

Sums by recursive doubling, or along a chain, their slower and stronger twin.

What a node learns of another is proved: docs/butterfly.md.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from torch import Tensor

from privaudit.accounting.views.butterfly import exchanges, hears
from trainers.algorithms.family import Family
from trainers.algorithms.setting import Options, Setting
from trainers.network.engine import Gradients, Inbox, Network, Schedule
from trainers.network.mixing import Mixing
from trainers.oracles.oracle import Mechanism


class ButterflyOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Momentum of the common sum, in [0, 1): no node has one of its own."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """All (runs, nodes, dims); the first two are the same at all nodes.

    ``partial`` is the sum of the releases that a node has heard of in this step.
    """

    theta: Tensor
    velocity: Tensor
    partial: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Butterfly:
    """theta <- theta - eta v, v <- m v + mean of all nodes' gradients at theta.

    A round is an exchange: each node adds what it hears to the sum that it has. After
    the exchanges of a step (log2(nodes) by recursive doubling) all have the sum of all,
    equal to the bit, and step. Where not all sum alike (``told``), those that have it
    tell the others in a step's last exchange. The noisy gradient of a step is taken
    once, before its first exchange, at the common model; nothing else is sent, and no
    node keeps anything of its own from one step to the next. The step size is that of a
    step's last round.

    Releases are noisy sums, whole steps of one grid, in double precision, so that sums
    of them are exact. Only the sum of all is divided, by ``divisor``, the number of
    nodes times the batch size, and rounded.
    """

    step_size: Schedule
    momentum: float = 0.0
    exchanges: int = 1
    divisor: float = 1.0
    told: bool = False

    def init(self, start: Tensor) -> State:
        """All nodes at ``start``, which must be the same."""
        zero = start.new_zeros(start.shape)
        return State(theta=start, velocity=zero, partial=zero.double())

    def local(self, state: State, private: Gradients, k: int) -> State:
        """Before a step's first exchange, a gradient at the common model."""
        if k % self.exchanges:
            return state
        return dataclasses.replace(state, partial=private.gradient(at=state.theta))

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        """The sum of a node's part of the network."""
        return {"partial": state.partial}

    def round(self, state: State, inbox: Inbox, private: Gradients, k: int) -> State:
        """The sum of what is heard; after the last exchange, a step along all's."""
        partial = inbox.neighbour_sum("partial")
        if (k + 1) % self.exchanges:
            return dataclasses.replace(state, partial=partial)
        if self.told:  # who hears one, hears the sum of all
            partial = partial - state.partial * (inbox.degree - 1)
        mean = (partial / self.divisor).to(state.theta.dtype)
        velocity = self.momentum * state.velocity + mean
        theta = state.theta - self.step_size(k) * velocity
        return State(theta=theta, velocity=velocity, partial=partial)

    def models(self, state: State) -> Tensor:
        """The common model."""
        return state.theta


@dataclasses.dataclass(frozen=True, kw_only=True)
class ButterflyFamily(Family[ButterflyOptions]):
    """Sums on a graph of `privaudit.accounting.views.butterfly`, exchange by exchange.

    Parameters
    ----------
    graph
        Its name there, and among graphs.
    """

    graph: str = "butterfly"

    # A state of a node's own between steps would leave the common model.
    takes_optimisers = False

    def algorithm(self, setting: Setting[ButterflyOptions]) -> Butterfly:
        """With its exchanges a step."""
        return self.make(
            setting.step_sizes,
            setting.options.momentum,
            exchanges(setting.nodes, self.graph),
            setting.batch_size * setting.nodes,
            self._told(setting.nodes),
        )

    def _told(self, nodes: int) -> bool:
        return self.graph == "chain" or nodes & (nodes - 1) != 0

    def mechanism(
        self, setting: Setting[ButterflyOptions], noise_multiplier: float
    ) -> Mechanism:
        """Sums that add up exactly; who is told adds that to what it has."""
        plain = super().mechanism(setting, noise_multiplier)
        most = setting.nodes * (2 if self._told(setting.nodes) else 1)
        return dataclasses.replace(plain, summed=most)

    def runner(self, algorithm: Butterfly, mixing: Mixing) -> Network:
        """On its graph; ``ValueError`` on others."""
        # The very graph: what is certified counts on who is joined to whom, and when.
        proved = hears(mixing.nodes, self.graph) | np.eye(mixing.nodes, dtype=bool)
        if not np.array_equal(mixing.matrices > 0, proved):
            raise ValueError(
                f"this algorithm is for graph={self.graph} with uniform weights: on no "
                "other graph is proved what a node learns"
            )
        return Network(algorithm, mixing, self.needs)

    def releases(self, setting: Setting[ButterflyOptions]) -> int:
        """One a step, that of the last step too if it was not finished."""
        return -(-setting.rounds // exchanges(setting.nodes, self.graph))
