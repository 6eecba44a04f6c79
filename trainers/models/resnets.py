"""Residual networks (He et al. 2016) with group norm (Wu and He 2018), by record."""

from __future__ import annotations

from torch import Tensor, nn


class Residual(nn.Module):
    """x + inner(x), or shortcut(x) + inner(x), and an activation after it or none."""

    def __init__(
        self,
        inner: nn.Module,
        shortcut: nn.Module | None = None,
        after: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.inner = inner
        self.shortcut = shortcut or nn.Identity()
        self.after = after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.inner(x) + self.shortcut(x))


def resnet9(
    *, size: int, classes: int, channels: int = 3, groups: int = 16
) -> nn.Sequential:
    """ResNet-9: 7 802 724 parameters for 100 classes, 7 756 554 for 10, 3 channels.

    As many as the CIFAR-100 model of Bayrooti et al. 2023, whose layout is not printed:
    four convolutions to 64, 128, 256 and 512 channels, the last three pooled by 2 and
    followed by a residual block of two, 16 groups, biases, a maximum, one linear layer.
    """
    if size < 8:
        raise ValueError(
            f"images of {size} pixels are too small for ResNet-9, which halves them "
            "three times; use at least 8"
        )

    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.GroupNorm(groups, outputs),
            nn.ReLU(),
        ]

    layers = convolution(channels, 64)
    width = 64
    for _ in range(3):
        layers += [*convolution(width, 2 * width), nn.MaxPool2d(2)]
        width *= 2
        inner = nn.Sequential(*convolution(width, width), *convolution(width, width))
        layers.append(Residual(inner))
    return nn.Sequential(
        *layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    )


def resnet18(
    *, size: int, classes: int, channels: int = 3, groups: int = 32
) -> nn.Sequential:
    """ResNet-18 with group norm, 11 181 642 parameters for 10 classes and 3 channels.

    In its layout for ImageNet, as in the papers of Dyn-D2P and of PartPSP.
    """
    if size < 4:
        raise ValueError(
            f"images of {size} pixels are too small for ResNet-18; use at least 4"
        )
    layers: list[nn.Module] = [
        nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False),
        nn.GroupNorm(groups, 64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for outputs in (64, 128, 256, 512):
        for stride in (1 if outputs == 64 else 2, 1):
            layers.append(basic_block(width, outputs, stride, groups))
            width = outputs
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    )


def basic_block(inputs: int, outputs: int, stride: int, groups: int) -> Residual:
    inner = nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.GroupNorm(groups, outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.GroupNorm(groups, outputs),
    )
    shortcut = None
    if stride > 1 or inputs != outputs:
        shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
            nn.GroupNorm(groups, outputs),
        )
    return Residual(inner, shortcut, nn.ReLU())
