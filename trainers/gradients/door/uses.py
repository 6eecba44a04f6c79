"""Uses of parameters in a graph of one record that book-keeping knows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from trainers.gradients.door.operators import padded
from trainers.gradients.stacked.tables import Tied

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """A use of parameters that book-keeping knows."""

    # what stands for it, with parameters called weight and bias
    layer: Callable[[], nn.Module]
    input: fx.Node  # what goes in
    # weight, bias: the nodes of its parameters
    weight: fx.Node
    bias: fx.Node | None
    # what it is, but for its parameters: two uses of one parameter must be alike
    settings: tuple[Any, ...]
    fold: bool = False  # whether the record's own first dimension of 1 is left out

    @property
    def parameters(self) -> dict[str, fx.Node]:
        """The nodes of its parameters, by their names in ``layer``."""
        if self.bias is None:
            return {"weight": self.weight}
        return {"weight": self.weight, "bias": self.bias}


def shape_of(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _linear(input: fx.Node, weight: fx.Node, bias: Any = None) -> Use | None:
    has, (outputs, *inside) = bias is not None, shape_of(weight)
    if len(shape_of(input)) < 2 or len(inside) != 1:
        return None
    if has and shape_of(bias) != (outputs,):
        return None
    (inputs,) = inside
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
    outputs, inputs, *kernel = shape_of(weight)
    here = shape_of(input)
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
    if weight is None or len(shape_of(input)) <= len(shape):
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
    if weight is None or bias is None or shape_of(input)[0] != 1:
        return None
    channels = shape_of(input)[1]
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
    rows, features = shape_of(weight)
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


def _tie(known: dict[fx.Node, Use]) -> None:
    """Make one layer of an embedding and of linear layers with its table as weight."""
    for table in [use for use in known.values() if use.settings[0] == "embedding"]:
        uses = {node: one for node, one in known.items() if one.weight is table.weight}
        linear = {(one.bias, *one.settings) for one in uses.values()} - {
            (None, *table.settings)
        }
        if len(linear) != 1 or (found := linear.pop())[1:] != ("linear",):
            continue
        (rows, features), bias = shape_of(table.weight), found[0]
        padding = None if table.settings[1] < 0 else table.settings[1]
        make = functools.partial(Tied, features, rows, bias is not None, padding)
        for node, one in uses.items():
            known[node] = dataclasses.replace(
                one, layer=make, bias=bias, settings=("tied", padding)
            )


def uses_of(graph: fx.Graph, parameters: list[fx.Node]) -> dict[fx.Node, Use]:
    """The uses that book-keeping knows, of parameters that are used in no other way."""
    known: dict[fx.Node, Use] = {}
    for node in graph.nodes:
        rule = _RULES.get(node.target)
        if rule is None or node.kwargs:
            continue
        use = rule(*node.args)
        if (
            use is not None
            and all(one in parameters for one in use.parameters.values())
            and isinstance(use.input, fx.Node)
            and use.input not in parameters
        ):
            known[node] = use
    _tie(known)
    while True:
        together: dict[fx.Node, set[Any]] = {}
        for use in known.values():
            for one in use.parameters.values():
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
            if not unknown.isdisjoint(use.parameters.values())
        ]
        if not wrong:
            return known
        for node in wrong:
            del known[node]
