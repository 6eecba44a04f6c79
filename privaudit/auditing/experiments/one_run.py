"""One training with many canaries, each in it by its own fair coin.

The scores are of the canaries. They are not independent, and the bounds that read them
(`privaudit.auditing.bounds.one_run`) do not ask for it.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from privaudit.auditing.attacks.many import (
    CRAFTED,
    KINDS,
    MANY,
    MISLABELLED,
    ManyScene,
    canaries_of,
)
from privaudit.auditing.experiments.judgement import judge
from privaudit.auditing.experiments.one_run_bounds import NAMES
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.experiments.plan import Audit
from privaudit.auditing.experiments.presets import AUDITED, training_upon
from privaudit.files import json as _json
from privaudit.files.folder import RunFolder
from privaudit.files.manifest import write_result
from privaudit.settings import AuditSettings
from trainers.numerics.randomness import Streams
from trainers.oracles.capabilities import GivesGradients, gives
from trainers.oracles.oracle import MEMORY_LIMIT
from trainers.runs.measures import CurveRecorder, accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import Training

CANARIES = 2000  # by default
_ROOM = 1.5  # parameters a canary, in the model that such audits start from
_FEATURES, _CLASSES = 64, 3  # of the digits that audits start from


def training_of(algorithm: str, given: Mapping[str, Any], canaries: int) -> Training:
    """The training of a one-run audit: ``given`` settings upon those it starts from.

    Those are an audit's, with a model that has room for so many crafted gradients, and
    all records in every round: with sampling, one run shows much less.
    """
    hidden = math.ceil(_ROOM * canaries / (_FEATURES + _CLASSES))
    start = {**AUDITED, "model": "tanh-mlp", "hidden": hidden, "lot_size": 1.0}
    training = training_upon(algorithm, given, start, "--set")
    if "lot_size" in given:
        return training
    start["lot_size"] = float(min(Problem.of(training).sizes))
    return training_upon(algorithm, given, start, "--set")


def attack_of(
    settings: AuditSettings, training: Training, canaries: int
) -> dict[str, Any]:
    """Adversary and canary, decided; ``ValueError`` for what cannot be in one run."""
    mechanism = training.mechanism(1.0)
    if not gives(training.family.door, GivesGradients):
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
    if canary == AuditSettings.canary:  # the default, of which there is only one
        room = Problem.of(training).start(settings.seed).shape[2]
        canary = CRAFTED if room >= canaries else MISLABELLED
    if canary not in KINDS:
        raise ValueError(
            f"many canaries are {', '.join(KINDS[:-1])} or {KINDS[-1]}; got {canary!r}"
        )
    return {
        "adversary": seen,
        "canary": canary,
        "runs": canaries,
        "canaries": canaries,
    }


def run(
    audit: Audit,
    folder: RunFolder,
    *,
    memory_limit: int = MEMORY_LIMIT,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AuditResult:
    """Train once, score every canary, account and judge.

    Raises
    ------
    privaudit.files.folder.FolderError
        If the folder is another audit's, damaged, or cannot be written.
    ValueError
        If the settings do not fit the data, or training diverges.
    """
    problem = audit.problem()
    if folder.settle(audit) and folder.has("result.json"):
        return folder.read("result.json", AuditResult)
    began = time.monotonic()
    canaries = canaries_of(problem, audit.canary, audit.runs, audit.seed)
    planted = Streams(audit.seed).worlds(audit.runs)
    start = problem.start(audit.seed)
    scene = ManyScene(problem, canaries, audit.noise_multiplier, start[0, 0])
    gradients = problem.gradients()
    watcher = MANY[audit.adversary or ""](scene, gradients)
    curve = CurveRecorder(problem, gradients)

    def after_round(done: int, models: torch.Tensor, _: object) -> None:
        watcher.after_round(done, models)
        curve(done, models)
        progress(done, problem.training.rounds)

    models, ledger = problem.train(
        audit.noise_multiplier,
        Streams(audit.seed, 0, audit.device),
        canary=canaries.records,
        direction=canaries.coordinates,
        planted=planted[None],
        start=start,
        release_observers=watcher.release_observers,
        after_round=after_round,
        memory_limit=memory_limit,
    )
    member = planted.numpy()
    score = watcher.scores(models).numpy().astype(np.float64)
    right = accuracy(gradients, models, problem.test).mean(1).numpy()
    folder.write("ledger.json", ledger.to_json().encode())
    folder.write("curves.json", _json.encode(curve.curves()))
    buffer = io.BytesIO()
    design = np.array("one-run")
    np.savez(buffer, member=member, score=score, design=design, accuracy=right)
    folder.write("scores.npz", buffer.getvalue())
    seconds = time.monotonic() - began
    result = judge(audit, ledger, (member, score, right), seconds, watcher.sees)
    write_result(folder, result)
    return result
