"""The models of the papers, as plain modules; any other module serves as well."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def small_cnn(
    *,
    size: int,
    classes: int,
    filters: int = 3,
    kernel: int = 5,
    hidden: int = 64,
) -> nn.Sequential:
    """One convolution and two linear layers, the MNIST model of Bayrooti et al. 2023.

    38 424 parameters at size 32 with 10 classes; 337 at size 8 with 3 classes and 16
    hidden units. Inputs are (samples, 1, size, size).
    """
    pooled = (size - kernel + 1) // 2
    if pooled < 1:
        raise ValueError(
            f"images of {size} pixels are too small for a kernel of {kernel} and "
            f"pooling by 2; use at least {kernel + 1}"
        )
    return nn.Sequential(
        nn.Conv2d(1, filters, kernel),
        nn.Mish(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(filters * pooled**2, hidden),
        nn.Mish(),
        nn.Linear(hidden, classes),
    )


def initial_parameters(
    module: nn.Module, generator: torch.Generator, *, gain: float = 1.0
) -> torch.Tensor:
    """A random start, (dims,): uniform in +-gain / sqrt(fan-in), as torch does.

    Drawn from ``generator`` alone, in the order of the module's parameters. Parameters
    of one dimension that have no weight beside them (normalisation) keep their values.
    """
    parts = []
    for layer in module.modules():
        weight = getattr(layer, "weight", None)
        for name, parameter in layer.named_parameters(recurse=False):
            value = parameter.detach().clone()
            if weight is not None and weight.dim() > 1:
                bound = gain / weight[0].numel() ** 0.5
                value.uniform_(-bound, bound, generator=generator)
            elif name != "weight" and weight is None:
                value.uniform_(-gain, gain, generator=generator)
            parts.append(value.flatten())
    return torch.cat(parts)


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each sample, (samples,), from logits (samples, classes)."""
    return functional.cross_entropy(outputs, targets, reduction="none")
