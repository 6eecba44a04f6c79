"""The demo: one training audited three times, the third time with a planted bug."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any, ClassVar

from privaudit.accounting import noise_multiplier
from privaudit.auditing.experiments.experiment import run
from privaudit.auditing.experiments.plan import Audit, tested_relation
from privaudit.auditing.experiments.presets import training_upon
from privaudit.auditing.experiments.sweep import Planned, Sweep
from privaudit.auditing.experiments.sweep_folder import PLAN, SweepFolder
from privaudit.files import json as _json
from privaudit.files.folder import RunFolder
from privaudit.files.manifest import seal
from privaudit.results import Claim
from trainers.runs.problem import Problem

NEIGHBOUR, MODEL, BUG = "neighbour", "final-model", "planted-bug"
EPSILON, DELTA = 4.0, 1e-5
# A neighbour attains the certified curve: at 95 %, right code would be refuted with one
# seed in 20.
CONFIDENCE = 0.99
RUNS = 4000  # of the first audit; the others take a half and a quarter
# Three nodes with 50 of scikit-learn's digits each; a softmax model gets nine of ten
# test images right.
_TRAINING: dict[str, Any] = {
    "nodes": 3,
    "digits": (0, 1, 2),
    "train": 150,
    "split": 0.0,
    "model": "softmax",
    "rounds": 16,
    "batch_size": 25.0,
    "clip_norm": 1.0,
    "step_size": 1.0,
}
_CRAFTED = {"adversary": "neighbour", "canary": "gradient"}


class DemoFolder(SweepFolder):
    """Holds a sweep of three audits, and their page."""

    of: ClassVar[str] = "demo"

    @classmethod
    def holds(cls, entry: pathlib.Path) -> bool:
        if entry.is_dir():
            return entry.name in (NEIGHBOUR, MODEL, BUG)
        return super().holds(entry)


def run_demo(
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    runs: int = RUNS,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Make the three audits in the folder at ``path``, or what is missing of them.

    ``runs``: of the first; the others take a half and a quarter. ``ValueError`` if
    ``path`` is a file, or a folder of something else; `FolderError` if it cannot be
    used.
    """
    path = pathlib.Path(path)
    _refuse_others(path)
    with DemoFolder.opened(path) as folder:
        if folder.has(PLAN):
            known = folder.read(PLAN, Sweep)
            noise = known.audits[0].audit.noise_multiplier
            assert not isinstance(noise, tuple)
            plan = _plan(seed, runs, noise)
            if plan != known:
                raise ValueError(
                    f"{path} holds another sweep, or the demo with another seed, of "
                    "another version or with another torch; choose a new or empty "
                    "folder with --out"
                )
        else:
            plan = _plan(seed, runs)
            folder.write(PLAN, _json.encode(plan))
        total, before = sum(one.audit.runs for one in plan.audits), 0
        for one in plan.audits:

            def told(done: int, _: int, before: int = before) -> None:
                progress(before + done, total)

            with RunFolder.opened(folder / one.name) as kept:
                run(one.audit, kept, workers=workers, progress=told)
            before += one.audit.runs
        seal(folder, folder.manifests())


def _plan(seed: int, runs: int, noise: float | None = None) -> Sweep:
    """The three audits, all with the least noise that certifies the claim."""
    training = training_upon("dp-dsgd", _TRAINING, {}, "the demo")
    claim = Claim(
        epsilon=EPSILON,
        delta=DELTA,
        relation=tested_relation(training),
        source="the demo",
    )
    if noise is None:
        noise, _ = noise_multiplier(
            Problem.of(training).ledger, EPSILON, DELTA, claim.relation
        )

    def planned(name: str, runs: int, **attack: str) -> Planned:
        audit = Audit(
            claim=claim,
            training=training,
            noise_multiplier=noise,
            estimator="family",
            confidence=CONFIDENCE,
            runs=runs,
            block=min(500, runs),
            seed=seed,
            **attack,  # type: ignore[arg-type]
        )
        return Planned(name=name, audit=audit, calibrate=False)

    return Sweep(
        audits=(
            planned(NEIGHBOUR, runs, **_CRAFTED),
            planned(MODEL, runs // 2, adversary="final-loss", canary="mislabelled"),
            planned(BUG, runs // 4, **_CRAFTED, planted_bug="half-noise"),
        )
    )


def _refuse_others(path: pathlib.Path) -> None:
    """``ValueError`` unless the demo may be written to ``path``."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; choose a folder with --out")
    others = sorted(path.iterdir()) if path.exists() else []
    for entry in others:
        if not DemoFolder.holds(entry):
            raise ValueError(
                f"{path} is no demo's folder (it holds {entry.name}); choose a new or "
                "empty one with --out"
            )
