"""Clipped sums over lots of different sizes, taken in parts that fit the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from trainers.data import PrivateData
from trainers.gradients.batches import Packed
from trainers.gradients.bfloat16 import exact_products
from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.differentiator import Differentiator
from trainers.numerics.deferred_checks import Watch

# Bytes of one part on a CPU: what stays in its cache is several times as fast, and
# larger blocks come from the system anew each time.
WORKING_SET = 16 << 20
# A part costs some passes over the models, however few samples it has.
_PASSES = 4


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
    nodes: Tensor,
    clip: float,
    *,
    lot_size: float,
    memory_limit: int,
    watch: Watch | None = None,
    width: int | None = None,
) -> Tensor:
    """Sum over each lot of gradients scaled to norm <= ``clip``.

    Parameters
    ----------
    at
        (replicas, dims), replicas being all nodes of a run, run after run
    lots
        (replicas, records) bool
    nodes
        Whose records a run's replicas look at, integers.
    lot_size
        Expected number of records in a lot.
    memory_limit
        Bytes that may be kept alive, about.
    watch
        Told of gradients that are not finite; they are an error at once by default.
    width
        No lot is larger, which is left to ``watch``; by default lots are looked at.

    Returns
    -------
    (replicas, dims)
    """
    exact_products()
    node = nodes.repeat(len(at) // len(nodes))
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
    if width is None or watch is None:
        packed = Packed.of(lots, columns or 1)
    else:
        width = -(-width // (columns or 1)) * (columns or 1)
        packed = Packed.unseen(lots, width, watch)
    replicas, across = packed.record.shape
    for rows, part in parts((replicas, across), samples, columns):
        inputs, targets = data.records(node[rows], packed.record[rows, part])
        taken = packed.taken[rows, part]
        weigh = ClipTo(clip, taken, watch)
        found = differentiator.weighted_sum(at[rows], inputs, targets, weigh)
        # What fills up an empty lot counts nothing, not even where it is no number.
        total[rows] += found.masked_fill_(~taken.any(1, keepdim=True), 0.0)
    return total
