"""The state of a run as bytes, and back: data alone, read by ``weights_only``."""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# Raised by torch for bytes that were changed.
_TORN = (
    *(RuntimeError, EOFError, pickle.UnpicklingError, LookupError, ValueError),
    *(TypeError, AttributeError),
)
_PLAIN = (bool, int, float, str, bytes, type(None), Tensor)


def pack(value: Any) -> bytes:
    """``value`` as bytes: tensors, numbers, text; tuples, lists, dicts, dataclasses."""
    buffer = io.BytesIO()
    torch.save(tree(value), buffer)
    return buffer.getvalue()


def unpack(content: bytes) -> Any:
    """Unpack what ``pack`` was given, its dataclasses as dicts, tuples as such."""
    try:
        return torch.load(io.BytesIO(content), weights_only=True)
    except _TORN:
        raise ValueError("no checkpoint: it was cut or changed") from None


def like(example: Any, tree: Any) -> Any:
    """``tree`` as `unpack` gave it, with the dataclasses that ``example`` has."""
    if dataclasses.is_dataclass(example) and not isinstance(example, type):
        names = [field.name for field in dataclasses.fields(example)]
        if not isinstance(tree, dict) or sorted(tree) != sorted(names):
            raise ValueError(f"no state of {type(example).__name__}")
        return type(example)(
            **{name: like(getattr(example, name), tree[name]) for name in names}
        )
    if isinstance(example, dict) and isinstance(tree, dict):
        return {
            key: like(example[key], item) if key in example else item
            for key, item in tree.items()
        }
    if isinstance(example, list | tuple) and isinstance(tree, list | tuple):
        if len(example) != len(tree):  # a queue, say: of plain things
            return type(example)(tree)
        return type(example)(map(like, example, tree))
    if isinstance(example, Tensor) and isinstance(tree, Tensor):
        return tree.to(example.device)
    return tree


def join(parts: Sequence[Any]) -> Any:
    """One network's state from those of its parts, in the order of their nodes.

    Tensors are (runs, nodes, ...), lists have an entry a node; all else must be equal.
    """
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts), 1)
    if isinstance(first, dict):
        return {key: join([part[key] for part in parts]) for key in first}
    if isinstance(first, list):
        return [item for part in parts for item in part]
    if isinstance(first, tuple):
        return tuple(map(join, zip(*parts, strict=True)))
    if any(part != first for part in parts):
        raise ValueError(f"parts of one network differ: {parts}")
    return first


def part(whole: Any, nodes: range) -> Any:
    """Part for ``nodes`` of what `join` was given."""
    if isinstance(whole, Tensor):
        return whole[:, nodes.start : nodes.stop].clone()
    if isinstance(whole, dict):
        return {key: part(item, nodes) for key, item in whole.items()}
    if isinstance(whole, list):
        return whole[nodes.start : nodes.stop]
    if isinstance(whole, tuple):
        return tuple(part(item, nodes) for item in whole)
    return whole


def tree(value: Any) -> Any:
    """``value`` with its dataclasses as dicts: what is packed."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: tree(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {key: tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(tree, value))
    if isinstance(value, Tensor):
        return value.cpu()  # whichever device the run goes on with
    if not isinstance(value, _PLAIN):
        raise TypeError(f"a {type(value).__name__} cannot be kept in a checkpoint")
    return value
