"""One training run in a folder: trained, accounted, kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from privaudit import __version__, _json
from privaudit.accounting import account_nodes
from privaudit.folder import RunFolder
from privaudit.results import Claim, Verdict
from trainers.measures import CurveRecorder, accuracy
from trainers.outcome import TrainingResult
from trainers.problem import Problem
from trainers.randomness import Streams
from trainers.training import Training


class TrainingRun(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What is trained, with how much noise, and what is claimed of it."""

    training: Training
    claim: Claim | None
    noise_multiplier: float
    account: str = "certified"
    seed: int = 0
    torch_version: str = str(torch.__version__)
    version: str = __version__


def train(
    run: TrainingRun,
    folder: RunFolder,
    *,
    delta: float,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TrainingResult:
    """Train once, account at ``delta``, and keep all in ``folder``.

    A folder that holds the result of the same run gives it back.

    Raises
    ------
    privaudit.folder.FolderError
        If the folder is another run's or cannot be written.
    ValueError
        If the settings do not fit the data, or training diverges.
    """
    problem = Problem.of(run.training)
    if folder.settle(run) and folder.has("result.json"):
        return folder.read("result.json", TrainingResult)
    began = time.monotonic()
    gradients = problem.gradients()
    curve = CurveRecorder(problem, gradients)

    def after_round(done: int, models: torch.Tensor, _: Any) -> None:
        curve(done, models)
        progress(done, run.training.rounds)

    models, ledger = problem.train(
        run.noise_multiplier, Streams(run.seed), after_round=after_round
    )
    right = accuracy(gradients, models, problem.test)
    relation = run.claim.relation if run.claim else "add-or-remove-one"
    nodes = account_nodes(ledger, delta, relation, run.account)
    worst = max(nodes, key=lambda bound: bound.epsilon)
    verdict = None if run.claim is None else Verdict(claim=run.claim, upper=worst)
    result = TrainingResult(
        nodes=nodes,
        verdict=verdict,
        status=None if verdict is None else verdict.status,
        noise_multiplier=run.noise_multiplier,
        accuracy=float(right.mean()),
        worst_accuracy=float(right.min()),
        seconds=round(time.monotonic() - began, 3),
    )
    folder.write("ledger.json", ledger.to_json().encode())
    folder.write("curves.json", _json.encode(curve.curves()))
    folder.write("result.json", _json.encode(result))
    return result
