"""Real and estimated sensitivities of PartPSP, and what its noise costs."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import torch

from privaudit import audit_program
from privaudit.accounting import account, noise_multiplier
from privaudit.accounting.papers.push_sum_sensitivity import least_constant
from privaudit.settings import ProgramSettings
from reports import told
from trainers.data import PrivateData
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

DELTA = 1e-5
GAMMA_N = 0.001  # of the paper's published code
MLP = told(__file__)["MLP"]
GRAPHS = ("d-out:2", "exponential")


def traced(
    problem: Problem, multiplier: float, start: torch.Tensor, streams: Streams
) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Final models, real and used sensitivities (rounds, runs)."""
    oracle = problem.training.family.oracle(
        PrivateData.of(problem.shares),
        problem.gradients(),
        problem.training.mechanism(multiplier),
        streams,
        runs=len(start),
    )
    trace: list[tuple[np.ndarray, np.ndarray]] = []
    oracle.channel.watch = lambda k, real, used: trace.append((real, used))
    models = problem.network.run(start, oracle, problem.training.rounds)
    real, used = (np.array(part) for part in zip(*trace, strict=True))
    return models, real, used


def sensitivities(training: dict, multiplier: float, runs: int) -> dict[str, Any]:
    """Figure 2: real and used sensitivity.

    Runs differ in start, batches and noise; the data are dealt alike.
    """
    problem = Problem.of(training_from(training, where=__name__))
    start = torch.cat([problem.start(index) for index in range(runs)])
    _, real, used = traced(problem, multiplier, start, Streams(0))
    return {
        "real": real[:, 0].tolist(),
        "used": used[:, 0].tolist(),
        "ratio": (used / real).mean().item(),
        "least_ratio": (used / real).min().item(),
        "below": int((used < real).sum()),
        "rounds": real.size,
        "runs_below": int((used < real).any(0).sum()),
        "runs": real.shape[1],
        "below_after_sync": int((used < real)[::5].sum()),
    }


def certified(training: dict, epsilon: float) -> dict[str, Any]:
    """Accuracy on digits at a certified record-level epsilon."""
    problem = Problem.of(training_from(training, where=__name__))
    z, bound = noise_multiplier(problem.ledger, epsilon, DELTA, "replace-one")
    models, ledger = problem.train(z, Streams(0))
    right = accuracy(problem.gradients(), models, problem.test)
    assert account(ledger, DELTA, "replace-one").epsilon <= epsilon
    return {
        "accuracy": [100 * right.mean().item()],
        "noise_multiplier": z,
        "epsilon": bound.epsilon,
    }


def untrained(training: dict) -> dict[str, Any]:
    """Accuracy of the start that `certified` trains from."""
    problem = Problem.of(training_from(training, where=__name__))
    start = problem.start(0).repeat(1, training["nodes"], 1)
    return {
        "accuracy": [
            100 * accuracy(problem.gradients(), start, problem.test).mean().item()
        ]
    }


def attacked(claim: float, audited: int) -> dict[str, Any]:
    """Bound on what a node's final model gives away, in so many runs."""
    settings = ProgramSettings(
        epsilon=claim,
        delta=1e-2,
        relation="replace-one",
        runs=audited,
        estimator="clopper-pearson",
        seed=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        found = audit_program(
            "reports.pushsum.published:scores", settings, out=f"{folder}/run"
        )
    return {"epsilon_lower": found.lower.epsilon, "status": found.status}


def epsilons(training: dict, b: float, gamma_n: float) -> dict[str, Any]:
    """Cost of Theorem 1's noise in all rounds: by node, and by record."""
    found: dict[str, Any] = {"round": b / gamma_n}
    for unit in ("node", "record"):
        problem = Problem.of(training_from({**training, "unit": unit}, where=__name__))
        bound = account(problem.ledger(gamma_n / b), DELTA, "replace-one", "rdp")
        found[unit] = bound.epsilon
    return found


def constant(graph: str, decay: float, rounds: int) -> dict[str, Any]:
    """The least C' that is enough for this lambda between two synchronisations."""
    on = mixing(graph, "uniform", 10)
    found = [
        least_constant([on.at(first + k) for k in range(rounds - 1)], decay)
        for first in range(on.period)
    ]
    return {"constant": max(found)}
