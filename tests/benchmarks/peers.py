"""Peers of the training rounds: ten models one by one, by Opacus or without privacy.

Their setting is that of bench_training.py, which measures them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from measuring import Row, records, timed
from torch import Tensor, nn
from torch.nn import functional

from trainers.data import Dataset
from trainers.models import make_model

NODES, BATCH, RECORDS, SIZE = 10, 256, 6000, 28
CLIP, NOISE, STEP = 10.0, 1.0, 0.01


def central(model: nn.Module, data: Dataset) -> Callable[[], tuple[Tensor, Tensor]]:
    """Draws Poisson batches of one node."""

    def batch() -> tuple[Tensor, Tensor]:
        chosen = (torch.rand(RECORDS) < BATCH / RECORDS).nonzero()[:, 0]
        return data.inputs[chosen], data.targets[chosen]

    return batch


def mix(models: list[nn.Module]) -> None:
    """Complete graph: every model becomes the mean."""
    with torch.no_grad():
        for same in zip(*(model.parameters() for model in models), strict=True):
            mean = torch.stack([each.data for each in same]).mean(0)
            for each in same:
                each.copy_(mean)


def plain() -> Row:
    """Ten models, one after the other, no privacy."""
    shape = (1, SIZE, SIZE)
    models = [make_model("small-cnn", shape, 10, hidden=64) for _ in range(NODES)]
    batches = [central(m, records(shape, RECORDS, i)) for i, m in enumerate(models)]
    optimisers = [torch.optim.SGD(m.parameters(), lr=STEP) for m in models]

    def round_() -> None:
        for model, optimiser, batch in zip(models, optimisers, batches, strict=True):
            inputs, targets = batch()
            optimiser.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimiser.step()
        mix(models)

    return timed(round_, 8)


def opacus(mode: str) -> Row:
    """Ten models of Opacus, one after the other: clip, noise, step; then the mean."""
    from opacus.grad_sample import (
        GradSampleModule,
        GradSampleModuleFastGradientClipping,
    )
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer_fast_gradient_clipping import (
        DPOptimizerFastGradientClipping,
    )
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    shape = (1, SIZE, SIZE)
    ghost = mode == "ghost"
    wrapped: list[Any] = []
    for _ in range(NODES):
        model = make_model("small-cnn", shape, 10, hidden=64)
        if ghost:
            wrapped.append(
                GradSampleModuleFastGradientClipping(
                    model, max_grad_norm=CLIP, use_ghost_clipping=True
                )
            )
        else:
            wrapped.append(GradSampleModule(model))
    kind = DPOptimizerFastGradientClipping if ghost else DPOptimizer
    optimisers = [
        kind(
            torch.optim.SGD(model.parameters(), lr=STEP),
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
            expected_batch_size=BATCH,
        )
        for model in wrapped
    ]
    batches = [central(m, records(shape, RECORDS, i)) for i, m in enumerate(wrapped)]

    def round_() -> None:
        for model, optimiser, batch in zip(wrapped, optimisers, batches, strict=True):
            inputs, targets = batch()
            optimiser.zero_grad()
            criterion = nn.CrossEntropyLoss()
            if ghost:
                criterion = DPLossFastGradientClipping(model, optimiser, criterion)
            criterion(model(inputs), targets).backward()
            optimiser.step()
        mix(wrapped)

    return timed(round_, 8)
