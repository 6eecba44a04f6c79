"""Graphs of one record as bytes, by which they come from where they were traced."""

from __future__ import annotations

import io
import pickle
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn


class _Name(NamedTuple):
    """Name of a node."""

    of: str


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        """Nodes and operations by their names."""
        if isinstance(value, fx.Node):
            return "node", value.name
        if isinstance(value, torch._ops.OpOverload):
            return "operation", value._schema.name, value._overloadname
        return None

    def reducer_override(self, value: Any) -> Any:
        """Graphs as what they are made of."""
        if isinstance(value, fx.GraphModule):
            return _made, _parts(value)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        kind, name, *overload = pid
        if kind == "node":
            return _Name(name)
        space, _, name = name.partition("::")
        return getattr(getattr(getattr(torch.ops, space), name), *overload or "default")


def dumps(value: Any) -> bytes:
    """``value``, in which graphs may be, as bytes."""
    content = io.BytesIO()
    _Pickler(content).dump(value)
    return content.getvalue()


def loads(content: bytes) -> Any:
    """See `dumps`."""
    return _Unpickler(io.BytesIO(content)).load()


def _parts(made: fx.GraphModule) -> tuple[Any, ...]:
    nodes = [
        (each.op, each.target, each.args, each.kwargs, each.name, _like(each))
        for each in made.graph.nodes
    ]
    return nodes, dict(made.named_buffers()), made.meta


def _like(node: fx.Node) -> Any:
    """Shapes and types of what a node gives."""
    return fx.node.map_aggregate(
        node.meta.get("val"),
        lambda one: (
            _Like(tuple(one.shape), one.dtype) if isinstance(one, Tensor) else one
        ),
    )


class _Like(NamedTuple):
    """Shape and type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def _made(
    nodes: list[tuple[Any, ...]], buffers: dict[str, Tensor], meta: dict[str, Any]
) -> fx.GraphModule:
    graph, known = fx.Graph(), {}

    def given(value: Any) -> Any:
        return known[value.of] if isinstance(value, _Name) else value

    for op, target, args, kwargs, name, like in nodes:
        args, kwargs = (_replaced(part, given) for part in (args, kwargs))
        node = known[name] = graph.create_node(op, target, args, kwargs, name)
        node.meta["val"] = _replaced(like, _empty)
    root = nn.Module()
    for name, value in buffers.items():
        root.register_buffer(name, value, persistent=False)
    made = fx.GraphModule(root, graph)
    made.meta = meta
    return made


def _empty(value: Any) -> Any:
    if isinstance(value, _Like):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    return value


def _replaced(value: Any, by: Any) -> Any:
    """``value`` with its parts replaced."""
    if isinstance(value, _Name | _Like):
        return by(value)
    if isinstance(value, tuple | list):
        return type(value)(_replaced(part, by) for part in value)
    if isinstance(value, dict):
        return {key: _replaced(part, by) for key, part in value.items()}
    if isinstance(value, slice):
        return slice(*(_replaced(p, by) for p in (value.start, value.stop, value.step)))
    return value
