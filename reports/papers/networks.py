"""Networks that the package has no name for."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional

from trainers.models.resnets import resnet18
from trainers.models.small import small_cnn


class Coloured(nn.Module):
    """A grey image three times, as three colours."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of one channel, in three."""
        return x.expand(-1, 3, -1, -1)


def grey_resnet18(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Zhou et al.'s ResNet-18 of grey images, with group norm for batch norm."""
    return nn.Sequential(Coloured(), *resnet18(size=input_shape[1], classes=classes))


class Standardised(nn.Module):
    """Images in 32 by 32 pixels, less Fashion-MNIST's mean, over its deviation."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any size, in 32 by 32 pixels."""
        larger = functional.interpolate(x, size=(32, 32), mode="bilinear")
        return (larger - 0.2860) / 0.3530


def published_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Bayrooti et al.'s CNN of images as their code makes them, 38 424 parameters."""
    return nn.Sequential(Standardised(), *small_cnn(size=32, classes=classes))


class Linked(nn.Module):
    """The input plus what the layers make of it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` plus the layers' output."""
        return x + self.inner(x)


def published_1(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Zhou et al.'s MLP where one layer is shared: the link is over the last two."""
    size = math.prod(input_shape)
    last = (nn.Linear(classes, size), nn.Tanh(), nn.Linear(size, classes), nn.Tanh())
    return nn.Sequential(
        nn.Flatten(), nn.Linear(size, classes), nn.Tanh(), Linked(*last)
    )


def published_2(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Zhou et al.'s MLP where two layers are shared: the link is over these."""
    size = math.prod(input_shape)
    first = (nn.Linear(size, classes), nn.Tanh(), nn.Linear(classes, size), nn.Tanh())
    return nn.Sequential(
        nn.Flatten(), Linked(*first), nn.Linear(size, classes), nn.Tanh()
    )
