"""Audits of every algorithm: one neighbour's inbox, and the loss of one record.

Every audit keeps its runs in a folder of its own under runs/, which is not kept in the
repository: a stopped one goes on where it was.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from privaudit.accounting import noise_multiplier
from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.experiments.experiment import Audit, run
from privaudit.auditing.experiments.plan import tested_relation
from privaudit.auditing.scores import Scores
from privaudit.files.folder import RunFolder
from privaudit.results import Claim
from reports import told
from reports.study import Cell, digest, small
from trainers.algorithms import ALGORITHMS
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

HERE = pathlib.Path(__file__).parent
DELTA = 1e-5
RUNS = {1.0: 20_000, 4.0: 4_000, 10.0: 4_000}
WORKERS = 2  # of one audit; they change no figure
SETTINGS = told(__file__)
NETWORK = SETTINGS["NETWORK"]
ALL_HEARD = SETTINGS["ALL_HEARD"]
SOME_HEARD = SETTINGS["SOME_HEARD"]
APPENDIX_D = SETTINGS["APPENDIX_D"]
BLACK_BOX = SETTINGS["BLACK_BOX"]
FULL = {"batch_size": 20.0}  # all records of a node: the curve is a Gaussian one


def audited(
    name: str,
    training: dict[str, Any],
    epsilon: float,
    delta: float,
    kept: bool = True,
    **how: Any,
) -> dict[str, Any]:
    """One audit and its figures; ``how`` are adversary, canary, runs and seed.

    Of a training without noise too, of which ``certified`` says nothing.
    """
    chosen = training_from(training, where=__name__)
    relation = tested_relation(chosen)
    noise = 0.0
    if chosen.family.private:
        ledger = Problem.of(chosen).ledger
        noise = noise_multiplier(ledger, epsilon, delta, relation=relation)[0]
    plan = Audit(
        claim=Claim(epsilon=epsilon, delta=delta, relation=relation, source="make.py"),
        training=chosen,
        noise_multiplier=noise,
        **how,
    )
    with tempfile.TemporaryDirectory() as other:
        path = pathlib.Path(other) / "run"
        if kept:
            known = digest([training, epsilon, delta, how])
            path = HERE / "runs" / f"{name}-{known}"
            path.parent.mkdir(exist_ok=True)
        with RunFolder.opened(path) as opened:
            result = run(plan, opened, workers=WORKERS)
        scores = Scores.load(path / "scores.npz")

    def bound(estimator: str) -> float:
        return ESTIMATORS[estimator](
            scores, delta, relation=relation, threat_model="", seed=plan.seed
        ).epsilon

    gap, beside = result.gap, result.beside_gap
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
        # None without noise, where there is no sequence of Gaussians.
        "family": None if result.beside is None else result.beside.epsilon,
        "gap": None if gap is None else gap.summary(),
        "family_gap": None if beside is None else beside.summary(),
        "training_seconds": result.seconds,
    }


def everything() -> Iterator[Cell]:
    """The most important first. No two audits toss the same coins."""
    plans: list[tuple[str, str, dict[str, Any], float]] = []
    for kind, cases, epsilons in (
        ("neighbour", ALL_HEARD, (4.0, 10.0, 1.0)),
        ("partly", SOME_HEARD, (4.0,)),
        ("black-box clipbkd", BLACK_BOX, (1.0,)),
        ("full", ALL_HEARD, (4.0, 10.0, 1.0)),
    ):
        for epsilon in epsilons:
            for name, more in cases.items():
                if kind == "black-box clipbkd":
                    training = APPENDIX_D | more
                elif kind == "full":
                    even = {"partition": "even"} if name == "adp2sgd" else {}
                    training = NETWORK | FULL | more | even
                else:
                    training = NETWORK | more
                plans.append((kind, name, training, epsilon))
    for seed, (kind, name, training, epsilon) in enumerate(plans):
        black_box = kind == "black-box clipbkd"
        algorithm = name.split(" ")[0]
        beneath = ALGORITHMS[algorithm].defaults
        settings = {
            "name": name,
            "training": {**beneath, **training, "algorithm": algorithm},
            "epsilon": epsilon,
            "delta": 1e-2 if black_box else DELTA,
            "adversary": "final-loss" if black_box else "neighbour",
            "canary": "clipbkd" if black_box else "gradient",
            "runs": 10_000 if black_box else RUNS[epsilon],
            "seed": seed,
            "kept": True,
        }
        yield Cell(
            f"{kind} {name}" + ("" if black_box else f" {epsilon:g}"), audited, settings
        )


def cells(quick: bool) -> Iterator[Cell]:
    """Cells: an observer of all messages, of some, and of one loss."""
    if not quick:
        return everything()
    return small(everything(), runs=200, training={"rounds": 4}, kept=False)
