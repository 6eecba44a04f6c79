"""Runs an algorithm round by round, all nodes of many runs at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from privaudit.schedules import HasValues
from trainers.network.mixing import Mixing, Property
from trainers.numerics.device import placed

Schedule = Callable[[int], float]  # of the round, never of the data


def per_round(schedule: HasValues, rounds: int) -> Schedule:
    """``schedule`` as a function of the round k = 0, ..., ``rounds`` - 1.

    Raises as ``schedule.values``, such as for a list of another length.
    """
    values = schedule.values(rounds).tolist()
    return lambda k: values[k]


class Gradients(Protocol):
    """Access of an algorithm to the private data: `oracle.Oracle`."""

    def gradient(self, at: Tensor) -> Tensor:
        """A (noisy) gradient at ``at``, (runs, nodes, dims)."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Inbox(Mapping[str, Tensor]):
    """Messages to each node in one round: by name, averages weighted by W.

    Nothing else of what was sent is to be had. Everything is (runs, nodes, dims), row i
    what node i can compute from the messages of those that it hears and its own.
    """

    _sent: Mapping[str, Tensor]
    _mixing: Mixing
    _k: int

    def __getitem__(self, name: str) -> Tensor:
        """sum_j w_ij times what j sent."""
        return self._mixing(self._sent[name], self._k)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sent)

    def __len__(self) -> int:
        return len(self._sent)

    def neighbour_sum(self, name: str) -> Tensor:
        """Unweighted sum over those that a node hears, itself among them."""
        return self._mixing.neighbour_sum(self._sent[name], self._k)

    @property
    def degree(self) -> Tensor:
        """Number of nodes heard by each, itself among them, (nodes, 1), as a factor."""
        like = next(iter(self._sent.values()))
        return placed(self._mixing.degree(self._k), like.device, like.dtype)[:, None]


class Algorithm(Protocol):
    """An algorithm: how it starts, what it sends, and one round.

    A state holds nothing of other nodes but what came as a message; all of its tensors
    are (runs, nodes, ...).
    """

    def init(self, start: Tensor) -> Any:
        """The state before the first round, from ``start`` (runs, nodes, dims)."""

    def messages(self, state: Any, k: int) -> dict[str, Tensor]:
        """All that leaves a node in round ``k``: what others can see."""

    def round(self, state: Any, inbox: Inbox, private: Any, k: int) -> Any:
        """The state after round ``k``, from the mixed messages and the oracle."""

    def models(self, state: Any) -> Tensor:
        """Each node's model, (runs, nodes, dims)."""


@runtime_checkable
class WorksFirst(Protocol):
    """An algorithm whose nodes do something alone before they send, each round."""

    def local(self, state: Any, private: Any, k: int) -> Any:
        """The state that the messages of round ``k`` are made of."""


@runtime_checkable
class KnowsPlaces(Protocol):
    """An algorithm whose nodes do different things, by their numbers, which are public.

    ``nodes`` are those that ``state`` is of.
    """

    def numbered(self, state: Any, nodes: range) -> Any:
        """The state before the first round, of nodes that know their numbers."""


def begun(algorithm: Algorithm, start: Tensor, nodes: range) -> Any:
    state = algorithm.init(start)
    if isinstance(algorithm, KnowsPlaces):
        state = algorithm.numbered(state, nodes)
    return state


class Observer(Protocol):
    """Whoever is shown messages as they are sent, before they are mixed."""

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        """See what nodes send in round ``k``: by name, (runs, nodes, ...)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Observers of a run, and a place to go on from: keywords of `Network.run`.

    ``observers``: shown what every node sends, each round. ``after_round``: called with
    the number of rounds done and the models; for curves. ``keep``: called with the
    number of rounds done and the state; for checkpoints. ``resume``: what ``keep`` was
    called with: go on from there. What is private must be as it was then.
    """

    observers: Sequence[Observer] = ()
    after_round: Callable[[int, Tensor], None] | None = None
    keep: Callable[[int, Any], None] | None = None
    resume: tuple[int, Any] | None = None

    def sent(self, k: int, messages: Mapping[str, Tensor]) -> None:
        for observer in self.observers:
            observer.messages(k, messages)

    def done(self, rounds: int, state: Any, models: Callable[[Any], Tensor]) -> None:
        """Show and keep the ``state`` after so many rounds."""
        if self.after_round is not None:
            self.after_round(rounds, models(state))
        if self.keep is not None:
            self.keep(rounds, state)


class Runner(Protocol):
    """Whatever runs an algorithm from its start to its final models."""

    @property
    def algorithm(self) -> Any:
        """The algorithm that every node runs."""

    def begin(self, start: Tensor) -> Any:
        """The state before the first round; `trainers.runs.checkpoint` packs it."""

    def run(self, start: Tensor, private: Any, rounds: int, **how: Any) -> Tensor:
        """As `Network.run`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """An algorithm on a graph, round by round."""

    algorithm: Algorithm  # what every node does
    mixing: Mixing  # who hears whom, with which weights
    # what must be true of ``mixing`` for the algorithm to be valid
    needs: tuple[Property, ...] = ()

    def __post_init__(self) -> None:
        self.mixing.require(self.needs, type(self.algorithm).__name__.upper())

    @property
    def nodes(self) -> int:
        """Number of nodes in this process."""
        return self.mixing.nodes

    def begin(self, start: Tensor) -> Any:
        return begun(self.algorithm, start, range(self.nodes))

    def deliver(self, sent: Mapping[str, Tensor], k: int) -> Inbox:
        """Messages to the nodes here of what they all send in round ``k``."""
        return Inbox(sent, self.mixing, k)

    def run(self, start: Tensor, private: Any, rounds: int, **how: Any) -> Tensor:
        """Train, and return each node's final model, (runs, nodes, dims).

        ``start``: (runs, nodes, dims). ``private``: the oracle of this block.
        ``rounds``: number of rounds, >= 0; with ``resume``, those that are done
        included. ``how``: as `Watched` takes it.
        """
        watched = Watched(**how)
        if rounds < 0:
            raise ValueError(f"rounds must be >= 0, got {rounds}")
        if start.shape[1] != self.nodes or private.nodes != self.nodes:
            raise ValueError(
                f"the graph has {self.nodes} nodes, the data {private.nodes}, "
                f"the start {start.shape[1]}: they must be one number"
            )
        first, state = watched.resume or (0, self.begin(start))
        for k in range(first, rounds):
            if isinstance(self.algorithm, WorksFirst):
                state = self.algorithm.local(state, private, k)
            sent = self.algorithm.messages(state, k)
            watched.sent(k, sent)
            state = self.algorithm.round(state, self.deliver(sent, k), private, k)
            watched.done(k + 1, state, self.algorithm.models)
        return self.algorithm.models(state)
