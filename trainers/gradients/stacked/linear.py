"""Linear layers over stacked parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.gradients.stacked.layer import (
    StackedLayer,
    joined,
    squared_products,
    squared_sums,
)


class StackedLinear(StackedLayer):
    """`torch.nn.Linear` over (samples, features) or (samples, ..., features).

    Positions of one use and several uses come to the same: a sample's gradient is the
    sum of an outer product a position.
    """

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        weight, bias = self.parameters_now["weight"], self.parameters_now.get("bias")
        rows = flat.reshape(replicas, -1, flat.shape[-1])
        if bias is None:
            out = torch.bmm(rows, weight.mT)
        else:
            out = torch.baddbmm(bias[:, None], rows, weight.mT)
        return flat, out.view(*flat.shape[:-1], -1)

    def digest(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        inside, back = _positions(taken), _positions(returned)
        biased = "bias" in self.names
        if inside.shape[1] == 1:
            square = inside.square().sum((1, 2)) + biased
            return square * back.square().sum((1, 2)), (inside, back)
        square = squared_products(back, inside)
        if biased:
            square = square + squared_sums(back)
        return square, (inside, back)

    def sums(self, digest: tuple[Tensor, Tensor], weights: Tensor) -> dict[str, Tensor]:
        replicas = weights.shape[0]
        inside, back = digest
        share = weights.reshape(-1, 1, 1) * back
        share = share.reshape(replicas, -1, back.shape[-1])
        rows = inside.reshape(replicas, -1, inside.shape[-1])
        result = {"weight": torch.bmm(share.mT, rows)}
        if "bias" in self.names:
            result["bias"] = share.sum(1)
        return result


def _positions(uses: list[Tensor]) -> Tensor:
    """All uses side by side: (replicas * samples, positions, features)."""
    return joined([use.reshape(len(use), -1, use.shape[-1]) for use in uses], 1)
