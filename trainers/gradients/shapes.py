"""The fixed shape in which records are differentiated, and its test.

A record's gradient must be a function of that record, to the last bit: see `sums.md`.
Kernels choose their ways by shape, so that every call has the same one, made from
public numbers alone. Within it a row's bits may still depend on its place, where rows
begin at other alignments or end in what is no whole vector. Shapes are such that each
thread goes through whole vectors where that matters; and a shape is tried with random
records, and another one taken if it fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainers.data import PrivateData
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.door.traced import tokens_of
from trainers.gradients.spread import Drawn

# Elementwise kernels on a CPU take two vectors at a time, and what is left one by one,
# by functions that differ in the last bit: at the end of what each thread goes through.
# A multiple of this many leaves nothing over.
_VECTORS = 32
_GRAIN = 1 << 15  # numbers from which on there is a further thread
# What gives equal bits for a number wherever it is, or is seen by a trial: correctly
# rounded, chosen or moved; and kernels that go by rows.
_SAFE = frozenset(
    """
    abs add amax argmax bitwise_and bitwise_not bitwise_or cat clamp clamp_max
    clamp_min clone col2im constant_pad_nd copy div eq expand fill ge gt le lt
    masked_fill maximum minimum mul ne neg ones_like reciprocal relu repeat
    repeat_interleave scalar_tensor sgn sign slice_backward select_backward sqrt stack
    sub threshold threshold_backward to unfold_backward view where zero zeros_like
    _to_copy _unsafe_view _reshape_alias new_zeros new_ones new_full full full_like
    zeros ones index index_put index_select gather scatter scatter_add embedding
    embedding_dense_backward bmm baddbmm mm addmm convolution convolution_backward
    _log_softmax _log_softmax_backward_data _softmax _softmax_backward_data
    nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
    native_layer_norm native_layer_norm_backward native_group_norm
    native_group_norm_backward linalg_vector_norm sum mean max max_pool2d_with_indices
    max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward adaptive_max_pool2d
    adaptive_max_pool2d_backward
    """.split()  # noqa: SIM905 - a list of so many strings is not read
)
_TRIED = 1000  # records that a trial compares, at least,
_WORK = 20_000_000  # where they take no more products than this
_LINE = 64  # bytes
_HOST = "cpu"  # where a trial is drawn
_known: weakref.WeakKeyDictionary[nn.Module, dict[Any, Shape | None]] = (
    weakref.WeakKeyDictionary()
)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Number of records of each replica in a call, and what else is in it."""

    columns: int  # places for records, of each replica
    spare_columns: int = 0  # places that are added and never hold a record
    aligned: bool = False  # whether the differentiator aligns rows
    moves: bool = False  # whether a replica may come in any row, beside any others
    threads: int = 0  # with how many a call is made, of those that torch has; 0 for all

    @contextlib.contextmanager
    def in_threads(self) -> Iterator[None]:
        """Be in so many threads, as in the trial."""
        before = torch.get_num_threads()
        if self.threads in (0, before):
            yield
            return
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def lined(at: Tensor, rows: Tensor, spare: int = 0) -> Tensor:
    """Rows of ``at``, (replicas, dims), and ``spare`` more, each at a line's begin."""
    dims, count = at.shape[1], len(rows)
    wide = -(-dims * at.element_size() // _LINE) * _LINE // at.element_size()
    found = at.new_empty(count + spare, wide)[:, :dims]
    # By rows: indexing goes number by number.
    torch.index_select(at, 0, rows, out=found[:count])
    found[count:] = at[:1]
    return found


def shape_for(
    differentiator: Differentiator, at: Tensor, data: PrivateData, columns: int
) -> Shape:
    """The first shape of at most ``columns`` in which a record's bits are its own."""
    found = known_or_found(differentiator, at, data, columns, moves=False)
    assert found is not None, "a single place is no other's"
    return found


def known_or_found(
    differentiator: Differentiator,
    at: Tensor,
    data: PrivateData,
    columns: int,
    *,
    moves: bool,
) -> Shape | None:
    """As `shape_for`; of ``columns`` where replicas come in any row, None if none."""
    if getattr(differentiator, "alone", False):
        return Shape(columns, moves=moves)
    known = _known.setdefault(differentiator.module, {})
    first = torch.zeros(1, 1, dtype=torch.long, device=at.device)
    inputs, targets = data.records(first[0], first)
    key = (
        *(type(differentiator), getattr(differentiator, "lower", False)),
        *(getattr(differentiator, "loss", None), inputs.shape, inputs.dtype),
        *(targets.shape, targets.dtype),
        *(at.shape, at.dtype, at.device, data.values_per_record),
        *(columns, moves, torch.get_num_threads()),
    )
    if key not in known:
        example = torch.zeros_like(inputs[0, 0]), torch.zeros_like(targets[0, 0])
        counts = _elementwise(differentiator, at, example)
        wanted = candidates(counts, columns, torch.get_num_threads())
        if moves:
            wanted = [dataclasses.replace(next(wanted), moves=True)]
        known[key] = _search(differentiator, at, example, wanted)
    return known[key]


def _search(
    differentiator: Differentiator,
    at: Tensor,
    example: tuple[Tensor, Tensor],
    wanted: Iterable[Shape],
) -> Shape | None:
    for shape in wanted:
        for aligned in (False, True):
            differentiator.aligned = aligned
            if differentiator.aligned != aligned:
                continue
            tried = dataclasses.replace(shape, aligned=aligned)
            with tried.in_threads():
                if holds(differentiator, at, example, tried):
                    return tried
    return None


class _Elementwise(TorchDispatchMode):
    """Sees how many numbers go through functions that may differ at a vector's end."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        safe = name in _SAFE or name.removesuffix("_") in _SAFE
        safe &= (kwargs or {}).get("alpha", 1) == 1  # else it is rounded once or twice
        safe |= name in ("pow", "pow_") and args[1:] == (2,)  # a square
        if not (safe or func.is_view or name.startswith("empty")):
            self.counts |= {
                each.numel()
                for each in tree_leaves((args, result))
                if isinstance(each, Tensor) and each.is_floating_point()
            }
        return result


def _elementwise(
    differentiator: Differentiator, at: Tensor, example: tuple[Tensor, Tensor]
) -> set[int]:
    """Numbers a place of all replicas has, where they must fill vectors: on a CPU."""
    if at.device.type != "cpu":
        return {len(at)}
    there = (len(at), 2)
    inputs, targets = (
        part.expand(*there, *part.shape).contiguous() for part in example
    )
    drawn = Drawn(differentiator.module)
    models = _models(differentiator, drawn, at)(torch.arange(len(at), device=at.device))
    with _Elementwise() as seen:
        differentiator.rows(models, inputs, targets)
    # What is not twice as many for two places is not of records.
    return {count // 2 for count in seen.counts if count % 2 == 0 and count}


def candidates(
    counts: Iterable[int], columns: int, threads: int = 1
) -> Iterator[Shape]:
    """Shapes of at most ``columns`` places, best first; whole vectors a thread."""
    sizes = [columns, *(columns // step * step for step in (64, 32, 16, 8, 4, 2)), 1]
    for size in dict.fromkeys(size for size in sizes if size > 0):
        if size == 1:
            yield Shape(size)
            continue
        found = []
        fewer = threads
        while fewer:
            for wide in range(_VECTORS * fewer):
                if all(whole_vectors(each * (size + wide), fewer) for each in counts):
                    found.append(((size + wide) / fewer, wide, fewer))
                    break
            fewer //= 2  # one of them can always
        _, wide, used = min(found)
        yield Shape(size, spare_columns=wide, threads=0 if used == threads else used)


def whole_vectors(count: int, threads: int) -> bool:
    """Return whether ``threads`` go through whole vectors of ``count`` numbers each."""
    part = -(-count // min(threads, -(-count // _GRAIN)))
    return count % _VECTORS == 0 and (part >= count or part % _VECTORS == 0)


def holds(
    differentiator: Differentiator,
    at: Tensor,
    example: tuple[Tensor, Tensor],
    shape: Shape,
    seed: int = 0,
) -> bool:
    """Return whether random records' bits depend on no place, other record, or row."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = len(at), shape.columns
    there = (rows, columns + shape.spare_columns)
    models = _models(differentiator, Drawn(differentiator.module, seed), at)
    like, target = example
    targets = target.expand(*there, *target.shape)

    def draw() -> Tensor:
        return drawn_inputs(differentiator.module, like, there, generator)

    def found(inputs: Tensor, whose: Tensor) -> list[Tensor]:
        parts = differentiator.rows(models(whose), inputs, targets)
        return [_bits(part).unflatten(0, there) for part in parts]

    whose = torch.arange(rows, device=at.device)
    alone = columns == 1 and (rows == 1 or not shape.moves)
    if alone or at.device.type == "meta":  # which has no bits
        return True
    inputs = draw()
    wanted = found(inputs, whose)
    # More threads have more places at which they begin and end.
    least = 2 if torch.get_num_threads() == 1 else 6
    many = min(_TRIED, _WORK // at.shape[1]) // (rows * columns)
    for _ in range(max(least, min(many, 20))):
        order = torch.randperm(columns, generator=generator, device=_HOST)
        keeps = torch.rand(columns, generator=generator, device=_HOST) < 0.7
        keeps[0] |= columns == 1
        here, before = keeps.nonzero()[:, 0].to(at.device), order[keeps].to(at.device)
        moved = draw()
        if moved.is_floating_point():
            moved = 100 * moved
        if shape.moves:
            whose = torch.randperm(rows, generator=generator, device=_HOST).to(
                at.device
            )
        moved[:, here] = inputs[whose][:, before]
        for one, other in zip(wanted, found(moved, whose), strict=True):
            if not torch.equal(one[whose][:, before], other[:, here]):
                return False
    return True


def _models(
    differentiator: Differentiator, drawn: Drawn, at: Tensor
) -> Callable[[Tensor], Any]:
    """Rows of random models, by their numbers: whole only where models are."""
    if getattr(differentiator, "shards", None) is not None:
        return lambda whose: drawn.spread(whose, len(at), at)
    return functools.partial(lined, drawn.whole(len(at), at))


def drawn_inputs(
    module: nn.Module,
    like: Tensor,
    there: tuple[int, int],
    generator: torch.Generator,
) -> Tensor:
    """Random inputs; integers are tokens of the smallest of all embeddings."""
    shape = (*there, *like.shape)
    if like.is_floating_point():
        return torch.randn(shape, generator=generator, device=_HOST).to(like)
    return torch.randint(
        0, min(tokens_of(module), default=2), shape, generator=generator, device=_HOST
    ).to(like)


def _bits(part: Tensor) -> Tensor:
    """As integers where they are fractions: what is not a number equals itself."""
    if not part.is_floating_point():
        return part
    kind = torch.int32 if part.element_size() == 4 else torch.int64
    return part.contiguous().view(kind)
