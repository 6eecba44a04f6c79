"""Traces a function of one record into a graph of tensor operations, and checks it.

The function sees fake tensors, which have shapes and types and no values, so that no
number can be taken out of them. What is left is a graph in which nothing is written to,
nothing is drawn, and no Python of the function's runs.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from privaudit.files.user_code import held, told
from trainers.gradients.door.guards import guard
from trainers.gradients.door.operations import ALIASING, MAPPED
from trainers.gradients.door.operators import (
    OURS,
    WRITTEN_OUT,
    attention,
    copied,
    keyed_dropout,
    padded,
)

aten = torch.ops.aten
_RECURRENT = [aten.gru, aten.lstm, aten.rnn_tanh, aten.rnn_relu]  # written out in steps
_SETS = torch._C._set_grad_enabled
_tracing = threading.RLock()  # torch traces one function at a time
_MOST = 50_000  # operations of one record; more would be traced for minutes


class NotTraced(Exception):
    """The function cannot be traced; the message says why, and where in it."""


def trace(
    function: Callable[..., Tensor],
    names: Sequence[str],
    parameters: Sequence[Tensor],
    given: Sequence[Tensor],
    known: Mapping[int, str] = MappingProxyType({}),
) -> fx.GraphModule:
    """The graph of ``function`` (parameters, *given) of one record.

    Parameters
    ----------
    function
        Of a list of tensors, and of those ``given``, which have one record each along
        the first dimension. Somebody else's code.
    names
        Of the parameters, for messages.
    parameters, given
        Of which shape, type and device are taken.
    known
        What other tensors are called, by their identity.

    Returns
    -------
    With a placeholder for each of the parameters, each of those given, and one more:
    a whole number, of which dropout is a function. All constants are copies.

    Raises
    ------
    NotTraced
        If it looks at values or cannot be traced otherwise.
    ValueError
        If it writes to what outlives a call, or draws random numbers.
    """
    like = [each.detach().clone().requires_grad_() for each in parameters]
    try:
        return _checked(_made(function, like, given), names, known, like, given)
    except (NotTraced, ValueError):
        # Once more, with the places in the source, which take most of the time.
        made = _made(function, like, given, places=True)
        return _checked(made, names, known, like, given)


def _checked(
    made: fx.GraphModule,
    names: Sequence[str],
    known: Mapping[int, str],
    like: list[Tensor],
    given: Sequence[Tensor],
) -> fx.GraphModule:
    """A graph that may be mapped, of one that was made; see `trace`."""
    graph = made.graph
    called = dict(zip(_holders(graph), names, strict=False))
    for node in graph.nodes:
        if node.op == "get_attr":
            called[node] = known.get(id(getattr(made, node.target)), "")
    _own_constants(made)
    _check_operations(graph)
    _check_writes(graph, called)
    _replace(graph)
    _without_regions(graph)
    if not _rename(graph):
        made = _functional(made, like, given)
        graph = made.graph
    graph.eliminate_dead_code()
    _folded(made)
    fails = guard(graph, _holders(graph)[len(names) : -1])
    if fails is not None:
        raise NotTraced(f"{_called(fails)} fails for some records{_where(fails)}")
    for node in graph.nodes:
        # Nothing is written to; and what is stacked need not lie as it did.
        if node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default
        if node.op == "call_function" and not _is_mapped(node.target):
            raise NotTraced(
                f"{_called(node)} is not among the operations whose mapping over "
                f"records is tested{_where(node)}"
            )
    made.recompile()
    return made


def _made(
    function: Callable[..., Tensor],
    like: list[Tensor],
    given: Sequence[Tensor],
    places: bool = False,
) -> fx.GraphModule:
    def flat(parameters: list[Tensor], given: list[Tensor], seed: Tensor) -> Tensor:
        return function(parameters, *given)

    seed = torch.zeros((), dtype=torch.long)
    try:
        with held("it cannot be traced"), _ready():
            return make_fx(
                flat,
                tracing_mode="fake",
                pre_dispatch=True,
                _allow_non_fake_inputs=True,
                decomposition_table=_decompositions(),
                record_stack_traces=places,
            )(like, list(given), seed)
    except Exception as error:
        cause = error.__cause__ or error
        if str(cause).startswith("Expected more than 1"):
            raise ValueError(
                "the model mixes the records of a batch: it normalises over them "
                f"({told(cause)}); privaudit.replace_batch_norm helps"
            ) from None
        if type(cause) is ValueError:
            raise cause from None
        if isinstance(cause, NotTraced):
            raise NotTraced(f"{cause}{_place(cause)}") from None
        raise NotTraced(_plain(cause)) from error


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """Recurrent layers and cells, written out."""
    return {**get_decompositions(_RECURRENT), **WRITTEN_OUT}


def _plain(error: BaseException) -> str:
    """Why a trace ended, in words where torch's are of its own machinery."""
    if type(error).__name__ in (
        "GuardOnDataDependentSymNode",
        "DataDependentOutputException",
        "DynamicOutputShapeException",
    ):
        return f"it looks at the values of a tensor, as an if does{_place(error)}"
    return told(error)


def _place(error: BaseException) -> str:
    at = told(error).rpartition(" (")[2]
    return f" ({at}" if at.endswith(")") and ", line " in at else ""


@contextlib.contextmanager
def _ready() -> Iterator[None]:
    """As a trace needs it: no fused paths, and no gradient that a graph has not."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotTraced(f"it has a gradient of its own, by autograd's {cls.__name__}")

    with _tracing, warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")  # of what torch does to trace
        fast = torch.backends.mha.get_fastpath_enabled()
        # Of an LSTM there would else be one operation, for which there is no rule.
        quick = torch._C._get_mkldnn_enabled()
        before = torch.autograd.Function.__dict__["apply"]
        torch.backends.mha.set_fastpath_enabled(False)
        torch._C._set_mkldnn_enabled(False)
        torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment]
        try:
            yield
        finally:
            torch.autograd.Function.apply = before  # type: ignore[method-assign]
            torch._C._set_mkldnn_enabled(quick)
            torch.backends.mha.set_fastpath_enabled(fast)


def _check_operations(graph: fx.Graph) -> None:
    """Raise for what is no operation of torch's own, draws, or looks at values."""
    if len(graph.nodes) > _MOST:
        raise NotTraced(f"one record takes {len(graph.nodes):,} operations")
    for node in graph.nodes:
        if node.op != "call_function" or node.target in (operator.getitem, _SETS):
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            raise NotTraced(f"{_called(node)} is no operation of torch's{_where(node)}")
        if node.target.namespace not in ("aten", "prims"):
            raise NotTraced(f"{_called(node)} is no operation of torch's{_where(node)}")
        name = node.target.overloadpacket.__name__
        if name in ("item", "_local_scalar_dense") or _unknown_shape(node):
            raise NotTraced(
                f"{_called(node)} takes a number or a shape out of a tensor's values"
                f"{_where(node)}"
            )
        statistics = (name == "batch_norm" and node.args[5]) or (
            name == "instance_norm" and node.args[5] and node.args[3] is not None
        )
        if statistics:
            raise ValueError(
                "the model mixes the records of a batch: "
                f"{_called(node)} uses or keeps their statistics{_where(node)}; use "
                "torch.nn.GroupNorm, or privaudit.replace_batch_norm"
            )
        drawn = torch.Tag.nondeterministic_seeded in node.target.tags
        if drawn and name not in ("dropout", "scaled_dot_product_attention"):
            raise ValueError(
                f"the model draws random numbers ({_called(node)}{_where(node)}), "
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


def _base(node: fx.Node) -> fx.Node:
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


def _check_writes(graph: fx.Graph, called: dict[fx.Node, str]) -> None:
    """``ValueError`` for a write to what outlives a call: those that are ``called``."""
    for node in graph.nodes:
        if node.target is aten.detach_.default:
            continue
        for into in written(node):
            base = _base(into)
            if base in called:
                raise ValueError(
                    "the model, or the loss, keeps something of its records in "
                    f"{called[base] or 'a tensor'} ({_called(node)}{_where(node)}), "
                    "from which it reaches others, so that clipping bounds nothing; "
                    "take out what keeps it, such as running statistics, max_norm or "
                    "spectral_norm"
                )


def _holders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _own_constants(made: fx.GraphModule) -> None:
    """Copies of all constants, as buffers."""
    for name, value in list(vars(made).items()) + list(made.named_buffers()):
        if isinstance(value, Tensor):
            vars(made).pop(name, None)
            made._buffers.pop(name, None)
            made.register_buffer(name, value.detach().clone(), persistent=False)
    for name, value in list(made.named_parameters()):
        del made._parameters[name]
        made.register_buffer(name, value.detach().clone(), persistent=False)


def _folded(made: fx.GraphModule) -> None:
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


def _replace(graph: fx.Graph) -> None:
    """What cannot be mapped as it is by functions of ours; dropout draws by a key."""
    seed = _holders(graph)[-1]
    number = 0
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if name == "dropout":
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
        elif node.target is aten.embedding.default and [*node.args, -1, -1][2] >= 0:
            with graph.inserting_before(node):
                new = graph.call_function(padded, node.args[:3])
        else:
            continue
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        graph.erase_node(node)


def _without_regions(graph: fx.Graph) -> None:
    """Take gradients' switches out: what is made without them is detached."""
    enabled = True
    for node in list(graph.nodes):
        if node.target is _SETS:
            enabled = bool(node.args[0])
            graph.erase_node(node)
        elif not enabled and node.op == "call_function":
            value = node.meta.get("val")
            if isinstance(value, Tensor) and not written(node):
                with graph.inserting_after(node):
                    cut = graph.call_function(aten.detach.default, (node,))
                cut.meta = dict(node.meta)
                node.replace_all_uses_with(cut, lambda user, cut=cut: user is not cut)


def _rename(graph: fx.Graph) -> bool:
    """Make what works in place give something new, where no view would see it.

    False where something is left.
    """
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
        own = into[0]
        alone = len(into) == 1 and node.args[:1] == (own,) and own is _base(own)
        seen = [
            other
            for other, place in order.items()
            if place < order[node] and other is not own and _base_or_none(other) is own
        ]
        later = any(order[user] > order[node] for other in seen for user in other.users)
        if twin is None or not alone or later or own.op not in _FRESH:
            return False
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


def _base_or_none(node: fx.Node) -> fx.Node | None:
    return _base(node) if node.op == "call_function" and _is_torchs(node) else None


def _is_torchs(node: fx.Node) -> bool:
    return node.target is operator.getitem or isinstance(
        node.target, torch._ops.OpOverload
    )


def _functional(
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
    _own_constants(found)
    if any(written(node) for node in found.graph.nodes):
        raise NotTraced("it writes to what it was given in place")
    for node in found.graph.nodes:
        if node.target in (aten.copy.default, aten.fill.Tensor):
            node.target, node.args, node.kwargs = copied, node.args[:2], {}
        elif node.target is aten.slice_scatter.default and len(node.args) > 4:
            into, part, dim, first, end, *step = node.args
            end = min(end, into.meta["val"].shape[dim])  # no number for "the end"
            node.args = (into, part, dim, first, end, *step)
    return found


def _is_mapped(target: Any) -> bool:
    if target is operator.getitem or target in OURS:
        return True
    return target.overloadpacket.__name__ in MAPPED and target.namespace == "aten"


def _called(node: fx.Node) -> str:
    return str(getattr(node.target, "_name", None) or node.target).replace("::", ".")


def _where(node: fx.Node) -> str:
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
