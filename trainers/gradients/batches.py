"""Lots of different sizes, side by side."""

from __future__ import annotations

import dataclasses

import torch
from scipy import stats
from torch import Tensor

from trainers.numerics.deferred_checks import Watch

# The chance that some lot is larger than `most` allows, a lot.
_OVERFLOW = 1e-15


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """Lots side by side, each packed to the left.

    Parameters
    ----------
    record
        (replicas, width): which records; where there is none, the lot's first, so that
        a record that was not drawn is not looked at, or 0 where the lot is empty.
    taken
        (replicas, width) bool: where there is one.
    """

    record: Tensor
    taken: Tensor

    @classmethod
    def of(cls, lots: Tensor, multiple: int = 1) -> Packed:
        """From (replicas, records) bool; as wide as the largest lot, none is cut.

        Widened to a ``multiple``.
        """
        counts = lots.sum(1)
        width = -(-int(counts.max()) // multiple) * multiple
        replica, record = lots.nonzero(as_tuple=True)
        column = lots.cumsum(1)[replica, record] - 1
        packed = lots.byte().argmax(1)[:, None].repeat(1, width)
        packed[replica, column] = record
        taken = torch.arange(width, device=lots.device) < counts[:, None]
        return cls(packed, taken)

    @classmethod
    def unseen(cls, lots: Tensor, width: int, watch: Watch) -> Packed:
        """As `of` in a ``width`` known beforehand: the host need not see the lots.

        A lot that is larger is an error that ``watch`` tells of, not cut in silence.
        """
        counts = lots.sum(1)
        watch.expect(
            counts <= width,
            f"a lot has more than {width} records, which has a chance below "
            f"{_OVERFLOW:g}: the run cannot be used; train with another seed",
        )
        # Stable: records in their order, those that are drawn before all others.
        order = lots.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices
        taken = torch.arange(width, device=lots.device) < counts[:, None]
        padded = torch.nn.functional.pad(order, (0, max(0, width - order.shape[1])))
        return cls(torch.where(taken, padded[:, :width], order[:, :1]), taken)


def most(rate: float, records: int) -> int:
    """How many of ``records`` a Poisson lot has but with a chance below 1e-15."""
    if rate >= 1:
        return records
    return min(records, int(stats.binom.isf(_OVERFLOW, records, rate)) + 1)
