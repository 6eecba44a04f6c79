"""Start of one run with many canaries, and settings that it cannot have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from privaudit.auditing.attacks.canaries import CRAFTED, KINDS, MISLABELLED
from privaudit.auditing.attacks.many import MANY
from privaudit.auditing.experiments.one_run_bounds import NAMES
from privaudit.auditing.experiments.presets import AUDITED, training_upon
from privaudit.settings import AuditSettings
from trainers.oracles.capabilities import GivesGradients, gives
from trainers.runs.problem import Problem
from trainers.runs.training import Training

CANARIES = 2000  # by default
_ROOM = 1.5  # parameters a canary, in the model that such audits start from
_FEATURES, _CLASSES = 64, 3  # of the digits that audits start from


def training_of(algorithm: str, given: Mapping[str, Any], canaries: int) -> Training:
    """The training of a one-run audit: ``given`` settings upon those it starts from.

    An audit's, with a model that has room for so many gradients, and all records.
    """
    hidden = math.ceil(_ROOM * canaries / (_FEATURES + _CLASSES))
    start = {**AUDITED, "model": "tanh-mlp", "hidden": hidden, "batch_size": 1.0}
    training = training_upon(algorithm, given, start, "--set")
    if "batch_size" in given:
        return training
    start["batch_size"] = float(min(Problem.of(training).sizes))
    return training_upon(algorithm, given, start, "--set")


def attack_of(
    settings: AuditSettings, training: Training, canaries: int
) -> dict[str, Any]:
    """Adversary and canary, decided; ``ValueError`` for what cannot be in one run."""
    mechanism = training.mechanism(1.0)
    if not gives(training.family.oracle, GivesGradients):
        raise ValueError(
            f"one run with many canaries is for algorithms that release gradients; "
            f"{training.algorithm} releases something else: leave --one-run out"
        )
    if mechanism.sampling != "poisson":
        raise ValueError(
            "many canaries are each one record more, which needs Poisson sampling; "
            f"got sampling {mechanism.sampling}"
        )
    if training.family.stays_home(training.setting()):
        raise ValueError(
            f"parts of the models of {training.algorithm} stay at their nodes with "
            "these settings, where one run cannot be read: leave --one-run out"
        )
    seen = settings.adversary or "noisy-gradients"
    if seen not in MANY:
        raise ValueError(
            f"in one run with many canaries the adversary is {', '.join(MANY)}; got "
            f"{seen!r}"
        )
    if settings.estimator not in NAMES:
        raise ValueError(
            "one run with many canaries is judged by the estimators "
            f"{' and '.join(NAMES)}; got {settings.estimator!r}"
        )
    canary = settings.canary
    if canary is None:
        room = Problem.of(training).start(settings.seed).shape[2]
        canary = CRAFTED if room >= canaries else MISLABELLED
    if canary not in KINDS:
        raise ValueError(
            f"many canaries are {', '.join(KINDS[:-1])} or {KINDS[-1]}; got {canary!r}"
        )
    return {"adversary": seen, "canary": canary, "runs": canaries, "canaries": canaries}
