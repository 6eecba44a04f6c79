"""Group and layer normalisation over stacked parameters."""

from __future__ import annotations

import abc

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.gradients.stacked.layer import StackedExplicit


class StackedNormalisation(StackedExplicit):
    """Scale and offset after a normalisation of each sample; its input is kept."""

    @abc.abstractmethod
    def normalise(self, flat: Tensor) -> Tensor:
        """The input without scale and offset."""

    @abc.abstractmethod
    def spread(self, parameter: Tensor, dims: int) -> Tensor:
        """(replicas, ...) as it stands beside (replicas, samples, ...)."""

    @abc.abstractmethod
    def gather(self, product: Tensor) -> Tensor:
        """Sum over the places that share a parameter, (flat, ...)."""

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        normal = self.normalise(flat)
        out = normal.unflatten(0, (replicas, -1))
        scale = self.spread(self.parameters_now["weight"], out.dim())
        if "bias" in self.names:
            offset = self.spread(self.parameters_now["bias"], out.dim())
            out = torch.addcmul(offset, out, scale)
        else:
            out = out * scale
        return normal, out.flatten(0, 1)

    def gradients(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> dict[str, Tensor]:
        products = (x * back for x, back in zip(taken, returned, strict=True))
        parts = {"weight": products, "bias": returned}
        return {
            name: torch.stack([self.gather(part) for part in parts[name]]).sum(0)
            for name in self.names
        }


class StackedGroupNorm(StackedNormalisation):
    """`torch.nn.GroupNorm` over (samples, channels, ...)."""

    def __init__(self, layer: nn.GroupNorm) -> None:
        super().__init__(layer)
        self.groups, self.eps = layer.num_groups, layer.eps

    def normalise(self, flat: Tensor) -> Tensor:
        return functional.group_norm(flat, self.groups, eps=self.eps)

    def spread(self, parameter: Tensor, dims: int) -> Tensor:
        return parameter[(slice(None), None, slice(None), *[None] * (dims - 3))]

    def gather(self, product: Tensor) -> Tensor:
        return product if product.dim() == 2 else product.flatten(2).sum(2)


class StackedLayerNorm(StackedNormalisation):
    """`torch.nn.LayerNorm` over the last dimensions."""

    def __init__(self, layer: nn.LayerNorm) -> None:
        super().__init__(layer)
        self.shape, self.eps = layer.normalized_shape, layer.eps

    def normalise(self, flat: Tensor) -> Tensor:
        return functional.layer_norm(flat, self.shape, eps=self.eps)

    def spread(self, parameter: Tensor, dims: int) -> Tensor:
        return parameter[(slice(None), *[None] * (dims - 1 - len(self.shape)))]

    def gather(self, product: Tensor) -> Tensor:
        return product.reshape(len(product), -1, *self.shape).sum(1)
