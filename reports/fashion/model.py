"""The CNN of this report."""

from __future__ import annotations

from torch import nn


def tanh_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Two convolutions and a linear layer; tanh, as private training prefers.

    7 074 parameters for 28x28 images of ten classes.
    """
    channels, size = input_shape[0], input_shape[1]
    left = ((size // 2) - 3) // 2 + 1
    return nn.Sequential(
        nn.Conv2d(channels, 8, 4, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16 * left**2, classes),
    )
