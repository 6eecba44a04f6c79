"""Models of one to four layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def logistic(features: int) -> nn.Module:
    """Logistic regression of two classes, ``features`` + 1 parameters: 0, x.w + b."""
    return nn.Sequential(nn.Flatten(), _Binary(features))


class _Binary(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, x: Tensor) -> Tensor:
        logit = self.linear(x)
        return torch.cat([torch.zeros_like(logit), logit], 1)


def softmax(features: int, classes: int) -> nn.Module:
    """Softmax regression, (features + 1) * classes parameters: 7 850 for 784 and 10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(features, classes))


def one_vs_all(features: int, classes: int) -> nn.Module:
    """One linear score a class without a constant, features * classes parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(features, classes, bias=False))


def small_cnn(
    *,
    size: int,
    classes: int,
    channels: int = 1,
    filters: int = 3,
    kernel: int = 5,
    hidden: int = 64,
) -> nn.Sequential:
    """One convolution and two linear layers, the MNIST model of Bayrooti et al. 2023.

    38 424 parameters at size 32 with 10 classes, 28 440 at size 28.
    """
    pooled = (size - kernel + 1) // 2
    if pooled < 1:
        raise ValueError(
            f"images of {size} pixels are too small for a kernel of {kernel} and "
            f"pooling by 2; use at least {kernel + 1}"
        )
    return nn.Sequential(
        nn.Conv2d(channels, filters, kernel),
        nn.Mish(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(filters * pooled**2, hidden),
        nn.Mish(),
        nn.Linear(hidden, classes),
    )


def shallow_cnn(
    *, size: int, classes: int, channels: int = 1, filters: int = 16, hidden: int = 32
) -> nn.Sequential:
    """Two convolutions and two linear layers, the FashionMNIST model of Dyn-D2P.

    26 010 parameters at size 28 with 10 classes; widths, which the paper lacks, are of
    the usual private MNIST model (Papernot et al. 2021), with ReLU.
    """
    once = ((size + 4 - 8) // 2 + 1) - 1  # 8x8, stride 2, padding 2; pooled to stride 1
    twice = ((once - 4) // 2 + 1) - 1  # 4x4, stride 2; pooled
    if twice < 1:
        raise ValueError(
            f"images of {size} pixels are too small for two convolutions and "
            "poolings; use at least 16"
        )
    return nn.Sequential(
        nn.Conv2d(channels, filters, 8, stride=2, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(filters, 2 * filters, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(2 * filters * twice**2, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def tanh_mlp(features: int, classes: int, hidden: int = 10) -> nn.Sequential:
    """Three linear layers with tanh, the MLP of PartPSP: in x 10, 10 x in, in x 10."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(features, hidden),
        nn.Tanh(),
        nn.Linear(hidden, features),
        nn.Tanh(),
        nn.Linear(features, classes),
    )
