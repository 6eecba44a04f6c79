"""Models of sequences: of patches, of tokens, of anything with steps."""

from __future__ import annotations

from torch import Tensor, nn

from trainers.models.layers import Lstm, Offset, SelfAttention
from trainers.models.resnets import Residual


def vit(
    *,
    size: int,
    classes: int,
    channels: int = 3,
    patch: int = 4,
    features: int = 64,
    depth: int = 4,
    heads: int = 4,
) -> nn.Sequential:
    """A small vision transformer (Dosovitskiy et al. 2021): 141 898 parameters for 10.

    Of 32x32x3: a linear layer a patch of 4x4, learned positions, ``depth`` blocks of
    attention and a perceptron of twice the width, after layer norms; mean over patches.
    """
    if patch < 1 or size % patch:
        raise ValueError(
            f"patches of {patch} pixels do not divide images of {size}; "
            f"use a divisor of {size}"
        )
    blocks: list[nn.Module] = []
    for _ in range(depth):
        attention = SelfAttention(features, heads)
        perceptron = nn.Sequential(
            nn.Linear(features, 2 * features),
            nn.GELU(),
            nn.Linear(2 * features, features),
        )
        for inner in (attention, perceptron):
            blocks.append(Residual(nn.Sequential(nn.LayerNorm(features), inner)))
    return nn.Sequential(
        nn.Conv2d(channels, features, patch, stride=patch),
        _Patches(),
        Offset((size // patch) ** 2, features),
        *blocks,
        nn.LayerNorm(features),
        _Mean(),
        nn.Linear(features, classes),
    )


class _Patches(nn.Module):
    """(samples, features, high, wide) to (samples, high * wide, features)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mT


class _Mean(nn.Module):
    """(samples, positions, features) to (samples, features)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def lstm(
    features: int, classes: int, *, hidden: int = 64, vocabulary: int | None = None
) -> nn.Sequential:
    """An LSTM over a sequence, and a linear layer on its last state.

    24 458 parameters for 28 features and 10 classes. Inputs: (samples, steps,
    features), (samples, 1, steps, features), or tokens (samples, steps) below a
    ``vocabulary``.
    """
    layers: list[nn.Module] = []
    if vocabulary is not None:
        layers.append(nn.Embedding(vocabulary, features))
    return nn.Sequential(
        *layers,
        nn.Flatten(1, -2),
        Lstm(features, hidden),
        _Last(),
        nn.Linear(hidden, classes),
    )


class _Last(nn.Module):
    """(samples, steps, hidden) to the last step's."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]
