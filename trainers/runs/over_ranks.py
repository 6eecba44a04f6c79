"""A training run over the ranks that torchrun started; rank 0 keeps its folder."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from privaudit.accounting import account_nodes
from privaudit.files.folder import KEY, KEY_ID, FolderError, RunFolder
from privaudit.files.manifest import digest
from privaudit.ledger import Ledger
from privaudit.results import Relation
from trainers.network.over_ranks import RankNetwork
from trainers.network.ranks import gathered, joined, summed, told
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.numerics.releases import ReleaseJournal
from trainers.runs import checkpoint
from trainers.runs.material import Material
from trainers.runs.measures import CurveRecorder, Measured, as_figures, measured
from trainers.runs.outcome import TrainingResult
from trainers.runs.problem import Observers, Problem
from trainers.runs.run import (
    Keeper,
    Progress,
    TrainingRun,
    forget_key,
    journal_of,
    key_of,
    resumed,
)


def train_on_ranks(
    run: TrainingRun,
    opened: contextlib.AbstractContextManager[RunFolder],
    *,
    delta: float,
    relation: Relation = "add-or-remove-one",
    data_dir: pathlib.Path | None = None,
    material: Material | None = None,
    progress: Callable[[Progress], None] = lambda now: None,
    save_models: bool = True,
) -> TrainingResult | None:
    """As `run.train`, each rank holding some of the nodes; None but at rank 0.

    A checkpoint is of the whole network: with a seed, the same command goes on from it
    on any number of ranks, and without torchrun. Without one each rank has a secret key
    of its own, so that as many must go on. All ranks must call, with equal arguments;
    rank 0 alone enters ``opened``.

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
            seed=run.public_seed,
            data_dir=data_dir,
            ranks=(rank, size),
            compiled=run.compiled,
            precision=run.precision,
            material=material,
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
        where = "" if folder is None else str(folder.path)
        state, why, where = told(("known" if known else "begin", why, where))
        if why:
            raise FolderError(why)
        out = pathlib.Path(where)
        if state == "known":
            forget_key(RunFolder(out), _key_file(out, rank))
            return known
        start = problem.start(run.public_seed)
        if len(set(told(gathered(_digest(start))))) > 1:
            raise ValueError(
                "the ranks' models start at different parameters: make them the same "
                "at all ranks, as with torch.manual_seed"
            )
        keeper = RankKeeper(run, folder, problem, account, progress)
        key, journal = _key_of(run, out, rank, size, stack)
        models, ledger = problem.train(
            run.noise_multiplier,
            Streams(key, device=run.device, journal=journal),
            start=start,
            observers=Observers(after_round=keeper.after_round, keep=keeper.keep),
            resume=keeper.resume,
        )
        furthers = gathered(0 if journal is None else journal.further)
        found = gathered(measured(problem, keeper.gradients, models))
        ledgers = gathered(ledger.to_json())
        parts = gathered(models[0].cpu() if save_models else None)
        dist.barrier()
        if found is None or ledgers is None or parts is None or furthers is None:
            result = None
        else:
            whole = Ledger.joined(map(Ledger.from_json, ledgers))
            final = dict(enumerate(torch.cat(parts))) if save_models else None
            told_of = resumed(sum(furthers))
            result = keeper.finish(beside(found), whole, final, told_of)
        dist.barrier()
        forget_key(RunFolder(out), _key_file(out, rank))
        return result


def _digest(start: Tensor) -> str:
    """Of one node's parameters, which all nodes share."""
    return digest(start[0, 0].numpy().tobytes())


def _key_file(out: pathlib.Path, rank: int) -> pathlib.Path:
    return out / f"{KEY}-{rank}"


def _key_of(
    run: TrainingRun,
    out: pathlib.Path,
    rank: int,
    size: int,
    stack: contextlib.ExitStack,
) -> tuple[Key, ReleaseJournal | None]:
    """The study's key, or a secret one for the nodes of this rank alone.

    With the journal of its releases, open as long as ``stack`` is.

    Raises `FolderError`, at every rank, if the run was begun by other ranks, whose keys
    are other nodes', or if a rank's key is not the one that it began with.
    """
    why, key, journal, file = "", None, None, _key_file(out, rank)
    try:
        out.mkdir(parents=True, exist_ok=True)  # where ranks share no disk
        begun = RunFolder(out).has("checkpoint.pt")
        others = (begun and (out / KEY).exists()) or _key_file(out, size).exists()
        if run.seed is None and others:
            raise FolderError(
                f"{out} holds a run that was begun by another number of ranks, each "
                "with a secret key: go on with as many, or choose another folder"
            )
        key = key_of(run, RunFolder(out), file)
        journal = stack.enter_context(journal_of(key, file))
    except FolderError as error:
        why = str(error)
    _agree(why)
    assert key is not None
    if run.seed is None:
        why = ""
        ids = gathered(key.run)
        if ids is not None:  # rank 0 keeps them all, before anything is released
            try:
                _keep_ids(RunFolder(out), ids)
            except FolderError as error:
                why = str(error)
        _agree(why)
    return key, journal


def _agree(why: str) -> None:
    """Raise `FolderError` at every rank if one has a reason ``why``."""
    whys = [each for each in told(gathered(why)) or () if each]
    if whys:
        raise FolderError(whys[0])


def _keep_ids(folder: RunFolder, ids: Sequence[bytes]) -> None:
    """Write down whose keys a run begins with; later they must be the same."""
    if not folder.has(KEY_ID):
        folder.write(KEY_ID, b"".join(ids))
        return
    known = (folder / KEY_ID).read_bytes()
    for rank, own in enumerate(ids):
        if known[rank * len(own) : (rank + 1) * len(own)] != own:
            raise FolderError(
                f"{folder.path} holds a run that was stopped, but not the key of rank "
                f"{rank} ({_key_file(folder.path, rank).name}): it cannot go on; "
                "choose another folder with --out"
            )


class RankRecorder(CurveRecorder):
    """A `CurveRecorder` of all ranks' nodes; only rank 0 has points."""

    def _point(
        self, done: int, values: Tensor | None, models: Tensor
    ) -> Measured | None:
        found = gathered(values)
        nodes = self._problem.training.nodes
        mean = summed(models.sum(1)) / nodes
        apart = (models - mean[:, None]).square().sum((1, 2))
        distance = (summed(apart) / nodes).sqrt()
        if found is None:
            return None
        figures = as_figures(self._problem.material.quality, beside(found))
        return Measured(round=done, consensus=float(distance.mean()), **figures)  # type: ignore[arg-type]


def beside(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The ranks' (runs, nodes) as one; None if nothing was measured."""
    there = [part for part in parts if part is not None]
    return torch.cat(there, 1) if there else None


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
