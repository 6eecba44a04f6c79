"""Black-box adversaries with reference models of a key of their own: LiRA and RMIA."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import Differentiator, Scene
from privaudit.auditing.attacks.final_loss import OfFinalModel, canary_losses, losses
from privaudit.auditing.membership import lira, rmia
from trainers.algorithms.family import Noise
from trainers.data import Dataset
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Planted, Problem

REFERENCES = 128  # models that an attacker trains for one canary
_BLOCK = 32  # at a time
_POPULATION = 1000  # held-out records at most that RMIA compares with
_KEY = "reference models"  # no audit has it


@dataclasses.dataclass(frozen=True, slots=True)
class References:
    """Final models of node 0, and which canaries each was trained with."""

    models: Tensor  # (models, dims)
    included: Tensor  # (models, canaries) bool

    @classmethod
    def trained(
        cls, problem: Problem, planted: Planted, noise_multiplier: Noise, start: Tensor
    ) -> References:
        """As ``planted`` says, from ``start``, (dims,), some at a time."""
        found = []
        for first in range(0, len(planted.runs), _BLOCK):
            worlds = planted.runs[first : first + _BLOCK]
            models, _ = problem.train(
                noise_multiplier,
                Streams(Key.study(_KEY), first),
                runs=len(worlds),
                start=start.repeat(len(worlds), len(problem.shares), 1),
                planted=dataclasses.replace(planted, runs=worlds),
            )
            found.append(models[:, CANARY_NODE].cpu())
        return cls(torch.cat(found), planted.runs.reshape(len(planted.runs), -1))


def population(problem: Problem) -> Dataset:
    """Records that no model is trained on."""
    test = problem.test
    if test is None:
        raise ValueError("rmia compares with test records, and there are none")
    return Dataset(test.inputs[:_POPULATION], test.targets[:_POPULATION])


class LiRA(OfFinalModel):
    """Likelihood ratio of the canary's log odds (or <g, theta>): `privaudit.lira`."""

    name = "lira"
    sees = (
        "the canary's loss under the final model of its node, and "
        f"{REFERENCES} models trained with and without it"
    )

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        worlds = torch.arange(REFERENCES) % 2 == 0
        self.references = References.trained(
            scene.problem,
            scene.canary.planted(worlds, replaces=scene.replaces),
            scene.noise_multiplier,
            scene.start,
        )
        gradients = scene.problem.gradients()
        self._known = canary_losses(scene, gradients, self.references.models)

    def scores(self, models: Tensor, gradients: Differentiator) -> Tensor:
        found = lira(
            canary_losses(self.scene, gradients, models),
            self._known,
            self.references.included.numpy(),
            log_odds=self.scene.canary.direction is None,
        )
        return torch.from_numpy(found[:, 0])


class RMIA(LiRA):
    """Number of held-out records that its probability outgrew: `privaudit.rmia`."""

    name = "rmia"

    def __init__(self, scene: Scene) -> None:
        if scene.canary.direction is not None:
            raise ValueError(NO_PROBABILITY)
        super().__init__(scene)
        self._others = population(scene.problem)
        self._known_others = losses(
            scene.problem.gradients(), self.references.models, self._others
        )

    def scores(self, models: Tensor, gradients: Differentiator) -> Tensor:
        found = rmia(
            canary_losses(self.scene, gradients, models),
            self._known,
            losses(gradients, models, self._others),
            self._known_others,
            self.references.included.numpy(),
        )
        return torch.from_numpy(found[:, 0])


NO_PROBABILITY = (
    "rmia reads the probability of a record's label, and a crafted gradient has none: "
    "choose a canary that is a record, such as mislabelled"
)
