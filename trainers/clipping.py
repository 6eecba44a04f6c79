"""Clipped sums over lots of different sizes, taken in parts that fit the memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trainers.bookkeeping import BookKeeping
from trainers.data import PrivateData
from trainers.per_sample import PerSample

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
    def of(cls, lots: Tensor) -> Packed:
        """From (replicas, records) bool; as wide as the largest lot, none is cut."""
        counts = lots.sum(1)
        width = int(counts.max())
        replica, record = lots.nonzero(as_tuple=True)
        column = lots.cumsum(1)[replica, record] - 1
        packed = record.new_zeros(len(lots), width)
        packed[replica, column] = record
        taken = torch.arange(width, device=lots.device) < counts[:, None]
        return cls(packed, taken)


def parts(shape: tuple[int, int], samples: int) -> Iterator[tuple[slice, slice]]:
    """Slices of (replicas, width), of at most ``samples`` and of about equal width."""
    replicas, width = shape
    if width == 0:
        return
    columns = math.ceil(width / math.ceil(width / samples))
    rows = max(1, samples // columns)
    for top in range(0, replicas, rows):
        for left in range(0, width, columns):
            yield slice(top, top + rows), slice(left, left + columns)


def clipped_sum(
    differentiator: BookKeeping | PerSample,
    data: PrivateData,
    at: Tensor,
    lots: Tensor,
    nodes: Sequence[int],
    clip: float,
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
    memory_limit
        Bytes that may be kept alive, about.

    Returns
    -------
    (replicas, dims)
    """
    packed = Packed.of(lots)
    node = torch.tensor(nodes, device=at.device).repeat(len(at) // len(nodes))
    total = torch.zeros_like(at)
    # For each sample: its inputs, and what the differentiator keeps of it.
    values = differentiator.values_per_sample + data.values_per_record
    limit = memory_limit
    if at.device.type == "cpu":
        passes = _PASSES * at.shape[1] * at.element_size()
        limit = min(limit, max(WORKING_SET, passes))
    samples = max(1, limit // (values * at.element_size()))
    replicas, width = packed.record.shape
    for rows, columns in parts((replicas, width), samples):
        inputs, targets = data.records(node[rows], packed.record[rows, columns])
        mask = packed.taken[rows, columns]

        def weigh(norms: Tensor, mask: Tensor = mask) -> Tensor:
            return clip_weights(norms, clip) * mask

        total[rows] += differentiator.weighted_sum(at[rows], inputs, targets, weigh)
    return total


def clip_weights(norms: Tensor, clip: float) -> Tensor:
    """min(1, clip / norm) for every norm; 1 without a bound, and for a zero gradient.

    The norm is taken a little too large, by 64 roundings, so that what is scaled with
    the weight has a norm of at most ``clip`` after rounding too. Raises ``ValueError``
    for a norm that is not finite.
    """
    if not torch.isfinite(norms).all():
        raise ValueError(
            "a sample's gradient is not finite, so that clipping cannot bound it: "
            "lower the step size, or look for inf and nan in the data"
        )
    if clip == math.inf:
        return torch.ones_like(norms)
    return clip / (norms * (1 + 64 * torch.finfo(norms.dtype).eps)).clamp_min(clip)
