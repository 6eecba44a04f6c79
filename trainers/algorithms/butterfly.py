"""Descent along sums of all nodes' gradients, at a model that all share.

By recursive doubling, halving (less traffic), or a chain; see docs/butterfly.md.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from privaudit.accounting.views.butterfly import exchanges, folded, hears, slots
from trainers.algorithms.family import Family
from trainers.algorithms.setting import Options, Setting
from trainers.network.engine import Gradients, Inbox, Network, Schedule
from trainers.network.mixing import Mixing
from trainers.oracles.oracle import Mechanism


class ButterflyOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `Butterfly`.

    Parameters
    ----------
    momentum
        Momentum of the common sum, in [0, 1): no node has one of its own.
    """

    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """All (runs, nodes, dims); the first two are the same at all nodes.

    ``partial``: sum of releases heard of in this step; by halving (runs, nodes, parts,
    coordinates of a part). ``number``, (runs, nodes, 1): each node's own, where it
    counts. ``past``: means of the last steps, the last first, if they share noise:
    (runs, nodes, these, dims).
    """

    theta: Tensor
    velocity: Tensor
    partial: Tensor
    number: Tensor | None = dataclasses.field(default=None, kw_only=True)
    past: Tensor | None = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Butterfly:
    """theta <- theta - eta v, v <- m v + mean of all nodes' gradients at theta.

    A round is an exchange: each node adds what it hears to its sum. After the exchanges
    of a step (log2(nodes) by doubling) all have the sum of all, equal to the bit, and
    step; those that have it tell the others (``told``) in the last one. One noisy
    gradient a step, before its first exchange, at the common model: nothing else is
    sent or kept. Releases are noisy sums on one grid, in doubles, so that their sums
    are exact; the sum of all is divided by ``divisor``, nodes times batch size, and
    rounded.
    """

    step_size: Schedule
    momentum: float = 0.0
    exchanges: int = 1
    divisor: float = 1.0
    told: bool = False
    shares: tuple[float, ...] = ()  # c_1, c_2, ... of the strategy of noise

    def init(self, start: Tensor) -> State:
        """All nodes at ``start``, which must be the same."""
        zero = start.new_zeros(start.shape)
        made = State(theta=start, velocity=zero, partial=zero.double())
        if not self.shares:
            return made
        past = torch.stack([zero.double()] * len(self.shares), 2)
        return dataclasses.replace(made, past=past)

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
        return self._stepped(state, partial, k)

    def _stepped(self, state: State, partial: Tensor, k: int) -> State:
        """A step along the mean, of the sum of all."""
        mean = partial / self.divisor
        if state.past is not None:
            for back, share in enumerate(self.shares):
                mean = mean - share * state.past[:, :, back]
            past = torch.cat([mean[:, :, None], state.past[:, :, :-1]], 2)
            state = dataclasses.replace(state, past=past)
        mean = mean.to(state.theta.dtype)
        velocity = self.momentum * state.velocity + mean
        theta = state.theta - self.step_size(k) * velocity
        return dataclasses.replace(
            state, theta=theta, velocity=velocity, partial=partial
        )

    def models(self, state: State) -> Tensor:
        return state.theta


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Halving(Butterfly):
    """The same sums, to the bit, by recursive halving and gathering.

    In exchange r a node sends its sum of the parts whose numbers agree with its
    partner's place in bits 0 to r, and goes on with those that agree with its own; then
    exchanges go backwards, each sending all finished parts. Who folds sends all at
    once. Parts are kept in the order of their numbers xor the node's place: it goes on
    with every second one.
    """

    places: NDArray[np.int_]  # (steps of a cycle, nodes)

    def numbered(self, state: State, nodes: range) -> State:
        number = torch.tensor(nodes, device=state.theta.device)[None, :, None]
        number = number.repeat(state.theta.shape[0], 1, 1)
        return dataclasses.replace(state, number=number)

    def local(self, state: State, private: Gradients, k: int) -> State:
        """Before a step's first exchange, a gradient, dealt into parts."""
        if k % self.exchanges:
            return state
        whole = private.gradient(at=state.theta)
        dealt = torch.nn.functional.pad(whole, (0, -whole.shape[2] % self._parts))
        dealt = dealt.unflatten(2, (self._parts, -1))
        return dataclasses.replace(state, partial=self._turned(dealt, state, k))

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        """Sums of a partner's parts; then of all those that are finished."""
        sent = state.partial[:, :, 1::2] if self._halves(k) else state.partial
        return {"partial": sent.flatten(2)}

    def round(self, state: State, inbox: Inbox, private: Gradients, k: int) -> State:
        """Half of the parts are summed up, or as many gathered; at last, a step."""
        partial, last = state.partial, (k + 1) % self.exchanges == 0
        folds = self.told and (k % self.exchanges == 0 or last)
        sent = self.messages(state, k)["partial"]
        heard = inbox.neighbour_sum("partial") - sent  # exact: nothing is rounded
        halves = self._halves(k)
        if halves or folds:
            if halves:
                partial = partial[:, :, ::2]
            elif last:
                partial = partial - (inbox.degree - 1)[:, :, None] * partial
            partial = partial + heard.view_as(partial)
        else:
            partial = torch.stack([partial, heard.view_as(partial)], 3).flatten(2, 3)
        if not last:
            return dataclasses.replace(state, partial=partial)
        whole = self._turned(partial, state, k).flatten(2)
        return self._stepped(state, whole[:, :, : state.theta.shape[2]], k)

    @property
    def _parts(self) -> int:
        return int(self.places.max()) + 1

    def _halves(self, k: int) -> bool:
        """Return whether sums are made in this exchange, of half of the parts."""
        first, each = k % self.exchanges - self.told, self.exchanges - 2 * self.told
        return 0 <= first < each // 2

    def _turned(self, parts: Tensor, state: State, k: int) -> Tensor:
        """``parts`` in the order of their numbers xor the place; and back."""
        assert state.number is not None
        where = torch.from_numpy(self.places[k // self.exchanges % len(self.places)])
        own = where.to(parts.device)[state.number]  # (runs, nodes, 1)
        order = own ^ torch.arange(self._parts, device=parts.device)
        return parts.take_along_dim(order[..., None], 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ButterflyFamily(Family[ButterflyOptions]):
    """Sums on a graph of `privaudit.accounting.views.butterfly`, by exchanges."""

    # its name there, and among graphs; a butterfly may also be ``halving``
    graph: str = "butterfly"
    one_noise: str = "adds up noise of nodes, of which each hides others too"

    # A state of a node's own between steps would leave the common model.
    takes_optimisers = False

    def algorithm(self, setting: Setting[ButterflyOptions]) -> Butterfly:
        graph, nodes = self._graph(setting.mixing), setting.nodes
        made = self.make(
            setting.step_sizes,
            setting.options.momentum,
            exchanges(nodes, graph),
            setting.batch_size * nodes,
            self._told(nodes),
        )
        if graph != "halving":
            return made
        given = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
        return Halving(**given, places=folded(nodes)[slots(nodes)])

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
        self._graph(mixing)
        return Network(algorithm, mixing, self.needs)

    def releases(self, setting: Setting[ButterflyOptions]) -> int:
        """One a step, that of the last step too if it was not finished."""
        each = exchanges(setting.nodes, self._graph(setting.mixing))
        return -(-setting.rounds // each)

    def _graph(self, mixing: Mixing) -> str:
        """Name of the graph, one of its own; ``ValueError`` for others."""
        # The very graph: what is certified counts on who is joined to whom, and when.
        itself = np.eye(mixing.nodes, dtype=bool)
        known = ("butterfly", "halving") if self.graph == "butterfly" else (self.graph,)
        for graph in known:
            if np.array_equal(mixing.matrices > 0, hears(mixing.nodes, graph) | itself):
                return graph
        raise ValueError(
            f"this algorithm is for graph={' or '.join(known)} with uniform weights: "
            "on no other graph is proved what a node learns"
        )
