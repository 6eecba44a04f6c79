"""Rewrites a graph of one record, so that it can be mapped over records."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, fx

from trainers.data.transforms import plain
from trainers.gradients.door.checks import (
    CHANCES,
    DROPS,
    SETS,
    whose,
    written,
)
from trainers.gradients.door.operators import (
    attention,
    copied,
    keyed_bernoulli,
    keyed_dropout,
    masked,
    padded,
    placed,
    product,
    unlearned,
)

aten = torch.ops.aten


def own_constants(made: fx.GraphModule) -> None:
    """Make copies of all constants, as buffers."""
    places: Any = vars(made), made._buffers, made._parameters
    held = [(place, *each) for place in places for each in place.items()]
    for place, name, value in held:
        if isinstance(value, Tensor):
            del place[name]
            made.register_buffer(name, plain(value).clone(), persistent=False)


def fold(made: fx.GraphModule) -> None:
    """Compute once what depends on no argument's values, and what is written there."""
    graph = made.graph
    kept = _of_arguments(graph)
    changes = {whose(into) for node in graph.nodes for into in written(node)} - kept
    values: dict[fx.Node, Any] = {}
    constants: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node in kept:
            for one in node.all_input_nodes:
                if not isinstance(values.get(one), Tensor) or one.op == "get_attr":
                    continue
                if one not in constants or whose(one) in changes:
                    name = f"_folded_{one.name}_{node.name}"
                    made.register_buffer(name, values[one].clone(), persistent=False)
                    with graph.inserting_before(node):
                        constants[one] = graph.get_attr(name)
                    constants[one].meta = dict(one.meta)
                node.replace_input_with(one, constants[one])
        elif node.op == "get_attr":
            values[node] = getattr(made, node.target)
        else:
            values[node] = _computed(node, values)
    for node in reversed(list(graph.nodes)):
        if node in values and not node.users:
            graph.erase_node(node)


def _of_arguments(graph: fx.Graph) -> set[fx.Node]:
    """Nodes that depend on an argument's values, or share memory with such."""
    found, before = {*graph.find_nodes(op="placeholder"), graph.output_node()}, 0
    bases: set[fx.Node] = set()
    while before < len(found):
        before = len(found)
        for node in graph.nodes:
            depends = not found.isdisjoint(node.all_input_nodes)
            if (depends and node.target not in _OF_SHAPE) or whose(node) in bases:
                found.add(node)
                bases.update(map(whose, written(node)))
    return found


# What has the shape of an argument, and no value of it.
_OF_SHAPE = (
    *(aten.zeros_like.default, aten.ones_like.default, aten.full_like.default),
    *(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
    *(aten.empty_like.default, aten.new_empty.default),
)


def _computed(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    def known(one: fx.Node) -> Any:
        if one in values:
            return values[one]
        like = one.meta["val"]
        zeros = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        return zeros.zero_().to(like.device)

    args, kwargs = fx.map_arg((node.args, node.kwargs), known)
    with torch.no_grad():
        found = node.target(*args, **kwargs)  # type: ignore[operator]
    # Not whatever lay in memory that nothing is written to.
    return found.zero_() if node.name.startswith(("empty", "new_empty")) else found


def replace(graph: fx.Graph) -> None:
    """Replace operations that cannot be mapped as they are; dropout draws by a key."""
    *_, seed = graph.find_nodes(op="placeholder")
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
            new = _put(graph, node, keyed_dropout, (node.args[0], seed, rate, number))
        elif name in CHANCES:
            number += 1
            like = node.meta["val"]
            # A number, by default a half, or a tensor of them: it, or what it is of.
            own = name == "bernoulli" and len(node.args) == 1
            chance = node.args[0] if own else [*node.args, 0.5][1]
            settings = seed, chance, number, tuple(like.shape), like.dtype
            new = _put(graph, node, keyed_bernoulli, settings)
        elif name == "scaled_dot_product_attention":
            number += 1
            named = "attn_mask", "dropout_p", "is_causal"
            settings = {**node.kwargs, **dict(zip(named, node.args[3:], strict=False))}
            new = _put(graph, node, attention, (*node.args[:3], seed, number), settings)
        elif name in ("index_put", "index_put_") and _is_mask(node):
            new = _put(graph, node, masked, node.args[:3])
        elif name in _WRITTEN_OUT:
            new = _put(graph, node, _WRITTEN_OUT[name], node.args, node.kwargs)
        elif node.target is aten.embedding.default and [*node.args, -1, -1][2] >= 0:
            new = _put(graph, node, padded, node.args[:3])
        else:
            # A gradient that is dense has the same numbers.
            if len(node.args) > (place := _SPARSE.get(name, len(node.args))):
                node.update_arg(place, False)
            continue
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        graph.erase_node(node)


def _is_mask(node: Any) -> bool:
    """Return whether it puts one number where a mask is true."""
    *before, mask = node.args[1]
    adds = [*node.args, False][3]
    one = node.args[2].meta["val"].numel() == 1
    return one and not adds and not any(before) and mask.meta["val"].dtype == torch.bool


def _put(
    graph: fx.Graph, node: fx.Node, ours: Any, given: Any, settings: Any = None
) -> fx.Node:
    """Put what ``ours`` gives before ``node``, and where that writes if it does."""
    with graph.inserting_before(node):
        new = graph.call_function(ours, given, settings)
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
            if isinstance(node.meta.get("val"), Tensor) and not written(node):
                with graph.inserting_after(node):
                    cut = graph.call_function(aten.detach.default, (node,))
                cut.meta = dict(node.meta)
                node.replace_all_uses_with(cut, lambda user, cut=cut: user is not cut)
            elif written(node) == [*node.args[:1]] and not _moves(node):
                into = written(node)[0]
                with graph.inserting_before(node):
                    cut = graph.call_function(aten.detach.default, (into,))
                cut.meta = dict(into.meta)
                node.replace_all_uses_with(into)
                node.args = (cut, *node.args[1:])


def rename(graph: fx.Graph) -> fx.Node | None:
    """Make what works in place give something new; the first for which it cannot."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        into = written(node)
        if not into:
            continue
        after, twin = order[node], _twin(node.target)
        base = whose(into[0])
        alone = len(into) == 1 and node.args[:1] == (into[0],)
        if twin is None or not alone or base.op not in _FRESH:
            return node
        with graph.inserting_before(node):
            new = graph.call_function(twin, node.args, node.kwargs)
            of = node if _moves(node) else into[0]
            new.meta = dict(of.meta)
            if _kind(new) != of.meta["val"].dtype:
                new = graph.call_function(copied, (into[0], new))
                new.meta = dict(of.meta)
            renewed = {into[0]: new}
            views = [] if _moves(node) else _views(base, order, node)
            others = {base, *views} - {into[0]}
            alone = _moves(node) or not any(_used(one, order, node) for one in others)
            part: Any = base if alone else into[0]
            while part is not base:
                new, part = _widened(graph, part, new), part.args[0]
                if new is None:
                    return node
                new.meta = dict(part.meta)
                renewed = {base: new}
            for one in views if base in renewed else ():  # as what is new has them
                if renewed.keys().isdisjoint(one.all_input_nodes):
                    return node
                renewed[one] = graph.node_copy(
                    one, lambda n, renewed=renewed: renewed.get(n, n)
                )
        order.update(dict.fromkeys(renewed.values(), after))
        node.replace_all_uses_with(renewed[into[0]])
        for one, new in renewed.items():
            one.replace_all_uses_with(
                new, lambda user, after=after: order.get(user, -1) > after
            )
        graph.erase_node(node)
        order.pop(node)
    return None


def _used(one: fx.Node, order: dict[fx.Node, int], node: fx.Node) -> bool:
    return any(order.get(user, -1) >= order[node] for user in one.users)


def _views(base: fx.Node, order: dict[fx.Node, int], node: fx.Node) -> list[fx.Node]:
    """Nodes of the memory of ``base`` that are used after ``node``, or by it."""
    found: list[fx.Node] = []
    before = itertools.takewhile(lambda one: one is not node, node.graph.nodes)
    for one in reversed(list(before)):
        if (
            one is not base
            and (_used(one, order, node) or not set(found).isdisjoint(one.users))
            and whose(one) is base
        ):
            found.append(one)
    return found[::-1]


def _twin(target: Any) -> Any:
    """Operation that gives what ``target`` writes, of the same arguments, or None."""
    name = target.overloadpacket.__name__.replace("__i", "__")
    packet = getattr(aten, name if name[:2] == "__" else name.removesuffix("_"), None)
    kinds = [str(each.type) for each in target._schema.arguments]
    for each in packet.overloads() if packet else ():
        twin = getattr(packet, each)
        if [str(each.type) for each in twin._schema.arguments] == kinds:
            return _SETTING.get(twin, twin)
    return None


def _moves(node: Any) -> bool:
    """Return whether it changes how a tensor looks at its memory, as `t_` does."""
    return torch.Tag.inplace_view in node.target.tags


def _kind(node: Any) -> torch.dtype:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    return node.target(*args, **kwargs).dtype


def _widened(graph: fx.Graph, part: Any, new: fx.Node) -> fx.Node | None:
    """Put ``new`` in the place of ``part``, in what that is of; None: not known."""
    whole, (_, *how), target = part.args[0], part.args, part.target
    shape: Any = getattr(whole.meta["val"], "shape", None)  # None: several tensors
    if target is aten.narrow.default:
        target, how[2] = aten.slice.Tensor, how[1] + how[2]
    if target is aten.slice.Tensor:
        dim, first, end, *step = [*how, *(0, None, None)[len(how) :]]
        first, end, _ = slice(first, end).indices(shape[dim])  # none is negative
        how = [dim, first, max(first, end), *step]
        return graph.call_function(aten.slice_scatter.default, (whole, new, *how))
    if target is aten.select.int:
        return graph.call_function(placed, (whole, new, *how))
    if target is aten.detach.default:
        return graph.call_function(unlearned, (whole, new))
    if target in _RESHAPED:
        return graph.call_function(aten.reshape.default, (new, shape))
    if target in (aten.transpose.int, aten.t.default):
        return graph.call_function(target, (new, *how))
    return None


_RESHAPED = (
    *(aten.view.default, aten.unsqueeze.default, aten.squeeze.dim),
    *(aten.reshape.default, aten.flatten.using_ints, aten.contiguous.default),
)
# What is the same whatever was there before.
_SETTING: dict[Any, Any] = {
    aten.copy.default: copied,
    aten.fill.Tensor: copied,
    aten.fill.Scalar: aten.full_like.default,
    aten.zero.default: aten.zeros_like.default,
}
_FRESH = ("call_function", "placeholder")  # what may be renewed: a record's own
