"""A network that the package has no name for."""

from __future__ import annotations

from torch import nn

from trainers.models.resnets import basic_block


def resnet8(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Three residual blocks of 16, 32 and 64 channels, with group norm."""
    layers: list[nn.Module] = [
        nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
    ]
    width = 16
    for outputs, stride in ((16, 2), (32, 2), (64, 2)):
        layers.append(basic_block(width, outputs, stride, groups=4))
        width = outputs
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    )
