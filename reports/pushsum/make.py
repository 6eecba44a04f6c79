"""Real and estimated sensitivities of PartPSP, its accuracy, and what it costs.

    OMP_NUM_THREADS=1 PYTHONPATH=. python reports/pushsum/make.py [--quick]

Writes results.json beside itself after every cell, so that it goes on where it was
stopped, then README.md and sensitivity.svg.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from privaudit.accounting import account, noise_multiplier
from privaudit.accounting.papers.push_sum_sensitivity import least_constant
from trainers.data import PrivateData
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

HERE = pathlib.Path(__file__).parent
DELTA = 1e-5
GAMMA_N = 0.001  # of the paper's published code
# The MLP of the paper on glyphs for MNIST; steps and C of its published code.
MLP = {
    "nodes": 10,
    "model": "tanh-mlp",
    "data": "glyphs",
    "train": 10000,
    "lot_size": 100,
    "clip_norm": 100.0,
    "step_size": 0.1,
    "sync_interval": 5,
}
DECAY = {1: 0.55, 2: 0.62}  # lambda, by how many layers are shared (Figure 2)
SHARED = {1: "layers:1", 2: "layers:2", 3: "*"}


def run(
    values: dict[str, Any], multiplier: float, runs: int, seed: int = 0
) -> tuple[Problem, torch.Tensor, np.ndarray, np.ndarray]:
    """Problem, final models, real and used sensitivities (rounds, runs).

    Runs differ in start, lots and noise; the data are dealt alike.
    """
    problem = Problem.of(training_from(values, where="make.py"))
    training = problem.training
    door = training.family.door(
        PrivateData.of(problem.shares),
        problem.gradients(),
        training.mechanism(multiplier),
        Streams(seed),
        runs=runs,
    )
    trace: list[tuple[np.ndarray, np.ndarray]] = []
    door.channel.watch = lambda k, real, used: trace.append((real, used))
    start = torch.cat([problem.start(seed + index) for index in range(runs)])
    models = problem.network.run(start, door, training.rounds)
    real, used = (np.array(part) for part in zip(*trace, strict=True))
    return problem, models, real, used


def sensitivities(
    graph: str, layers: int, name: str, quick: bool, split: float = 0.0
) -> dict[str, Any]:
    """Figure 2: real and used sensitivity, b = 5, sync 5.

    ``split`` 1 gives each node one class, 0 deals all evenly as the paper does.
    """
    values = {
        **MLP,
        "algorithm": "partpsp",
        "graph": graph,
        "shared": SHARED[layers],
        "sensitivity": name,
        "constant": 0.78,
        "decay": DECAY[layers],
        "rounds": 5 if quick else 25,
        "split": split,
    }
    runs = 5 if name == "published" else 2
    _, _, real, used = run(values, GAMMA_N / 5, 2 if quick else runs)
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


def average_sensitivity(graph: str, nodes: int, layers: int, quick: bool) -> dict:
    """Figures 3 and 4: real sensitivity, mean over rounds; b = 5, sync 4."""
    values = {
        **MLP,
        "algorithm": "partpsp",
        "nodes": nodes,
        "graph": graph,
        "shared": SHARED[layers],
        "sensitivity": "published",
        "constant": 0.95,
        "decay": 0.55,
        "sync_interval": 4,
        "lot_size": 50,
        "rounds": 4 if quick else 16,
    }
    _, _, real, used = run(values, GAMMA_N / 5, 1)
    return {"ras": real.mean().item(), "below": int((used < real).sum())}


def table_2(method: str, graph: str, b: float | None, how: str, quick: bool) -> dict:
    """Accuracy, per cent, noise by the real sensitivity as in the paper's Table 2."""
    name, shared = {
        "PartPSP-1": ("partpsp", "layers:1"),
        "PartPSP-2": ("partpsp", "layers:2"),
        "SGPDP": ("sgpdp", "*"),
        "PEDFL": ("pedfl", "*"),
    }[method]
    rounds = 10 if quick else 60
    values = {**MLP, "graph": graph, "shared": shared, "rounds": rounds}
    values["lot_size"] = 50
    if name == "pedfl":
        values |= {"sync_interval": 0, "local_steps": 1}
    if b is None:
        values["algorithm"] = f"{name}-plain"
        multiplier = 0.0
    else:
        values |= {"algorithm": name, "sensitivity": how, "constant": 0.95}
        multiplier = GAMMA_N / b
    try:
        problem, models, real, _ = run(values, multiplier, 1)
    except ValueError as error:  # noise that feeds itself
        return {"accuracy": None, "why": str(error)[:90]}
    right = accuracy(problem.gradients(), models, problem.test).mean(1)
    return {
        "accuracy": [100 * value for value in right.tolist()],
        "ras": real.mean().item(),
    }


def certified(method: str, epsilon: float, clip: float, quick: bool) -> dict:
    """Accuracy on digits at a certified record-level epsilon, delta 1e-5."""
    options: dict[str, Any] = {
        "PartPSP-1": {"algorithm": "partpsp", "shared": "layers:1"},
        "PartPSP-2": {"algorithm": "partpsp", "shared": "layers:2"},
        "SGPDP": {"algorithm": "sgpdp"},
        "SGPDP, by sample": {"algorithm": "sgpdp", "clip_by": "sample"},
        "nothing": {"algorithm": "partpsp", "shared": "1.bias"},  # but for C = 1e-12
        "a bias of 10": {"algorithm": "partpsp", "shared": "1.bias"},
    }[method]
    values = {
        **{key: MLP[key] for key in ("nodes", "model")},
        "graph": "d-out:2",
        "lot_size": 50,
        "rounds": 20 if quick else 200,
        "step_size": 0.5,
        "clip_norm": clip,
        **options,
    }
    problem = Problem.of(training_from(values, where="make.py"))
    z, bound = noise_multiplier(problem.ledger, epsilon, DELTA, "replace-one")
    found = []
    for seed in range(1):
        models, ledger = problem.train(z, Streams(seed))
        right = accuracy(problem.gradients(), models, problem.test)
        found.append(100 * right.mean().item())
        assert account(ledger, DELTA, "replace-one").epsilon <= epsilon
    return {"accuracy": found, "noise_multiplier": z, "epsilon": bound.epsilon}


def epsilons(b: float, gamma_n: float, rounds: int) -> dict:
    """What Theorem 1's noise costs in all rounds: by node, and by record.

    Data-independent sensitivities, one layer shared, 2-Out, sync 5.
    """
    found: dict[str, Any] = {"round": b / gamma_n}
    for unit in ("node", "record"):
        values = {
            **MLP,
            "algorithm": "partpsp",
            "graph": "d-out:2",
            "rounds": rounds,
            "unit": unit,
        }
        problem = Problem.of(training_from(values, where="make.py"))
        bound = account(problem.ledger(gamma_n / b), DELTA, "replace-one", "rdp")
        found[unit] = bound.epsilon
    return found


def constant(graph: str, decay: float, rounds: int) -> dict:
    """The least C' that is enough for this lambda between two synchronisations."""
    on = mixing(graph, "uniform", 10)
    period = range(on.period)
    found = [
        least_constant([on.at(first + k) for k in range(rounds - 1)], decay)
        for first in period
    ]
    return {"constant": max(found)}


def cells(quick: bool) -> Iterator[tuple[str, Callable[..., dict], tuple]]:
    """All that is computed, by name."""
    for graph in ("d-out:2", "exponential"):
        for layers in (1, 2):
            for name in ("published", "paper", "certified", "data-independent"):
                key = f"figure 2 {graph} {layers} {name}"
                yield key, sensitivities, (graph, layers, name, quick)
    for graph in ("d-out:2", "exponential"):
        key = f"one class a node {graph} 1"
        yield key, sensitivities, (graph, 1, "published", quick, 1.0)
    for graph in ("exponential", "d-out:2", "d-out:4", "d-out:6", "d-out:8"):
        for layers in (1, 2, 3):
            key = f"figure 3 {graph} {layers}"
            yield key, average_sensitivity, (graph, 10, layers, quick)
    for nodes in (20, 30):
        for graph in ("d-out:2", "d-out:4", "d-out:8"):
            key = f"figure 4 {graph} {nodes}"
            yield key, average_sensitivity, (graph, nodes, 1, quick)
    for graph in ("d-out:2", "exponential"):
        for interval in (4, 5, 20):
            for decay in (0.53, 0.55, 0.62, 0.7):
                key = f"constant {graph} {interval} {decay}"
                yield key, lambda *a: constant(*a), (graph, decay, interval)
    for b, gamma_n in ((1.0, 0.001), (5.0, 0.001), (5.0, 0.01), (1.0, 1.0)):
        for rounds in (25, 720):
            key = f"epsilon {b:g} {gamma_n:g} {rounds}"
            yield key, lambda *a: epsilons(*a), (b, gamma_n, rounds)
    for b in (1.0, 3.0, None):
        for graph in ("exponential", "d-out:8"):
            for method in ("PartPSP-1", "PartPSP-2", "SGPDP", "PEDFL"):
                key = f"table 2 {method} {graph} {b}"
                yield key, table_2, (method, graph, b, "real", quick)
    for epsilon in (1.0, 10.0, 100.0):
        for method in ("PartPSP-1", "PartPSP-2", "SGPDP", "SGPDP, by sample"):
            for clip in (1e-2,) if "sample" in method else (1e-4, 1e-2):
                key = f"certified {method} {epsilon:g} {clip:g}"
                yield key, certified, (method, epsilon, clip, quick)
        key = f"certified nothing {epsilon:g} 1e-12"
        yield key, certified, ("nothing", epsilon, 1e-12, quick)
        key = f"certified a bias of 10 {epsilon:g} 0.0001"
        yield key, certified, ("a bias of 10", epsilon, 1e-4, quick)
    for graph in ("d-out:2", "exponential"):
        for method in ("PartPSP-1", "PartPSP-2"):
            for how in ("real", "published"):
                key = f"table 3 {method} {graph} {how}"
                yield key, table_2, (method, graph, 5.0, how, quick)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few rounds, other file")
    parser.add_argument("--only-page", action="store_true")
    given = parser.parse_args()
    path = HERE / ("quick.json" if given.quick else "results.json")
    known = json.loads(path.read_text()) if path.exists() else {}
    for key, compute, arguments in cells(given.quick):
        if key in known or given.only_page:
            continue
        began = time.process_time()
        known[key] = compute(*arguments)
        known[key]["seconds"] = round(time.process_time() - began, 1)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(known, indent=1) + "\n")
        part.replace(path)
        print(f"{len(known)}: {key}: {known[key]['seconds']} s", flush=True)
    if not given.quick:
        from page import write

        write(HERE, known)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
