"""Convolutions over stacked parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.gradients.stacked.layer import (
    StackedLayer,
    blocks,
    explicit_sums,
    joined,
    squared_products,
    squared_sums,
)

# Up to this many weights a kernel is copied for every sample, which makes one batched
# product of all samples of all replicas.
SMALL_KERNEL = 1024


class StackedConvolution(StackedLayer):
    """`torch.nn.Conv1d` and `torch.nn.Conv2d`, one dimension being an image one high.

    A small kernel is multiplied with patches, which are kept until each sample's
    gradient is written out: many replicas of few samples go through in one product. A
    large one is convolved replica by replica, only the layer's input is kept, and
    patches are made anew for a block of samples at a time when norms are taken.
    """

    def __init__(self, layer: nn.Conv1d | nn.Conv2d) -> None:
        super().__init__(layer)
        self.one_dimensional = isinstance(layer, nn.Conv1d)
        self.groups = layer.groups
        self.kernel = self._pair(layer.kernel_size, 1)
        self.stride = self._pair(layer.stride, 1)
        self.dilation = self._pair(layer.dilation, 1)
        self.small = layer.groups == 1 and layer.weight.numel() <= SMALL_KERNEL
        self.mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        if layer.padding == "same":
            high, wide = (
                dilation * (kernel - 1)
                for dilation, kernel in zip(self.dilation, self.kernel, strict=True)
            )
            # An odd one goes to the end, as torch has it.
            self.pads = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
        else:
            none = (0,) * len(layer.kernel_size)
            padding = none if layer.padding == "valid" else layer.padding
            high, wide = self._pair(tuple(int(size) for size in padding), 0)
            self.pads = (wide, wide, high, high)
        # Padding by zeros, equal on both sides, is left to the convolution.
        even = self.pads[0] == self.pads[1] and self.pads[2] == self.pads[3]
        self.padding = (0, 0)
        if even and self.mode == "constant":
            self.padding, self.pads = (self.pads[2], self.pads[0]), (0, 0, 0, 0)

    def _pair(self, sizes: tuple[int, ...], before: int) -> tuple[int, int]:
        high, wide = (before, *sizes) if self.one_dimensional else sizes
        return int(high), int(wide)

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        weight, bias = self.parameters_now["weight"], self.parameters_now.get("bias")
        if self.one_dimensional:
            flat, weight = flat.unsqueeze(2), weight.unsqueeze(3)
        if any(self.pads):
            flat = functional.pad(flat, self.pads, self.mode)
        if self.small:
            taken, out = self._by_patches(flat, weight, bias)
        else:
            taken, out = flat, self._by_replicas(flat, weight, bias)
        return taken, out.squeeze(2) if self.one_dimensional else out

    def _by_patches(
        self, flat: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        patches = self._patches(flat)  # (flat, inputs, places)
        samples = flat.shape[0] // weight.shape[0]
        kernel = weight.flatten(2).repeat_interleave(samples, 0)
        if bias is None:
            out = torch.bmm(kernel, patches)
        else:
            offset = bias.repeat_interleave(samples, 0)[:, :, None]
            out = torch.baddbmm(offset, kernel, patches)
        return patches, out.view(*out.shape[:2], *self._places(flat))

    def _by_replicas(self, flat: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        parts = flat.unflatten(0, (weight.shape[0], -1)).unbind()
        biases = [None] * len(parts) if bias is None else bias.unbind()
        return torch.cat(
            [
                functional.conv2d(
                    part,
                    kernel,
                    offset,
                    self.stride,
                    self.padding,
                    self.dilation,
                    self.groups,
                )
                for part, kernel, offset in zip(
                    parts, weight.unbind(), biases, strict=True
                )
            ]
        )

    def _patches(self, flat: Tensor) -> Tensor:
        """What each output place sees, (flat, inputs, places)."""
        vertical, horizontal = self.padding
        if vertical or horizontal:
            flat = functional.pad(flat, (horizontal, horizontal, vertical, vertical))
        # One strided copy: torch's own unfold on the CPU goes sample by sample, which
        # costs half of a step on small images.
        for axis, (kernel, stride, dilation) in enumerate(
            zip(self.kernel, self.stride, self.dilation, strict=True), start=2
        ):
            reach = dilation * (kernel - 1) + 1
            flat = flat.unfold(axis, reach, stride)[..., ::dilation]
        return flat.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)

    def _places(self, flat: Tensor) -> list[int]:
        sizes = zip(
            flat.shape[2:],
            self.kernel,
            self.dilation,
            self.padding,
            self.stride,
            strict=True,
        )
        return [
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, dilation, padding, stride in sizes
        ]

    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> tuple[Tensor, Any]:
        back = [use.flatten(2) for use in returned]  # (flat, channels, places)
        if self.small:
            return self._written_out(joined(taken, 2), joined(back, 2))
        parts = []
        inputs = self.parameters_now["weight"][0, 0].numel() * self.groups
        places = sum(use.shape[2] for use in back)
        for here in blocks(len(back[0]), inputs * places):
            inside = joined([self._patches(use[here]) for use in taken], 2)
            left = joined([use[here] for use in back], 2)
            # Groups are layers side by side, each with its own inputs and channels.
            square = squared_products(
                left.reshape(len(left) * self.groups, -1, places).mT,
                inside.reshape(len(left) * self.groups, -1, places).mT,
            )
            square = square.view(-1, self.groups).sum(1)
            if "bias" in self.names:
                square = square + squared_sums(left.mT)
            parts.append(square)
        return torch.cat(parts), (taken, returned)

    def _written_out(
        self, inside: Tensor, back: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        weight = torch.bmm(back, inside.mT)  # (flat, channels, inputs)
        square = weight.square().sum((1, 2))
        shape = self.parameters_now["weight"].shape[1:]
        gradients = {"weight": weight.view(len(weight), *shape)}
        if "bias" in self.names:
            gradients["bias"] = back.sum(2)
            square += gradients["bias"].square().sum(1)
        return square, gradients

    def sums(self, digest: Any, weights: Tensor) -> dict[str, Tensor]:
        if self.small:
            return explicit_sums(digest, weights)
        taken, returned = digest
        replicas, samples = weights.shape
        shape = self.parameters_now["weight"].shape  # (replicas, ...)
        totals: dict[str, list[Tensor]] = {name: [] for name in self.names}
        for inside, back in zip(taken, returned, strict=True):
            if self.one_dimensional:
                back = back.unsqueeze(2)
            share = (weights.reshape(-1, 1, 1, 1) * back).unflatten(
                0, (replicas, samples)
            )
            if "bias" in self.names:
                totals["bias"].append(share.sum((1, 3, 4)))
            inside = inside.unflatten(0, (replicas, samples))
            weight = self._sum_by_replicas(inside, share)
            totals["weight"].append(weight.view(shape))
        return {
            name: parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
            for name, parts in totals.items()
        }

    def _sum_by_replicas(self, inside: Tensor, share: Tensor) -> Tensor:
        channels, fan = share.shape[2], inside.shape[2] // self.groups
        return torch.stack(
            [
                nn.grad.conv2d_weight(
                    part,
                    (channels, fan, *self.kernel),
                    back,
                    self.stride,
                    self.padding,
                    self.dilation,
                    self.groups,
                )
                for part, back in zip(inside.unbind(), share.unbind(), strict=True)
            ]
        )
