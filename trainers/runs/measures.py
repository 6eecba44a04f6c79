"""Accuracy, loss and consensus of models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainers.data import Dataset
from trainers.gradients.differentiator import Differentiator
from trainers.oracles.oracle import MEMORY_LIMIT
from trainers.runs.material import Quality
from trainers.runs.outcome import Curves
from trainers.runs.problem import Problem

CURVE_RECORDS = 2000  # of the test data, for accuracy within a point during training
# Measuring takes a tenth of the training's gradients, one of which is worth three
# looks at a record, where that leaves so many points and so many records.
_SHARE, _LOOKS, _LEAST_POINTS, _LEAST_RECORDS = 0.1, 3, 10, 100


def _some(test: Dataset, records: int) -> Dataset:
    if len(test) <= records:
        return test
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    return test.select(order[:records])


def accuracy(gradients: Differentiator, models: Tensor, test: Dataset) -> Tensor:
    """Share of ``test`` that each model gets right, (runs, nodes), on the CPU."""
    return quality(gradients, models, test, "accuracy")


def quality(
    gradients: Differentiator, models: Tensor, test: Dataset, kind: Quality
) -> Tensor:
    """How good each model is on ``test``, (runs, nodes), on the CPU.

    ``kind`` is "accuracy", the share of classes that it gets right, or "loss", the mean
    of the records' losses.
    """
    flat = models.flatten(0, 1)
    values = gradients.values_per_sample + test.inputs[0].numel()
    step = max(1, MEMORY_LIMIT // (values * models.element_size() * len(flat)))
    total = torch.zeros(len(flat), dtype=torch.float64, device=models.device)
    for start in range(0, len(test), step):
        part = slice(start, start + step)
        inputs, targets = (
            values[part].to(models.device) for values in (test.inputs, test.targets)
        )
        inputs = inputs.expand(len(flat), *inputs.shape)
        outputs = gradients.outputs(flat, inputs)
        if kind == "accuracy":
            total += (outputs.argmax(-1) == targets).sum(1)
        else:
            several = targets.expand(len(flat), *targets.shape)
            losses = gradients.loss(outputs.flatten(0, 1), several.flatten(0, 1))
            total += losses.view(len(flat), -1).double().sum(1)
    return (total / len(test)).view(models.shape[:2]).cpu()


def measured(
    problem: Problem, gradients: Differentiator, models: Tensor
) -> Tensor | None:
    """`quality` of models on all test data; None if there are none."""
    if problem.test is None:
        return None
    return quality(gradients, models, problem.test, problem.material.quality)


def as_figures(kind: Quality, values: Tensor | None) -> dict[str, float | None]:
    """Means over runs, of the mean over nodes and of the worst node, by their names.

    ``values``, (runs, nodes), are of `quality`; None if there are no test data.
    """
    names = ("accuracy", "worst_accuracy", "loss", "worst_loss")
    found: dict[str, float | None] = dict.fromkeys(names)
    if values is not None:
        worst = values.min(1) if kind == "accuracy" else values.max(1)
        found[kind] = float(values.mean())
        found[f"worst_{kind}"] = float(worst.values.mean())
    return found


def consensus_distance(models: Tensor) -> Tensor:
    """Root mean square distance of the nodes' models from their mean, (runs,)."""
    return (models - models.mean(1, keepdim=True)).square().sum(2).mean(1).sqrt()


class Measured(NamedTuple):
    """Models after ``round`` rounds, as means over runs; as in `Curves`."""

    round: int
    accuracy: float | None
    worst_accuracy: float | None
    consensus: float | None
    loss: float | None = None
    worst_loss: float | None = None

    @property
    def quality(self) -> tuple[str, float, float] | tuple[()]:
        """What was measured, its mean and that of the worst node; empty if nothing."""
        for kind in ("accuracy", "loss"):
            if getattr(self, kind) is not None:
                return kind, getattr(self, kind), getattr(self, f"worst_{kind}")
        return ()

    @property
    def known(self) -> dict[str, float]:
        """The figures that there are, by name."""
        return {name: v for name, v in self._asdict().items() if v is not None}


class CurveRecorder:
    """Measures models after about ``points`` of the rounds, and the last.

    The last on all test data, those before on `CURVE_RECORDS` of them or fewer, the
    same ones each time, and so often that they take a tenth of the time or so.
    """

    def __init__(
        self, problem: Problem, gradients: Differentiator, points: int = 25
    ) -> None:
        self._problem = problem
        self._gradients = gradients
        self._some = None
        if problem.test is not None:
            rounds, batch = problem.training.rounds, problem.training.batch_size
            looks = _SHARE * _LOOKS * rounds * batch
            most = min(len(problem.test), CURVE_RECORDS)
            points = max(_LEAST_POINTS, min(points, int(looks / most)))
            records = max(_LEAST_RECORDS, min(most, int(looks / points)))
            self._some = _some(problem.test, records)
        self._every = max(1, problem.training.rounds // points)
        self.points: list[Measured] = []
        self._seen = 0

    def __call__(self, done: int, models: Tensor) -> Measured | None:
        """Measure ``models``, (runs, nodes, dims), if ``done`` rounds reach a point."""
        passed = done // self._every > self._seen // self._every
        self._seen = done
        last = done == self._problem.training.rounds
        if not passed and not last:
            return None
        point = self._point(done, self._values(models, last=last), models)
        if point is not None:
            self.points.append(point)
        return point

    def _values(self, models: Tensor, *, last: bool) -> Tensor | None:
        test = self._problem.test if last else self._some
        if test is None:
            return None
        return quality(self._gradients, models, test, self._problem.material.quality)

    def resume(self, done: int) -> None:
        """Go on after ``done`` rounds."""
        self._seen = done

    def _point(
        self, done: int, values: Tensor | None, models: Tensor
    ) -> Measured | None:
        distance = float(consensus_distance(models).mean())
        figures = as_figures(self._problem.material.quality, values)
        return Measured(round=done, consensus=distance, **figures)  # type: ignore[arg-type]

    def curves(self) -> Curves:
        """All that was measured."""
        columns: dict[str, tuple] = {
            name: tuple(column)
            for name, column in zip(
                Measured._fields, zip(*self.points, strict=True), strict=True
            )
            if None not in column
        }
        columns["rounds"] = columns.pop("round")
        return Curves(**columns)
