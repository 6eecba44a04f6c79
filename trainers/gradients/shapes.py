"""The fixed shape in which records are differentiated, and its test.

A record's gradient must be a function of that record, to the last bit: see `sums.md`.
Kernels choose their ways by shape, so that every call has the same one, made from
public numbers alone. Within it a row's bits may still depend on its place, where rows
begin at other alignments or end in what is no whole vector. So a shape is tried with
random records, and another one taken if it fails.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from trainers.data import PrivateData
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.per_sample import trained

# Elementwise kernels on a CPU take two vectors at a time, and what is left one by one,
# by functions that differ in the last bit. A multiple of this many leaves nothing over.
_VECTORS = 32
_TRIED = 1000  # records that a trial compares, at least,
_WORK = 20_000_000  # where they take no more products than this
_LINE = 64  # bytes
_HOST = "cpu"  # where a trial is drawn
_known: weakref.WeakKeyDictionary[nn.Module, dict[Any, Shape | None]] = (
    weakref.WeakKeyDictionary()
)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How many records of each replica a call sees, and what else is in it.

    Parameters
    ----------
    columns
        Places for records, of each replica.
    spare_rows, spare_columns
        Replicas and places that are added and never hold a record.
    aligned
        Whether the differentiator aligns rows.
    moves
        Whether a replica may come in any row, beside any others.
    """

    columns: int
    spare_rows: int = 0
    spare_columns: int = 0
    aligned: bool = False
    moves: bool = False


def lined(at: Tensor, rows: Tensor, spare: int = 0) -> Tensor:
    """Rows of ``at``, (replicas, dims), and its first ``spare`` times more.

    Each begins at a whole line of memory, as when a shape was tried.
    """
    dims, count = at.shape[1], len(rows)
    wide = -(-dims * at.element_size() // _LINE) * _LINE // at.element_size()
    found = at.new_empty(count + spare, wide)[:, :dims]
    found[:count], found[count:] = at[rows], at[:1]
    return found


def moving_shape_for(
    differentiator: Differentiator, at: Tensor, data: PrivateData, columns: int
) -> Shape | None:
    """As `shape_for`, of so many ``columns`` and where replicas may come in any row.

    None if there is none.
    """
    return _known_or_found(differentiator, at, data, columns, True)


def shape_for(
    differentiator: Differentiator, at: Tensor, data: PrivateData, columns: int
) -> Shape:
    """The first shape of at most ``columns`` in which a record's bits are its own.

    ``at`` is (replicas, dims). Of it, and of a record of ``data``, only shape, type and
    device are looked at.
    """
    found = _known_or_found(differentiator, at, data, columns, False)
    if found is None:
        raise AssertionError("a single place is no other's")
    return found


def _known_or_found(
    differentiator: Differentiator,
    at: Tensor,
    data: PrivateData,
    columns: int,
    moves: bool,
) -> Shape | None:
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
        wanted = candidates(len(at), columns)
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
            if holds(differentiator, at, example, tried):
                return tried
    return None


def candidates(replicas: int, columns: int) -> Iterator[Shape]:
    """Shapes of at most ``columns`` places, the one that is wanted first."""
    sizes = [columns, *(columns // step * step for step in (64, 32, 16, 8, 4, 2)), 1]
    for size in dict.fromkeys(size for size in sizes if size > 0):
        # Whole vectors of records, whatever a layer makes of each.
        wide = next(s for s in range(_VECTORS) if replicas * (size + s) % _VECTORS == 0)
        yield Shape(size, spare_columns=0 if size == 1 else wide)


def holds(
    differentiator: Differentiator,
    at: Tensor,
    example: tuple[Tensor, Tensor],
    shape: Shape,
    seed: int = 0,
) -> bool:
    """Whether random records' bits depend neither on their places nor on the others.

    Nor, if the shape ``moves``, on the row that their replica comes in. ``example`` is
    an input, of which shape and type are taken, and a target.
    """
    generator = torch.Generator().manual_seed(seed)
    rows, columns = len(at), shape.columns
    there = (rows + shape.spare_rows, columns + shape.spare_columns)
    models = _models(differentiator.module, rows, generator).to(at)
    like, target = example
    targets = target.expand(*there, *target.shape)

    def draw() -> Tensor:
        return _inputs(differentiator.module, like, there, generator)

    def found(inputs: Tensor, whose: Tensor) -> list[Tensor]:
        theta = lined(models, whose, shape.spare_rows)
        parts = differentiator.rows(theta, inputs, targets)
        return [_bits(part).unflatten(0, there)[:rows] for part in parts]

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
        moved[:rows, here] = inputs[whose][:, before]
        for one, other in zip(wanted, found(moved, whose), strict=True):
            if not torch.equal(one[whose][:, before], other[:, here]):
                return False
    return True


def _models(module: nn.Module, replicas: int, generator: torch.Generator) -> Tensor:
    """Random parameters, (replicas, dims): activations neither grow nor vanish."""
    parts = []
    for parameter in trained(module).values():
        fan = parameter.shape[1:].numel() if parameter.dim() > 1 else 4
        part = torch.randn(
            replicas, parameter.numel(), generator=generator, device=_HOST
        )
        parts.append(part * fan**-0.5)
    return torch.cat(parts, 1)


def _inputs(
    module: nn.Module,
    like: Tensor,
    there: tuple[int, int],
    generator: torch.Generator,
) -> Tensor:
    """Random inputs; integers are tokens of the smallest of all embeddings."""
    shape = (*there, *like.shape)
    if like.is_floating_point():
        return torch.randn(shape, generator=generator, device=_HOST).to(like)
    tables = [
        layer.num_embeddings
        for layer in module.modules()
        if isinstance(layer, nn.Embedding)
    ]
    return torch.randint(
        0, min(tables, default=2), shape, generator=generator, device=_HOST
    ).to(like)


def _bits(part: Tensor) -> Tensor:
    """As integers where they are fractions: what is not a number equals itself."""
    if not part.is_floating_point():
        return part
    kind = torch.int32 if part.element_size() == 4 else torch.int64
    return part.contiguous().view(kind)
