"""A training run over the ranks that torchrun started; rank 0 keeps its folder."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from privaudit.accounting import account_nodes
from privaudit.files.folder import FolderError, RunFolder
from privaudit.ledger import Ledger
from privaudit.results import Relation
from trainers.network.over_ranks import RankNetwork
from trainers.network.ranks import gathered, joined, summed, told
from trainers.numerics.randomness import Streams
from trainers.runs import checkpoint
from trainers.runs.measures import CurveRecorder, Measured, accuracy
from trainers.runs.outcome import TrainingResult
from trainers.runs.problem import Problem
from trainers.runs.run import Keeper, Progress, TrainingRun


def train_on_ranks(
    run: TrainingRun,
    opened: contextlib.AbstractContextManager[RunFolder],
    *,
    delta: float,
    relation: Relation = "add-or-remove-one",
    data_dir: pathlib.Path | None = None,
    progress: Callable[[Progress], None] = lambda now: None,
) -> TrainingResult | None:
    """As `run.train`, each rank holding some of the nodes; None but at rank 0.

    A checkpoint is of the whole network: the same command goes on from it on any number
    of ranks, and without torchrun. All ranks must call, with equal arguments; rank 0
    alone enters ``opened``.

    Raises
    ------
    privaudit.files.folder.FolderError
        At every rank, if the folder is another run's or cannot be written.
    trainers.network.ranks.RankLostError
        If another rank ends, or does not answer in time.
    ValueError
        If the settings do not fit.
    """
    with joined(run.device) as (rank, size), contextlib.ExitStack() as stack:
        problem = Problem.of(
            run.training,
            data_dir=data_dir,
            ranks=(rank, size),
            compiled=run.compiled,
            precision=run.precision,
        )
        assert isinstance(problem.network, RankNetwork)

        def account(ledger: Ledger) -> tuple:
            under = run.claim.relation if run.claim else relation
            return account_nodes(ledger, delta, under, run.account)

        folder, known, why = None, None, ""
        if rank == 0:
            try:
                folder = stack.enter_context(opened)
                if folder.settle(run) and folder.has("result.json"):
                    known = folder.read("result.json", TrainingResult)
            except FolderError as error:
                why = str(error)
        state, why = told(("known" if known else "begin", why))
        if why:
            raise FolderError(why)
        if state == "known":
            return known
        keeper = RankKeeper(run, folder, problem, account, progress)
        models, ledger = problem.train(
            run.noise_multiplier,
            Streams(run.seed, device=run.device),
            after_round=keeper.after_round,
            keep=keeper.keep,
            resume=keeper.resume,
        )
        rights = gathered(accuracy(keeper.gradients, models, problem.test))
        ledgers = gathered(ledger.to_json())
        dist.barrier()
        if rights is None or ledgers is None:
            return None
        whole = Ledger.joined(map(Ledger.from_json, ledgers))
        return keeper.finish(torch.cat(rights, 1), whole)


class RankRecorder(CurveRecorder):
    """A `CurveRecorder` of all ranks' nodes; only rank 0 has points."""

    def _point(self, done: int, right: Tensor, models: Tensor) -> Measured | None:
        rights = gathered(right)
        nodes = self._problem.training.nodes
        mean = summed(models.sum(1)) / nodes
        apart = (models - mean[:, None]).square().sum((1, 2))
        distance = (summed(apart) / nodes).sqrt()
        if rights is None:
            return None
        everyone = torch.cat(rights, 1)
        return Measured(
            round=done,
            accuracy=float(everyone.mean()),
            worst_accuracy=float(everyone.min(1).values.mean()),
            consensus=float(distance.mean()),
        )


class RankKeeper(Keeper):
    """A `Keeper` to which all ranks tell theirs; only rank 0 has a folder."""

    def __init__(
        self,
        run: TrainingRun,
        folder: RunFolder | None,
        problem: Problem,
        account: Callable[[Ledger], tuple],
        progress: Callable[[Progress], None],
    ) -> None:
        self._at_root = folder is not None
        why = ""
        try:
            super().__init__(run, folder, problem, account, progress)
        except FolderError as error:
            why = str(error)
        self.resume, why = told((self.resume, why))
        if why:
            raise FolderError(why)
        assert problem.ranks is not None
        if self.resume is not None:
            held = problem.ranks.held
            self._seen = self.resume["done"]
            self.recorder.resume(self._seen)
            self.resume = {
                "done": self.resume["done"],
                "state": checkpoint.part(self.resume["state"], held),
                "door": checkpoint.part(self.resume["door"], held),
            }

    def _recorder(self, problem: Problem, points: int) -> CurveRecorder:
        return RankRecorder(problem, self.gradients, points)

    def _spend(self, done: int, ledger: Ledger) -> float | None:
        parts = gathered(ledger.to_json())
        if parts is None:
            return None
        return super()._spend(done, Ledger.joined(map(Ledger.from_json, parts)))

    def keep(self, done: int, middle: Callable[[], Any]) -> None:
        """Write a checkpoint where epsilon is computed: at rounds known to all."""
        if done % self._every or done == self._rounds:
            return
        parts = gathered(checkpoint.tree(middle()))
        if parts is not None:
            self._write(
                {
                    "done": done,
                    "state": checkpoint.join([part["state"] for part in parts]),
                    "door": checkpoint.join([part["door"] for part in parts]),
                }
            )
