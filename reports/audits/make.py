"""Audits of every algorithm: one neighbour's inbox, and the loss of one record.

    OMP_NUM_THREADS=1 python reports/audits/make.py [--quick] [--workers 2]

Every audit has a folder of its own under runs/ beside this file, which is not kept in
the repository: a stopped one goes on where it was. Figures are put into results.json,
then README.md is written.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

from page import write

from privaudit.accounting import noise_multiplier
from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.experiments.experiment import Audit, run, tested_relation
from privaudit.auditing.scores import Scores
from privaudit.files.folder import RunFolder
from privaudit.results import Claim
from trainers.algorithms import ALGORITHMS
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

HERE = pathlib.Path(__file__).parent
DELTA = 1e-5
RUNS = {1.0: 20_000, 4.0: 4_000, 10.0: 4_000}
# 60 images of 0, 1, 2, dealt evenly to three nodes that all hear each other; half of a
# node's are in a lot, so that the trade-off curve is near a Gaussian one, of which the
# middle, which the family bound looks at, tells most.
NETWORK: dict[str, Any] = {
    "nodes": 3,
    "digits": (0, 1, 2),
    "train": 60,
    "model": "softmax",
    "rounds": 16,
    "lot_size": 10.0,
    "clip_norm": 1.0,
}
PUSHED = {"weights": "column-stochastic"}
FULL = {"lot_size": 20.0}  # all records of a node: the curve is a Gaussian one
ALL_HEARD = {
    "dp-dsgd": {},
    "dp-dsgt": {},
    "dp-dinno": {"optimiser": "sgd", "rho": 0.1},
    "dp-dinno (Adam)": {"optimiser": "adam", "step_size": 0.01},
    "dyn-d2p": {"graph": "complete", **PUSHED},
    # Two workers; a round is one global step. Lots of fixed size, replace-one.
    "adp2sgd": {"nodes": 2, "train": 40, "rounds": 32},
}
SOME_HEARD = {
    "dp-dsgd": {"graph": "ring", "nodes": 5, "weights": "metropolis", "train": 100},
    "dp-dsgt": {"graph": "ring", "nodes": 5, "weights": "metropolis", "train": 100},
    "dyn-d2p": {"graph": "exponential", **PUSHED},
    "adp2sgd": {"nodes": 4, "train": 80, "rounds": 64},
}
# Appendix D of Bayrooti et al. 2023: digit a node, clip 10, 100 rounds, (1, 1e-2).
APPENDIX_D: dict[str, Any] = {
    "nodes": 3,
    "digits": (0, 1, 2),
    "train": 300,
    "split": 1.0,
    "rounds": 100,
    "clip_norm": 10.0,
    "model": "raw:softmax",
    "step_size": 0.001,
    "lot_size": 8.0,
}
PAPER = {"dp-sgd": 0.230, "dp-dsgd": 0.173, "dp-dsgt": 0.129, "dp-dinno": 0.165}
BLACK_BOX = {
    "dp-sgd": {"lot_size": 24.0},
    "dp-dsgd": {},
    "dp-dsgt": {},
    "dp-dinno": {"optimiser": "sgd", "rho": 0.1},
}


def audited(
    name: str, folder: str, epsilon: float, delta: float, settings: dict, **more: Any
) -> dict[str, Any]:
    """One audit and its figures."""
    began = time.monotonic()
    workers = more.pop("workers")
    algorithm = name.split(" ")[0]
    values = {**ALGORITHMS[algorithm].defaults, **settings, "algorithm": algorithm}
    training = training_from(values, where="make.py")
    relation = tested_relation(training)
    noise = noise_multiplier(
        Problem.of(training).ledger, epsilon, delta, relation=relation
    )[0]
    plan = Audit(
        claim=Claim(epsilon=epsilon, delta=delta, relation=relation, source="make.py"),
        training=training,
        noise_multiplier=noise,
        **more,
    )
    path = HERE / "runs" / folder
    path.parent.mkdir(exist_ok=True)
    with RunFolder.opened(path) as opened:
        result = run(plan, opened, workers=workers)
    scores = Scores.load(path / "scores.npz")

    def bound(estimator: str) -> float:
        return ESTIMATORS[estimator](
            scores, delta, relation=relation, threat_model="", seed=plan.seed
        ).epsilon

    assert result.beside is not None
    return {
        "algorithm": name,
        "epsilon": epsilon,
        "certified": result.upper().epsilon,
        "relation": relation,
        "noise_multiplier": noise,
        "runs": len(scores),
        "accuracy": result.accuracy,
        "best": result.lower().epsilon,
        "clopper_pearson": bound("clopper-pearson"),
        "two_binomial": bound("two-binomial"),
        "family": result.beside.epsilon,
        "gap": None if result.gap is None else result.gap.summary(),
        "family_gap": None
        if result.beside_gap is None
        else result.beside_gap.summary(),
        "training_seconds": result.seconds,
        "seconds": round(time.monotonic() - began, 1),
    }


def plans(quick: bool) -> dict[str, dict[str, Any]]:
    """All audits, the most important first: arguments of `audited` by name."""

    def heard(name: str, epsilon: float, more: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name,
            "epsilon": epsilon,
            "delta": DELTA,
            "settings": {**NETWORK, **more},
            "adversary": "neighbour",
            "canary": "gradient",
            "runs": 1000 if quick else RUNS[epsilon],
        }

    found: dict[str, dict[str, Any]] = {}
    for kind, cases, epsilons in (
        ("neighbour", ALL_HEARD, (4.0, 10.0, 1.0)),
        ("partly", SOME_HEARD, (4.0,)),
    ):
        for epsilon in epsilons:
            for name, more in cases.items():
                found[f"{kind} {name} {epsilon:g}"] = heard(name, epsilon, more)
    for name, more in BLACK_BOX.items():
        for canary in ("clipbkd",):
            found[f"black-box {canary} {name}"] = {
                "name": name,
                "epsilon": 1.0,
                "delta": 1e-2,
                "settings": {**APPENDIX_D, **more},
                "adversary": "final-loss",
                "canary": canary,
                "runs": 500 if quick else 10_000,
            }
    for epsilon in (4.0, 10.0, 1.0):
        for name, more in ALL_HEARD.items():
            even = {"partition": "even"} if name == "adp2sgd" else {}
            found[f"full {name} {epsilon:g}"] = heard(name, epsilon, FULL | more | even)
    # No two audits toss the same coins.
    return {
        key: plan | {"seed": seed} for seed, (key, plan) in enumerate(found.items())
    }


def main() -> None:
    """Make what is missing of results.json, and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs, a minute or so")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="audits whose name begins so")
    arguments = parser.parse_args()
    suffix = "-quick" if arguments.quick else ""
    path = HERE / f"results{suffix}.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for key, plan in plans(arguments.quick).items():
        if key in results or not key.startswith(arguments.only):
            continue
        folder = key.replace(" ", "-").replace("(", "").replace(")", "") + suffix
        figures = audited(folder=folder, workers=arguments.workers, **plan)
        if path.exists():  # somebody may have made others meanwhile
            results = json.loads(path.read_text())
        results[key] = figures
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(
            f"{key}: certified {figures['certified']:.3f}, family "
            f"{figures['family']:.3f}, best {figures['best']:.3f} "
            f"({figures['seconds']:.0f} s)",
            flush=True,
        )
    if not arguments.quick:
        order = [key for key in plans(arguments.quick) if key in results]
        write(HERE / "README.md", {key: results[key] for key in order}, PAPER)


if __name__ == "__main__":
    main()
