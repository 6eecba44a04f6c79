"""Checks that a graph of one record neither draws, nor writes, nor looks at values."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from trainers.gradients.door.operations import ALIASING, MAPPED
from trainers.gradients.door.operators import OURS

aten = torch.ops.aten
SETS = torch._C._set_grad_enabled
DROPS = ("dropout", "dropout_")
CHANCES = ("bernoulli", "bernoulli_")
_MOST = 50_000  # operations of one record; more would be traced for minutes


class NotTraced(Exception):
    """The function cannot be traced; the message says why, and where in it."""


def check_operations(graph: fx.Graph) -> None:
    """Raise for what is no operation of torch's own, draws, or looks at values."""
    if len(graph.nodes) > _MOST:
        raise NotTraced(f"one record takes {len(graph.nodes):,} operations")
    for node in graph.nodes:
        if node.op != "call_function" or node.target in (operator.getitem, SETS):
            continue
        if not isinstance(
            node.target, torch._ops.OpOverload
        ) or node.target.namespace not in ("aten", "prims"):
            raise NotTraced(
                f"{name_of(node)} is no operation of torch's{place_of(node)}"
            )
        name = node.target.overloadpacket.__name__
        if name in ("item", "_local_scalar_dense") or _unknown_shape(node):
            raise NotTraced(
                f"{name_of(node)} takes a number or a shape out of a tensor's values"
                f"{place_of(node)}"
            )
        statistics = (name == "batch_norm" and node.args[5]) or (
            name == "instance_norm" and node.args[5] and node.args[3] is not None
        )
        if statistics:
            raise ValueError(
                "the model mixes the records of a batch: "
                f"{name_of(node)} uses or keeps their statistics{place_of(node)}; use "
                "torch.nn.GroupNorm, or privaudit.replace_batch_norm"
            )
        drawn = torch.Tag.nondeterministic_seeded in node.target.tags
        keyed = name in (*DROPS, *CHANCES, "scaled_dot_product_attention")
        if drawn and (not keyed or node.kwargs.get("generator") is not None):
            raise ValueError(
                f"the model draws random numbers ({name_of(node)}{place_of(node)}), "
                "which depend on how many records were drawn before; take out what "
                "draws them, or use dropout"
            )


def _unknown_shape(node: fx.Node) -> bool:
    values = node.meta.get("val")
    parts = values if isinstance(values, (tuple, list)) else [values]
    return any(
        isinstance(part, (torch.SymInt, torch.SymFloat, torch.SymBool))
        or (isinstance(part, Tensor) and any(type(n) is not int for n in part.shape))
        for part in parts
    )


def written(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operation writes to."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return []
    found = []
    for number, each in enumerate(node.target._schema.arguments):
        if each.alias_info is not None and each.alias_info.is_write:
            value = (
                node.args[number]
                if number < len(node.args) and not each.kwarg_only
                else node.kwargs.get(each.name)
            )
            parts = value if isinstance(value, (list, tuple)) else [value]
            found += [part for part in parts if isinstance(part, fx.Node)]
    return found


def whose(node: fx.Node) -> fx.Node:
    """Whose memory a node may share."""
    while node.op == "call_function":
        if node.target is operator.getitem:
            node = node.args[0]  # type: ignore[assignment]
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            return node
        wrote = written(node)
        schema = node.target._schema
        shares = wrote or any(out.alias_info is not None for out in schema.returns)
        name = node.target.overloadpacket.__name__
        if not shares and name not in ALIASING:
            return node
        inputs = wrote or node.all_input_nodes
        if not inputs:
            return node
        node = inputs[0]
    return node


def check_writes(graph: fx.Graph, called: dict[fx.Node, str]) -> None:
    """``ValueError`` for a write to what outlives a call: those that are ``called``."""
    for node in graph.nodes:
        if node.target is aten.detach_.default:
            continue
        for into in written(node):
            base = whose(into)
            if base in called:
                raise ValueError(
                    "the model, or the loss, keeps something of its records in "
                    f"{called[base] or 'a tensor'} ({name_of(node)}{place_of(node)}), "
                    "from which it reaches others, so that clipping bounds nothing; "
                    "take out what keeps it, such as running statistics, max_norm or "
                    "spectral_norm"
                )


def is_mapped(target: Any) -> bool:
    if target is operator.getitem or target in OURS:
        return True
    return target.overloadpacket.__name__ in MAPPED and target.namespace == "aten"


def name_of(node: fx.Node) -> str:
    return str(getattr(node.target, "_name", None) or node.target).replace("::", ".")


def place_of(node: fx.Node) -> str:
    """The place in the source that an operation came from, " (file, line 3)"."""
    lines = [
        line.strip()
        for line in (node.meta.get("stack_trace") or "").splitlines()
        if line.strip().startswith("File ")
    ]
    theirs = [line for line in lines if "/torch/" not in line]
    if not theirs:
        return ""
    file, line = theirs[-1].split(", ")[:2]
    return f" ({file.removeprefix('File ').strip(chr(34))}, {line})"
