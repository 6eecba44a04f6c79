"""Clipped sums over lots of different sizes, taken in parts that fit the memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trainers.data import PrivateData
from trainers.differentiator import Differentiator
from trainers.weights import ClipTo

# Bytes of one part on a CPU: what stays in its cache is several times as fast, and
# larger blocks come from the system anew each time.
WORKING_SET = 16 << 20
# A part costs some passes over the models, however few samples it has.
_PASSES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """Lots side by side, each packed to the left.

    Parameters
    ----------
    record
        (replicas, width): which records, 0 where there is none.
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
        packed = record.new_zeros(len(lots), width)
        packed[replica, column] = record
        taken = torch.arange(width, device=lots.device) < counts[:, None]
        return cls(packed, taken)


def parts(
    shape: tuple[int, int], samples: int, columns: int | None = None
) -> Iterator[tuple[slice, slice]]:
    """Slices of (replicas, width), of at most ``samples`` and of about equal sizes.

    With ``columns``, a divisor of the width, they are that wide.
    """
    replicas, width = shape
    if width == 0:
        return
    if columns is None:
        columns = math.ceil(width / math.ceil(width / samples))
    rows = max(1, samples // columns)
    rows = math.ceil(replicas / math.ceil(replicas / rows))
    for top in range(0, replicas, rows):
        for left in range(0, width, columns):
            yield slice(top, top + rows), slice(left, left + columns)


def usual_width(lot_size: float, samples: int) -> int:
    """How wide parts of at most ``samples`` are, so that most lots fill whole ones.

    A multiple of 8 where that fits. From public numbers alone, so that a run that goes
    on from a checkpoint takes the same parts.
    """
    usual = lot_size + 3 * math.sqrt(lot_size)
    width = usual / math.ceil(usual / samples)
    return max(1, min(samples, 8 * math.ceil(width / 8)))


def clipped_sum(
    differentiator: Differentiator,
    data: PrivateData,
    at: Tensor,
    lots: Tensor,
    nodes: Sequence[int],
    clip: float,
    *,
    lot_size: float,
    memory_limit: int,
) -> Tensor:
    """Sum over each lot of gradients scaled to norm <= ``clip``.

    Parameters
    ----------
    at
        (replicas, dims), replicas being all nodes of a run, run after run
    lots
        (replicas, records) bool
    nodes
        Whose records a run's replicas look at.
    lot_size
        Expected number of records in a lot.
    memory_limit
        Bytes that may be kept alive, about.

    Returns
    -------
    (replicas, dims)
    """
    node = torch.tensor(nodes, device=at.device).repeat(len(at) // len(nodes))
    total = torch.zeros_like(at)
    # For each sample: its inputs, and what the differentiator keeps of it.
    values = differentiator.values_per_sample + data.values_per_record
    limit = memory_limit
    if at.device.type == "cpu":
        passes = _PASSES * at.shape[1] * at.element_size()
        limit = min(limit, max(WORKING_SET, passes))
    samples = max(1, limit // (values * at.element_size()))
    # Few shapes: all parts of equal width.
    columns = usual_width(lot_size, samples) if differentiator.static else None
    packed = Packed.of(lots, columns or 1)
    replicas, width = packed.record.shape
    for rows, across in parts((replicas, width), samples, columns):
        inputs, targets = data.records(node[rows], packed.record[rows, across])
        weigh = ClipTo(clip, packed.taken[rows, across])
        total[rows] += differentiator.weighted_sum(at[rows], inputs, targets, weigh)
    return total
