"""Batches of different sizes, packed into one array."""

from __future__ import annotations

import dataclasses

import torch
from scipy import stats
from torch import Tensor

from trainers.numerics.deferred_checks import Watch

# The chance that some batch is larger than `most` allows, a batch.
_OVERFLOW = 1e-15


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """Batches side by side, each packed to the left.

    Parameters
    ----------
    record
        (replicas, width): which records; where there is none, the batch's first, so
        that a record that was not drawn is not looked at, or 0 where the batch is
        empty.
    taken
        (replicas, width) bool: where there is one.
    """

    record: Tensor
    taken: Tensor

    @classmethod
    def of(cls, batches: Tensor, multiple: int = 1) -> Packed:
        """From (replicas, records) bool; as wide as the largest batch, none is cut.

        Widened to a ``multiple``.
        """
        counts = batches.sum(1)
        width = -(-int(counts.max()) // multiple) * multiple
        replica, record = batches.nonzero(as_tuple=True)
        column = batches.cumsum(1)[replica, record] - 1
        packed = batches.byte().argmax(1)[:, None].repeat(1, width)
        packed[replica, column] = record
        taken = torch.arange(width, device=batches.device) < counts[:, None]
        return cls(packed, taken)

    @classmethod
    def unseen(cls, batches: Tensor, width: int, watch: Watch) -> Packed:
        """As `of` in a ``width`` known beforehand: the host need not see the batches.

        A batch that is larger is an error that ``watch`` tells of, not cut in silence.
        """
        counts = batches.sum(1)
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
        return cls(torch.where(taken, padded[:, :width], order[:, :1]), taken)


def most(rate: float, records: int) -> int:
    """How many of ``records`` a Poisson batch has but with a chance below 1e-15."""
    if rate >= 1:
        return records
    return min(records, int(stats.binom.isf(_OVERFLOW, records, rate)) + 1)
