"""Linear layers over stacked parameters."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional

from trainers.gradients.stacked.layer import (
    Digest,
    StackedLayer,
    explicit_sums,
    fits,
    joined,
    outer_sum,
    product_sum,
    products,
    squared_products,
    squared_rows,
    squared_sizes,
    twice,
    with_rows,
    written_out,
)

LINE = 16  # floats


class StackedLinear(StackedLayer):
    """`torch.nn.Linear`: gradients are sums of an outer product a position."""

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
        inside, back = positions_of(taken), positions_of(returned)
        positions, outputs, inputs = inside.shape[1], back.shape[2], inside.shape[2]
        # A sum over positions is written out: what it is rounded to is the gradient.
        offset = (back.sum(1),) if "bias" in self.names else ()
        if positions == 1:
            square = (squared_rows(inside) + len(offset)) * squared_rows(back)
            return Digest(square, (inside, back, *offset))
        if fits(outputs * inputs, positions * (outputs + inputs)):
            return written_out(torch.bmm(back.mT, inside), *offset)
        if twice(inside):
            strips = [products(*pair) for pair in zip(back, inside, strict=True)]
            squares = [
                torch.cat([squared_rows(part.view(1, -1).double()) for _, part in each])
                for each in strips
            ]
            square = with_rows(torch.stack(squares).sum(1), offset)
            made_from = inside, back, *offset
            terms = squared_sizes(back, inside)
            # Both products may be rounded, each in an order of its own.
            coarse = 2 * positions
            return Digest(square, made_from, terms, positions, 0, coarse, twice=True)
        found = squared_products(back, inside)
        square = with_rows(found.square, offset)
        return dataclasses.replace(
            found, square=square, made_from=(inside, back, *offset)
        )

    def sums(
        self, made_from: tuple[Tensor, ...], weights: Tensor, into: list[Tensor]
    ) -> None:
        if len(made_from) > len(into):  # not written out
            inside, back, *offset = made_from
            add = product_sum if twice(inside) else outer_sum
            add(back, inside, weights, into[0])
            made_from, into = tuple(offset), into[1:]
        explicit_sums(made_from, weights, into)


def _even(tensor: Tensor, dim: int) -> Tensor:
    """Filled up with zeros to whole lines of memory along ``dim``."""
    missing = -tensor.shape[dim] % LINE
    pads = [0, 0] * (tensor.dim() - 1 - dim) + [0, missing]
    return functional.pad(tensor, pads) if missing else tensor


def positions_of(uses: list[Tensor]) -> Tensor:
    """All uses side by side: (replicas * samples, positions, features)."""
    return joined([use.reshape(len(use), -1, use.shape[-1]) for use in uses], 1)
