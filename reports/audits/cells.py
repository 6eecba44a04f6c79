"""Audits of every algorithm: one neighbour's inbox, and the loss of one record.

Every audit keeps its runs in a folder of its own under runs/, which is not kept in the
repository: a stopped one goes on where it was.
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

from privaudit.accounting import noise_multiplier
from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.experiments.experiment import Audit, run
from privaudit.auditing.experiments.plan import tested_relation
from privaudit.auditing.scores import Scores
from privaudit.files.folder import RunFolder
from privaudit.results import Claim
from reports import told
from reports.study import digest
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

HERE = pathlib.Path(__file__).parent
SETTINGS = told(__file__)
RUNS = {each["epsilon"]: each["runs"] for each in SETTINGS["cells"][0]["over"]["size"]}
WORKERS = 2  # of one audit; they change no figure


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
