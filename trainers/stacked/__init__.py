"""Layers over stacked parameters: one flat batch through all replicas at once.

Each knows how to run forward, what a sample's squared gradient norm is and what the
weighted sum of the samples' gradients is, from what went in and what came back.
"""

from __future__ import annotations

from torch import nn

from trainers.layers import Offset
from trainers.stacked.convolution import StackedConvolution
from trainers.stacked.layer import StackedLayer, UnknownLayerError
from trainers.stacked.linear import StackedLinear
from trainers.stacked.normalisation import StackedGroupNorm, StackedLayerNorm
from trainers.stacked.tables import StackedEmbedding, StackedOffset

__all__ = ["StackedLayer", "UnknownLayerError", "stacked"]


def stacked(layer: nn.Module) -> StackedLayer | None:
    """The stacked form of a layer, None for one without parameters or not known.

    Subclasses are not known: they may compute something else.
    """
    kind = type(layer)
    if not any(True for _ in layer.parameters(recurse=False)):
        return None
    if kind is nn.Linear:
        return StackedLinear(layer)
    if kind is nn.Conv1d or kind is nn.Conv2d:
        return StackedConvolution(layer)
    if kind is nn.GroupNorm:
        return StackedGroupNorm(layer)
    if kind is nn.LayerNorm:
        return StackedLayerNorm(layer)
    if kind is Offset:
        return StackedOffset(layer)
    # Renormalised or counted tokens tie the samples of a batch to each other.
    if (
        kind is nn.Embedding
        and layer.max_norm is None
        and not (layer.scale_grad_by_freq or layer.sparse)
    ):
        return StackedEmbedding(layer)
    return None
