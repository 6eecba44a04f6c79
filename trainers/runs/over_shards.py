"""A training run whose nodes lie in shards, each in a process with some coordinates.

All shards of a node are one trust domain: each has its records and its key. What they
tell each other is inside the node; what leaves it is the algorithm's messages, shard to
shard.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor

from privaudit.files.folder import KEY, RunFolder
from privaudit.files.manifest import digest
from trainers.data import Dataset
from trainers.gradients.clipping import give_back_freed
from trainers.gradients.per_sample import parameter_count
from trainers.models import hollow_out
from trainers.network.over_ranks import Traffic
from trainers.network.ranks import gathered, joined, summed
from trainers.network.shards import Shards
from trainers.numerics.keys import Key
from trainers.numerics.releases import ReleaseJournal
from trainers.runs import checkpoint
from trainers.runs.outcome import TrainingResult
from trainers.runs.over_ranks import OverRanks, RankKeeper, RankRecorder
from trainers.runs.problem import Problem
from trainers.runs.run import Assignment, Keeper, Part, TrainingRun


def spread(problem: Problem, size: int, device: str = "cpu") -> Problem:
    """``problem`` in ``size`` shards of each node; ``ValueError`` if it cannot be."""
    shards = Shards.over(size, parameter_count(problem.module), device)
    records = [
        [
            digest(part.contiguous().numpy().tobytes())
            for part in (one.inputs, one.targets)
        ]
        for one in problem.shares
        if isinstance(one, Dataset)  # what is read as asked for is not read twice
    ]
    shards.agree("records", (problem.sizes, records))
    give_back_freed()
    if not problem.material.starts_as_it_is:
        hollow_out(problem.module)
    return problem.over(shards)


class OverShards(OverRanks):
    """Each ``size`` ranks hold the same nodes, some coordinates each.

    Their folder must be one disk's. With a seed a run goes on in any number of shards,
    with the same bits; without one in as many, as the first shard of each has the key.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._first = True  # whether this is a node's first shard

    @contextlib.contextmanager
    def joined(self, given: Assignment) -> Iterator[Assignment]:
        whole, run = given.problem, given.run
        with joined(run.device) as (rank, ranks):
            group, groups = rank // self._size, max(1, ranks // self._size)
            alone = groups == 1 and run.training.family.central
            place = None if alone else (group, groups)
            here = run.problem(ranks=place, material=whole.material)
            here = spread(here, self._size, run.device)
            self._first = rank % self._size == 0
            yield dataclasses.replace(given, problem=here)

    def key_file(self, folder: RunFolder) -> pathlib.Path:
        return folder / f"{KEY}-{dist.get_rank() // self._size}"

    def key(
        self, run: TrainingRun, folder: RunFolder, stack: contextlib.ExitStack
    ) -> tuple[Key, ReleaseJournal | None]:
        """The study's key, or a secret one of the node, whose first shard keeps it."""
        found = super().key(run, folder, stack)
        if run.seed is not None or self._first:
            return found
        return Key.load(self.key_file(folder)), None

    def own_key(
        self, run: TrainingRun, folder: RunFolder, stack: contextlib.ExitStack
    ) -> tuple[Key, ReleaseJournal | None]:
        if run.seed is not None or self._first:
            return super().own_key(run, folder, stack)
        return Key.secret(), None  # until the first shard has it on the disk

    def holders(self, found: list[Any]) -> list[Any]:
        """Entries of ``found`` by rank that are of first shards."""
        return found[:: self._size]

    def keeper(self, given: Assignment, folder: RunFolder) -> Keeper:
        return ShardKeeper(given, folder, self.at_first)

    def trained(self, given: Assignment, folder: RunFolder, keeper: Keeper) -> Part:
        part, shards = super().trained(given, folder, keeper), given.problem.shards
        if part.models is None or shards is None:
            return part
        return dataclasses.replace(part, models=shards.whole(part.models))

    def gathered(self, part: Part) -> list[Part] | None:
        found = gathered(part)
        if found is None:
            return None
        sent = Traffic.of_all(one.sent for one in found)
        first, *rest = (dataclasses.replace(x, sent=None) for x in self.holders(found))
        return [dataclasses.replace(first, sent=sent), *rest]


class ShardRecorder(RankRecorder):
    """A `RankRecorder` of models that lie in shards."""

    def _over_nodes(self, here: Tensor) -> Tensor:
        shards = self._problem.shards
        assert shards is not None
        return summed(here, shards.alike)


class ShardKeeper(RankKeeper):
    """A `RankKeeper` of whose checkpoints each shard writes, and reads, its own part.

    ``checkpoint.pt`` has all that is no tensor, and says in which folder the tensors
    are: (blocks, 8) for each node, as `Shards.blocks_of` has them.
    """

    _recorder = ShardRecorder

    def _restore(self) -> None:
        super()._restore()
        shards = self._given.problem.shards
        if self.resume is None or shards is None:
            return
        own = len(shards.held)

        def room(kept: Tensor) -> Tensor:
            return kept.new_zeros(*kept.shape[:2], own)

        state = _mapped(self.resume["state"], room)
        wanted, place = self._by_node(state), self._place(self.resume["done"])
        seal = wanted["seal"].clone()
        try:
            dcp.load(wanted, checkpoint_id=place)
        except dcp.api.CheckpointException:
            raise self._folder.broken(place.name, "it was cut or changed") from None
        if not wanted["seal"].equal(seal):
            raise self._folder.broken(place.name, "it is of another run")
        for name, tensor in _tensors(state):
            for row, node in enumerate(self._nodes):
                tensor[0, row] = wanted[f"{name}.{node}"].to_local().reshape(-1)[:own]
        self.resume["state"] = state

    @property
    def _nodes(self) -> range:
        ranks = self._given.problem.ranks
        return range(len(self._given.problem.shares)) if ranks is None else ranks.held

    def _place(self, done: int) -> pathlib.Path:
        return self._folder / f"shards-{done}"

    def _by_node(self, state: Any) -> dict[str, Any]:
        shards = self._given.problem.shards
        assert shards is not None
        seal = torch.frombuffer(bytearray(self._binding["seal"]), dtype=torch.uint8)
        return {"seal": seal} | {
            f"{name}.{node}": shards.blocks_of(tensor[0, row])
            for name, tensor in _tensors(state)
            for row, node in enumerate(self._nodes)
        }

    def keep(self, done: int, middle: Callable[[], Any]) -> None:
        if done % self._every or done == self._rounds:
            return
        content = checkpoint.tree(middle())
        dcp.save(self._by_node(content["state"]), checkpoint_id=self._place(done))
        content["state"] = _mapped(content["state"], lambda tensor: tensor[:, :, :0])
        super().keep(done, lambda: content)
        self._at_first(lambda: self._remove(but=done))

    def _remove(self, but: int | None = None) -> None:
        for folder in self._folder.path.glob("shards-*"):
            if but is None or folder != self._place(but):
                shutil.rmtree(folder, ignore_errors=True)

    def finish(self, *given: Any, **more: Any) -> TrainingResult:
        found = super().finish(*given, **more)
        self._remove()
        return found


def _tensors(tree: Any, name: str = "state") -> Iterator[tuple[str, Tensor]]:
    """All tensors of a state, by their place in it."""
    if isinstance(tree, Tensor):
        yield name, tree
    for key, item in tree.items() if isinstance(tree, dict) else ():
        yield from _tensors(item, f"{name}.{key}")


def _mapped(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state with its tensors changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _mapped(item, change) for key, item in tree.items()}
    return tree
