"""Black-box adversaries: the canary's loss under the final model, or all models.

LiRA and RMIA have reference models beside, of a key of their own.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from privaudit.auditing.attacks.canaries import CANARY_NODE, repeated
from privaudit.auditing.attacks.contract import Adversary, Scene, Watcher
from privaudit.auditing.membership import lira, rmia
from privaudit.files.user_code import checked
from trainers.algorithms.family import Noise
from trainers.data import Dataset
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.per_sample import trained
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Planted, Problem

_VALUES = 1 << 22  # of inputs that losses are taken of at once
REFERENCES = 128  # models that an attacker trains for one canary
_BLOCK = 32  # at a time
_POPULATION = 1000  # held-out records at most that RMIA compares with
_KEY = "reference models"  # no audit has it


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
