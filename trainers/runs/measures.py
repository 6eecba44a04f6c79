"""How good models are, and how far apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainers.data import Dataset
from trainers.gradients.differentiator import Differentiator
from trainers.oracles.oracle import MEMORY_LIMIT
from trainers.runs.outcome import Curves
from trainers.runs.problem import Problem

CURVE_RECORDS = 2000  # of the test data, for accuracy within a point during training


def _some(test: Dataset) -> Dataset:
    if len(test) <= CURVE_RECORDS:
        return test
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    return test.select(order[:CURVE_RECORDS])


def accuracy(gradients: Differentiator, models: Tensor, test: Dataset) -> Tensor:
    """Share of ``test`` that each model gets right, (runs, nodes), on the CPU."""
    flat = models.flatten(0, 1)
    values = gradients.values_per_sample + test.inputs[0].numel()
    step = max(1, MEMORY_LIMIT // (values * models.element_size() * len(flat)))
    right = torch.zeros(len(flat), dtype=torch.float64, device=models.device)
    for start in range(0, len(test), step):
        part = slice(start, start + step)
        inputs, targets = (
            values[part].to(models.device) for values in (test.inputs, test.targets)
        )
        inputs = inputs.expand(len(flat), *inputs.shape)
        said = gradients.outputs(flat, inputs).argmax(-1)
        right += (said == targets).sum(1)
    return (right / len(test)).view(models.shape[:2]).cpu()


def consensus_distance(models: Tensor) -> Tensor:
    """Root mean square distance of the nodes' models from their mean, (runs,)."""
    return (models - models.mean(1, keepdim=True)).square().sum(2).mean(1).sqrt()


class Measured(NamedTuple):
    """Models after ``round`` rounds, as means over runs; as in `Curves`."""

    round: int
    accuracy: float
    worst_accuracy: float
    consensus: float


class CurveRecorder:
    """Measures models after about ``points`` of the rounds, and the last.

    The last on all test data, those before on `CURVE_RECORDS` of them, the same ones
    each time, so that large test sets do not take longer than the training.
    """

    def __init__(
        self, problem: Problem, gradients: Differentiator, points: int = 25
    ) -> None:
        self._problem = problem
        self._gradients = gradients
        self._every = max(1, problem.training.rounds // points)
        self._some = _some(problem.test)
        self.points: list[Measured] = []
        self._seen = 0

    def __call__(self, done: int, models: Tensor) -> Measured | None:
        """Measure ``models``, (runs, nodes, dims), if ``done`` rounds reach a point."""
        passed = done // self._every > self._seen // self._every
        self._seen = done
        last = done == self._problem.training.rounds
        if not passed and not last:
            return None
        test = self._problem.test if last else self._some
        right = accuracy(self._gradients, models, test)
        point = self._point(done, right, models)
        if point is not None:
            self.points.append(point)
        return point

    def resume(self, done: int) -> None:
        """Go on after ``done`` rounds."""
        self._seen = done

    def _point(self, done: int, right: Tensor, models: Tensor) -> Measured | None:
        return Measured(
            round=done,
            accuracy=float(right.mean()),
            worst_accuracy=float(right.min(1).values.mean()),
            consensus=float(consensus_distance(models).mean()),
        )

    def curves(self) -> Curves:
        """All that was measured."""
        rounds, mean, worst, distance = zip(*self.points, strict=True)
        return Curves(
            rounds=rounds, accuracy=mean, worst_accuracy=worst, consensus=distance
        )
