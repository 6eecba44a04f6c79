"""A graph of one record over all records of all replicas, as book-keeping takes it.

Uses of parameters that book-keeping knows are layers over stacked parameters. A
parameter that is used otherwise is copied for each record, so that what comes back to
the copy is the record's gradient. What is between two layers is mapped over records.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx, nn

from trainers.gradients.door.traced import Mapped, Traced, door_of
from trainers.gradients.door.uses import Use, shape_of, uses_of
from trainers.gradients.stacked import stacked
from trainers.gradients.stacked.layer import StackedExplicit, StackedLayer

_PRODUCTS = [
    getattr(torch.ops.aten, name).default
    for name in ("matmul", "linear", "einsum", "mm", "bmm", "addmm")
]


class StackedCopy(StackedExplicit):
    """A parameter of each replica, copied for each of its records."""

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        value = self.parameters_now["weight"]
        each = value[:, None].expand(-1, len(flat) // replicas, *value.shape[1:])
        return flat[:0], each.flatten(0, 1)


class Step(nn.Module):
    """Operations between two layers, mapped over records."""

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
        self._mapped = Mapped(self.one)

    def run(self, values: dict[fx.Node, Any]) -> None:
        """Put what comes out of it into ``values``, (records, ...) each."""
        found = self._mapped(*(values[one] for one in self.inputs))
        values.update(zip(self.outputs, found, strict=True))


class StackedGraph(nn.Module):
    """Runs a traced module on one flat batch of all replicas, by stacked layers.

    ``traced``: the module. ``layers``: with the names of their parameters, by layer.
    ``word``: a number of which dropout is a function, or (replicas,); None: no dropout.
    """

    def __init__(self, traced: Traced) -> None:
        super().__init__()
        self.word: int | Tensor | None = 0
        self._door = door_of(traced)
        made = self._door.graph
        assert made is not None
        graph = made.graph
        *parameters, self._input, self._seed = graph.find_nodes(op="placeholder")
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
                covered.update(use.parameters.values())
                names = {name: named[one] for name, one in use.parameters.items()}
                self.layers.append((layer, names))
        for node in parameters:
            if node in covered:
                continue
            layer = StackedCopy(_Alone(shape_of(node)))
            self.layers.append((layer, {"weight": named[node]}))
            if node.users:
                self._steps.append((node, layer, self._input, False))
        self.remade = _remade(graph, covered, set(parameters) - covered)
        (self._output,) = graph.output_node().all_input_nodes
        self._plan(made, uses, by_weight)
        steps = [part for _, part, *_ in self._steps if isinstance(part, Step)]
        self._parts = nn.ModuleList([*steps, *(layer for layer, _ in self.layers)])

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
        for now in range(max(level.values(), default=0) + 1):
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
                self._steps.append((None, Step(made, inside, after), None, False))
        self._constants = nn.Module()
        for node in made.graph.nodes:
            if node.op == "get_attr":
                value = getattr(made, node.target)
                self._constants.register_buffer(node.target, value, persistent=False)

    def forward(self, flat: Tensor) -> Tensor:  # (replicas * samples, ...)
        values: dict[fx.Node, Any] = {self._input: flat[:, None]}
        if self._seed.users:
            values[self._seed] = self._door.seeds(flat, self.word)
        for node, part, source, folds in self._steps:
            if node is None:
                part.run(values)
                continue
            given = self._value(values, source, len(flat))
            if folds:
                given = given.flatten(0, 1)
            found = part(given.contiguous())
            values[node] = found[:, None] if folds else found
        return self._value(values, self._output, len(flat)).squeeze(1)

    def _value(self, values: dict[fx.Node, Any], node: fx.Node, count: int) -> Tensor:
        if node.op == "get_attr":
            value = getattr(self._constants, str(node.target))
            return value.expand(count, *value.shape)
        return values[node]


def _remade(graph: fx.Graph, known: set[fx.Node], copied: set[fx.Node]) -> bool:
    """Return whether a product of copied parameters has more numbers than all others.

    A map over records makes it once, and copies have it made for each record.
    """
    alone, made = set(copied), 0
    for node in graph.nodes:
        taken = {one for one in node.all_input_nodes if one.op != "get_attr"}
        if node.op == "call_function" and taken and taken <= alone:
            alone.add(node)
            if node.target in _PRODUCTS:
                made = max(made, math.prod(shape_of(node)))
    return made > sum(math.prod(shape_of(node)) for node in known)


class _Alone(nn.Module):
    """Holds a parameter that is of no layer."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape, device="meta"))
