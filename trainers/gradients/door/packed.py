"""Graphs of one record as bytes, by which they come from where they were traced."""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate


@dataclasses.dataclass(frozen=True)
class _Name:
    """Name of a node."""

    of: str


@dataclasses.dataclass(frozen=True)
class _Like:
    """Shape and type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


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
        (
            *(each.op, each.target, each.args, each.kwargs, each.name),
            map_aggregate(each.meta.get("val"), _like),
        )
        for each in made.graph.nodes
    ]
    return nodes, dict(made.named_buffers()), made.meta


def _like(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _Like(tuple(value.shape), value.dtype)
    return value


def _made(
    nodes: list[tuple[Any, ...]], buffers: dict[str, Tensor], meta: dict[str, Any]
) -> fx.GraphModule:
    graph, known = fx.Graph(), {}

    def given(value: Any) -> Any:
        return known[value.of] if isinstance(value, _Name) else value

    for op, target, args, kwargs, name, like in nodes:
        args, kwargs = (map_aggregate(part, given) for part in (args, kwargs))
        node = known[name] = graph.create_node(op, target, args, kwargs, name)
        node.meta["val"] = map_aggregate(like, _empty)
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
