"""Rewrites a graph of one record, so that it can be mapped over records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from privaudit.files.user_code import told
from trainers.data.transforms import plain
from trainers.gradients.door.checks import (
    CHANCES,
    DROPS,
    SETS,
    NotTraced,
    whose,
    written,
)
from trainers.gradients.door.operators import (
    attention,
    copied,
    keyed_bernoulli,
    keyed_dropout,
    padded,
    placed,
    product,
)

aten = torch.ops.aten


def holders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def own_constants(made: fx.GraphModule) -> None:
    """Make copies of all constants, as buffers."""
    for name, value in list(vars(made).items()) + list(made.named_buffers()):
        if isinstance(value, Tensor):
            vars(made).pop(name, None)
            made._buffers.pop(name, None)
            made.register_buffer(name, plain(value).clone(), persistent=False)
    for name, value in list(made.named_parameters()):
        del made._parameters[name]
        made.register_buffer(name, plain(value).clone(), persistent=False)


def fold(made: fx.GraphModule) -> None:
    """Compute what depends on no argument once."""
    values: dict[fx.Node, Any] = {}
    graph = made.graph
    for node in list(graph.nodes):
        if node.op == "get_attr":
            values[node] = getattr(made, node.target)
        elif node.op == "call_function" and all(
            one in values for one in node.all_input_nodes
        ):
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            with torch.no_grad():
                values[node] = node.target(*args, **kwargs)
    for node, value in values.items():
        if node.op == "get_attr" or not isinstance(value, Tensor):
            continue
        if all(user in values for user in node.users):
            continue
        name = f"_folded_{node.name}"
        made.register_buffer(name, value.clone(), persistent=False)
        with graph.inserting_before(node):
            new = graph.get_attr(name)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new, lambda user: user not in values)
    graph.eliminate_dead_code()


def replace(graph: fx.Graph) -> None:
    """Replace operations that cannot be mapped as they are; dropout draws by a key."""
    seed = holders(graph)[-1]
    number = 0
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if name == "alias":
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        if name in DROPS:
            rate, draws = node.args[1], node.args[2]
            if not draws or not rate:
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
                continue
            number += 1
            with graph.inserting_before(node):
                new = graph.call_function(
                    keyed_dropout, (node.args[0], seed, rate, number)
                )
                new = _put(graph, node, new)
        elif name in CHANCES:
            number += 1
            like = node.meta["val"]
            # A number, by default a half, or a tensor of them: it, or what it is of.
            own = name == "bernoulli" and len(node.args) == 1
            chance = node.args[0] if own else [*node.args, 0.5][1]
            with graph.inserting_before(node):
                settings = seed, chance, number, tuple(like.shape), like.dtype
                new = _put(graph, node, graph.call_function(keyed_bernoulli, settings))
        elif name == "scaled_dot_product_attention":
            number += 1
            settings = dict(node.kwargs)
            for key, value in zip(
                ("attn_mask", "dropout_p", "is_causal"), node.args[3:], strict=False
            ):
                settings[key] = value
            with graph.inserting_before(node):
                new = graph.call_function(
                    attention, (*node.args[:3], seed, number), settings
                )
        elif name in _WRITTEN_OUT:
            with graph.inserting_before(node):
                ours = _WRITTEN_OUT[name]
                new = graph.call_function(ours, node.args, dict(node.kwargs))
        elif node.target is aten.embedding.default and [*node.args, -1, -1][2] >= 0:
            with graph.inserting_before(node):
                new = graph.call_function(padded, node.args[:3])
        else:
            if name in _SPARSE:  # a gradient that is dense has the same numbers
                place = _SPARSE[name]
                node.args = (
                    *node.args[:place],
                    *(False for _ in node.args[place:][:1]),
                    *node.args[place + 1 :],
                )
            continue
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        graph.erase_node(node)


def _put(graph: fx.Graph, node: fx.Node, new: fx.Node) -> fx.Node:
    """``new`` itself, or put where an operation in place puts what it gives."""
    if not written(node):
        return new
    new.meta = dict(node.meta)
    return graph.call_function(aten.copy_.default, (node.args[0], new))


_WRITTEN_OUT = {"prod": product, "select_scatter": placed}
_SPARSE = {"embedding": 4, "embedding_bag": 5}  # which argument says so


def without_regions(graph: fx.Graph) -> None:
    """Take gradients' switches out: what is made without them is detached."""
    enabled = True
    for node in list(graph.nodes):
        if node.target is SETS:
            enabled = bool(node.args[0])
            graph.erase_node(node)
        elif not enabled and node.op == "call_function":
            value = node.meta.get("val")
            if isinstance(value, Tensor) and not written(node):
                with graph.inserting_after(node):
                    cut = graph.call_function(aten.detach.default, (node,))
                cut.meta = dict(node.meta)
                node.replace_all_uses_with(cut, lambda user, cut=cut: user is not cut)


def rename(graph: fx.Graph) -> bool:
    """Make what works in place give something new; False where something is left."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        into = written(node)
        if not into:
            continue
        target = node.target
        if target is aten.detach_.default:
            twin: Any = aten.detach.default
        else:
            packet = getattr(aten, target.overloadpacket.__name__.removesuffix("_"), 0)
            twin = getattr(packet, target._overloadname, None)
        own, base = into[0], whose(into[0])
        alone = len(into) == 1 and node.args[:1] == (own,)
        seen = [
            other
            for other, place in order.items()
            if place < order[node] and other is not own and whose(other) is base
        ]
        later = any(order[user] > order[node] for other in seen for user in other.users)
        twin = copied if twin is aten.copy.default else twin
        if twin is None or not alone or later or base.op not in _FRESH:
            return False
        if twin is copied and node.args[1].target is keyed_bernoulli:
            new = node.args[1]  # all of it is drawn, whatever was there
        else:
            with graph.inserting_before(node):
                new = graph.call_function(twin, node.args, node.kwargs)
        new.meta = dict(node.meta)
        order[new] = order[node]
        node.replace_all_uses_with(new)
        after = order[node]
        own.replace_all_uses_with(
            new,
            lambda user, after=after, new=new: (
                user is not new and order.get(user, -1) > after
            ),
        )
        graph.erase_node(node)
        order.pop(node)
    return True


_FRESH = ("call_function", "placeholder")  # what may be renewed: a record's own


def functional(
    made: fx.GraphModule, like: list[Tensor], given: Sequence[Tensor]
) -> fx.GraphModule:
    """The same without writes, by torch's functionalisation: simpler operations."""
    # It forgets what has no gradient, which would be another gradient in silence.
    if any(node.target in (aten.detach.default, padded) for node in made.graph.nodes):
        raise NotTraced("it writes in place, and takes parts out of the gradient")
    seed = torch.zeros((), dtype=torch.long)
    made.recompile()
    try:
        found = make_fx(
            torch.func.functionalize(made, remove="mutations"),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )([each.detach() for each in like], list(given), seed)
    except Exception as error:
        raise NotTraced(f"it writes in place: {told(error)}") from error
    own_constants(found)
    if any(written(node) for node in found.graph.nodes):
        raise NotTraced("it writes to what it was given in place")
    for node in found.graph.nodes:
        if node.target in (aten.copy.default, aten.fill.Tensor):
            node.target, node.args, node.kwargs = copied, node.args[:2], {}
        elif node.target is aten.select_scatter.default:
            node.target = placed
        elif node.target is aten.slice_scatter.default and len(node.args) > 4:
            into, part, dim, first, end, *step = node.args
            end = min(end, into.meta["val"].shape[dim])  # no number for "the end"
            node.args = (into, part, dim, first, end, *step)
    return found
