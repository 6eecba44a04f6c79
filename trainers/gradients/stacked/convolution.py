"""Convolutions over stacked parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.gradients.stacked.layer import (
    Digest,
    StackedLayer,
    blocks,
    by_gram,
    explicit_sums,
    fits,
    joined,
    scratch,
    squared_products,
    with_rows,
    written_out,
)

# Up to this many weights a kernel is copied for every sample, which makes one batched
# product of all samples of all replicas. Up to so many where each replica has but one
# sample: there is nothing to copy then.
SMALL_KERNEL, ALONE = 1024, 1 << 14
WIDE = 128  # output places of a sample from which on strips take less than patches
LONG = 512  # positions that are added up in one product, where there are so many


class StackedConvolution(StackedLayer):
    """`torch.nn.Conv1d` and `torch.nn.Conv2d`, one dimension being an image one high.

    A small kernel is multiplied with patches, which are kept until each sample's
    gradient is written out: many replicas of few samples go through in one product. In
    a first layer of large images it is strips, kernel's row by kernel's row, which are
    smaller by the kernel's height: patches of a batch leave the cache. A large one is
    convolved replica by replica, only the layer's input is kept, and patches are made
    anew for a block of samples at a time when norms and sums are taken.
    """

    def __init__(self, layer: nn.Conv1d | nn.Conv2d) -> None:
        super().__init__(layer)
        self.one_dimensional = isinstance(layer, nn.Conv1d)
        self.groups = layer.groups
        self.kernel = self._pair(layer.kernel_size, 1)
        self.stride = self._pair(layer.stride, 1)
        self.dilation = self._pair(layer.dilation, 1)
        self.reach = tuple(  # of a kernel, in places
            dilation * (kernel - 1) + 1
            for dilation, kernel in zip(self.dilation, self.kernel, strict=True)
        )
        self.weights = layer.weight.numel()
        self.small = False  # of the samples that went through last
        self.mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        if layer.padding == "same":
            high, wide = (reach - 1 for reach in self.reach)
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
        most = ALONE if len(flat) == replicas else SMALL_KERNEL
        self.small = self.groups == 1 and self.weights <= most
        many = len(flat) > replicas and math.prod(self._places(flat)) >= WIDE
        if not self.small:
            taken, out = flat, self._by_replicas(flat, weight, bias)
        elif many and self.kernel[0] > 1 and not flat.requires_grad:
            taken, out = self._by_strips(flat, weight, bias)
        else:
            taken, out = self._by_patches(flat, weight, bias)
        return taken, out.squeeze(2) if self.one_dimensional else out

    def _by_patches(
        self, flat: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        folds = flat.requires_grad and self.kernel[0] > 1
        # (flat, inputs, places)
        patches = _Patches.apply(flat, self) if folds else self._patches(flat)
        samples = flat.shape[0] // weight.shape[0]
        kernel = _each(weight.flatten(2), samples)
        if bias is None:
            out = torch.bmm(kernel, patches)
        else:
            out = torch.baddbmm(_each(bias, samples)[:, :, None], kernel, patches)
        return patches, out.view(*out.shape[:2], *self._places(flat))

    def _by_strips(
        self, flat: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        strips, sizes = self._strips(flat), self._places(flat)
        samples = flat.shape[0] // weight.shape[0]
        kernel = _each(weight.transpose(2, 3).flatten(3), samples)
        first, *others = zip(
            kernel.unbind(2), self._windows(strips, *sizes), strict=True
        )
        if bias is None:
            out = torch.bmm(*first)
        else:
            out = torch.baddbmm(_each(bias, samples)[:, :, None], *first)
        for row, window in others:
            # In place autocast does not cast.
            out.baddbmm_(row.to(out), window.to(out))
        return strips, out.view(*out.shape[:2], *sizes)

    def _by_replicas(self, flat: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        parts = flat.unflatten(0, (weight.shape[0], -1)).unbind()
        biases = [None] * len(parts) if bias is None else bias.unbind()
        how = self.stride, self.padding, self.dilation, self.groups
        each = zip(parts, weight.unbind(), biases, strict=True)
        return torch.cat([functional.conv2d(*one, *how) for one in each])

    def _patches(self, flat: Tensor) -> Tensor:
        """Patches that each output place sees, (flat, inputs, places)."""
        return self._seen(flat).permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)

    def _seen(self, flat: Tensor) -> Tensor:
        """As `_patches`, a view; torch's own unfold would cost half of a step."""
        vertical, horizontal = self.padding
        if vertical or horizontal:
            flat = functional.pad(flat, (horizontal, horizontal, vertical, vertical))
        for axis, (reach, stride, dilation) in enumerate(
            zip(self.reach, self.stride, self.dilation, strict=True), start=2
        ):
            flat = flat.unfold(axis, reach, stride)[..., ::dilation]
        return flat

    def _strips(self, flat: Tensor) -> Tensor:
        """Strips that one row of a kernel sees in each of the image's rows, a copy.

        (flat, inputs of that row, stride, rows * width of the output): of the image's
        rows every so many, by the vertical stride, stand together.
        """
        vertical, horizontal = self.padding
        stride = self.stride[0]
        missing = -(flat.shape[2] + 2 * vertical) % stride
        pads = (horizontal, horizontal, vertical, vertical + missing)
        if any(pads):  # else it is a copy
            flat = functional.pad(flat, pads)
        seen = flat.unfold(3, self.reach[1], self.stride[1])[..., :: self.dilation[1]]
        seen = seen.unflatten(2, (-1, stride)).permute(0, 1, 5, 3, 2, 4)
        return seen.flatten(4).flatten(1, 2)

    def _windows(self, strips: Tensor, high: int, wide: int) -> Iterator[Tensor]:
        """Windows of each row of the kernel, (flat, its inputs, places), views."""
        for row in range(0, self.kernel[0] * self.dilation[0], self.dilation[0]):
            start, phase = divmod(row, self.stride[0])
            yield strips[:, :, phase, start * wide : (start + high) * wide]

    def _places(self, flat: Tensor) -> list[int]:
        how = self.reach, self.padding, self.stride
        return [
            (size + 2 * padding - reach) // stride + 1
            for size, reach, padding, stride in zip(flat.shape[2:], *how, strict=True)
        ]

    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> Digest:
        back = joined([use.flatten(2) for use in returned], 2)
        # (flat, channels, places)
        offset = (back.sum(2),) if "bias" in self.names else ()
        if self.small:
            uses = zip(taken, returned, strict=True)
            weight = torch.stack([self._product(*use) for use in uses]).sum(0)
            return written_out(weight, *offset)
        samples, channels, places = back.shape
        fan = self.parameters_now["weight"][0, 0].numel()
        # Groups are layers side by side, each with its own inputs and channels.
        back = back.view(samples * self.groups, channels // self.groups, places)
        if fits(fan * channels, sum(use[0].numel() for use in (*taken, *returned))):
            rows = [
                torch.bmm(left, inside.mT)
                for left, inside in self._by_blocks(back, taken, back.dtype)
            ]
            weight = joined(rows).view(samples, channels, fan)
            return written_out(weight, *offset)
        # Gram matrices are of doubles: there are fewer inputs than there are patches.
        gram = by_gram(places, channels // self.groups, fan)
        kind = torch.float64 if gram else back.dtype
        found = [
            squared_products(left.mT, inside.mT)
            for left, inside in self._by_blocks(back, taken, kind)
        ]
        square = joined([each.square for each in found]).view(samples, -1).sum(1)
        square = with_rows(square, offset)
        # Of groups side by side, squares of terms add up as norms do.
        sizes = [each.terms for each in found if each.terms is not None]
        return Digest(
            square,
            (*taken, *returned, *offset),
            joined(sizes).view(samples, -1).sum(1),
            places,
            found[0].length + self.groups,
            found[0].coarse,
        )

    def _product(self, inside: Tensor, back: Tensor) -> Tensor:
        """Each sample's gradient of the kernel, (flat, channels, its inputs)."""
        if inside.dim() == 3:
            return torch.bmm(back.flatten(2), inside.mT)
        high, wide = back.shape[2:]
        back = back.flatten(2)
        rows = [torch.bmm(back, seen.mT) for seen in self._windows(inside, high, wide)]
        whole = torch.stack(rows, 2).unflatten(3, (-1, self.kernel[1]))
        return whole.transpose(2, 3).flatten(2)

    def _by_blocks(
        self, back: Tensor, taken: list[Tensor], kind: torch.dtype
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Output gradients and patches of ``kind``, by blocks of samples."""
        groups, samples = self.groups, len(taken[0])
        fan = self.parameters_now["weight"][0, 0].numel()
        for here in blocks(samples, fan * groups * back.shape[2], back):
            inside = joined([self._patches(use[here].to(kind)) for use in taken], 2)
            inside = inside.view(len(inside) * groups, fan, -1)
            yield back[here.start * groups : here.stop * groups], inside

    def sums(
        self, made_from: tuple[Tensor, ...], weights: Tensor, into: list[Tensor]
    ) -> None:
        if len(made_from) > len(into):  # not written out
            count = len(made_from) // 2
            uses = zip(made_from[:count], made_from[count : 2 * count], strict=True)
            for number, (inside, back) in enumerate(uses):
                self._outer_sum(inside, back, weights, into[0], again=number > 0)
            made_from, into = made_from[2 * count :], into[1:]
        explicit_sums(made_from, weights, into)

    def _outer_sum(
        self, inside: Tensor, back: Tensor, weights: Tensor, total: Tensor, again: bool
    ) -> None:
        """As one product a group of channels, written or added to ``total``."""
        replicas, samples = weights.shape
        share = back.flatten(2).unflatten(0, (replicas, samples))
        share = weights[:, :, None, None] * share
        groups, places = self.groups, share.shape[3]
        fan = self.parameters_now["weight"][0, 0].numel()
        # The sum passes through memory once a block: not of too few positions.
        values = fan * groups * places
        step = max(1, -(-LONG // places), scratch(back) // values)
        totals = total.unflatten(1, (groups, -1, fan))
        for replica, use in enumerate(inside.unflatten(0, (replicas, samples))):
            for first in range(0, samples, step):
                here = slice(first, min(first + step, samples))
                # Copied once, into the order in which the product takes it.
                seen = self._seen(use[here].double()).permute(1, 4, 5, 0, 2, 3)
                left = share[replica, here].unflatten(1, (groups, -1))
                totals[replica].baddbmm_(
                    left.permute(1, 2, 0, 3).flatten(2),
                    seen.flatten(3).flatten(0, 2).view(groups, fan, -1).mT,
                    beta=1 if first or again else 0,
                )


class _Patches(torch.autograd.Function):
    """`StackedConvolution._patches`, with torch's fold as its backward pass."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, layer: StackedConvolution) -> Tensor:
        ctx.layer, ctx.sizes = layer, flat.shape[2:]
        return layer._patches(flat)

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> Any:  # pyrefly: ignore[bad-override]
        at = ctx.layer
        how = at.kernel, at.dilation, at.padding, at.stride
        return functional.fold(back, ctx.sizes, *how), None


def _each(rows: Tensor, times: int) -> Tensor:
    """Each row so many times."""
    return rows if times == 1 else rows.repeat_interleave(times, 0)
