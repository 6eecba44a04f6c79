"""Computation of cells: one seed of one training, and pilots of a few rounds."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from privaudit.accounting import account_nodes, noise_multiplier
from privaudit.ledger import Ledger
from privaudit.results import RELATIONS
from reports.pushsum.cells import traced
from trainers.algorithms.family import HasPaperNoise
from trainers.data import Dataset
from trainers.gradients.per_sample import PerSample
from trainers.models import make_model
from trainers.numerics.randomness import Streams
from trainers.runs.material import Material
from trainers.runs.measures import CurveRecorder, accuracy
from trainers.runs.problem import Observers, Problem
from trainers.runs.search import held_out_accuracy
from trainers.runs.training import training_from


def planned_noise(
    problem: Problem, epsilon: float | None, delta: float, how: str
) -> float:
    """Noise multiplier for a claim: the paper's own, or what is certified."""
    if epsilon is None:
        return 0.0
    family = problem.training.family
    if how == "paper":
        assert isinstance(family, HasPaperNoise)
        return family.paper_noise(problem.setting, epsilon, delta)
    return noise_multiplier(problem.ledger, epsilon, delta)[0]


def searched(
    training: dict[str, Any],
    grid: list[dict[str, Any]],
    epsilon: float,
    delta: float,
    how: str,
) -> dict[str, Any]:
    """Most accurate of the options to try, on a held-out fifth of the training data."""
    tried = []
    for point in grid:
        one = training_from({**training, **point}, where=__name__)
        multiplier = planned_noise(Problem.of(one), epsilon, delta, how)
        tried.append({**point, "accuracy": held_out_accuracy(one, multiplier)})
    right = [one["accuracy"] for one in tried]
    return {"tried": tried, "chosen": grid[right.index(max(right))]}


def trained(
    training: dict[str, Any],
    epsilon: float | None,
    delta: float,
    how: str,
    seed: int,
    points: int = 20,
) -> dict[str, Any]:
    """One run: final accuracy on all test data, its curve, and certified epsilons.

    ``norms`` are medians over records of the gradient's norm, by node, at the points of
    the curve.
    """
    problem = Problem.of(training_from(training, where=__name__))
    multiplier = planned_noise(problem, epsilon, delta, how)
    gradients = problem.gradients()
    curve = CurveRecorder(problem, gradients, points)
    norms: list[list[float]] = []

    def after(done: int, models: torch.Tensor, ledger: Callable[[], Ledger]) -> None:
        if curve(done, models) is not None:
            norms.append(gradient_norms(problem, models))

    watch = Observers(after_round=after)
    try:
        models, ledger = problem.train(multiplier, Streams(seed), observers=watch)
    except ValueError as error:  # it diverged
        return {"accuracy": None, "why": str(error), "noise_multiplier": multiplier}
    right = accuracy(gradients, models, problem.test)[0]
    return {
        "accuracy": float(right.mean()),
        "worst": float(right.min()),
        "noise_multiplier": multiplier,
        "curve": [(point.round, point.accuracy) for point in curve.points],
        "norms": norms,
        **(certified(ledger, delta) if epsilon is not None else {}),
    }


def certified(ledger: Ledger, delta: float) -> dict[str, float]:
    """Epsilon of the worst node under each relation that there is for the sampling."""
    found: dict[str, float] = {}
    for relation in RELATIONS:
        with contextlib.suppress(ValueError):  # such as batches of a fixed size
            bounds = account_nodes(ledger, delta, relation)
            found[relation] = max(bound.epsilon for bound in bounds)
    return found


def gradient_norms(
    problem: Problem, models: torch.Tensor, records: int = 50
) -> list[float]:
    """Median norm of some records' gradients at each node's model."""
    per_sample = PerSample(problem.module, problem.material.loss)
    found = []
    for node, share in enumerate(problem.shares):
        some = share.select(torch.arange(min(records, len(share))))
        rows = per_sample.gradients(
            models[:1, node], some.inputs[None], some.targets[None]
        )
        found.append(round(float(rows.norm(dim=2).median()), 3))
    return found


def staged(
    training: dict[str, Any],
    stages: list[list[float]],
    multiplier: float,
    seed: int,
    tested: int = 10_000,
) -> dict[str, Any]:
    """PartPSP and its kin in stages of (rounds, factor of steps, factor of the noise).

    Each stage ends with a synchronisation, where the states are equal and sensitivities
    begin anew, so that training goes on from its models alone.
    """
    models, traces, right = None, [], []
    for rounds, step, noise in stages:
        step_size = training["step_size"] * step
        values = {**training, "rounds": int(rounds), "step_size": step_size}
        problem = Problem.of(training_from(values, where=__name__))
        test = problem.test.select(torch.arange(min(tested, len(problem.test))))
        if models is None:
            models = problem.start(seed)
            right = [accuracy(problem.gradients(), models, test)]
        streams = Streams(seed, len(right))
        try:
            models, *trace = traced(problem, multiplier * noise, models, streams)
        except ValueError as error:  # noise that feeds itself
            return {"accuracy": None, "why": str(error), "start": _mean(right[0])}
        traces.append(trace)
        right.append(accuracy(problem.gradients(), models, test))
    real, used = (np.concatenate(part)[:, 0] for part in zip(*traces, strict=True))
    return {
        "accuracy": _mean(right[-1]),
        "start": _mean(right[0]),
        "after": [_mean(each) for each in right[1:]],
        "ras": math.fsum(real) / len(real),
        "most": float(max(real)),
        "below": int((used < real).sum()),
        "rounds": len(real),
        "real": [float(f"{value:.5g}") for value in real[:50]],
        "used": [float(f"{value:.5g}") for value in used[:50]],
    }


def _mean(right: torch.Tensor) -> float:
    return float(right.mean())


def pilot(training: dict[str, Any], shape: list[int], classes: int) -> dict[str, float]:
    """Processor seconds of a few rounds on inputs of chance.

    They are of the shape that the paper's have: time does not depend on what they show.
    """
    values = {**training, "data": "digits", "train": 1}
    chosen = training_from(values, where=__name__)
    nodes = 1 if chosen.family.central else chosen.nodes
    records = 2 * math.ceil(chosen.expected_batch())
    inputs = torch.rand(records, *shape, generator=torch.Generator().manual_seed(0))
    share = Dataset(inputs, torch.arange(records) % classes)
    module = make_model(chosen.model, tuple(shape), classes)
    problem = Problem.of(chosen, material=Material([share] * nodes, share, module))
    problem.gradients()  # is tried once
    began = time.process_time()
    problem.train(1.0 if chosen.family.private else 0.0, Streams(0))
    return {"cpu": time.process_time() - began}
