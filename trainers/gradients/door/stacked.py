"""A graph of one record over all records of all replicas, as book-keeping takes it.

Uses of parameters that book-keeping knows are layers over stacked parameters. A
parameter that is used otherwise is copied for each record, so that what comes back to
the copy is the record's gradient. What is between two layers is mapped over records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from trainers.gradients.door.operators import padded
from trainers.gradients.door.traced import Traced, door_of
from trainers.gradients.stacked import StackedLayer, stacked
from trainers.gradients.stacked.layer import StackedExplicit

aten = torch.ops.aten


class StackedCopy(StackedExplicit):
    """A parameter of each replica, copied for each of its records."""

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        value = self.parameters_now["weight"]
        each = value[:, None].expand(-1, len(flat) // replicas, *value.shape[1:])
        return flat[:0], each.flatten(0, 1)

    def gradients(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> dict[str, Tensor]:
        return {"weight": torch.stack(returned).sum(0)}


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """A use of parameters that book-keeping knows.

    Parameters
    ----------
    layer
        What stands for it, with parameters called weight and bias.
    input
        What goes in.
    weight, bias
        The nodes of its parameters.
    settings
        What it is, but for its parameters: two uses of one parameter must be alike.
    fold
        Whether the record's own first dimension of 1 is left out.
    """

    layer: Callable[[], nn.Module]
    input: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    settings: tuple[Any, ...]
    fold: bool = False


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _linear(input: fx.Node, weight: fx.Node, bias: Any = None) -> Use | None:
    outputs, inputs = _shape(weight)
    if len(_shape(input)) < 2:
        return None
    has = bias is not None
    return Use(
        lambda: nn.Linear(inputs, outputs, has, device="meta"),
        *(input, weight, bias, ("linear",)),
    )


def _convolution(
    input: fx.Node,
    weight: fx.Node,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Use | None:
    outputs, inputs, *kernel = _shape(weight)
    here = _shape(input)
    if len(here) != len(kernel) + 2 or here[0] != 1:
        return None
    kind: Any = nn.Conv1d if len(kernel) == 1 else nn.Conv2d

    def all_sizes(value: Any) -> Any:
        if isinstance(value, str):
            return value
        value = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        return value * len(kernel) if len(value) == 1 else value

    settings = (
        tuple(kernel),
        *map(all_sizes, (stride, padding, dilation)),
        groups,
        bias is not None,
    )
    return Use(
        lambda: kind(inputs * groups, outputs, *settings, device="meta"),
        *(input, weight, bias, ("convolution", *settings)),
        fold=True,
    )


def _layer_norm(
    input: fx.Node,
    shape: list[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Use | None:
    if weight is None or len(_shape(input)) <= len(shape):
        return None
    has = bias is not None
    return Use(
        lambda: nn.LayerNorm(shape, eps, bias=has, device="meta"),
        *(input, weight, bias, ("layer_norm", *shape, eps)),
    )


def _group_norm(
    input: fx.Node,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Use | None:
    if weight is None or bias is None or _shape(input)[0] != 1:
        return None
    channels = _shape(input)[1]
    return Use(
        lambda: nn.GroupNorm(groups, channels, eps, device="meta"),
        *(input, weight, bias, ("group_norm", groups, eps)),
        fold=True,
    )


def _embedding(
    weight: fx.Node,
    input: fx.Node,
    padding: int = -1,
    by_frequency: bool = False,
    sparse: bool = False,
) -> Use | None:
    if by_frequency or sparse:
        return None
    rows, features = _shape(weight)
    known = None if padding < 0 else padding
    return Use(
        lambda: nn.Embedding(rows, features, known, device="meta"),
        *(input, weight, None, ("embedding", padding)),
    )


_RULES: dict[Any, Callable[..., Use | None]] = {
    aten.linear.default: _linear,
    aten.conv1d.default: _convolution,
    aten.conv2d.default: _convolution,
    aten.conv1d.padding: _convolution,
    aten.conv2d.padding: _convolution,
    aten.layer_norm.default: _layer_norm,
    aten.group_norm.default: _group_norm,
    aten.embedding.default: _embedding,
    padded: _embedding,
}


def uses_of(graph: fx.Graph, parameters: list[fx.Node]) -> dict[fx.Node, Use]:
    """The uses that book-keeping knows, of parameters that are used in no other way."""
    known: dict[fx.Node, Use] = {}
    for node in graph.nodes:
        rule = _RULES.get(node.target)
        if rule is None or node.kwargs:
            continue
        use = rule(*node.args)
        of = [] if use is None else [use.weight, use.bias]
        if (
            use is not None
            and all(one is None or one in parameters for one in of)
            and isinstance(use.input, fx.Node)
            and use.input not in parameters
        ):
            known[node] = use
    while True:
        together: dict[fx.Node, set[Any]] = {}
        for use in known.values():
            for one in (use.weight, use.bias):
                if one is not None:
                    key = (use.weight, use.bias, use.settings)
                    together.setdefault(one, set()).add(key)
        unknown = {
            one
            for one, ways in together.items()
            if len(ways) > 1 or any(user not in known for user in one.users)
        }
        wrong = [
            node
            for node, use in known.items()
            if use.weight in unknown or use.bias in unknown
        ]
        if not wrong:
            return known
        for node in wrong:
            del known[node]


class Step(nn.Module):
    """What is between two layers, mapped over records."""

    def __init__(
        self, made: fx.GraphModule, nodes: list[fx.Node], after: set[fx.Node]
    ) -> None:
        super().__init__()
        inside = set(nodes)
        self.inputs = list(
            dict.fromkeys(
                one
                for node in nodes
                for one in node.all_input_nodes
                if one not in inside and one.op != "get_attr"
            )
        )
        self.outputs = [node for node in nodes if node in after]
        graph, copies = fx.Graph(), {}
        for one in self.inputs:
            copies[one] = graph.placeholder(one.name)
        attributes = nn.Module()
        for node in nodes:
            for one in node.all_input_nodes:
                if one.op == "get_attr" and one not in copies:
                    value = getattr(made, str(one.target))
                    attributes.register_buffer(str(one.target), value, persistent=False)
                    copies[one] = graph.get_attr(str(one.target))
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[one] for one in self.outputs))
        self.one = fx.GraphModule(attributes, graph)

    def run(self, values: dict[fx.Node, Any]) -> None:
        """Put what comes out of it into ``values``, (records, ...) each."""
        given = [values[one] for one in self.inputs]
        found = torch.func.vmap(self.one.forward)(*given)
        values.update(zip(self.outputs, found, strict=True))


class StackedGraph(nn.Module):
    """Over one flat batch of all replicas, with layers over stacked parameters.

    Parameters
    ----------
    traced
        The module.

    Attributes
    ----------
    layers
        With the names of their parameters, by layer.
    word
        A number of which dropout is a function; None: without dropout.
    """

    def __init__(self, traced: Traced) -> None:
        super().__init__()
        self.word: int | None = 0
        self._door = door_of(traced)
        made = self._door.graph
        assert made is not None
        graph = made.graph
        holders = [node for node in graph.nodes if node.op == "placeholder"]
        parameters, (self._input, self._seed) = holders[:-2], holders[-2:]
        named = dict(zip(parameters, self._door.trained, strict=True))
        uses = uses_of(graph, parameters)
        self.layers: list[tuple[StackedLayer, dict[str, str]]] = []
        self._steps: list[tuple[Any, ...]] = []
        by_weight: dict[fx.Node, StackedLayer] = {}
        covered: set[fx.Node] = set()
        for use in uses.values():
            if use.weight not in by_weight:
                layer = stacked(use.layer())
                assert layer is not None
                by_weight[use.weight] = layer
                names = {"weight": named[use.weight]}
                covered.add(use.weight)
                if use.bias is not None:
                    names["bias"] = named[use.bias]
                    covered.add(use.bias)
                self.layers.append((layer, names))
        for node in parameters:
            if node in covered:
                continue
            layer = StackedCopy(_Alone(_shape(node)))
            self.layers.append((layer, {"weight": named[node]}))
            if node.users:
                self._steps.append((node, layer, self._input, False))
        output = next(node for node in graph.nodes if node.op == "output")
        (self._output,) = output.all_input_nodes
        self._plan(made, uses, by_weight)
        self._used = nn.ModuleList([layer for layer, _ in self.layers])

    def _plan(
        self,
        made: fx.GraphModule,
        uses: dict[fx.Node, Use],
        by_weight: dict[fx.Node, StackedLayer],
    ) -> None:
        nodes = [node for node in made.graph.nodes if node.op == "call_function"]
        # As late as a layer waits for them, so that there are few steps.
        level: dict[fx.Node, int] = {}
        for node in nodes:
            before = [level.get(one, 0) for one in node.all_input_nodes]
            level[node] = max(before, default=0)
            if node in uses:
                level[node] += 1
        last = max(level.values(), default=0)
        for now in range(last + 1):
            here = [one for one in nodes if level[one] == now]
            for node in here:
                if node in uses:
                    use = uses[node]
                    layer = by_weight[use.weight]
                    self._steps.append((node, layer, use.input, use.fold))
            inside = [one for one in here if one not in uses]
            taken = set(inside)
            after = {
                one
                for one in inside
                if one is self._output or any(user not in taken for user in one.users)
            }
            if inside:
                step = Step(made, inside, after)
                self._steps.append((None, step, None, False))
        self._parts = nn.ModuleList(
            [step[1] for step in self._steps if isinstance(step[1], Step)]
        )
        self._constants = nn.Module()
        for node in made.graph.nodes:
            if node.op == "get_attr":
                value = getattr(made, node.target)
                self._constants.register_buffer(node.target, value, persistent=False)

    def forward(self, flat: Tensor) -> Tensor:  # (replicas * samples, ...)
        values: dict[fx.Node, Any] = {
            self._input: flat[:, None],
            self._seed: self._door.seeds(flat, self.word),
        }
        for node, part, source, folds in self._steps:
            if node is None:
                part.run(values)
                continue
            given = self._value(values, source, len(flat))
            if folds:
                given = given.flatten(0, 1)
            found = part(given.contiguous())
            values[node] = found[:, None] if folds else found
        return self._value(values, self._output, len(flat))[:, 0]

    def _value(self, values: dict[fx.Node, Any], node: fx.Node, count: int) -> Tensor:
        if node.op == "get_attr":
            value = getattr(self._constants, str(node.target))
            return value.expand(count, *value.shape)
        return values[node]


class _Alone(nn.Module):
    """One parameter."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape, device="meta"))
