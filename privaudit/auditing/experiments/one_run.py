"""Trains once with many canaries, scores each, and judges the claim.

Or plants them in a run that is kept, and judges that.

The scores are of the canaries. They are not independent, and the bounds that read them
(`privaudit.auditing.bounds.one_run`) do not ask for it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from msgspec import UNSET, UnsetType

from privaudit.auditing.attacks.canaries import canaries_of, public_canaries
from privaudit.auditing.attacks.contract import Scene
from privaudit.auditing.attacks.many import MANY, ManyWatcher
from privaudit.auditing.attacks.messages import FinalModels
from privaudit.auditing.experiments.judgement import end, judge
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.experiments.plan import Audit
from privaudit.files import json as _json
from privaudit.files import npz as _npz
from privaudit.files.folder import RunFolder
from privaudit.ledger import Ledger
from privaudit.records import IN_THE_RUN
from trainers.algorithms.family import Noise
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import MEMORY_LIMIT, ReleaseObserver
from trainers.runs.measures import CurveRecorder, accuracy
from trainers.runs.problem import Observers, Planted, Problem
from trainers.runs.run import Measure


def run(
    audit: Audit,
    folder: RunFolder,
    *,
    memory_limit: int = MEMORY_LIMIT,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AuditResult:
    """Train once, score every canary, account and judge.

    `FolderError` if the folder is another audit's, damaged, or cannot be written;
    ``ValueError`` if the settings do not fit the data, or training diverges.
    """
    problem = audit.problem()
    if folder.settle(audit) and folder.has("result.json"):
        return folder.read("result.json", AuditResult)
    began = time.monotonic()
    canaries = canaries_of(problem, audit.canary, audit.runs, audit.seed)
    planted = Streams(audit.seed).worlds(audit.runs)
    start = problem.start(audit.seed)
    scene = Scene(
        problem=problem,
        canary=canaries,
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
        planted=canaries.planted(planted[None]),
        start=start,
        observers=Observers(
            releases=watcher.release_observers, after_round=after_round
        ),
        memory_limit=memory_limit,
    )
    member = planted.numpy()
    score = watcher.score(models).numpy().astype(np.float64)
    right = accuracy(gradients, models, problem.test).mean(1).numpy()
    runs, curves = (member, score, right), _json.encode(curve.curves())
    seconds = time.monotonic() - began
    return _ended(audit, folder, ledger, curves, runs, seconds, watcher.sees)


def _ended(
    audit: Audit,
    folder: RunFolder,
    ledger: Ledger,
    curves: bytes,
    runs: tuple[np.ndarray, np.ndarray, np.ndarray],
    seconds: float,
    sees: str,
) -> AuditResult:
    """Keep what a run left, and judge it."""
    member, score, right = runs
    folder.write("ledger.json", ledger.to_json().encode())
    folder.write("curves.json", curves)
    kept = _npz.packed(member=member, score=score, design="one-run", accuracy=right)
    folder.write("scores.npz", kept)
    result = judge(audit, ledger, runs, seconds, sees)
    end(folder, audit.claim, ledger, result)
    return result


_KEPT = (torch.Tensor, list)


class PlantedInRun:
    """Canaries of a run that is kept; see `trainers.runs.run.Planting`.

    Crafted gradients along parameters chosen without the data (``public_seed``), by
    coins of the run's key, dealt to ``nodes`` in turn. They cost the records nothing:
    scores are of releases and the final model, which the account covers.
    """

    def __init__(
        self,
        problem: Problem,
        count: int,
        noise_multiplier: Noise,
        public_seed: int,
        nodes: tuple[int, ...],
    ) -> None:
        self.nodes = nodes
        self._canaries = public_canaries(problem, count, public_seed, nodes)
        self._scene = scene = Scene(
            problem=problem,
            canary=self._canaries,
            noise_multiplier=noise_multiplier,
            start=problem.start(public_seed)[0, 0],
        )
        gradients = problem.gradients()
        self._watchers: list[ManyWatcher] = [
            MANY[name](scene, gradients) for name in IN_THE_RUN
        ]
        # Watchers of releases, some by way of `Turns`.
        self.observers: tuple[ReleaseObserver, ...] = tuple(
            seen for one in self._watchers for seen in one.release_observers
        )
        self.member: np.ndarray | None = None
        self.scores: dict[str, np.ndarray] = {}
        self.without: float | UnsetType = UNSET  # `TrainingResult.without_canaries`

    @property
    def state(self) -> list[dict[str, Any]]:
        """Tensors, and lists of such, that watchers and their observers hold."""
        return [
            {x: own for x, own in vars(one).items() if isinstance(own, _KEPT)}
            for one in (*self._watchers, *self.observers)
        ]

    def goes_on(self, state: list[dict[str, Any]]) -> None:
        """Take the ``state`` of an earlier process."""
        each = (*self._watchers, *self.observers)
        for one, known in zip(each, state, strict=True):
            vars(one).update(known)

    def planted(self, streams: Streams) -> Planted:
        """Toss the coins."""
        coins = streams.worlds(len(self._canaries))
        self.member = coins.numpy()
        return self._canaries.planted(coins[None])

    def ends(self, models: torch.Tensor, measure: Measure) -> None:
        """Score all canaries by each watcher; ``measure`` what they cost."""
        with contextlib.suppress(ValueError):  # not linear in its gradients
            if (found := measure(models - self._added().to(models))) is not None:
                self.without = float(found.mean())
        self.scores = {
            one.name: one.score(models).numpy().astype(np.float64)
            for one in self._watchers
        }

    def _added(self) -> torch.Tensor:
        """Expected part of the canaries there were in each model, (nodes, dims)."""
        scene, canaries, there = self._scene, self._canaries, self.member
        assert there is not None
        assert canaries.direction is not None
        known = FinalModels.map_of(scene.problem)
        added = np.zeros((len(known.seen), len(scene.start)))
        for node in self.nodes:
            clips = [scene.scales(k, node)[0] * (n == node) for n, k in known.inputs]
            share = scene.rates[node] / scene.divisors[node]
            moved, own = share * (known.seen[:, 1:] @ clips), canaries.at(node)
            added[:, canaries.direction[own]] = np.outer(moved, there[own])
        return torch.as_tensor(added)

    def judged(self, audit: Audit, folder: RunFolder, run: RunFolder) -> AuditResult:
        """Keep what ``audit`` finds in ``folder``, of what a ``run``'s has so far."""
        folder.remove("result.json")  # of a process that was stopped
        folder.write("config.json", _json.encode(audit))
        member, score = self.member, self.scores[audit.adversary or ""]
        assert member is not None
        right = np.array([np.nan])  # the models' quality is the run's
        ledger = run.read("ledger.json", Ledger)
        curves = (run / "curves.json").read_bytes()
        (sees,) = [one.sees for one in self._watchers if one.name == audit.adversary]
        return _ended(audit, folder, ledger, curves, (member, score, right), 0.0, sees)
