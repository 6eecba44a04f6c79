"""Real and estimated sensitivities of PartPSP, its accuracy, and what it costs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from privaudit import audit_program
from privaudit.accounting import account, noise_multiplier
from privaudit.accounting.papers.push_sum_sensitivity import least_constant
from privaudit.settings import ProgramSettings
from reports import told
from reports.study import Cell, small
from trainers.data import PrivateData
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

DELTA = 1e-5
GAMMA_N = 0.001  # of the paper's published code
SETTINGS = told(__file__)
MLP = SETTINGS["MLP"]
BUDGET = SETTINGS["BUDGET"]
DECAY = {1: 0.55, 2: 0.62}  # lambda, by how many layers are shared (Figure 2)
GRAPHS = ("d-out:2", "exponential")
SHARED = {1: "layers:1", 2: "layers:2", 3: "*"}


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


def run(
    training: dict[str, Any], multiplier: float, runs: int
) -> tuple[Problem, torch.Tensor, np.ndarray, np.ndarray]:
    """Problem, final models, real and used sensitivities (rounds, runs).

    Runs differ in start, batches and noise; the data are dealt alike.
    """
    problem = Problem.of(training_from(training, where=__name__))
    start = torch.cat([problem.start(index) for index in range(runs)])
    return problem, *traced(problem, multiplier, start, Streams(0))


def sensitivities(training: dict, multiplier: float, runs: int) -> dict[str, Any]:
    """Figure 2: real and used sensitivity."""
    _, _, real, used = run(training, multiplier, runs)
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


def average_sensitivity(training: dict, multiplier: float) -> dict[str, Any]:
    """Figures 3 and 4: real sensitivity, mean over rounds."""
    _, _, real, used = run(training, multiplier, 1)
    return {"ras": real.mean().item(), "below": int((used < real).sum())}


def accuracies(training: dict, multiplier: float) -> dict[str, Any]:
    """Tables 2 and 3: accuracy, per cent, and the mean real sensitivity."""
    try:
        problem, models, real, _ = run(training, multiplier, 1)
    except ValueError as error:  # noise that feeds itself
        return {"accuracy": None, "why": str(error)[:90]}
    right = accuracy(problem.gradients(), models, problem.test).mean(1)
    return {
        "accuracy": [100 * value for value in right.tolist()],
        "ras": real.mean().item(),
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


def figures() -> Iterator[Cell]:
    """Figures 2 to 4: b = 5; synchronisation every 5 rounds, then every 4."""
    for graph in GRAPHS:
        for shared in (1, 2):
            for name in ("published", "paper", "certified", "data-independent"):
                yield figure_2(f"figure 2 {graph} {shared} {name}", graph, shared, name)
    for graph in GRAPHS:  # one class a node; the paper deals evenly
        name = f"one class a node {graph} 1"
        yield figure_2(name, graph, 1, "published", split=1.0)
    for graph in ("exponential", "d-out:2", "d-out:4", "d-out:6", "d-out:8"):
        for shared in (1, 2, 3):
            yield average(f"figure 3 {graph} {shared}", graph, 10, shared)
    for nodes in (20, 30):
        for graph in ("d-out:2", "d-out:4", "d-out:8"):
            yield average(f"figure 4 {graph} {nodes}", graph, nodes, 1)


def figure_2(
    cell: str, graph: str, shared: int, estimate: str, split: float = 0.0
) -> Cell:
    """One row."""
    training = {
        **MLP,
        "algorithm": "partpsp",
        "graph": graph,
        "shared": SHARED[shared],
        "sensitivity": estimate,
        "constant": 0.78,
        "decay": DECAY[shared],
        "rounds": 25,
        "split": split,
    }
    runs = 5 if estimate == "published" else 2
    settings = {"training": training, "multiplier": GAMMA_N / 5, "runs": runs}
    return Cell(cell, sensitivities, settings)


def average(cell: str, graph: str, nodes: int, shared: int) -> Cell:
    """One number."""
    training = {
        **MLP,
        "algorithm": "partpsp",
        "nodes": nodes,
        "graph": graph,
        "shared": SHARED[shared],
        "sensitivity": "published",
        "constant": 0.95,
        "decay": 0.55,
        "sync_interval": 4,
        "batch_size": 50,
        "rounds": 16,
    }
    settings = {"training": training, "multiplier": GAMMA_N / 5}
    return Cell(cell, average_sensitivity, settings)


def tables() -> Iterator[Cell]:
    """Table 2, with noise by the real sensitivity, and Table 3."""
    for b in (1.0, 3.0, None):
        for graph in ("exponential", "d-out:8"):
            for method in ("PartPSP-1", "PartPSP-2", "SGPDP", "PEDFL"):
                yield table(f"table 2 {method} {graph} {b}", method, graph, b, "real")
    for graph in GRAPHS:
        for method in ("PartPSP-1", "PartPSP-2"):
            for how in ("real", "published"):
                yield table(f"table 3 {method} {graph} {how}", method, graph, 5.0, how)


def table(cell: str, method: str, graph: str, b: float | None, how: str) -> Cell:
    """One number of them."""
    name, shared = {
        "PartPSP-1": ("partpsp", "layers:1"),
        "PartPSP-2": ("partpsp", "layers:2"),
        "SGPDP": ("sgpdp", "*"),
        "PEDFL": ("pedfl", "*"),
    }[method]
    training = {**MLP, "graph": graph, "shared": shared, "rounds": 60, "batch_size": 50}
    if name == "pedfl":
        training |= {"sync_interval": 0, "local_steps": 1}
    if b is None:
        training["algorithm"] = f"{name}-plain"
    else:
        training |= {"algorithm": name, "sensitivity": how, "constant": 0.95}
    multiplier = 0.0 if b is None else GAMMA_N / b
    return Cell(cell, accuracies, {"training": training, "multiplier": multiplier})


def budgets() -> Iterator[Cell]:
    """Cells of accuracy at a real budget, by method and clip norm."""
    for epsilon in (1.0, 10.0, 100.0):
        for method, clips, options in (
            ("PartPSP-1", (1e-4, 1e-2), {"algorithm": "partpsp", "shared": "layers:1"}),
            ("PartPSP-2", (1e-4, 1e-2), {"algorithm": "partpsp", "shared": "layers:2"}),
            ("SGPDP", (1e-4, 1e-2), {"algorithm": "sgpdp"}),
            ("SGPDP, by sample", (1e-2,), {"algorithm": "sgpdp", "clip_by": "sample"}),
            # Next to nothing is shared at C = 1e-12.
            ("nothing", (1e-12,), {"algorithm": "partpsp", "shared": "1.bias"}),
            ("a bias of 10", (1e-4,), {"algorithm": "partpsp", "shared": "1.bias"}),
        ):
            for clip in clips:
                training = {**BUDGET, "clip_norm": clip, **options}
                settings = {"training": training, "epsilon": epsilon}
                yield Cell(
                    f"certified {method} {epsilon:g} {clip:g}", certified, settings
                )


def everything() -> Iterator[Cell]:
    """At full size."""
    yield from figures()
    for graph in GRAPHS:
        for interval in (4, 5, 20):
            for decay in (0.53, 0.55, 0.62, 0.7):
                settings = {"graph": graph, "decay": decay, "rounds": interval}
                yield Cell(f"constant {graph} {interval} {decay}", constant, settings)
    # Data-independent sensitivities, one layer shared, 2-Out, sync 5.
    for b, gamma_n in ((1.0, 0.001), (5.0, 0.001), (5.0, 0.01), (1.0, 1.0)):
        for rounds in (25, 720):
            training = {**MLP, "algorithm": "partpsp", "graph": "d-out:2"}
            training["rounds"] = rounds
            settings = {"training": training, "b": b, "gamma_n": gamma_n}
            yield Cell(f"epsilon {b:g} {gamma_n:g} {rounds}", epsilons, settings)
    yield from tables()
    yield from budgets()
    yield Cell("untrained", untrained, {"training": BUDGET | {"algorithm": "sgpdp"}})
    yield Cell("final models", attacked, {"claim": 2.0, "audited": 300})


def cells(quick: bool) -> Iterator[Cell]:
    """Figures 2 to 4, constants, epsilons, Tables 2 and 3, and certified accuracies."""
    size = {"data": "digits", "train": 500, "rounds": 5, "batch_size": 10}
    return small(everything(), training=size, audited=8) if quick else everything()
