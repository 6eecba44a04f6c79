"""The adversary who sees the canary's loss under the model of every round."""

from __future__ import annotations

from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import (
    Adversary,
    Differentiator,
    Scene,
    Watcher,
)
from privaudit.auditing.attacks.final_loss import canary_losses


class AllLosses(Adversary):
    """The mean of the canary's losses under the models of all rounds, negated."""

    name = "all-losses"
    sees = "the canary's loss under the model of its node after every round"

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        """See `Adversary.watch`."""
        return _Watcher(self.scene, gradients, runs)


class _Watcher(Watcher):
    def __init__(self, scene: Scene, gradients: Differentiator, runs: int) -> None:
        self._scene = scene
        self._gradients = gradients
        self._total: Tensor | float = 0.0
        self._rounds = 0

    def after_round(self, done: int, models: Tensor) -> None:
        self._total = self._total - canary_losses(
            self._scene, self._gradients, models[:, CANARY_NODE]
        )
        self._rounds += 1

    def score(self, models: Tensor) -> Tensor:
        assert isinstance(self._total, Tensor)
        return self._total / self._rounds
