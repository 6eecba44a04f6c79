"""The white-box adversary of accounts: all noisy gradients of the canary's node."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import (
    Adversary,
    Differentiator,
    Scene,
    Watcher,
)
from privaudit.auditing.attacks.likelihood import (
    MatchedFilter,
    TurnScores,
    expected_projection,
    log_ratio,
)
from trainers.oracles.oracle import ReleaseObserver


class NoisyGradients(Adversary):
    """All that the canary's node releases, with all other records known."""

    name = "noisy-gradients"
    reads_models = False
    sees = "all noisy gradients of its node, with all other records known"

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        return _Watcher(self.scene, gradients, runs)


class _Watcher(Watcher):
    def __init__(self, scene: Scene, gradients: Differentiator, runs: int) -> None:
        self._scene = scene
        self._gradients = gradients
        secret = scene.mechanism.is_secret(scene.rate) and not scene.replaces
        self._turns = TurnScores(scene.mechanism, secret=secret)
        self._total = self._turns.none(runs, len(scene.canary))
        self._filter = (
            None if scene.canary.direction is not None else MatchedFilter(scene)
        )

    @property
    def release_observers(self) -> tuple[ReleaseObserver, ...]:
        return self._turns.observers(self)

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """Add this release's evidence to the running score."""
        if CANARY_NODE not in nodes:
            return
        column = list(nodes).index(CANARY_NODE)
        at, gradient = at[:, column], gradient[:, column]
        score = self._total[self._turns.part(index)]
        if self._filter is not None:
            score += self._filter(index, at, gradient)[:, None]
            return
        scene = self._scene
        clip, noise = scene.scales(index)
        along = scene.canary.along(gradient) * scene.divisors[CANARY_NODE]
        along -= expected_projection(scene, self._gradients, CANARY_NODE, index, at)
        shift = clip * self._turns.moved(index) / noise
        score += log_ratio(along / noise, shift, scene.rate, replaces=scene.replaces)

    def score(self, models: Tensor) -> Tensor:
        return self._turns.mean(self._total)
