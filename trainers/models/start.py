"""Initial parameters, and losses."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

_FEW = 16  # classes
_VECTOR = 32


def initial_parameters(
    module: nn.Module, generator: torch.Generator, *, gain: float = 1.0
) -> torch.Tensor:
    """A random start, (dims,): uniform in +-gain / sqrt(fan-in), as torch does.

    By ``generator`` alone, in the module's order; parameters of one dimension without a
    weight beside them keep their values, and shared ones are drawn once.
    """
    return torch.cat([*initial_parts(module, generator, gain=gain)])


def initial_parts(
    module: nn.Module, generator: torch.Generator, *, gain: float = 1.0
) -> Iterator[torch.Tensor]:
    """Yield `initial_parameters`, a parameter at a time."""
    for parameter, root in _roots(module):
        if root is None:
            yield parameter.detach().flatten()
            continue
        value, bound = parameter.new_empty(parameter.numel()).detach(), gain / root
        yield value.uniform_(-bound, bound, generator=generator)


def hollow_out(module: nn.Module) -> None:
    """Give back the memory of what `initial_parameters` draws: it becomes zeros."""
    for parameter, root in _roots(module):
        if root is not None:
            parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)


def _roots(module: nn.Module) -> Iterator[tuple[nn.Parameter, float | None]]:
    """Parameters, and the root of their fan-in; None of those that keep their value."""
    seen = set()
    for layer in module.modules():
        weight = getattr(layer, "weight", None)
        for name, parameter in layer.named_parameters(recurse=False):
            if parameter in seen:
                continue
            seen.add(parameter)
            root = None
            if weight is not None and weight.dim() > 1:
                root = weight[0].numel() ** 0.5
            elif name != "weight" and weight is None:
                root = 1.0
            yield parameter, root


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each sample, (samples,), from logits (samples, classes).

    Of few classes a vector of samples at a time, filled up with zeros: what fills no
    vector is computed by other functions, and bits must not depend on a sample's place.
    """
    whole = outputs.dim() == 2 and targets.dim() == 1 and outputs.shape[1] <= _FEW
    if not whole or outputs.device.type != "cpu":
        return functional.cross_entropy(outputs, targets, reduction="none")
    missing = -len(outputs) % _VECTOR
    rows = functional.pad(outputs.mT, (0, missing))
    classes = functional.pad(targets, (0, missing))
    losses = functional.cross_entropy(rows[None], classes[None], reduction="none")
    return losses[0, : len(outputs)]
