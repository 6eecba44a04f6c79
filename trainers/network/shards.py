"""A node's coordinates over several processes: who has which, and what goes between."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from trainers.network.ranks import explained

_WORDS = 8  # coordinates whose noise is of one block
_AT_ONCE = 1 << 18  # numbers of a sum that go to their shard together


@dataclasses.dataclass(frozen=True, slots=True)
class Shards:
    """``dims`` coordinates of nodes dealt to the processes of a mesh, in order.

    As `torch.distributed.tensor.Shard` deals blocks of 8. ``mesh``: ("nodes",
    "shards"), in a row the processes that hold the same nodes. ``ValueError`` if one
    would hold nothing.
    """

    mesh: DeviceMesh
    dims: int

    @classmethod
    def over(cls, size: int, dims: int, device: str = "cpu") -> Shards:
        """Each ``size`` ranks that follow each other are a node's."""
        ranks = dist.get_world_size()
        if ranks % size:
            raise ValueError(
                f"{ranks} ranks cannot be dealt to nodes in {size} shards: start a "
                f"multiple of {size}"
            )
        kind, shape = device.partition(":")[0], (ranks // size, size)
        with explained():
            mesh = init_device_mesh(kind, shape, mesh_dim_names=("nodes", "shards"))
        return cls(mesh, dims)

    def __post_init__(self) -> None:
        if not self.held_by(self.size - 1):
            raise ValueError(
                f"{self.size} shards are more than {self.dims:,} parameters can be "
                f"dealt to, {_WORDS} or more each: give fewer shards"
            )

    @property
    def size(self) -> int:
        return self.mesh.size(1)

    @property
    def rank(self) -> int:
        """Number of the shard that is here."""
        return self.mesh.get_local_rank("shards")

    @property
    def group(self) -> dist.ProcessGroup:
        """The processes that hold the same nodes."""
        return self.mesh.get_group("shards")

    @property
    def alike(self) -> dist.ProcessGroup:
        """The processes that hold the same coordinates, of other nodes."""
        return self.mesh.get_group("nodes")

    def holder(self, rank: int) -> int:
        """Process with these coordinates of the nodes that ``rank`` of nodes holds."""
        return rank * self.size + self.rank

    @property
    def blocks(self) -> int:
        """Number of a node's blocks, the last one perhaps not full."""
        return -(-self.dims // _WORDS)

    def held_by(self, shard: int) -> range:
        each = _WORDS * -(-self.blocks // self.size)
        return range(*(min(each * one, self.dims) for one in (shard, shard + 1)))

    @property
    def held(self) -> range:
        return self.held_by(self.rank)

    def _parts(self, where: range) -> Iterator[tuple[int, int, range]]:
        """Shards that hold some of ``where``: number, rank in the world, and which."""
        ranks = dist.get_process_group_ranks(self.group)
        for shard, rank in enumerate(ranks):
            held = self.held_by(shard)
            both = range(max(held.start, where.start), min(held.stop, where.stop))
            if both:
                yield shard, rank, both

    def gather(self, own: Tensor, first: int, into: Tensor) -> None:
        """Write coordinates from ``first`` on ``into`` (nodes, some); all must call.

        ``own``: (nodes, coordinates held here).
        """
        where = range(first, first + into.shape[1])
        for shard, rank, both in self._parts(where):
            place = into[:, both.start - first : both.stop - first]
            part = place
            if shard == self.rank:
                start = both.start - self.held.start
                part = own[:, start : start + len(both)]
            part = part.contiguous()
            with explained():
                dist.broadcast(part, rank, group=self.group)
            if part.data_ptr() != place.data_ptr():
                place.copy_(part)

    def add(
        self, sums: Tensor, first: int, whose: Sequence[Tensor], total: Tensor
    ) -> None:
        """Add each shard's ``sums`` to ``total``, in the shards' order; all must call.

        ``sums``: (rows, some), from coordinate ``first`` on, of which ``whose[shard]``
        are the nodes; without an entry they are none's. ``total``: (nodes, coordinates
        held here).
        """
        where = range(first, first + sums.shape[1])
        for shard, rank, both in self._parts(where):
            for start in range(both.start, both.stop, _AT_ONCE):
                stop = min(start + _AT_ONCE, both.stop)
                part = sums[:, start - first : stop - first].contiguous()
                found: list[Tensor] | None = None
                if shard == self.rank:
                    found = [torch.empty_like(part) for _ in range(self.size)]
                with explained():
                    dist.gather(part, found, rank, group=self.group)
                if found is None:
                    continue
                base = self.held.start
                for nodes, one in zip(whose, found, strict=False):
                    place = total[:, start - base : stop - base]
                    place.index_add_(0, nodes, one[: len(nodes)])

    def whole(self, own: Tensor) -> Tensor | None:
        """Coordinates of all shards, (nodes, dims), at the first; None at others."""
        ranks, into = dist.get_process_group_ranks(self.group), None
        if self.rank == 0:
            into = own.new_empty(len(own), self.dims)
            into[:, self.held.start : self.held.stop] = own
        for shard, rank in list(enumerate(ranks))[1:]:
            with explained():
                if shard == self.rank:
                    dist.send(own.contiguous(), ranks[0])
                elif into is not None:
                    held = self.held_by(shard)
                    part = own.new_empty(len(own), len(held))
                    dist.recv(part, rank)
                    into[:, held.start : held.stop] = part
        return into

    def agree(self, what: str, own: Any) -> None:
        """``ValueError`` if ``own`` is not equal at all shards; all must call.

        Else a record might be in two shards' calls, and count twice.
        """
        found: list[Any] = [None] * self.size
        with explained():
            dist.all_gather_object(found, own, group=self.group)
        if any(one != own for one in found):
            raise ValueError(
                f"the shards of a node have different {what}: give all the same data, "
                "libraries, processors and number of threads"
            )

    def marks(self, own: Sequence[bytes]) -> tuple[bytes, ...]:
        """A fingerprint of each node's whole sum, from those of all shards' parts."""
        parts: list[Any] = [None] * self.size
        with explained():
            dist.all_gather_object(parts, list(own), group=self.group)
        joined = (b"".join(each) for each in zip(*parts, strict=True))
        return tuple(hashlib.blake2b(one, digest_size=32).digest() for one in joined)

    def wait(self) -> None:
        with explained():
            dist.barrier(group=self.group)

    def blocks_of(self, own: Tensor) -> DTensor:
        """A node's vector, of which ``own``, (coordinates held here,), is a part.

        As (blocks, 8), filled up with zeros: its shape has no trace of the mesh.
        """
        missing = -len(own) % _WORDS
        if missing:
            own = torch.nn.functional.pad(own, (0, missing))
        local, shape = own.view(-1, _WORDS), torch.Size((self.blocks, _WORDS))
        where = self.mesh["shards"], [Shard(0)]
        return DTensor.from_local(
            local, *where, run_check=False, shape=shape, stride=(_WORDS, 1)
        )
