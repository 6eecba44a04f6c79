"""Tables 1 and 2 of Bayrooti, Gao and Prorok (2023) on glyphs, every epsilon certified.

    OMP_NUM_THREADS=1 python reports/consensus/make.py [--quick] [--workers 2]

Writes results.json beside itself after every cell, so that it goes on where it was
stopped, then README.md and graphs.svg.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
import time

import torch

from privaudit.accounting import account_nodes, noise_multiplier
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.search import best, search
from trainers.runs.training import Training, training_from

HERE = pathlib.Path(__file__).parent
METHODS = {"central": "sgd", "DSGD": "dsgd", "DSGT": "dsgt", "DiNNO": "dinno"}
EPSILONS = (None, 100.0, 10.0, 1.0, 0.5)  # None: not private
GRAPHS = ("complete", "fiedler:0.7", "fiedler:0.39", "fiedler:0.06")
SPLITS = (0.0, 0.25, 0.5, 0.75, 1.0)
DELTA = 1e-5
SEEDS = 5
COMMON = {
    "data": "glyphs",
    "train": 60000,
    "model": "softmax",
    "nodes": 10,
    "weights": "metropolis",
    "rounds": 300,
    "lot_size": 128,
    "clip_norm": 1.0,
}
STEPS = (0.1, 0.3, 1.0, 3.0, 10.0)
GRIDS = {
    "central": {"step_size": STEPS},
    "DSGD": {"step_size": STEPS},
    "DSGT": {"step_size": (0.03, 0.1, 0.3, 1.0, 3.0)},
    "DiNNO": {"step_size": (0.001, 0.003, 0.01, 0.03), "rho": (0.001, 0.01, 0.1)},
}


def training(method: str, private: bool, **more: object) -> Training:
    """The training of one cell; steps fall tenfold over the rounds."""
    name = ("dp-" if private else "") + METHODS[method]
    values = {**COMMON, "split": 1.0, "graph": "complete", **more}
    step = values.get("step_size")
    if isinstance(step, float):
        values["final_step_size"] = step / 10
    return training_from({**values, "algorithm": name}, where="make.py")


def noise(method: str, epsilon: float | None, **more: object) -> float:
    """The least that is certified for the cell's claim."""
    if epsilon is None:
        return 0.0
    problem = Problem.of(training(method, True, **more))
    return noise_multiplier(problem.ledger, epsilon, DELTA)[0]


def find(method: str, epsilon: float | None, rounds: int) -> dict:
    """Step sizes by a search on a fifth of the training data; complete graph, t = 1."""
    began = time.monotonic()
    z = noise(method, epsilon, rounds=rounds)
    tried = []
    grid = GRIDS[method]
    for step in grid["step_size"]:
        rest = {name: values for name, values in grid.items() if name != "step_size"}
        for rho in rest.get("rho", (None,)):
            more = {} if rho is None else {"rho": rho}
            one = training(
                method, epsilon is not None, step_size=step, rounds=rounds, **more
            )
            found = best(list(search(one, {}, noise_multiplier=z)))
            tried.append({"step_size": step, **more, "accuracy": found.accuracy})
    chosen = max(tried, key=lambda one: one["accuracy"])
    return {
        "noise_multiplier": z,
        "tried": tried,
        "chosen": {k: v for k, v in chosen.items() if k != "accuracy"},
        "seconds": time.monotonic() - began,
    }


def cell(
    method: str, epsilon: float | None, graph: str, split: float, chosen: dict
) -> dict:
    """Five runs of one cell as one block: each its own start, lots and noise."""
    began = time.monotonic()
    one = training(method, epsilon is not None, graph=graph, split=split, **chosen)
    problem = Problem.of(one)
    z = noise(method, epsilon, graph=graph, split=split, rounds=one.rounds)
    starts = torch.cat([problem.start(seed) for seed in range(SEEDS)])
    models, ledger = problem.train(z, Streams(0), runs=SEEDS, start=starts)
    right = accuracy(problem.gradients(), models, problem.test)  # (seeds, nodes)
    result = {
        "accuracy": right.mean(1).tolist(),
        "worst": right.min(1).values.tolist(),
        "noise_multiplier": z,
        "seconds": time.monotonic() - began,
    }
    if epsilon is not None:
        for relation in ("add-or-remove-one", "replace-one"):
            nodes = account_nodes(ledger, DELTA, relation)
            result[relation] = max(bound.epsilon for bound in nodes)
    return result


def cells() -> list[tuple[str, float | None, str, float]]:
    """All of Table 1, then what Table 2 has beside."""
    first = [
        (method, epsilon, graph, 1.0)
        for graph in GRAPHS
        for method in METHODS
        for epsilon in EPSILONS
        if method != "central" or graph == "complete"
    ]
    second = [
        (method, epsilon, "fiedler:0.06", split)
        for epsilon in (10.0, 0.5)
        for method in ("DSGD", "DSGT", "DiNNO")
        for split in SPLITS
    ]
    return list(dict.fromkeys([*first, *second]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="30 rounds, other file")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only-page", action="store_true")
    given = parser.parse_args()
    path = HERE / ("quick.json" if given.quick else "results.json")
    known = json.loads(path.read_text()) if path.exists() else {}
    rounds = 30 if given.quick else COMMON["rounds"]

    def keep(key: str, value: dict) -> None:
        known[key] = value
        part = path.with_suffix(".part")
        part.write_text(json.dumps(known, indent=1) + "\n")
        part.replace(path)
        print(f"{len(known)}: {key}: {value['seconds']:.0f} s", flush=True)

    if not given.only_page:
        with concurrent.futures.ProcessPoolExecutor(given.workers) as pool:
            wanted = {
                pool.submit(find, method, epsilon, rounds): f"search {method} {epsilon}"
                for method in METHODS
                for epsilon in EPSILONS
                if f"search {method} {epsilon}" not in known
            }
            for future in concurrent.futures.as_completed(wanted):
                keep(wanted[future], future.result())
            wanted = {}
            for method, epsilon, graph, split in cells():
                key = f"{method} {epsilon} {graph} {split}"
                if key in known:
                    continue
                chosen = known[f"search {method} {epsilon}"]["chosen"]
                chosen = {**chosen, "rounds": rounds}
                future = pool.submit(cell, method, epsilon, graph, split, chosen)
                wanted[future] = key
            for future in concurrent.futures.as_completed(wanted):
                keep(wanted[future], future.result())
    if not given.quick:
        from page import write

        write(HERE, known)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
