"""Black-box adversaries: the canary's loss under the final model, or all models."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import (
    Adversary,
    Differentiator,
    Scene,
    Watcher,
)
from privaudit.files.user_code import checked
from trainers.gradients.per_sample import trained


def canary_losses(scene: Scene, gradients: Differentiator, models: Tensor) -> Tensor:
    """(runs,) or (runs, canaries): losses under ``models``; <g, theta> if crafted."""
    canary = scene.canary
    if canary.direction is not None:
        found = canary.along(models)
        return found if len(canary) > 1 else found[:, 0]
    runs = len(models)
    inputs = canary.record.inputs.expand(runs, *canary.record.inputs.shape)
    outputs = gradients.outputs(models, inputs)[:, 0]
    targets = canary.record.targets
    loss = scene.problem.material.loss
    return loss(outputs.double(), targets.expand(runs, *targets.shape[1:]))


class OwnScore(Adversary):
    """The score that a user's ``function`` gives the final model: more for members."""

    def __init__(self, scene: Scene, function: Callable[..., Any], name: str) -> None:
        super().__init__(scene)
        self.function, self._turn = function, threading.Lock()
        self.sees = f"the final model of its node, as {name} scores it"

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        return _OwnWatcher(self, self._turn)


class _OwnWatcher(Watcher):
    def __init__(self, by: OwnScore, turn: threading.Lock) -> None:
        self._by, self._turn = by, turn

    def score(self, models: Tensor) -> Tensor:
        """Ask the function, which is called by one thread at a time."""
        module = copy.deepcopy(self._by.scene.problem.module).eval()
        found = torch.zeros(len(models), dtype=torch.float64)
        with self._turn, torch.no_grad(), checked(self._by.sees.partition(", as ")[2]):
            for run, vector in enumerate(models[:, CANARY_NODE]):
                vector_to_parameters(vector.clone(), trained(module).values())
                found[run] = float(self._by.function(module))
        if not torch.isfinite(found).all():
            raise ValueError(f"{self._by.sees}: scores must be finite numbers")
        return found


class FinalLoss(Adversary):
    """The loss of the canary under the final model of its node, negated."""

    name = "final-loss"
    sees = "the canary's loss under the final model of its node"

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        return _Watcher(self.scene, gradients)


class AllLosses(FinalLoss):
    """The mean of the canary's losses under the models of all rounds, negated."""

    name = "all-losses"
    sees = "the canary's loss under the model of its node after every round"

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        return _OfAllRounds(self.scene, gradients)


class _Watcher(Watcher):
    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        self._scene, self._gradients = scene, gradients

    def score(self, models: Tensor) -> Tensor:
        return -canary_losses(self._scene, self._gradients, models[:, CANARY_NODE])


class _OfAllRounds(_Watcher):
    _total: Tensor | float = 0.0
    _rounds = 0

    def after_round(self, done: int, models: Tensor) -> None:
        self._total = self._total + super().score(models)
        self._rounds += 1

    def score(self, models: Tensor) -> Tensor:
        assert isinstance(self._total, Tensor)
        return self._total / self._rounds
