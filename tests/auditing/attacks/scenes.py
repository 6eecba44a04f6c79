"""Scenes of a few records and rounds, and what adversaries make of them."""

from __future__ import annotations

import numpy as np

from privaudit.auditing.attacks import ADVERSARIES, Scene
from privaudit.auditing.attacks.canaries import CANARIES, quiet_gradients
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import Training

SMALL = dict(
    nodes=3,
    digits=(0, 1, 2),
    train=60,
    model="softmax",
    rounds=4,
    batch_size=5.0,
    clip_norm=1.0,
    step_size=0.1,
)


def problem(algorithm="dp-dsgd", **settings) -> Problem:
    return Problem.of(Training(**{**SMALL, "algorithm": algorithm, **settings}))


def scene(of: Problem, canary="gradient", noise=1.0, seed=0, many=1) -> Scene:
    alone = CANARIES[canary](of, seed)
    return Scene(
        problem=of,
        canary=alone if many == 1 else quiet_gradients(of, many, seed),
        noise_multiplier=noise,
        start=of.start(seed)[0, 0],
        replaces=of.training.mechanism(1.0).sampling == "without-replacement",
    )


def scores(name, of: Scene, runs=400, *, planted=None, block=0, noise=None):
    """Worlds and scores of one block that trains with ``noise`` (the scene's)."""
    streams = Streams(0, block * runs)
    gradients = of.problem.gradients()
    if planted is None:
        planted = streams.worlds(runs, len(of.canary))
    watcher = ADVERSARIES[name](of).watch(runs, gradients)
    models, _ = of.problem.train(
        of.noise_multiplier if noise is None else noise,
        streams,
        runs=runs,
        start=of.start.repeat(runs, len(of.problem.shares), 1),
        planted=of.canary.planted(planted),
        observers=Observers(
            watcher.observers,
            watcher.release_observers,
            lambda done, models, _: watcher.after_round(done, models),
        ),
    )
    found = watcher.score(models)
    assert found.numel() == planted.numel()
    return planted.numpy(), found.double().view_as(planted).numpy()


def right(member: np.ndarray, score: np.ndarray) -> float:
    """Probability that a member's score is above a non-member's, ties by halves."""
    a, b = score[member][:, None], score[~member][None]
    return float(((a > b) + 0.5 * (a == b)).mean())
