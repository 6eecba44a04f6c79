"""Networks over processes: messages go along the graph's edges only."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.network.engine import Inbox, Network, begun
from trainers.network.exchange import Exchange
from trainers.network.mixing import Terms, add_up
from trainers.network.ranks import Ranks, explained
from trainers.network.shards import Shards
from trainers.numerics.device import placed


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RankInbox(Inbox):
    """An `Inbox` of the nodes of one rank.

    ``_sent`` has, by name, what they hear: (runs, those that are heard, dims), once it
    has ``_arrived``, which is waited for where it is read. In the place of one that
    ``_arrived`` says is gone a node hears itself: its weight becomes a node's own,
    so that weights that were symmetric are symmetric among those that are there.
    """

    _own: range
    _places: Mapping[int, int]  # of nodes among those that are heard
    _arrived: Callable[[], Set[int]] = frozenset
    _is_part: bool = False  # whether other processes have more coordinates

    def __getitem__(self, name: str) -> Tensor:
        return self._sum(name, self._mixing.terms(self._k))

    def neighbour_sum(self, name: str) -> Tensor:
        return self._sum(name, self._mixing.heard(self._k))

    @property
    def degree(self) -> Tensor:
        like = next(iter(self._sent.values()))
        degree = self._mixing.degree(self._k)
        here = tuple(degree[node] for node in self._own)
        return placed(here, like.device, like.dtype)[:, None]

    def _sum(self, name: str, terms: Sequence[Terms]) -> Tensor:
        gone = self._arrived()
        here = [
            [
                (self._places[node if other in gone else other], weight)
                for other, weight in terms[node]
            ]
            for node in self._own
        ]
        return add_up(self._sent[name], here, is_part=self._is_part)


@dataclasses.dataclass(frozen=True)
class RankNetwork(Network):
    """A `Network` of which this process holds the nodes of one rank.

    States, messages and models are those of these nodes alone. A node's message goes
    once to every other rank that has a node which hears it, and is waited for where it
    is first read: whatever is computed before that goes on meanwhile. Sums are taken in
    the order of the nodes' numbers, as in one process.

    ``algorithm``, ``mixing``, ``needs``: of the whole network. ``ranks``: who holds
    which nodes. ``shards``: where each holds some coordinates of them: these go to who
    has the same ones.
    """

    ranks: Ranks = dataclasses.field(kw_only=True)
    shards: Shards | None = None

    @property
    def nodes(self) -> int:
        return len(self.ranks.held)

    def begin(self, start: Tensor) -> Any:
        return begun(self.algorithm, start, self.ranks.held)

    @functools.cached_property
    def traffic(self) -> Traffic:
        return Traffic()

    def deliver(self, sent: Mapping[str, Tensor], k: int) -> Inbox:
        """Send what others hear, receive what is heard here; every rank must call."""
        self._settle()
        plan = self._plans[k % self.mixing.period]
        first = self.ranks.held.start
        where = next(iter(sent.values())).device

        def at(nodes: Iterable[int]) -> Tensor:
            """Places of ``nodes`` among those that are heard."""
            return placed(tuple(plan.places[node] for node in nodes), where)

        heard: dict[str, Tensor] = {}
        going: list[Parcel] = []
        coming: list[Parcel] = []
        for name, own in sent.items():
            whole = own.new_empty(own.shape[0], len(plan.places), *own.shape[2:])
            whole[:, at(self.ranks.held)] = own
            heard[name] = whole
            for rank, nodes in plan.sends.items():
                here = placed(tuple(node - first for node in nodes), where)
                rows = own.index_select(1, here)
                going.append(Parcel(rank, name, nodes, rows))
                self.traffic.add(rows)
            for rank, nodes in plan.receives.items():
                buffer = own.new_empty(own.shape[0], len(nodes), *own.shape[2:])
                coming.append(Parcel(rank, name, nodes, buffer))
        number = 2 * k + 1 if getattr(self.algorithm, "broadcasts", False) else k
        carried = self.begin_to_carry(going, coming, number)

        @functools.cache
        def arrived() -> Set[int]:
            gone = carried()
            for parcel in coming:
                heard[parcel.name][:, at(parcel.nodes)] = parcel.rows
            return gone

        self._under_way.append(arrived)
        where_to = (self.ranks.held, plan.places, arrived, self.shards is not None)
        return RankInbox(heard, self.mixing, k, *where_to)

    @functools.cached_property
    def _under_way(self) -> list[Callable[[], Set[int]]]:
        return []

    def _settle(self) -> None:
        """Wait for messages of the round before that nobody has read."""
        while self._under_way:
            self._under_way.pop()()

    def run(self, *given: Any, **more: Any) -> Tensor:
        found = super().run(*given, **more)
        self._settle()
        return found

    def broadcast(self, own: Tensor, k: int) -> Tensor:
        """Broadcasts of all nodes in round ``k``, (runs, nodes, any), of those here.

        Every rank must call.
        """
        held = [[*self.ranks.held_by(rank)] for rank in range(self.ranks.size)]
        runs, _, size = own.shape
        parts = [own.new_empty(runs, len(nodes), size) for nodes in held]
        parts[self.ranks.rank] = own
        going, coming = [], []
        for rank, nodes in enumerate(held):
            if rank != self.ranks.rank:
                going.append(Parcel(rank, "norms", held[self.ranks.rank], own))
                coming.append(Parcel(rank, "norms", nodes, parts[rank]))
                self.traffic.add(own)
        self.carry(going, coming, 2 * k)
        return torch.cat(parts, 1)

    def carry(
        self, going: list[Parcel], coming: list[Parcel], k: int
    ) -> frozenset[int]:
        """Send what goes in round ``k``, and fill in what comes; nodes that left."""
        return self.begin_to_carry(going, coming, k)()

    def begin_to_carry(
        self, going: list[Parcel], coming: list[Parcel], k: int
    ) -> Callable[[], frozenset[int]]:
        """As `carry`, which it begins: what is returned waits for the end."""
        holder = (lambda rank: rank) if self.shards is None else self.shards.holder
        operations = [
            *(dist.P2POp(dist.isend, one.rows, holder(one.rank)) for one in going),
            *(dist.P2POp(dist.irecv, one.rows, holder(one.rank)) for one in coming),
        ]
        with explained():
            works = dist.batch_isend_irecv(operations) if operations else []

        def end() -> frozenset[int]:
            with explained():
                for work in works:
                    work.wait()
            return frozenset()

        return end

    @functools.cached_property
    def _plans(self) -> list[Routes]:
        return [
            Routes.of(self.mixing.heard(k), self.ranks)
            for k in range(self.mixing.period)
        ]


_SLACK = 1 << 16  # bytes of messages beyond 16 numbers for each parameter


@dataclasses.dataclass(frozen=True)
class PartyNetwork(RankNetwork):
    """A `RankNetwork` of parties, each a process of its own data, by an `Exchange`.

    Messages are checked before they are used, and computed from as they were sent;
    nothing else of training is sent.
    """

    exchange: Exchange = dataclasses.field(kw_only=True)

    def carry(
        self, going: list[Parcel], coming: list[Parcel], k: int
    ) -> frozenset[int]:
        """Send all, then wait for what comes; nodes that left by then."""
        for one in going:
            if not one.rows.isfinite().all():
                raise ValueError(
                    f"training diverges: {one.name} of round {k} has numbers that are "
                    "not finite; lower the step size"
                )
            self.exchange.send(one.rank, one.rows.cpu(), k, one.name)
        for one in coming:
            like = one.rows if one.rows.device.type == "cpu" else one.rows.cpu()
            found = self.exchange.receive(one.rank, like, k, one.name)
            one.rows.copy_(torch.zeros_like(like) if found is None else found)
        gone = (self.ranks.held_by(rank) for rank in self.exchange.left)
        return frozenset(itertools.chain.from_iterable(gone))

    def begin_to_carry(
        self, going: list[Parcel], coming: list[Parcel], k: int
    ) -> Callable[[], frozenset[int]]:
        """All of it at once: who is lost is known before anything is computed."""
        gone = self.carry(going, coming, k)
        return lambda: gone


@dataclasses.dataclass(frozen=True, slots=True)
class Party:
    """Rank of this process, and what all know of the network's data."""

    exchange: Exchange  # with all others
    nodes: int  # how many nodes there are, dealt to parties by `Ranks`
    # how many records, or users, each node has. Public: sampling rates are
    sizes: tuple[int, ...] = ()
    shared: tuple[int, ...] | None = None  # as of `privaudit.records.PartyRecord`

    @property
    def ranks(self) -> Ranks:
        return Ranks(self.exchange.rank, self.exchange.size, self.nodes)

    def network(self, network: RankNetwork, dims: int) -> PartyNetwork:
        """The same by this party's exchange, for models of ``dims`` parameters."""
        most = max(len(self.ranks.held_by(rank)) for rank in range(self.exchange.size))
        self.exchange.expects(most * dims * 16 * torch.float64.itemsize + _SLACK)
        return PartyNetwork(
            *(network.algorithm, network.mixing, network.needs),
            ranks=network.ranks,
            exchange=self.exchange,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Parcel:
    """Messages of ``nodes`` by one name, (runs, nodes, ...), to or from a rank."""

    rank: int
    name: str
    nodes: list[int]
    rows: Tensor


@dataclasses.dataclass
class Traffic:
    """Number of messages, and of bytes, that went to other ranks.

    Of a run that goes on, with those before; rounds that are made again count once.
    """

    messages: int = 0
    bytes: int = 0

    @classmethod
    def of_all(cls, parts: Iterable[Traffic | None]) -> Traffic | None:
        """The sum of what ranks sent; None where there is but one process."""
        found = [part for part in parts if part is not None]
        if not found:
            return None
        return cls(sum(part.messages for part in found), sum(p.bytes for p in found))

    def add(self, rows: Tensor) -> None:
        """Count ``rows``, (runs, messages, dims)."""
        self.messages += rows.shape[1]
        self.bytes += rows.numel() * rows.element_size()


@dataclasses.dataclass(frozen=True, slots=True)
class Routes:
    """Messages that one rank sends and receives in one round, by the other rank.

    ``places`` numbers all nodes that are heard or held here, in their order.
    """

    sends: Mapping[int, list[int]]
    receives: Mapping[int, list[int]]
    places: Mapping[int, int]

    @classmethod
    def of(cls, heard: Sequence[Terms], ranks: Ranks) -> Routes:
        """From whom each node hears, as `Mixing.heard` has it."""
        hears = [{other for other, _ in terms} for terms in heard]

        def wanted(by: int, of: int) -> list[int]:
            """The nodes of rank ``of`` that some node of rank ``by`` hears."""
            nodes = set().union(*(hears[node] for node in ranks.held_by(by)))
            return [node for node in ranks.held_by(of) if node in nodes]

        others = [rank for rank in range(ranks.size) if rank != ranks.rank]
        receives = {rank: wanted(ranks.rank, rank) for rank in others}
        here = {*ranks.held}.union(*receives.values())
        return cls(
            sends={r: nodes for r in others if (nodes := wanted(r, ranks.rank))},
            receives={rank: nodes for rank, nodes in receives.items() if nodes},
            places={node: place for place, node in enumerate(sorted(here))},
        )
