"""Black-box adversaries: the canary's loss under the final model, or all models."""

from __future__ import annotations

import abc
import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from privaudit.auditing.attacks.canaries import CANARY_NODE, repeated
from privaudit.auditing.attacks.contract import (
    Adversary,
    Differentiator,
    Scene,
    Watcher,
)
from privaudit.files.user_code import checked
from trainers.data import Dataset
from trainers.gradients.per_sample import trained

_VALUES = 1 << 22  # of inputs that losses are taken of at once


def losses(gradients: Differentiator, models: Tensor, data: Dataset) -> Tensor:
    """(models, records), of models (models, dims)."""
    found = []
    for some in models.split(max(1, _VALUES // data.inputs.numel())):
        inputs, targets = repeated(data, len(some))
        outputs = gradients.outputs(some, inputs).double()  # (models, records, classes)
        each = gradients.loss(outputs.flatten(0, 1), targets.flatten(0, 1))
        found.append(each.view(len(some), len(data)))
    return torch.cat(found)


def canary_losses(scene: Scene, gradients: Differentiator, models: Tensor) -> Tensor:
    """(models, canaries), of models (models, dims); <g, theta> if crafted."""
    if scene.canary.direction is not None:
        return scene.canary.along(models)
    return losses(gradients, models, scene.canary.record)


class OfFinalModel(Adversary):
    """Scores the final model of the canary's node, and sees nothing before."""

    @abc.abstractmethod
    def scores(self, models: Tensor, gradients: Differentiator) -> Tensor:
        """(runs,) or (runs, canaries), given models of the canary's node."""

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        return _Watcher(self, gradients)


class _Watcher(Watcher):
    def __init__(self, by: OfFinalModel, gradients: Differentiator) -> None:
        self._by, self._gradients = by, gradients

    def score(self, models: Tensor) -> Tensor:
        return self._by.scores(models[:, CANARY_NODE], self._gradients)


class OwnScore(OfFinalModel):
    """The score that a user's ``function`` gives the final model: more for members."""

    def __init__(self, scene: Scene, function: Callable[..., Any], name: str) -> None:
        super().__init__(scene)
        self.function, self._turn = function, threading.Lock()
        self.sees = f"the final model of its node, as {name} scores it"

    def scores(self, models: Tensor, gradients: Differentiator) -> Tensor:
        """Ask the function, which is called by one thread at a time."""
        module = copy.deepcopy(self.scene.problem.module).eval()
        found = torch.zeros(len(models), dtype=torch.float64)
        with self._turn, torch.no_grad(), checked(self.sees.partition(", as ")[2]):
            for run, vector in enumerate(models):
                vector_to_parameters(vector.clone(), trained(module).values())
                found[run] = float(self.function(module))
        if not torch.isfinite(found).all():
            raise ValueError(f"{self.sees}: scores must be finite numbers")
        return found


class FinalLoss(OfFinalModel):
    """The loss of the canary under the final model of its node, negated."""

    name = "final-loss"
    sees = "the canary's loss under the final model of its node"

    def scores(self, models: Tensor, gradients: Differentiator) -> Tensor:
        found = -canary_losses(self.scene, gradients, models)
        return found if len(self.scene.canary) > 1 else found[:, 0]


class AllLosses(FinalLoss):
    """The mean of the canary's losses under the models of all rounds, negated."""

    name = "all-losses"
    sees = "the canary's loss under the model of its node after every round"

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        return _OfAllRounds(self, gradients)


class _OfAllRounds(_Watcher):
    _total: Tensor | float = 0.0
    _rounds = 0

    def after_round(self, done: int, models: Tensor) -> None:
        self._total = self._total + super().score(models)
        self._rounds += 1

    def score(self, models: Tensor) -> Tensor:
        assert isinstance(self._total, Tensor)
        return self._total / self._rounds
