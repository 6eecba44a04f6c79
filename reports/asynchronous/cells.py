"""SYNC against A(DP)2SGD in virtual time, and what each run gives away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from privaudit.accounting import account, account_nodes
from privaudit.accounting.papers.xu_theorem_2 import TheoremTwo
from privaudit.ledger import Ledger
from privaudit.release import Release, SamplingWithoutReplacement
from trainers.algorithms.asynchronous.clock import Clock, Speed, bipartite_ring
from trainers.algorithms.asynchronous.family import staleness
from trainers.algorithms.asynchronous.virtual_time import Asynchronous
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy, consensus_distance
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import training_from

DELTA = 1e-5
SIGMAS = (0.0, 1.0, 2.0, 4.0)
CASES = ("constant", "random-slowdown:2", "one-slow:10")
NODES, RECORDS, BATCH = 16, 3125, 256  # the paper's: 50 000 records over 16 learners
STEPS = (1.0, 2.0, 4.0, 8.0)  # of the large batches


def problem_of(algorithm: str, sigma: float, training: dict[str, Any]) -> Problem:
    """The problem of the algorithm's private form, or of the plain one."""
    plain = {"adp2sgd": "adpsgd", "dp-sync": "sync"}
    name = algorithm if sigma else plain[algorithm]
    return Problem.of(training_from({**training, "algorithm": name}, where=__name__))


def trained(
    problem: Problem, sigma: float, seeds: int, points: int, look: int
) -> tuple[torch.Tensor, Ledger, dict[str, Any]]:
    """Final models (seeds, nodes, dims), their ledger, and what a page wants of them.

    Accuracies on the way, at ``points`` times, are on the first ``look`` test images.
    """
    first = problem.test.select(torch.arange(look))
    gradients = problem.gradients()
    rounds = problem.training.rounds
    every = max(1, rounds // points) if points else rounds + 1
    curve: list[tuple[int, float]] = []
    seen = 0

    def after(done: int, models: torch.Tensor, ledger: Callable[[], Ledger]) -> None:
        nonlocal seen
        if done // every > seen // every:
            right = accuracy(gradients, models, first)
            curve.append((done, float(right.mean())))
        seen = done

    starts = torch.cat([problem.start(seed) for seed in range(seeds)])
    models, ledger = problem.train(
        sigma,
        Streams(0),
        runs=seeds,
        start=starts,
        observers=Observers(after_round=after if points else None),
    )
    right = accuracy(gradients, models, problem.test)
    mean = accuracy(gradients, models.mean(1, keepdim=True), problem.test)
    told = {
        "accuracy": right.mean(1).tolist(),
        "worst": right.min(1).values.tolist(),
        "of_mean": mean[:, 0].tolist(),
        "consensus": consensus_distance(models).tolist(),
        "curve": curve,
    }
    if sigma:
        epsilons = [b.epsilon for b in account_nodes(ledger, DELTA, "replace-one")]
        told |= {"epsilon": max(epsilons), "least_epsilon": min(epsilons)}
    told["counts"] = [sum(e.count for e in entries) for entries in ledger.nodes]
    return models, ledger, told


def asynchronous(training: dict, sigma: float, **looks: int) -> dict[str, Any]:
    """A(DP)2SGD by one clock: accuracy in virtual time, staleness, epsilon."""
    problem = problem_of("adp2sgd", sigma, training)
    _, _, told = trained(problem, sigma, **looks)
    runner = problem.network
    assert isinstance(runner, Asynchronous)
    clock, steps = runner.algorithm.clock, problem.training.rounds
    when = [step.time for step in clock.steps(steps)]
    told["curve"] = [(when[done - 1], value) for done, value in told["curve"]]
    told["ends"] = when[-1]
    told["staleness"] = staleness(clock, steps)
    return told


def synchronous(training: dict, sigma: float, cases: list[str], **looks: int) -> dict:
    """SYNC, which trains alike whoever is slow; only its time differs."""
    problem = problem_of("dp-sync", sigma, training)
    _, _, told = trained(problem, sigma, **looks)
    told["curves"] = {}
    told["ends"] = {}
    nodes, rounds = problem.training.nodes, problem.training.rounds
    for case in cases:
        when = Clock(bipartite_ring(nodes), Speed(case, nodes)).barriers(rounds)
        told["curves"][case] = [
            (float(when[done - 1]), value) for done, value in told["curve"]
        ]
        told["ends"][case] = float(when[-1])
    return told


def large(algorithm: str, training: dict, sigma: float, **looks: int) -> dict[str, Any]:
    """Case III, large batches."""
    try:
        return trained(problem_of(algorithm, sigma, training), sigma, **looks)[2]
    except ValueError as error:
        return {"accuracy": None, "why": str(error)}


def formula(sigma: float, steps: int) -> dict[str, Any]:
    """The least epsilon at which Theorem 2 asks for at most ``sigma``.

    ``silent``: no mu is admissible there, so that the theorem has no such epsilon.
    """
    low, high = 1e-6, 1e6
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        one = TheoremTwo(steps, NODES, RECORDS, BATCH, middle, DELTA)
        least = min(one.sigma(mu) for mu in np.linspace(1e-4, 1 - 1e-4, 5000))
        low, high = (middle, high) if least > sigma else (low, middle)
    try:
        TheoremTwo(steps, NODES, RECORDS, BATCH, high, DELTA).least_sigma()
    except ValueError as error:
        return {"epsilon": high, "silent": str(error)}
    return {"epsilon": high, "silent": None}


def accounts(sigma: float, steps: int, on: str) -> dict[str, Any]:
    """Certified, of a worker with an equal share of ``steps``, beside Theorem 2."""
    multiplier = sigma * (BATCH if on == "mean" else 1)
    release = Release.of_sum(
        norm_bound=1.0,
        noise_multiplier=multiplier,
        sampling=SamplingWithoutReplacement(BATCH, RECORDS),
    )
    share = Ledger.of(release, steps // NODES)
    bound = account(share, DELTA, "replace-one")
    return {"certified": bound.epsilon, "theorem": formula(sigma, steps)}
