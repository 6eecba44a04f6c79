"""Layers that torch has only in fused forms, rebuilt for fast clipping."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Offset(nn.Module):
    """Adds a learned tensor of a sample's ``shape`` to each, as positions do."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:  # (samples, *shape)
        return x + self.weight


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017), without mask and dropout.

    As `torch.nn.MultiheadAttention`: in_proj_weight is ``inside``'s, out_proj
    ``outside``.
    """

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        if heads < 1 or features % heads:
            raise ValueError(
                f"{features} features cannot be shared by {heads} heads; use a number "
                "of heads that divides them"
            )
        self.heads = heads
        self.inside = nn.Linear(features, 3 * features)
        self.outside = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:  # (samples, positions, features)
        parts = self.inside(x).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        # (samples, heads, positions, positions)
        scores = query @ key.mT / query.shape[-1] ** 0.5
        mixed = scores.softmax(-1) @ value  # (samples, heads, positions, width)
        return self.outside(mixed.transpose(1, 2).flatten(2))


class Lstm(nn.Module):
    """One layer of long short-term memory (Hochreiter and Schmidhuber 1997).

    As `torch.nn.LSTM` with ``batch_first``, with one bias for the sum of its two.
    """

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.inside = nn.Linear(features, 4 * hidden)
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # (samples, steps, features)
        """The hidden state after every step, (samples, steps, hidden)."""
        given = self.inside(x)  # (samples, steps, 4 * hidden)
        hidden = cell = given.new_zeros(len(x), self.hidden)
        states = []
        for step in given.unbind(1):
            into, keep, new, out = (step + self.recurrent(hidden)).chunk(4, 1)
            cell = keep.sigmoid() * cell + into.sigmoid() * new.tanh()
            hidden = out.sigmoid() * cell.tanh()
            states.append(hidden)
        return torch.stack(states, 1)
