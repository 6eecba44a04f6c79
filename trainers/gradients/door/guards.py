"""Operations that fail for some values: they are given others, and the record is void.

An index out of range would end the run, and so tell of one record. What such operations
take is put in range by the graph, for each record by itself; if anything was out of
range, the graph gives nan in place of the record's result, and no gradient goes through
that: the record counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from trainers.gradients.door.operators import fits, fitted, voided

# An argument, and the least and the most that it may be.
Range = tuple[Any, float, float]


def guard(graph: fx.Graph, given: list[fx.Node]) -> fx.Node | None:
    """Put in range what operations take of ``given``; one that fails otherwise."""
    reached, flags = set(given), []
    for node in list(graph.nodes):
        if reached.isdisjoint(node.all_input_nodes):
            continue
        reached.add(node)
        name = getattr(node.target, "overloadpacket", node.target)
        name = getattr(name, "__name__", "")
        inverts = name == "linalg_matrix_power" and node.args[1] < 0  # type: ignore
        if inverts or name in _FAILING:
            return node
        ranges: dict[fx.Node, tuple[float, float]] = {}
        for taken, least, most in _RULES.get(name, lambda _: ())(node):
            if taken not in reached:
                continue
            if most < least:
                return node
            old = ranges.get(taken, (least, most))
            ranges[taken] = max(least, old[0]), min(most, old[1])
        ignored = _ignored(node) if name in _LABELS else None
        for taken, (least, most) in ranges.items():
            with graph.inserting_before(node):
                new = graph.call_function(fitted, (taken, least, most, ignored))
                flag = graph.call_function(fits, (taken, new))
            new.meta = dict(taken.meta)
            flag.meta = {"val": taken.meta["val"].new_empty((), dtype=torch.bool)}
            reached.update((flag, new))
            flags.append(flag)
            node.replace_input_with(taken, new)
    if flags:
        output = graph.output_node()
        (result,) = output.all_input_nodes
        with graph.inserting_before(output):
            void = graph.call_function(voided, (result, *flags))
        void.meta = dict(result.meta)
        output.replace_input_with(result, void)
    return None


def _shape(node: Any) -> torch.Size:
    return node.meta["val"].shape


def _rows(node: fx.Node) -> Iterator[Range]:
    yield node.args[1], 0, _shape(node.args[0])[0] - 1


def _bags(node: fx.Node) -> Iterator[Range]:
    """Rows, and where bags of them begin."""
    yield from _rows(node)
    yield node.args[2], 0, -1


def _along(node: fx.Node) -> Iterator[Range]:
    yield node.args[2], 0, _shape(node.args[0])[node.args[1]] - 1  # type: ignore[index]


def _along_dim(node: fx.Node) -> Iterator[Range]:
    shape, dim = _shape(node.args[0]), [*node.args, None][2]
    size = shape.numel() if dim is None else shape[dim]  # type: ignore[index]
    yield node.args[1], 0, size - 1


def _places(node: fx.Node) -> Iterator[Range]:
    """Negative ones count from the end; how many a mask takes must not matter."""
    values = node.args[2] if len(node.args) > 2 else None
    indices: Any = node.args[1]
    for dim, index in enumerate(indices):
        if index is None:
            continue
        if index.meta["val"].dtype == torch.bool:
            if not isinstance(values, fx.Node) or _shape(values).numel() != 1:
                yield index, 0, -1
            return
        size = _shape(node.args[0])[dim]
        yield index, -size, size - 1


def _classes(node: fx.Node) -> Iterator[Range]:
    """Labels; where targets are floats, they are probabilities."""
    shape = _shape(node.args[0])
    if not node.args[1].meta["val"].is_floating_point():  # type: ignore[union-attr]
        yield node.args[1], 0, shape[min(1, len(shape) - 1)] - 1


def _ignored(node: fx.Node) -> Any:
    return node.args[4] if len(node.args) > 4 else -100


def _shares(node: fx.Node) -> Iterator[Range]:
    yield from ((values, 0, 1) for values in node.args[:2])


def _whole(node: fx.Node) -> Iterator[Range]:
    """The least number by -1 has no quotient, which ends the process."""
    if not node.meta["val"].is_floating_point():
        yield node.args[1], 0, -1
        for value in [one for one in node.args[:1] if isinstance(one, fx.Node)]:
            kind = value.meta["val"].dtype
            if kind in (torch.int32, torch.int64):
                yield value, torch.iinfo(kind).min + 1, torch.iinfo(kind).max


_LABELS = ("cross_entropy_loss", "nll_loss_nd")
_RULES: dict[str, Callable[[fx.Node], Iterator[Range]]] = {
    **dict.fromkeys(("embedding", "padded"), _rows),
    "embedding_bag": _bags,
    **dict.fromkeys(("gather", "index_add", "index_copy", "index_fill"), _along),
    **dict.fromkeys(("index_select", "scatter", "scatter_add"), _along),
    "scatter_reduce": _along,
    "take_along_dim": _along_dim,
    **dict.fromkeys(("index", "index_put"), _places),
    **dict.fromkeys((*_LABELS, "multi_margin_loss"), _classes),
    "binary_cross_entropy": _shares,
    **dict.fromkeys(("div", "divide", "floor_divide", "fmod", "remainder"), _whole),
}
_FAILING = ("linalg_householder_product",)  # LAPACK's, which also prints errors
