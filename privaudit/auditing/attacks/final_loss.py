"""The black-box adversary: the canary's loss under the final model."""

from __future__ import annotations

from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import (
    Adversary,
    Differentiator,
    Scene,
    Watcher,
)


def canary_losses(scene: Scene, gradients: Differentiator, models: Tensor) -> Tensor:
    """(runs,): the canary's loss under each of ``models``, (runs, dims).

    A crafted gradient g is that of the loss <g, theta>; of several, (runs, canaries).
    """
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


class FinalLoss(Adversary):
    """The loss of the canary under the final model of its node, negated."""

    name = "final-loss"
    sees = "the canary's loss under the final model of its node"

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        """See `Adversary.watch`."""
        return _Watcher(self.scene, gradients)


class _Watcher(Watcher):
    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        self._scene = scene
        self._gradients = gradients

    def score(self, models: Tensor) -> Tensor:
        return -canary_losses(self._scene, self._gradients, models[:, CANARY_NODE])
