"""Initial parameters, and losses."""

from __future__ import annotations

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
    parts, seen = [], set()
    for layer in module.modules():
        weight = getattr(layer, "weight", None)
        for name, parameter in layer.named_parameters(recurse=False):
            if parameter in seen:
                continue
            seen.add(parameter)
            value = parameter.detach().clone()
            if weight is not None and weight.dim() > 1:
                bound = gain / weight[0].numel() ** 0.5
                value.uniform_(-bound, bound, generator=generator)
            elif name != "weight" and weight is None:
                value.uniform_(-gain, gain, generator=generator)
            parts.append(value.flatten())
    return torch.cat(parts)


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
