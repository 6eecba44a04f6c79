"""Leakage of PartPSP's final model, local parameters and all, for finding 5.

    privaudit audit-program reports.pushsum.published:scores --epsilon 2 --delta 1e-2 \
        --relation replace-one --runs 300 --estimator clopper-pearson

The noise is what certifies epsilon 2 for the messages of these settings.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray

from privaudit.auditing.attacks import ADVERSARIES, Adversary
from privaudit.auditing.attacks.canaries import CANARIES
from privaudit.auditing.attacks.contract import Scene
from privaudit.claims.attacks import training_of
from reports import told
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Problem

NOISE_MULTIPLIER = 10.9609375
SETTINGS = told(__file__)["published"]["SETTINGS"]


@functools.cache
def attacker() -> Adversary:
    """Adversary that reads the loss of a blank image under its node's final model."""
    problem = Problem.of(training_of("partpsp", SETTINGS, "published"))
    return ADVERSARIES["final-loss"](
        Scene(
            problem=problem,
            canary=CANARIES["blank"](problem, 0),
            noise_multiplier=NOISE_MULTIPLIER,
            start=problem.start(0)[0, 0],
            replaces=True,
        )
    )


def scores(worlds: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """Train and attack a run for each of ``worlds``; return its score."""
    who = attacker()
    scene = who.scene
    watcher = who.watch(len(worlds), scene.problem.gradients())
    models, _ = scene.problem.train(
        NOISE_MULTIPLIER,
        Streams(seed),
        runs=len(worlds),
        start=scene.start.repeat(len(worlds), len(scene.problem.shares), 1),
        planted=scene.canary.planted(torch.from_numpy(np.array(worlds))),
    )
    return watcher.score(models).numpy().astype(np.float64)
