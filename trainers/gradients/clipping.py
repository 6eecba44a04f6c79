"""Clipped sums over batches of different sizes, taken in parts that fit the memory."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from trainers.data import PrivateData
from trainers.gradients.batches import Packed
from trainers.gradients.bfloat16 import exact_products
from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.rounding import Rounding
from trainers.gradients.shapes import Shape, shape_for
from trainers.gradients.stacked.layer import together
from trainers.numerics.deferred_checks import Watch
from trainers.numerics.memory import keep_freed

# Bytes of one part on a CPU: what stays in its cache is several times as fast, and
# larger blocks come from the system anew each time.
WORKING_SET = 32 << 20
# A part costs some passes over the models, however few samples it has.
_PASSES = 4
_LEAST = 32  # samples of a part, where that many fit
_LINE = 64  # bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Summation:
    """In which parts sums are made: from public numbers alone.

    Parameters
    ----------
    differentiator, data
        Whose gradients are summed, of whose records.
    rows
        Replicas that go through together, and in which shape.
    rounding
        What is paid for the rounding of sums.
    """

    differentiator: Differentiator
    data: PrivateData
    rows: tuple[tuple[slice, Shape], ...]
    rounding: Rounding

    def clipped_sum(
        self,
        at: Tensor,
        batches: Tensor,
        nodes: Tensor,
        clip: float,
        *,
        watch: Watch | None = None,
        width: int | None = None,
    ) -> Tensor:
        """Sum over each batch of gradients scaled to norm <= ``clip``.

        What a record adds is a function of that record alone, and so is whether
        anything is: by how much the sum moves with a record is shown in ``sums.md``.

        Parameters
        ----------
        at
            (replicas, dims), replicas being all nodes of a run, run after run, as many
            as were planned for.
        batches
            (replicas, records) bool
        nodes
            Whose records a run's replicas look at, integers.
        watch
            Told of gradients that are not finite. They count nothing; if ``clip`` is
            infinite they are an error, at once by default.
        width
            No batch is larger, which is left to ``watch``; by default batches are
            looked at.

        Returns
        -------
        (replicas, dims), doubles
        """
        exact_products()
        node = nodes.repeat(len(at) // len(nodes))
        parts = []
        for rows, shape in self.rows:
            if width is None or watch is None:
                packed = Packed.of(batches[rows], shape.columns)
            else:
                across = -(-width // shape.columns) * shape.columns
                packed = Packed.unseen(batches[rows], across, watch)
            weigh = functools.partial(ClipTo, clip, watch=watch)
            parts.append(self._part(at[rows], node[rows], packed, shape, weigh))
        return together(parts)

    def _part(
        self,
        at: Tensor,
        node: Tensor,
        packed: Packed,
        shape: Shape,
        weigh: Callable[[Tensor], ClipTo],
    ) -> Tensor:
        """The sums of replicas that go through together."""
        self.differentiator.aligned = shape.aligned
        replicas, columns = len(at), shape.columns
        theta = _aligned(_extended(at, shape.spare_rows, 0))
        whose = _extended(node, shape.spare_rows, 0)
        total = None
        for left in range(0, packed.record.shape[1], columns):
            record, taken = (
                _extended(part[:, left : left + columns], *_spare(shape))
                for part in (packed.record, packed.taken)
            )
            if shape.spare_rows or shape.spare_columns:
                taken[replicas:], taken[:, columns:] = False, False
            inputs, targets = self.data.records(whose, record)
            found = self.differentiator.weighted_sum(
                theta, inputs, targets, weigh(taken), self.rounding.slack
            )[:replicas]
            total = found if total is None else total.add_(found)
        return torch.zeros_like(at, dtype=torch.float64) if total is None else total


def summation(
    differentiator: Differentiator,
    data: PrivateData,
    at: Tensor,
    *,
    batch_size: float,
    memory_limit: int,
    clips: bool = True,
) -> Summation:
    """How `Summation.clipped_sum` goes about ``at``, (replicas, dims).

    A shape is tried, see `trainers.gradients.shapes`, where a sum ``clips``.
    """
    # For each sample: its inputs, and what the differentiator keeps of it.
    values = differentiator.values_per_sample + data.values_per_record
    limit = memory_limit
    if at.device.type == "cpu":
        keep_freed()
        passes = _PASSES * at.shape[1] * at.element_size()
        limit = min(limit, max(WORKING_SET, passes))
    samples = max(1, limit // (values * at.element_size()))
    most = max(data.sizes) + data.canaries
    columns = usual_width(min(batch_size, most), samples, most)
    found = []
    for rows in slices(len(at), max(1, samples // columns)):
        shape = Shape(columns)
        if clips:
            shape = shape_for(differentiator, at[rows], data, columns)
        found.append((rows, shape))
    rounding = Rounding.of(
        differentiator.positions,
        differentiator.length,
        columns,
        most,
        coarse=differentiator.coarse,
    )
    return Summation(differentiator, data, tuple(found), rounding)


def slices(count: int, most: int) -> Iterator[slice]:
    """Slices of ``count``, of at most ``most`` and of about equal sizes."""
    step = math.ceil(count / math.ceil(count / most))
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))


def usual_width(batch_size: float, samples: int, most: int) -> int:
    """How many places parts of at most ``samples`` have, so that most batches fill one.

    A multiple of 8 where that fits, and hardly more than ``most``. From public numbers
    alone.
    """
    usual = min(batch_size + 3 * math.sqrt(batch_size), most)
    if usual > samples:
        # Several parts, of which the last is half empty on average: not too wide.
        half = samples / 2
        return max(min(samples, _LEAST), _LEAST * math.floor(half / _LEAST))
    width = math.ceil(usual)
    if width < 6:
        return width
    # One more part now and then costs less than always a little more of each.
    to_eight = round if usual < most else math.ceil
    return min(samples, 8 * to_eight(width / 8))


def _spare(shape: Shape) -> tuple[int, int]:
    return shape.spare_rows, shape.spare_columns


def _extended(tensor: Tensor, rows: int, columns: int) -> Tensor:
    """With its last row, and then each row's first entry, so many times more."""
    if rows:
        tensor = torch.cat([tensor, tensor[-1:].expand(rows, *tensor.shape[1:])])
    if columns:
        tensor = torch.cat([tensor, tensor[:, :1].expand(-1, columns)], 1)
    return tensor


def _aligned(theta: Tensor) -> Tensor:
    """Beginning at a whole line of memory, as when the shape was tried."""
    if theta.is_contiguous() and theta.data_ptr() % _LINE == 0:
        return theta
    return theta.clone(memory_format=torch.contiguous_format)
