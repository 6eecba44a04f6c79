"""Accuracy, loss and consensus of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from privaudit.settings import Evaluate
from trainers.data import Dataset
from trainers.gradients.differentiator import Differentiator
from trainers.oracles.oracle import MEMORY_LIMIT
from trainers.runs.material import Quality
from trainers.runs.outcome import Curves
from trainers.runs.problem import Problem
from trainers.runs.training import Training

CURVE_RECORDS = 2000  # of the test data, for accuracy within a point during training
# Measuring takes a tenth of the training's gradients, one of which is worth three looks
# at a record: one forwards, and two for the way back.
_SHARE, _LOOKS = 0.1, 3
LEAST_LAST = 500  # records, for the last measurement: fewer would say nothing
_LEAST_POINTS, _LEAST_RECORDS = 10, 50  # of the curve before it
# Bytes of one look at some records: more do not fit into a CPU's cache, and are slower;
# but so few records at once are slower still.
_CACHED, _AT_ONCE = 1 << 26, 16


class Looks(NamedTuple):
    """Number of test records to look at, and the rounds."""

    last: int  # records, for the last measurement
    records: int  # for each before it; the same ones each time, and among the last
    every: int  # rounds between measurements

    @classmethod
    def of(
        cls,
        training: Training,
        test: int,
        points: int,
        evaluate: Evaluate,
        sizes: Sequence[int] = (),
    ) -> Self:
        """Looks at ``test`` records, for a curve of at most so many ``points``.

        By what is public, and no clock: a study repeats to the bit. "tenth": half of a
        tenth of the training's work is for the last models, the rest for the curve; at
        least 500 records, and ten points of 50. "all": the last on all, and the curve
        takes a tenth.
        """
        rounds, batch, last = training.rounds, training.expected_batch(sizes), test
        asked, least = rounds, 2 * _LEAST_RECORDS
        if evaluate == "tenth":
            asked, least = training.family.releases(training.setting()), _LEAST_RECORDS
        looks = _SHARE * _LOOKS * asked * batch  # of each node's model
        if evaluate == "tenth":
            last = min(test, max(LEAST_LAST, int(looks / 2)))
            looks = max(0.0, looks - last)
        most = max(1, min(last, CURVE_RECORDS))
        points = max(_LEAST_POINTS, min(points, int(looks / most)))
        records = min(most, max(least, int(looks / points)))
        every = rounds // points if evaluate == "all" else -(-rounds // points)
        return cls(last, records, max(1, every))


def _some(test: Dataset, records: int, seed: int) -> Dataset:
    """So many records, evenly over all; fewer are among those of more."""
    if len(test) <= records:
        return test
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
    return test.select(order[:records])


def accuracy(gradients: Differentiator, models: Tensor, test: Dataset) -> Tensor:
    """Share of ``test`` that each model gets right, (runs, nodes), on the CPU."""
    return quality(gradients, models, test, "accuracy")


def quality(
    gradients: Differentiator, models: Tensor, test: Dataset, kind: Quality
) -> Tensor:
    """ "accuracy" or mean "loss" of models on ``test``, (runs, nodes), on the CPU."""
    flat = models.flatten(0, 1)
    values = gradients.values_per_sample + test.inputs[0].numel()
    size = values * models.element_size() * len(flat)
    step = max(1, MEMORY_LIMIT // size)
    if not models.is_cuda:
        step = min(step, max(_AT_ONCE, _CACHED // size))
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


def as_figures(kind: Quality, values: Tensor | None) -> dict[str, float | None]:
    """Means over runs of the nodes' mean and of the worst; None without test data."""
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
        """Measure, its mean and that of the worst node; empty if none was made."""
        for kind in ("accuracy", "loss"):
            if getattr(self, kind) is not None:
                return kind, getattr(self, kind), getattr(self, f"worst_{kind}")
        return ()

    @property
    def known(self) -> dict[str, float]:
        """The figures that there are, by name."""
        return {name: v for name, v in self._asdict().items() if v is not None}


class CurveRecorder:
    """Measures models after about ``points`` rounds, and the last, by `Looks`."""

    def __init__(
        self,
        problem: Problem,
        gradients: Differentiator,
        points: int = 25,
        evaluate: Evaluate = "all",
        seed: int = 0,
    ) -> None:
        self._problem = problem
        self._gradients = gradients
        self._test = self._some = None
        self._every = max(1, problem.training.rounds // points)
        if problem.test is not None:
            plan = Looks.of(
                problem.training, len(problem.test), points, evaluate, problem.sizes
            )
            self._every = plan.every
            self._test = _some(problem.test, plan.last, seed)
            self._some = _some(problem.test, plan.records, seed)
        self.points: list[Measured] = []
        self._seen = 0
        self._final: tuple[Tensor, Tensor | None] | None = None

    @property
    def test_records(self) -> int | None:
        """Number of test records of the last models; None if no test data."""
        return None if self._test is None else len(self._test)

    def __call__(self, done: int, models: Tensor) -> Measured | None:
        """Measure ``models``, (runs, nodes, dims), if ``done`` rounds reach a point."""
        passed = done // self._every > self._seen // self._every
        self._seen = done
        last = done == self._problem.training.rounds
        if not passed and not last:
            return None
        values = self.final(models) if last else self._values(models, self._some)
        point = self._point(done, values, models)
        if point is not None:
            self.points.append(point)
        return point

    def final(self, models: Tensor) -> Tensor | None:
        """Quality of the last models, (runs, nodes), measured once; None if no data."""
        known = self._final
        # The very same where there is no number, too: ranks decide alike.
        if known is None or not (known[0] is models or torch.equal(known[0], models)):
            known = self._final = (models, self._values(models, self._test))
        return known[1]

    def _values(self, models: Tensor, test: Dataset | None) -> Tensor | None:
        if test is None:
            return None
        return quality(self._gradients, models, test, self._problem.material.quality)

    def resume(self, done: int) -> None:
        self._seen = done

    def _point(
        self, done: int, values: Tensor | None, models: Tensor
    ) -> Measured | None:
        figures = as_figures(self._problem.material.quality, values)
        apart = self._apart(models)
        return Measured(round=done, consensus=apart, **figures)  # type: ignore[arg-type]

    def _apart(self, models: Tensor) -> float | None:
        return float(consensus_distance(models).mean())

    def curves(self) -> Curves:
        each = zip(Measured._fields, zip(*self.points, strict=True), strict=True)
        columns: dict[str, tuple] = {
            name: tuple(column) for name, column in each if None not in column
        }
        columns["rounds"] = columns.pop("round")
        return Curves(**columns)
