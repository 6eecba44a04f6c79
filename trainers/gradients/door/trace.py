"""Traces a function of one record into a graph of tensor operations, and checks it.

The function sees fake tensors, which have shapes and types and no values, so that no
number can be taken out of them. What is left is a graph in which nothing is written to,
nothing is drawn, and no Python of the function's runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._decomp import get_decompositions
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from privaudit.files.user_code import held, told
from trainers.data import forked
from trainers.data.generators import GLOBAL, Generators
from trainers.data.transforms import plain
from trainers.gradients.door import rewrite
from trainers.gradients.door.checks import (
    NotTraced,
    check_dense,
    check_operations,
    check_writes,
    is_mapped,
    name_of,
    place_of,
)
from trainers.gradients.door.guards import guard
from trainers.gradients.door.operators import WRITTEN_OUT
from trainers.gradients.per_sample import changes_saved

aten = torch.ops.aten
_COPIED = aten.lift_fresh_copy.default, aten.detach_.default
BUFFER = "the buffer "  # and its name
_HOOKED = (
    Tensor.register_hook,
    Tensor.register_post_accumulate_grad_hook,
    vars(torch._C.TensorBase)["grad_fn"].__get__,
)
_DATA = vars(torch._C.TensorBase)["data"]
_RECURRENT = [aten.gru, aten.lstm, aten.rnn_tanh, aten.rnn_relu]  # written out in steps
tracing = forked.lock()  # torch traces one function at a time
_records: ContextVar[frozenset[int]] = ContextVar("_records", default=frozenset())


def trace(
    function: Callable[..., Tensor],
    names: Sequence[str],
    parameters: Sequence[Tensor],
    given: Sequence[Tensor],
    known: Mapping[int, str] = MappingProxyType({}),
) -> fx.GraphModule:
    """The graph of ``function`` (parameters, *given) of one record.

    ``function`` is somebody else's code; those ``given`` have one record each along the
    first dimension. ``names`` are of the parameters, ``known`` of other tensors by
    identity. The graph has one more input, a whole number of which dropout is a
    function; constants are copies, and ``meta["takes"]`` has words for each that is no
    parameter of the model's and no number in the code. `NotTraced` if it looks at
    values or cannot be traced otherwise; ``ValueError`` if it writes to what outlives a
    call, or draws random numbers.
    """
    like = [plain(each).clone().requires_grad_() for each in parameters]
    with contextlib.suppress(NotTraced, ValueError):
        found = _checked(_made(function, like, given), names, known)
        if all(word.startswith(BUFFER) for word in found.meta["takes"]):
            return found
    # Once more, with the places in the source, which take most of the time.
    return _checked(_made(function, like, given, places=True), names, known)


def unfolded(one: fx.GraphModule, given: Sequence[Tensor]) -> Callable[..., Any]:
    """Operations that mapping ``one`` over records comes to, by fake tensors."""

    def mapped(*records: Tensor) -> Any:
        return torch.func.vmap(one.forward)(*records)

    like = [each.detach().requires_grad_(each.requires_grad) for each in given]
    with tracing:
        made = make_fx(mapped, tracing_mode="fake", _allow_non_fake_inputs=True)(*like)
    made.graph.eliminate_dead_code()
    made.recompile()
    return made.forward


@functools.cache
def prepare() -> None:
    """Trace something, once: what torch makes takes a second, which forks then save."""
    trace(lambda given, one: one.relu(), [], [], [torch.zeros(1, 1)])


@contextlib.contextmanager
def undrawn(*roots: Any) -> Iterator[None]:
    """Raise `NotTraced` for code that draws numbers, by a generator or a global one."""
    generators = Generators(*roots, *GLOBAL)
    yield
    if generators.drew():
        raise NotTraced("it draws random numbers of numpy's or Python's own")


@contextlib.contextmanager
def apart_from(records: Iterable[Tensor]) -> Iterator[None]:
    """Refuse, within, what has memory of ``records`` among its own tensors."""
    before = _records.set(frozenset(map(_memory, records)) - {0})  # 0: of no numbers
    try:
        yield
    finally:
        _records.reset(before)


def check_apart(value: Tensor, where: str) -> None:
    """Raise ``ValueError`` if ``value`` lies in the records that are trained on."""
    if value.layout is torch.strided and _memory(value) in _records.get():
        raise ValueError(
            f"{where} is, or is a part of, the records that are trained on, so that "
            "each record's gradient would depend on others: let the model and the loss "
            "see the record that they are given, and nothing of others"
        )


def _memory(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _checked(
    made: fx.GraphModule,
    names: Sequence[str],
    known: Mapping[int, str],
) -> fx.GraphModule:
    """A graph that may be mapped, of one that was made; see `trace`."""
    graph = made.graph
    called = dict(zip(graph.find_nodes(op="placeholder"), names, strict=False))
    takes = []
    for node in graph.nodes:
        if node.op == "get_attr":
            value = getattr(made, node.target)
            if isinstance(value, torch.Generator):
                raise ValueError(
                    "the model draws random numbers from a torch.Generator of its own, "
                    "which depend on how many records were drawn before; use dropout, "
                    "or a generator of numpy's, which is begun for each record"
                )
            where = next(iter(node.users), node)
            at = f"{name_of(where)}{place_of(where)}"
            if not isinstance(value, Tensor):  # a branch of torch.cond, or the like
                raise NotTraced(
                    f"it chooses by values what it does, or calls itself, in {at}"
                )
            if isinstance(value, FakeTensor) or is_functorch_wrapped_tensor(value):
                raise NotTraced(f"it maps, or takes gradients, within itself, in {at}")
            check_dense(value, where)
            check_apart(value, f"what {name_of(where)} takes{place_of(where)}")
            called[node] = known.get(id(value), "")
            if not called[node] or called[node].startswith(BUFFER):
                takes += _taken(node, value, called[node])
            if not names and getattr(value, "requires_grad", False):
                raise ValueError(
                    "the loss uses a parameter that requires a gradient, and its "
                    "gradient is of the model's outputs alone: leave it out of the "
                    "loss, or detach() it"
                )
    rewrite.own_constants(made)
    check_operations(graph)
    check_writes(graph, called)
    rewrite.replace(graph)
    rewrite.without_regions(graph)
    rewrite.fold(made)
    left = rewrite.rename(graph)
    if left is not None:
        raise NotTraced(f"{name_of(left)} writes in place{place_of(left)}")
    graph.eliminate_dead_code()
    rewrite.fold(made)  # what a record was written to, as it was
    fails = guard(graph, graph.find_nodes(op="placeholder")[len(names) : -1])
    if fails is not None:
        raise NotTraced(f"{name_of(fails)} fails for some records{place_of(fails)}")
    for node in graph.nodes:
        # Nothing is written to; and what is stacked need not lie as it did.
        if node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default
        if node.op == "call_function" and not is_mapped(node.target):
            raise NotTraced(
                f"{name_of(node)} is not among the operations whose mapping over "
                f"records is tested{place_of(node)}"
            )
    graph.set_codegen(fx.graph.CodeGen())  # from tensors, and no lists of them
    graph.output_node().args = (graph.output_node().args[0][0],)  # type: ignore[index]
    made.meta = {"takes": tuple(dict.fromkeys(takes))}
    made.recompile()
    return made


def _taken(node: fx.Node, value: Tensor, name: str) -> Iterator[str]:
    """Words for a constant that values are made of; none of a number in the code."""
    for user in node.users:
        if user.target is aten.lift_fresh_copy.default:
            if not value.dim():
                continue
            while user.users and user.target in _COPIED:
                user = next(iter(user.users))
        at = "" if name else f" in {name_of(user)}{place_of(user)}"
        yield f"{name or 'a tensor'} of shape {tuple(value.shape)}{at}"


def _made(
    function: Callable[..., Tensor],
    like: list[Tensor],
    given: Sequence[Tensor],
    places: bool = False,
) -> fx.GraphModule:
    def flat(parameters: list[Tensor], given: list[Tensor], seed: Tensor) -> Tensor:
        with _without_entropy(), _Watch():
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
    """Explain why a trace ended, where torch's words are of its own machinery."""
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

    here = threading.get_ident()

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != here:
            return super(below, cls).apply(*args, **kwargs)
        raise NotTraced(f"it has a gradient of its own, by autograd's {cls.__name__}")

    # What people compiled is traced as it is written.
    eager = torch._dynamo.config.patch(error_on_nested_fx_trace=False)
    with tracing, warnings.catch_warnings(), torch.enable_grad(), eager:
        warnings.simplefilter("ignore")  # of what torch does to trace
        fast = torch.backends.mha.get_fastpath_enabled()
        # Of an LSTM there would else be one operation, for which there is no rule.
        quick = torch._C._get_mkldnn_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        torch._C._set_mkldnn_enabled(False)
        # Below Function.apply, which people may have bound to a name before.
        below: Any = torch.autograd.function._SingleLevelFunction
        below.apply = classmethod(apply)
        try:
            yield
        finally:
            del below.apply
            torch._C._set_mkldnn_enabled(quick)
            torch.backends.mha.set_fastpath_enabled(fast)


class _Watch(TorchFunctionMode):
    """Raises `NotTraced` for hooks on gradients, which no graph has; in this thread."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _HOOKED:
            raise NotTraced("it changes a gradient, by a hook on a tensor")
        if changes_saved():
            raise NotTraced("it changes what is saved for a gradient, by hooks")
        if func == _DATA.__set__:
            raise NotTraced("it replaces what a tensor holds, by its data")
        if func == _DATA.__get__:  # written to as a part is, without a gradient
            func = Tensor.detach
        return func(*args, **kwargs or {})


@contextlib.contextmanager
def _without_entropy() -> Iterator[None]:
    """Refuse random numbers of the system's, which a trace makes constants of."""

    def refused(count: int) -> Any:
        raise ValueError(
            "the model, or the loss, draws random numbers of the system's (os.urandom, "
            "or a generator without a seed), which nothing can repeat; make one "
            "generator with a seed before"
        )

    words: Any = vars(random)
    sources = os.urandom, words["_urandom"]  # one and the same, by two names
    os.urandom = words["_urandom"] = refused
    try:
        yield
    finally:
        os.urandom, words["_urandom"] = sources
