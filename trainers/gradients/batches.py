"""Batches of different sizes, packed into one array."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from trainers.numerics.deferred_checks import Watch

# The chance that some batch is larger than `most` allows, a batch.
_OVERFLOW = 1e-15


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """Batches cut into chunks of one width, packed to the left, first chunks first."""

    replica: Tensor  # (chunks,): whose each is
    # (chunks, columns): which records; where there is none, the batch's first, so that
    # a record that was not drawn is not looked at, or 0 where the batch is empty
    record: Tensor
    taken: Tensor  # (chunks, columns) bool: where there is one
    each: bool  # whether each replica has a chunk

    @classmethod
    def of(cls, batches: Tensor, columns: int, *, all_rows: bool = False) -> Packed:
        """Chunks of (replicas, records) bool; ``all_rows``: as many as any need."""
        host = batches.cpu().numpy()  # calls of torch's take three times as long
        # A third of the time of a nonzero in two dimensions.
        replica, record = np.divmod(np.flatnonzero(host), host.shape[1])
        counts = np.bincount(replica, minlength=len(host))
        place = np.arange(len(record)) - np.repeat(counts.cumsum() - counts, counts)
        needed = (counts + columns - 1) // columns
        largest = needed.max(initial=0)
        there = np.arange(largest)[:, None] < (
            np.full_like(needed, largest) if all_rows else needed
        )
        number = there.cumsum().reshape(there.shape) - 1
        whose = there.nonzero()[1]
        packed = host.argmax(1)[whose][:, None].repeat(columns, 1)
        taken = np.zeros(packed.shape, dtype=bool)
        chunk, column = np.divmod(place, columns)
        where = number[chunk, replica], column
        packed[where], taken[where] = record, True
        parts = (whose, packed, taken)
        found = (torch.from_numpy(part).to(batches.device) for part in parts)
        return cls(*found, each=bool(there[:1].all()) and largest > 0)

    @classmethod
    def unseen(cls, batches: Tensor, width: int, watch: Watch, columns: int) -> Packed:
        """As `of` with ``all_rows``, unseen: ``watch`` is told of larger batches."""
        counts, chunks = batches.sum(1), -(-width // columns)
        width = chunks * columns
        watch.expect(
            counts <= width,
            f"a batch has more than {width} records, which has a chance below "
            f"{_OVERFLOW:g}: the run cannot be used; train with another seed",
        )
        # Stable: records in their order, those that are drawn before all others.
        order = (
            batches.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices
        )
        taken = torch.arange(width, device=batches.device) < counts[:, None]
        padded = torch.nn.functional.pad(order, (0, max(0, width - order.shape[1])))
        record = torch.where(taken, padded[:, :width], order[:, :1])
        record, taken = (
            part.unflatten(1, (chunks, columns)).transpose(0, 1).flatten(0, 1)
            for part in (record, taken)
        )
        replica = torch.arange(len(batches), device=batches.device).repeat(chunks)
        return cls(replica, record, taken, each=chunks > 0)


def most(rate: float, records: int) -> int:
    """Most of ``records`` that a Poisson batch has but with a chance below 1e-15."""
    if rate >= 1:
        return records
    return min(records, int(stats.binom.isf(_OVERFLOW, records, rate)) + 1)
