"""Embeddings and learned offsets of many replicas at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainers.gradients.stacked.layer import (
    Digest,
    StackedExplicit,
    StackedLayer,
    blocks,
    joined,
    together,
)


class StackedEmbedding(StackedLayer):
    """`torch.nn.Embedding` of (samples, ...) tokens.

    Positions with one token share a row, so that a squared norm is the sum of the
    products of all pairs of positions with equal tokens.
    """

    def __init__(self, layer: nn.Embedding) -> None:
        super().__init__(layer)
        self.padding = layer.padding_idx

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        weight = self.parameters_now["weight"]  # (replicas, tokens, features)
        # Negative ones count from the end; as they are, they would be rows of the
        # replica before when gradients are summed.
        flat = torch.where(flat < 0, flat + weight.shape[1], flat)
        replica = torch.arange(replicas, device=flat.device)[:, None]
        rows = weight[replica, flat.reshape(replicas, -1)]
        return flat, rows.view(*flat.shape, -1)

    def _uses(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Tokens (flat, positions) and gradients (flat, positions, features)."""
        tokens = joined([use.reshape(len(use), -1) for use in taken], 1)
        back = [use.reshape(len(use), -1, use.shape[-1]) for use in returned]
        together = joined(back, 1)
        if self.padding is not None:
            together = together * (tokens != self.padding)[:, :, None]
        return tokens, together

    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> Digest:
        tokens, back = self._uses(taken, returned)
        positions = tokens.shape[1]
        squares, terms = [], []
        for here in blocks(len(tokens), 2 * positions**2, back):
            same = (tokens[here][:, :, None] == tokens[here][:, None]).double()
            rows = back[here].double()
            gram = torch.bmm(rows, rows.mT)
            lengths = gram.diagonal(dim1=1, dim2=2).sqrt()[:, :, None]
            terms.append((lengths * torch.bmm(same, lengths)).sum(2).sum(1))
            squares.append((gram * same).sum(2).sum(1).clamp_min(0))
        length = back.shape[2] + 2 * positions
        return Digest(
            together(squares), (tokens, back), together(terms), positions, length
        )

    def sums(
        self, made_from: tuple[Tensor, ...], weights: Tensor, into: list[Tensor]
    ) -> None:
        tokens, back = made_from
        replicas, samples = weights.shape
        _, rows, features = self.parameters_now["weight"].shape
        tokens, back = (
            part.unflatten(0, (replicas, samples)) for part in (tokens, back)
        )
        share = weights[:, :, None, None] * back
        first = torch.arange(replicas, device=tokens.device) * rows
        place = tokens + first[:, None, None]
        total = share.new_zeros(replicas * rows, features)
        total.index_add_(0, place.flatten(), share.flatten(0, 2))
        into[0].copy_(total.view(replicas, -1))


class StackedOffset(StackedExplicit):
    """`trainers.models.layers.Offset`."""

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        out = flat.unflatten(0, (replicas, -1)) + self.parameters_now["weight"][:, None]
        return flat[:0], out.flatten(0, 1)

    def gradients(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> dict[str, Tensor]:
        return {"weight": torch.stack(returned).sum(0)}
