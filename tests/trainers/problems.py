"""Small problems that several test files share."""

import torch
from torch import nn

from trainers.data import Dataset, PrivateData
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle


def random_data(sizes=(7, 5, 9), features=4, classes=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [
        Dataset(
            torch.randn(size, features, generator=generator, dtype=dtype),
            torch.randint(0, classes, (size,), generator=generator),
        )
        for size in sizes
    ]


def softmax(features=4, classes=3):
    return nn.Linear(features, classes).to(torch.float64)


def oracle(
    mechanism=None,
    *,
    shares=None,
    runs=1,
    seed=0,
    block=0,
    module=None,
    canary=None,
    planted=None,
    kind=Oracle,
    replaces=False,
    **more,
):
    """An oracle over `random_data`, with per-sample gradients by the reference."""
    return kind(
        PrivateData.of(shares or random_data(), canary=canary, replaces=replaces),
        PerSample(module or softmax(), cross_entropy),
        mechanism or Mechanism(batch_size=3.0, clip_norm=0.5, noise_multiplier=2.0),
        Streams(seed, block),
        runs=runs,
        planted=planted,
        **more,
    )


def start(dims, runs=1, nodes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(runs, nodes, dims, generator=generator, dtype=torch.float64)
