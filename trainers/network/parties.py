"""Networks over parties: each a process of its own data, that trusts no other's."""

from __future__ import annotations

import dataclasses

import torch

from trainers.network.links import Links
from trainers.network.over_ranks import Parcel, RankNetwork
from trainers.network.ranks import Ranks

_SLACK = 1 << 16  # bytes of messages beyond 16 numbers for each parameter


@dataclasses.dataclass(frozen=True)
class PartyNetwork(RankNetwork):
    """A `RankNetwork` whose messages go by `Links`: each is checked before it is used.

    They are computed from as they were sent; nothing else of training is sent.
    """

    links: Links = dataclasses.field(kw_only=True)

    def carry(self, going: list[Parcel], coming: list[Parcel], k: int) -> None:
        """Send all, then wait for what comes: threads read meanwhile."""
        due = {
            rank: [(one.name, one.rows) for one in coming if one.rank == rank]
            for rank in range(self.ranks.size)
        }
        self.links.due(k, due)
        for one in going:
            if not one.rows.isfinite().all():
                raise ValueError(
                    f"training diverges: {one.name} of round {k} has numbers that are "
                    "not finite; lower the step size"
                )
            self.links.send(one.rank, one.rows.cpu(), k, one.name)
        for one in coming:
            like = one.rows if one.rows.device.type == "cpu" else one.rows.cpu()
            one.rows.copy_(self.links.receive(one.rank, like, k, one.name))


@dataclasses.dataclass(frozen=True, slots=True)
class Party:
    """Which party this process is, and what all know of the network's data.

    Parameters
    ----------
    links
        To all others.
    nodes
        How many nodes there are, dealt to parties by `Ranks`.
    sizes
        How many records, or users, each node has. Public: sampling rates are.
    """

    links: Links
    nodes: int
    sizes: tuple[int, ...] = ()

    @property
    def ranks(self) -> Ranks:
        """Who holds which nodes."""
        return Ranks(self.links.rank, self.links.size, self.nodes)

    def network(self, network: RankNetwork, dims: int) -> PartyNetwork:
        """The same by this party's links, for models of ``dims`` parameters."""
        most = max(len(self.ranks.held_by(rank)) for rank in range(self.links.size))
        self.links.expects(most * dims * 16 * torch.float64.itemsize + _SLACK)
        return PartyNetwork(
            *(network.algorithm, network.mixing, network.needs),
            ranks=network.ranks,
            links=self.links,
        )
