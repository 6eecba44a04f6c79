"""Linear layers over stacked parameters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from trainers.gradients.stacked.layer import (
    Digest,
    StackedLayer,
    explicit_sum,
    fits,
    joined,
    outer_sum,
    squared_products,
    squared_rows,
    written_out,
)

LINE = 16  # floats


class StackedLinear(StackedLayer):
    """`torch.nn.Linear` over (samples, features) or (samples, ..., features).

    Positions of one use and several uses come to the same: a sample's gradient is the
    sum of an outer product a position.
    """

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        weight, bias = self.parameters_now["weight"], self.parameters_now.get("bias")
        rows = flat.reshape(replicas, -1, flat.shape[-1])
        outputs = weight.shape[1]
        if self.aligned:
            rows = _even(rows, 2)
            weight = _even(_even(weight, 2), 1)
            bias = None if bias is None else _even(bias, 1)
        if bias is None:
            out = torch.bmm(rows, weight.mT)
        else:
            out = torch.baddbmm(bias[:, None], rows, weight.mT)
        if self.aligned:
            out = out[..., :outputs].contiguous()
        return flat, out.view(*flat.shape[:-1], -1)

    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> Digest:
        inside, back = _positions(taken), _positions(returned)
        positions, outputs, inputs = inside.shape[1], back.shape[2], inside.shape[2]
        # A sum over positions is written out: what it is rounded to is the gradient.
        offset = (back.sum(1),) if "bias" in self.names else ()
        if positions == 1:
            square = (squared_rows(inside) + len(offset)) * squared_rows(back)
            return Digest(square, (inside, back, *offset))
        if fits(positions, outputs, inputs):
            return written_out(torch.bmm(back.mT, inside), *offset)
        square, terms, length = squared_products(back, inside)
        for rows in offset:
            square = square + squared_rows(rows)
        return Digest(square, (inside, back, *offset), terms, positions, length)

    def sums(self, made_from: tuple[Tensor, ...], weights: Tensor) -> dict[str, Tensor]:
        if len(made_from) == len(self.names):  # written out
            return {
                name: explicit_sum(rows, weights)
                for name, rows in zip(self.names, made_from, strict=True)
            }
        inside, back, *offset = made_from
        result = {"weight": outer_sum(back, inside, weights)}
        for rows in offset:
            result["bias"] = explicit_sum(rows, weights)
        return result


def _even(tensor: Tensor, dim: int) -> Tensor:
    """Filled up with zeros to whole lines of memory along ``dim``."""
    missing = -tensor.shape[dim] % LINE
    pads = [0, 0] * (tensor.dim() - 1 - dim) + [0, missing]
    return functional.pad(tensor, pads) if missing else tensor


def _positions(uses: list[Tensor]) -> Tensor:
    """All uses side by side: (replicas * samples, positions, features)."""
    return joined([use.reshape(len(use), -1, use.shape[-1]) for use in uses], 1)
