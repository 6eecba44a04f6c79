"""Clipped sums over batches of different sizes, taken in parts that fit the memory."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from trainers.data import PrivateData
from trainers.gradients.batches import Packed
from trainers.gradients.bfloat16 import exact_products
from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.graphs import weighted_sum
from trainers.gradients.per_sample import Weigh, check_hooks
from trainers.gradients.rounding import Rounding
from trainers.gradients.shapes import Shape, known_or_found, lined, shape_for
from trainers.gradients.spread import Spread
from trainers.numerics.deferred_checks import Watch


@functools.cache
def keep_freed() -> None:
    """Have the C library keep up to 256 MiB that is freed, once a process.

    By itself it gives blocks back at once, so that each round's tensors are pages that
    the system clears anew: up to half of a round's time. Where the environment says how
    (``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_MMAP_THRESHOLD_``), and with other C
    libraries, nothing is changed.

    >>> keep_freed()
    """
    _set_malloc(32 << 20, 256 << 20)


def give_back_freed() -> None:
    """Have it give back blocks of a MiB at once: where memory is short, not time.

    By itself it keeps up to 32 MiB, which what stays cuts up.
    """
    _set_malloc(1 << 20, 4 << 20)


def _set_malloc(block: int, kept: int) -> None:
    """Take blocks up to ``block`` from what was freed before; up to ``kept`` is."""
    if any(f"MALLOC_{name}_THRESHOLD_" in os.environ for name in ("TRIM", "MMAP")):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(-3, block)  # M_MMAP_THRESHOLD
    mallopt(-1, kept)  # M_TRIM_THRESHOLD


# Bytes of one part on a CPU: what stays in its cache is several times as fast, and
# larger blocks come from the system anew each time.
WORKING_SET = 32 << 20
# A chunk costs some passes over its model, however few samples it has, and keeps as
# many numbers.
_PASSES = 4
_LEAST = 32  # samples of a part, where that many fit
_MOVING, _STILL = 2.0, 3.0  # deviations of a batch's size that fit in one chunk
_CALL = 1 << 19  # what a call costs by itself, in numbers that are gone through


@dataclasses.dataclass(frozen=True, slots=True)
class Summation:
    """Parts in which sums are made: from public numbers alone."""

    # differentiator, data: whose gradients are summed, of whose records
    differentiator: Differentiator
    data: PrivateData
    rows: int  # how many chunks of batches go through together
    shape: Shape  # in which shape
    rounding: Rounding  # what is paid for the rounding of sums

    def clipped_sum(
        self,
        at: Tensor,
        batches: Tensor,
        nodes: Tensor,
        clip: float,
        *,
        watch: Watch | None = None,
        width: int | None = None,
        weigh: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Sum over each batch of gradients scaled to norm <= ``clip``.

        What a record adds is a function of that record alone: see ``sums.md``. ``at``:
        (replicas, dims), all nodes run after run; ``batches``: (replicas, records)
        bool; ``nodes``: whose records. ``watch`` is told of gradients that are not
        finite, which count nothing, and are an error if ``clip`` is infinite.
        ``width``: no batch is larger, which ``watch`` sees to. ``weigh``: weights in
        the place of those that clip, from the rows' replicas, a mask, and norms.
        Returns (replicas, dims) doubles. Where models lie in shards, dims are those
        held here, and each call is one shard's, in turn: all must call.
        """
        check_hooks()  # which an algorithm or a loop may have set meanwhile
        exact_products()
        self.differentiator.aligned = self.shape.aligned
        moves, columns = self.shape.moves, self.shape.columns
        node = nodes.repeat(len(at) // len(nodes))
        word = self.differentiator.word
        if width is None or watch is None:
            packed = Packed.of(batches, columns, all_rows=not moves)
        else:
            packed = Packed.unseen(batches, width, watch, columns)
        total = None
        # A replica that must not move has the same row in each call.
        group = max(1, len(packed.replica) if moves else len(at))
        calls = [
            slice(first, min(first + self.rows, start + group))
            for start in range(0, len(packed.replica), group)
            for first in range(start, start + group, self.rows)
        ]
        shards = getattr(self.differentiator, "shards", None)
        size, turn = (1, 0) if shards is None else (shards.size, shards.rank)
        for first in range(0, len(calls), size):
            together = calls[first : first + size]
            idle = turn >= len(together)  # it has the first one's records, but none
            here = together[0 if idle else turn]
            replica = packed.replica[here]
            spare = self.rows - len(replica)
            whose = _extended(replica, spare, 0)
            wide = self.shape.spare_columns
            taken = _extended(packed.taken[here], spare, wide)
            if spare or wide:
                taken[len(replica) :], taken[:, columns:] = False, False
            record = _extended(packed.record[here], spare, wide)
            inputs, targets = self.data.records(node[whose], record)
            if isinstance(word, Tensor):  # one a replica
                self.differentiator.word = word[whose]
            own: Weigh = ClipTo(clip, torch.zeros_like(taken) if idle else taken, watch)
            if weigh is not None:
                own = functools.partial(weigh, whose, taken)
            if shards is None:
                models = lined(at, replica, spare)
            else:
                if total is None:
                    total = torch.zeros_like(at, dtype=torch.float64)
                spread = Spread(
                    *(at, nn.functional.pad(replica, (0, spare))),
                    *(self.differentiator.dims, shards),
                    whose=[packed.replica[each] for each in together],
                    total=total,
                )
                models = cast("Any", spread)
            with self.shape.in_threads():
                given = models, inputs, targets, own, self.rounding.slack
                found = weighted_sum(self.differentiator, *given)
            if shards is not None:
                continue  # it is in the total
            done = 0
            if total is None and packed.each and len(replica) >= len(at):
                done = len(at)  # first chunks of all replicas, in their order
                total = found[:done]
            elif total is None:
                total = torch.zeros_like(at, dtype=torch.float64)
            total.index_add_(0, replica[done:], found[done : len(replica)])
        return torch.zeros_like(at, dtype=torch.float64) if total is None else total


def summation(
    differentiator: Differentiator,
    data: PrivateData,
    at: Tensor,
    *,
    batch_size: float,
    memory_limit: int,
    clips: bool = True,
    varies: bool = True,
    width: int | None = None,
) -> Summation:
    """Plan of `Summation.clipped_sum` for ``at``, (replicas, dims).

    A shape is tried, see `trainers.gradients.shapes`, where a sum ``clips``. Batches
    have ``batch_size`` records if it never ``varies``, and else about as many; with
    ``width`` each takes as many places, whatever it has.
    """
    exact_products()  # a shape is tried as it is used
    # For each sample: its inputs, and what the differentiator keeps of it.
    values = differentiator.values_per_sample + data.values_per_record
    limit = memory_limit
    if at.device.type == "cpu":
        if getattr(differentiator, "shards", None) is None:
            keep_freed()
        passes = _PASSES * at.shape[1] * at.element_size()
        limit = min(limit, max(WORKING_SET, 2 * passes))
    samples = max(1, limit // (values * at.element_size()))
    most = max(data.sizes) + data.canaries
    drawn = most if varies else math.ceil(batch_size)
    shape, rows, columns = None, 1, 1
    moves = at.device.type == "cpu"
    while shape is None:
        # A chunk more takes time alone where replicas move, and else with all others.
        room = _MOVING if moves else _STILL
        columns = usual_width(min(batch_size, drawn), samples, drawn, room)
        if width is not None:
            columns = evenly(width, samples)
            if columns >= 6:
                columns = min(samples, 8 * math.ceil(columns / 8))
        if columns == 1:  # convolutions then keep other things
            values = differentiator.values_alone + data.values_per_record
        costs = values * columns + _PASSES * at.shape[1]  # of a chunk
        many = max(1, limit // (costs * at.element_size()))
        if moves:
            largest = max(data.sizes) if varies else drawn
            wanted = len(at), batch_size, largest, many * columns, columns, costs
            rows, moves = packing(*wanted), False
            models = at[:1].expand(rows, -1)
            shape = known_or_found(differentiator, models, data, columns, moves=True)
        else:
            rows = evenly(len(at), many)
            shape = Shape(columns)
            if clips:
                shape = shape_for(differentiator, at[:rows], data, columns)
    rounding = Rounding.of(
        differentiator.positions,
        differentiator.length,
        columns,
        most,
        coarse=differentiator.coarse,
    )
    return Summation(differentiator, data, rows, shape, rounding)


def evenly(count: int, most: int) -> int:
    """The size of as few parts of at most ``most`` as ``count`` takes, about equal."""
    return math.ceil(count / math.ceil(count / most))


@functools.cache
def packing(
    replicas: int, batch: float, most: int, samples: int, columns: int, costs: int
) -> int:
    """Number of chunks that go through together, so that all calls take least.

    ``most``: records of one batch at most; ``samples``: places of a call, but for one
    chunk; ``columns``, ``costs``: places of a chunk, and numbers that are gone through
    for it.
    """
    mean, variance = math.ceil(most / columns), 0.0  # of a batch's chunks
    if batch < most:
        last = int(batch + 10 * math.sqrt(batch) + 10) // columns + 1
        more = stats.poisson.sf(columns * np.arange(last), batch)
        mean = more.sum()
        variance = ((2 * np.arange(last) + 1) * more).sum() - mean**2
    limit = max(1, samples // columns)
    fewest = math.ceil(replicas * mean / limit)
    found = []
    for room in range(4):  # deviations
        wanted = replicas * mean + room * math.sqrt(replicas * variance)
        again = float(stats.norm.sf(room)) if variance else 0.0
        for calls in range(fewest, 4 * fewest + 16):
            rows = min(limit, math.ceil(wanted / calls))
            found.append(((calls + again) * (rows * costs + _CALL), rows))
    return min(found)[1]


def usual_width(
    batch_size: float, samples: int, most: int, room: float = _STILL
) -> int:
    """Places in parts of at most ``samples``, such that most batches fill one part.

    A multiple of 8 where that fits, and hardly more than ``most``. From public numbers
    alone; ``room`` is in deviations of a batch's size.
    """
    usual = min(batch_size + room * math.sqrt(batch_size), most)
    if usual > samples:
        # Several parts, of which the last is half empty on average: not too wide.
        return max(min(samples, _LEAST), _LEAST * math.floor(samples / 2 / _LEAST))
    width = math.ceil(usual)
    if width < 6:
        return width
    # One more part now and then costs less than always a little more of each.
    to_eight = round if usual < most else math.ceil
    return min(samples, 8 * to_eight(usual / 8))


def _extended(tensor: Tensor, rows: int, columns: int) -> Tensor:
    """With its last row, and then each row's first entry, so many times more."""
    if rows:
        tensor = torch.cat([tensor, tensor[-1:].expand(rows, *tensor.shape[1:])])
    if columns:
        tensor = torch.cat([tensor, tensor[:, :1].expand(-1, columns)], 1)
    return tensor
