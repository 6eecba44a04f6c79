"""Tables 1 and 2 of Bayrooti, Gao and Prorok (2023) on glyphs, certified."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from privaudit.accounting import account_nodes, noise_multiplier
from reports.study import Cell, small
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.search import best, search
from trainers.runs.training import Training, training_from

METHODS = {"central": "sgd", "DSGD": "dsgd", "DSGT": "dsgt", "DiNNO": "dinno"}
EPSILONS = (None, 100.0, 10.0, 1.0, 0.5)  # None: not private
GRAPHS = ("complete", "fiedler:0.7", "fiedler:0.39", "fiedler:0.06")
SPLITS = (0.0, 0.25, 0.5, 0.75, 1.0)
DELTA = 1e-5
COMMON = {
    "data": "glyphs",
    "train": 60000,
    "model": "softmax",
    "nodes": 10,
    "weights": "metropolis",
    "rounds": 300,
    "batch_size": 128,
    "clip_norm": 1.0,
}
STEPS = (0.1, 0.3, 1.0, 3.0, 10.0)
GRIDS = {
    "central": {"step_size": STEPS},
    "DSGD": {"step_size": STEPS},
    "DSGT": {"step_size": (0.03, 0.1, 0.3, 1.0, 3.0)},
    "DiNNO": {"step_size": (0.001, 0.003, 0.01, 0.03), "rho": (0.001, 0.01, 0.1)},
}


def training(method: str, private: bool, values: dict[str, Any]) -> Training:
    """The training of one cell; steps fall tenfold over the rounds."""
    name = ("dp-" if private else "") + METHODS[method]
    if "step_size" in values:
        values = {**values, "final_step_size": values["step_size"] / 10}
    return training_from({**values, "algorithm": name}, where=__name__)


def noise(method: str, epsilon: float | None, values: dict[str, Any]) -> float:
    """The least that is certified for the cell's claim."""
    if epsilon is None:
        return 0.0
    problem = Problem.of(training(method, True, values))
    return noise_multiplier(problem.ledger, epsilon, DELTA)[0]


def find(
    method: str, epsilon: float | None, values: dict[str, Any], grid: dict[str, Any]
) -> dict[str, Any]:
    """Options by a search on a fifth of the training data; complete graph, t = 1."""
    z = noise(method, epsilon, values)
    tried = []
    for chosen in itertools.product(*grid.values()):
        options = dict(zip(grid, chosen, strict=True))
        one = training(method, epsilon is not None, {**values, **options})
        found = best(list(search(one, {}, noise_multiplier=z)))
        tried.append({**options, "accuracy": found.accuracy})
    chosen = max(tried, key=lambda one: one["accuracy"])
    return {
        "noise_multiplier": z,
        "tried": tried,
        "chosen": {k: v for k, v in chosen.items() if k != "accuracy"},
    }


def trained(
    method: str,
    epsilon: float | None,
    values: dict[str, Any],
    seeds: int,
    found: dict[str, Any],
) -> dict[str, Any]:
    """Runs of one cell as one block: each its own start, batches and noise."""
    (searched,) = found.values()
    values = {**values, **searched["chosen"]}
    problem = Problem.of(training(method, epsilon is not None, values))
    z = noise(method, epsilon, values)
    starts = torch.cat([problem.start(seed) for seed in range(seeds)])
    models, ledger = problem.train(z, Streams(0), runs=seeds, start=starts)
    right = accuracy(problem.gradients(), models, problem.test)  # (seeds, nodes)
    result = {
        "accuracy": right.mean(1).tolist(),
        "worst": right.min(1).values.tolist(),
        "noise_multiplier": z,
    }
    if epsilon is not None:
        for relation in ("add-or-remove-one", "replace-one"):
            nodes = account_nodes(ledger, DELTA, relation)
            result[relation] = max(bound.epsilon for bound in nodes)
    return result


def everything() -> Iterator[Cell]:
    """Searches, Table 1, then what Table 2 has besides."""
    for method, epsilon in itertools.product(METHODS, EPSILONS):
        settings = {"method": method, "epsilon": epsilon, "grid": GRIDS[method]}
        values = {**COMMON, "graph": "complete", "split": 1.0}
        yield Cell(f"search {method} {epsilon}", find, {**settings, "values": values})
    first = [
        (method, epsilon, graph, 1.0)
        for graph in GRAPHS
        for method in METHODS
        for epsilon in EPSILONS
        if method != "central" or graph == "complete"
    ]
    second = itertools.product(
        ("DSGD", "DSGT", "DiNNO"), (10.0, 0.5), GRAPHS[-1:], SPLITS
    )
    for method, epsilon, graph, split in dict.fromkeys([*first, *second]):
        values = {**COMMON, "graph": graph, "split": split}
        settings = {"method": method, "epsilon": epsilon, "values": values, "seeds": 5}
        name = f"{method} {epsilon} {graph} {split}"
        yield Cell(name, trained, settings, needs=(f"search {method} {epsilon}",))


def cells(quick: bool) -> Iterator[Cell]:
    """Searches, and five seeds of each cell of the tables with what they chose."""
    if not quick:
        return everything()
    size = {"data": "digits", "train": 600, "rounds": 5, "batch_size": 20}
    some = (cell for cell in everything() if "DSGD 1.0" in cell.name)
    return small(some, values=size, grid={"step_size": [1.0]}, seeds=2)
