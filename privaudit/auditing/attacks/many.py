"""Adversaries of one-run audits: they score every canary."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE, reference_of
from privaudit.auditing.attacks.contract import Scene, Watcher
from privaudit.auditing.attacks.final_loss import (
    NO_PROBABILITY,
    References,
    canary_losses,
    losses,
    population,
)
from privaudit.auditing.attacks.likelihood import TurnScores, clipped_sum, log_ratio
from privaudit.auditing.membership import lira, rmia
from trainers.gradients.differentiator import Differentiator
from trainers.numerics.randomness import public_generator
from trainers.oracles.oracle import ReleaseObserver, clip_weights

_REFERENCES = 32  # models that an attacker trains for many canaries
_PART = 64  # records whose gradients are held at once


class ManyWatcher(Watcher):
    """Shown one run; scores are (canaries,), given final models (1, nodes, dims)."""

    name: ClassVar[str]
    sees: ClassVar[str]

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        self._scene = scene
        self._gradients = gradients


class _OfReleases(ManyWatcher):
    """A running score of each canary, from the releases of its node."""

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        super().__init__(scene, gradients)
        self._secret = all(map(scene.mechanism.is_secret, scene.rates))
        self._turns = TurnScores(scene.mechanism, secret=self._secret)
        self._total = self._turns.none(len(scene.canary))

    @property
    def release_observers(self) -> tuple[ReleaseObserver, ...]:
        return self._turns.observers(self)

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """Add this release's evidence to the running scores."""
        canary = self._scene.canary
        for column, node in enumerate(nodes):
            if node in canary.nodes:
                over = self._scene.divisors[node]
                released = gradient[0, column].cpu().double() * over
                found = self._evidence(node, index, at[:, column].cpu(), released)
                score = self._total[self._turns.part(index)]
                score[canary.at(node)] += found[canary.at(node)]

    def _ratio(self, node: int, index: int, vector: Tensor) -> Tensor:
        """Likelihood ratios of crafted gradients in ``vector``, (dims,)."""
        scene = self._scene
        clip, noise = scene.scales(index, node)
        along = vector[scene.canary.direction] / noise
        shift = clip * self._turns.moved(index) / noise
        return log_ratio(along, shift, scene.rates[node], replaces=False)

    @abc.abstractmethod
    def _evidence(self, node: int, index: int, at: Tensor, released: Tensor) -> Tensor:
        """(canaries,), of the ``index``-th sum, (dims,), of ``node``, at (1, dims)."""

    def score(self, models: Tensor) -> Tensor:
        return self._turns.mean(self._total)


class ManyNoisyGradients(_OfReleases):
    """All noisy gradients of each canary's node."""

    name = "noisy-gradients"
    sees = "all noisy gradients of its node, with all other records known"

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        super().__init__(scene, gradients)
        self._reference = reference_of(scene.problem)

    def _evidence(self, node: int, index: int, at: Tensor, released: Tensor) -> Tensor:
        scene = self._scene
        usual = clipped_sum(scene, self._gradients, node, index, at)[0].double()
        rate = scene.rates[node]
        surprise = released - rate / scene.mechanism.parts * usual
        if scene.canary.direction is not None:
            return self._ratio(node, index, surprise)
        # The other canaries are there by coins too: what they give on average goes off.
        parts = [
            self._clipped(at, first, scene.mechanism.at(index)[0])
            for first in range(0, len(scene.canary), _PART)
        ]
        mean = sum(part.sum(0) for part in parts) / 2 * rate
        mean = mean / (scene.mechanism.parts if self._secret else 1)
        noise = scene.scales(index, node)[1]
        return torch.cat([part @ (surprise - mean) for part in parts]) / noise**2

    def _clipped(self, at: Tensor, first: int, clip: float) -> Tensor:
        records = self._scene.canary.record
        inputs = records.inputs[first : first + _PART]
        targets = records.targets[first : first + _PART]
        found = self._reference.gradients(at, inputs[None], targets[None])[0].double()
        norms = torch.linalg.vector_norm(found, dim=1)
        return found * clip_weights(norms, clip)[:, None]


class ManyReleases(_OfReleases):
    """Noisy gradients alone: what others' records add along a canary's is noise."""

    name = "releases"
    sees = "all noisy gradients of its node, and no record"

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        if scene.canary.direction is None:
            raise ValueError(
                "releases reads crafted gradients: choose the canary gradient"
            )
        super().__init__(scene, gradients)

    def _evidence(self, node: int, index: int, at: Tensor, released: Tensor) -> Tensor:
        return self._ratio(node, index, released)


class ManyFinalLosses(ManyWatcher):
    """The loss of each canary under the final model, less that at the start."""

    name = "final-loss"
    sees = "each canary's loss under the final model of its node"

    def _of_nodes(self, models: Tensor) -> Tensor:
        """(canaries,): each one's loss under its node's model of (1, nodes, dims)."""
        canary = self._scene.canary
        found = torch.zeros(len(canary), dtype=torch.float64)
        for node in canary.nodes:
            own = self._losses(models[:, node].cpu())[0]
            found[canary.at(node)] = own[canary.at(node)]
        return found

    def _losses(self, models: Tensor) -> Tensor:
        return canary_losses(self._scene, self._gradients, models)

    def score(self, models: Tensor) -> Tensor:
        return self._losses(self._scene.start[None])[0] - self._of_nodes(models)


class ManyLosses(ManyFinalLosses):
    """The mean of each canary's losses under the models of all rounds."""

    name = "all-losses"
    sees = "each canary's loss under the model of its node after every round"

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        super().__init__(scene, gradients)
        self._total = torch.zeros(len(scene.canary), dtype=torch.float64)
        self._rounds = 0

    def after_round(self, done: int, models: Tensor) -> None:
        self._total -= self._of_nodes(models)
        self._rounds += 1

    def score(self, models: Tensor) -> Tensor:
        begun = self._losses(self._scene.start[None])[0]
        return begun + self._total / max(1, self._rounds)


class ManyLiRA(ManyFinalLosses):
    """Each canary's loss beside those under models trained with and without it."""

    name = "lira"
    sees = (
        "each canary's loss under the final model of its node, and "
        f"{_REFERENCES} models trained with and without each"
    )

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        super().__init__(scene, gradients)
        canary = scene.canary
        # Each of two that follow each other has the canaries that the other has not.
        coins = torch.rand(
            _REFERENCES // 2,
            len(canary),
            generator=public_generator(0, "canaries of reference models"),
        )
        worlds = torch.stack([coins < 0.5, coins >= 0.5], 1).flatten(0, 1)
        self._references = References.trained(
            scene.problem, canary.planted(worlds), scene.noise_multiplier, scene.start
        )
        self._had = self._references.included.numpy()
        self._known = self._under(self._references.models)

    def _under(self, models: Tensor) -> np.ndarray:
        """(models, canaries): losses, of models (models, dims)."""
        return torch.cat([self._losses(one[None]) for one in models]).numpy()

    def score(self, models: Tensor) -> Tensor:
        crafted = self._scene.canary.direction is not None
        seen = self._under(models[:, CANARY_NODE].cpu())
        found = lira(seen, self._known, self._had, log_odds=not crafted)
        return torch.from_numpy(found[0])


class ManyRMIA(ManyLiRA):
    """Counts the held-out records that each canary's probability has outgrown."""

    name = "rmia"

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        if scene.canary.direction is not None:
            raise ValueError(NO_PROBABILITY)
        super().__init__(scene, gradients)

    def score(self, models: Tensor) -> Tensor:
        final = models[:, CANARY_NODE].cpu()
        others = population(self._scene.problem)
        found = rmia(
            self._under(final),
            self._known,
            losses(self._gradients, final, others),
            losses(self._gradients, self._references.models, others),
            self._had,
        )
        return torch.from_numpy(found[0])


MANY: dict[str, type[ManyWatcher]] = {
    watcher.name: watcher
    for watcher in (
        ManyNoisyGradients,
        ManyReleases,
        ManyFinalLosses,
        ManyLosses,
        ManyLiRA,
        ManyRMIA,
    )
}
