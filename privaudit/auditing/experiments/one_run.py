"""Trains once with many canaries, scores each, and judges the claim.

The scores are of the canaries. They are not independent, and the bounds that read them
(`privaudit.auditing.bounds.one_run`) do not ask for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from privaudit.auditing.attacks.many import (
    MANY,
    ManyScene,
    canaries_of,
)
from privaudit.auditing.experiments.judgement import judge
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.experiments.plan import Audit
from privaudit.files import json as _json
from privaudit.files import npz as _npz
from privaudit.files.folder import RunFolder
from privaudit.files.manifest import write_result
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import MEMORY_LIMIT
from trainers.runs.measures import CurveRecorder, accuracy
from trainers.runs.problem import Observers, Planted


def run(
    audit: Audit,
    folder: RunFolder,
    *,
    memory_limit: int = MEMORY_LIMIT,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AuditResult:
    """Train once, score every canary, account and judge.

    Raises
    ------
    privaudit.files.folder.FolderError
        If the folder is another audit's, damaged, or cannot be written.
    ValueError
        If the settings do not fit the data, or training diverges.
    """
    problem = audit.problem()
    if folder.settle(audit) and folder.has("result.json"):
        return folder.read("result.json", AuditResult)
    began = time.monotonic()
    canaries = canaries_of(problem, audit.canary, audit.runs, audit.seed)
    planted = Streams(audit.seed).worlds(audit.runs)
    start = problem.start(audit.seed)
    scene = ManyScene(
        problem=problem,
        canaries=canaries,
        noise_multiplier=audit.noise_multiplier,
        start=start[0, 0],
    )
    gradients = problem.gradients()
    watcher = MANY[audit.adversary or ""](scene, gradients)
    curve = CurveRecorder(problem, gradients)

    def after_round(done: int, models: torch.Tensor, _: object) -> None:
        watcher.after_round(done, models)
        curve(done, models)
        progress(done, problem.training.rounds)

    models, ledger = problem.train(
        audit.noise_multiplier,
        Streams(audit.seed, 0, audit.device),
        planted=Planted(canaries.records, planted[None], canaries.coordinates),
        start=start,
        observers=Observers(
            releases=watcher.release_observers, after_round=after_round
        ),
        memory_limit=memory_limit,
    )
    member = planted.numpy()
    score = watcher.scores(models).numpy().astype(np.float64)
    right = accuracy(gradients, models, problem.test).mean(1).numpy()
    folder.write("ledger.json", ledger.to_json().encode())
    folder.write("curves.json", _json.encode(curve.curves()))
    kept = _npz.packed(member=member, score=score, design="one-run", accuracy=right)
    folder.write("scores.npz", kept)
    seconds = time.monotonic() - began
    result = judge(audit, ledger, (member, score, right), seconds, watcher.sees)
    write_result(folder, result)
    return result
