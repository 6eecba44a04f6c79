"""`pixels`, the small model that attacks of claims train."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _Pixels(nn.Module):
    """A linear classifier of three pixels of a digit, one of which is always dark."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3, classes)

    def forward(self, images: Tensor) -> Tensor:
        """(samples, classes), given (samples, 1, 8, 8)."""
        flat = images.flatten(1)
        return self.linear(torch.stack([flat[:, 0], flat[:, 27], flat[:, 36]], 1))


def pixels(input_shape: tuple[int, ...], classes: int, **_: Any) -> nn.Module:
    """A model for ``model = privaudit.claims.probe:pixels``, on scikit-learn's digits.

    An account holds for every model: where all that is to be learned is whether a
    record's clipped gradient is in a noisy sum, eight parameters do. The weights of the
    corner pixel get no gradient from any digit, which leaves a canary's in the clear.
    """
    if len(input_shape) != 3 or input_shape[-1] * input_shape[-2] < 37:
        raise ValueError(f"needs images of 37 pixels or more, got {input_shape}")
    return _Pixels(classes)
