"""A training run over the ranks that torchrun started; rank 0 keeps its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from privaudit.files.folder import KEY, KEY_ID, FolderError, RunFolder
from privaudit.ledger import Ledger
from trainers.network.over_ranks import Traffic
from trainers.network.ranks import gathered, joined, summed, told
from trainers.numerics.keys import Key
from trainers.numerics.releases import ReleaseJournal
from trainers.runs import checkpoint
from trainers.runs.measures import CurveRecorder, Measured, as_figures
from trainers.runs.outcome import TrainingResult
from trainers.runs.problem import Problem
from trainers.runs.run import Assignment, Keeper, OneProcess, Part, TrainingRun, beside

T = TypeVar("T")


class OverRanks(OneProcess):
    """Each rank holds some of the nodes; rank 0 keeps the folder.

    With a seed, any number of ranks goes on from a checkpoint; without one as many
    must, each with its own secret key. `RankLostError` if another rank ends, or does
    not answer.
    """

    @property
    def is_first(self) -> bool:  # type: ignore[override]  # known once they are joined
        return dist.get_rank() == 0

    @contextlib.contextmanager
    def joined(self, given: Assignment) -> Iterator[Assignment]:
        whole, run = given.problem, given.run
        with joined(run.device) as ranks:
            here = run.problem(ranks=ranks, material=whole.material)
            yield dataclasses.replace(given, problem=here)

    def at_first(self, work: Callable[[], T]) -> T:
        return told(_together(lambda: work() if self.is_first else None))

    def key_file(self, folder: RunFolder) -> pathlib.Path:
        return folder / f"{KEY}-{dist.get_rank()}"

    def key(
        self, run: TrainingRun, folder: RunFolder, stack: contextlib.ExitStack
    ) -> tuple[Key, ReleaseJournal | None]:
        """The study's key, or a secret one for the nodes of this rank alone."""

        def own() -> tuple[Key, ReleaseJournal | None]:
            folder.path.mkdir(parents=True, exist_ok=True)  # where ranks share no disk
            keys = len(self.holders([*range(dist.get_world_size())]))
            beyond = folder / f"{KEY}-{keys}"
            alone = folder.has("checkpoint.pt") and folder.has(KEY)
            if run.seed is None and (alone or beyond.exists()):
                raise FolderError(
                    f"{folder.path} holds a run that was begun by another number of "
                    "ranks, each with a secret key: go on with as many, or choose "
                    "another folder"
                )
            return self.own_key(run, folder, stack)

        key, journal = _together(own)
        if run.seed is None:  # rank 0 keeps them all, before anything is released
            ids = self.holders(gathered(key.run) or [])
            self.at_first(lambda: _keep_ids(folder, ids))
        return key, journal

    def check_journal(
        self, journal: ReleaseJournal | None, marks: Sequence[bytes], folder: RunFolder
    ) -> None:
        """As `OneProcess.check_journal`; that of one rank is refused at all."""
        check = super().check_journal
        _together(lambda: check(journal, marks, folder))

    def own_key(
        self, run: TrainingRun, folder: RunFolder, stack: contextlib.ExitStack
    ) -> tuple[Key, ReleaseJournal | None]:
        """Key and journal of the nodes here, as one process has them."""
        return OneProcess.key(self, run, folder, stack)

    def holders(self, found: list[Any]) -> list[Any]:
        """Entries of ``found`` by rank that are of who speaks for nodes."""
        return found

    def keeper(self, given: Assignment, folder: RunFolder) -> Keeper:
        return RankKeeper(given, folder, self.at_first)

    def result(self, given: Assignment, folder: RunFolder) -> TrainingResult | None:
        self.check_start(given.problem, given.run)
        return super().result(given, folder)

    def check_start(self, problem: Problem, run: TrainingRun) -> None:
        mark = hashlib.sha256()
        for part in problem.start_parts(run.public_seed):  # all nodes share them
            mark.update(part.numpy().tobytes())
        if len(set(told(gathered(mark.digest())))) > 1:
            raise ValueError(
                "the ranks' models start at different parameters: make them the same "
                "at all ranks, as with torch.manual_seed"
            )

    def gathered(self, part: Part) -> list[Part] | None:
        return gathered(part)

    def end(self, folder: RunFolder) -> None:
        """Forget this rank's key, once rank 0 has the result on its disk."""
        dist.barrier()
        super().end(folder)
        dist.barrier()  # none is left when rank 0 looks at the folder


def _together(work: Callable[[], T]) -> T:
    """Return what ``work`` gives here; a `FolderError` of one rank is raised at all."""
    done, why = [], ""
    try:
        done = [work()]
    except FolderError as error:
        why = str(error)
    whys = [each for each in told(gathered(why)) if each]
    if whys:
        raise FolderError(whys[0])
    return done[0]


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
                f"{rank} ({KEY}-{rank}): it cannot go on; "
                "choose another folder with --out"
            )


def of_nodes(problem: Problem, found: list[Any]) -> list[Any]:
    """Entries of ``found`` by rank, one for each node: those of its first shard."""
    return found if problem.shards is None else found[:: problem.shards.size]


class RankRecorder(CurveRecorder):
    """A `CurveRecorder` of all ranks' nodes; only rank 0 has points."""

    def _point(
        self, done: int, values: Tensor | None, models: Tensor
    ) -> Measured | None:
        found = gathered(values)
        nodes = self._problem.training.nodes
        mean = self._over_nodes(models.sum(1)) / nodes
        apart = (models - mean[:, None]).square().sum((1, 2))
        distance = (summed(apart) / nodes).sqrt()
        if found is None:
            return None
        values = beside(of_nodes(self._problem, found), 1)
        figures = as_figures(self._problem.material.quality, values)
        return Measured(round=done, consensus=float(distance.mean()), **figures)  # type: ignore[arg-type]

    def _over_nodes(self, here: Tensor) -> Tensor:
        """The sum over all nodes of what those ``here`` have, (runs, dims)."""
        return summed(here)


class RankKeeper(Keeper):
    """A `Keeper` to which all ranks tell theirs; only rank 0 writes."""

    _recorder = RankRecorder

    def __init__(
        self,
        given: Assignment,
        folder: RunFolder,
        at_first: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self._at_first = at_first
        super().__init__(given, folder)

    def _bound_to(self, key: Key) -> dict[str, bytes]:
        bound = super()._bound_to
        return self._at_first(lambda: bound(key))  # by the key of rank 0

    def _restore(self) -> None:
        self._at_first(super()._restore)
        self.resume, ranks = told(self.resume), self._given.problem.ranks
        if self.resume is None:
            return
        self._seen = self.resume["done"]
        self.recorder.resume(self._seen)
        if ranks is not None:
            for name in ("state", "oracle"):
                self.resume[name] = checkpoint.part(self.resume[name], ranks.held)

    def _spend(self, done: int, ledger: Ledger) -> float | None:
        parts = gathered(ledger.to_json())
        if parts is None:
            return None
        ledgers = map(Ledger.from_json, of_nodes(self._given.problem, parts))
        return super()._spend(done, Ledger.joined(ledgers))

    def keep(self, done: int, middle: Callable[[], Any]) -> None:
        """Write a checkpoint where epsilon is computed: at rounds known to all."""
        if done % self._every or done == self._rounds:
            return
        problem = self._given.problem
        found = gathered((checkpoint.tree(middle()), problem.traffic))
        if found is not None:
            parts = [part for part, _ in of_nodes(problem, found)]
            self._write(
                {
                    "done": done,
                    "state": checkpoint.join([part["state"] for part in parts]),
                    "oracle": checkpoint.join([part["oracle"] for part in parts]),
                    "journal": checkpoint.join([part["journal"] for part in parts]),
                },
                Traffic.of_all(sent for _, sent in found),
            )
