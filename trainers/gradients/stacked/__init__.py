"""Layers over stacked parameters: one flat batch through all replicas at once.

Each knows how to run forward, what a sample's squared gradient norm is and what the
weighted sum of the samples' gradients is, from what went in and what came back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from trainers.gradients.stacked.convolution import StackedConvolution
from trainers.gradients.stacked.layer import StackedLayer
from trainers.gradients.stacked.linear import StackedLinear
from trainers.gradients.stacked.normalisation import StackedGroupNorm, StackedLayerNorm
from trainers.gradients.stacked.tables import (
    StackedEmbedding,
    StackedOffset,
    StackedTied,
    Tied,
)
from trainers.models.layers import Offset

_KNOWN: dict[type[nn.Module], Callable[[Any], StackedLayer]] = {
    nn.Linear: StackedLinear,
    nn.Conv1d: StackedConvolution,
    nn.Conv2d: StackedConvolution,
    nn.GroupNorm: StackedGroupNorm,
    nn.LayerNorm: StackedLayerNorm,
    nn.Embedding: StackedEmbedding,
    Offset: StackedOffset,
    Tied: StackedTied,
}


def stacked(layer: nn.Module) -> StackedLayer | None:
    """The stacked form of a layer; None for subclasses, hooks and what is not known."""
    make = _KNOWN.get(type(layer))
    names = {name for name, _ in layer.named_parameters(recurse=False)}
    if make is None or not names:
        return None
    hooked = layer._forward_hooks or layer._forward_pre_hooks
    if hooked or "weight" not in names or not names <= {"weight", "bias"}:
        return None
    # Renormalised or counted tokens tie the samples of a batch to each other.
    if isinstance(layer, nn.Embedding) and (
        layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse
    ):
        return None
    return make(layer)


def all_stacked(module: nn.Module) -> bool:
    """Return whether each of its layers with parameters to train has a stacked form."""
    return all(
        stacked(layer) is not None
        for layer in module.modules()
        if any(one.requires_grad for one in layer.parameters(recurse=False))
    )
