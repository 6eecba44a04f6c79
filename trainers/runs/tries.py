"""Tries of a tuning: trained one after another, the best of them kept.

In memory, so that nothing of the others outlives the process; or in a folder's part
`TRIES`, for its owner alone: what was drawn, the best, and the try at work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from privaudit.files import json as _json
from privaudit.files.fingerprints import fingerprint
from privaudit.files.folder import TRIES, FolderError, RunFolder
from privaudit.ledger import Ledger
from trainers.data import Dataset
from trainers.data.shares import Lazy
from trainers.numerics.keys import Key
from trainers.runs import checkpoint
from trainers.runs.run import Assignment, Keeper, OneProcess, Part, TrainingRun

_STATE = "state.pt"
_FEW = 4096  # records of a file larger than memory
Drawn = Sequence[tuple[int, int | None]]  # candidate and seed of each try


class _Unkept(Keeper):
    """A `Keeper` that writes nothing before the end."""

    def keep(self, done: int, middle: Callable[[], Any]) -> None:
        """Write no checkpoint."""

    def restore(self, key: Key) -> None:
        """Begin anew."""


class _InMemory(OneProcess):
    """Runs a try that cannot go on once its process has ended."""

    def keeper(self, given: Assignment, folder: RunFolder) -> Keeper:
        return _Unkept(given, folder)

    def key(
        self, run: TrainingRun, folder: RunFolder, stack: contextlib.ExitStack
    ) -> tuple[Key, None]:
        """Return a key that is kept nowhere; a journal has nobody to go on with it."""
        return (Key.secret() if run.seed is None else Key.study(run.seed)), None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tries:
    """Tries to make, of which the best is to be kept."""

    # what a try may be; their settings differ in what was chosen, and in its noise
    candidates: Sequence[Assignment]
    # draws the tries; asked once, however often the process is started again
    draw: Callable[[], Drawn]
    # from a candidate's number, the models of its nodes (nodes, dims) and the seed of a
    # try to a score, the higher the better
    score: Callable[[int, Tensor, int | None], float]
    judge: Any = None  # the public data that ``score`` judges by, if it does

    def made(self, folder: RunFolder | None) -> dict[str, Any]:
        """Make all tries, or those that ``folder`` lacks; return the best."""
        where = None if folder is None else RunFolder(folder / TRIES)
        state = self._begun(where)
        for number in range(state["done"], len(state["drawn"])):
            here = None if where is None else RunFolder(where / str(number))
            candidate, seed = state["drawn"][number]
            found = self._one(candidate, seed, here)
            best = state["best"]
            if found and (best is None or found["score"] > best["score"]):
                state["best"] = found
            state["done"] = number + 1
            if where is not None and here is not None:
                where.write(_STATE, checkpoint.pack(state))
                shutil.rmtree(here.path)
        if state["best"] is None:
            raise ValueError(
                "training diverges in all tries: parameters are not finite; lower the "
                "step sizes of the grid"
            )
        if where is not None:  # of the others not even the number is left
            where.write(_STATE, checkpoint.pack({**state, "done": 0, "drawn": []}))
        return state["best"]

    def keep(self, best: dict[str, Any], folder: RunFolder) -> None:
        """Write the run of the ``best``, as all runs are, and forget the tries."""
        given = self._given(*best["drawn"])
        if folder.settle(given.run) and folder.has("result.json"):
            return
        keeper = _Unkept(given, folder)
        keeper.measure_as(best["measured"])
        OneProcess().finished(keeper, Part(**best["part"]))
        forget(folder)

    def _given(self, candidate: int, seed: int | None) -> Assignment:
        given = self.candidates[candidate]
        return dataclasses.replace(given, run=dataclasses.replace(given.run, seed=seed))

    def _given_by_user(self) -> str:
        """Fingerprint of data and code; of data read as asked for, of the first."""
        material = self.candidates[0].problem.material

        def seen(share: Dataset | Lazy) -> Any:
            if isinstance(share, Dataset):
                return share
            rows = torch.arange(len(share))[:_FEW]
            some = share.example if share.by_their_code else share.read(rows)
            return share.records, share.users, some

        code = material.given_loss, material.transform
        return fingerprint(([*map(seen, material.shares)], self.judge, code))

    def _begun(self, where: RunFolder | None) -> dict[str, Any]:
        """Return the state in ``where``, or a new one, of tries that are drawn."""
        settings = _json.encode([one.run for one in self.candidates])
        if where is not None and where.has(_STATE):
            try:
                state = checkpoint.unpack((where / _STATE).read_bytes())
            except (OSError, ValueError) as error:
                raise where.broken(_STATE, error) from None
            if state["settings"] != settings:
                raise FolderError(
                    f"{where.path} has tries of another tuning; choose another folder "
                    "with --out"
                )
            if state.get("given") != self._given_by_user():
                raise FolderError(
                    f"{where.path} has tries on other data, or with another loss, "
                    "transform or judge: give those, or choose another folder with "
                    "--out"
                )
            for entry in where.path.iterdir():  # of tries that are done
                if entry.is_dir() and entry.name != str(state["done"]):
                    shutil.rmtree(entry)
            return state
        secret = self.candidates[0].run.seed is None
        if where is not None and secret and any(where.path.glob("*/")):
            raise FolderError(
                f"{where.path} holds a try that was stopped, but not what was drawn "
                f"({_STATE}): tries cannot go on; choose another folder with --out"
            )
        drawn = [list(one) for one in self.draw()]
        state: dict[str, Any] = {"settings": settings, "drawn": drawn}
        state |= {"done": 0, "best": None}
        if where is not None:
            _own(where)
            state["given"] = self._given_by_user()
            where.write(_STATE, checkpoint.pack(state))
        return state

    def _one(
        self, candidate: int, seed: int | None, here: RunFolder | None
    ) -> dict[str, Any] | None:
        """Make a try; None if it diverges."""
        given = self._given(candidate, seed)
        runner: OneProcess = _InMemory()
        if here is not None:
            runner = OneProcess()
            _own(here)
            here.settle(given.run)
        folder = here or RunFolder(os.devnull)
        try:
            keeper = runner.keeper(given, folder)
            part = runner.trained(given, folder, keeper)
        except ValueError as error:
            if "not finite" not in str(error):
                raise
            return None
        _check_planned(given, part)
        assert part.models is not None
        return {
            "drawn": [candidate, seed],
            "score": self.score(candidate, part.models, seed),
            "part": dataclasses.asdict(part),
            "measured": keeper.measured,
        }


def forget(folder: RunFolder) -> None:
    shutil.rmtree(folder / TRIES, ignore_errors=True)


def _own(folder: RunFolder) -> None:
    """Make ``folder``, if need be, its owner's alone."""
    folder.path.mkdir(mode=0o700, exist_ok=True)
    folder.path.chmod(0o700)


def _check_planned(given: Assignment, part: Part) -> None:
    """``ValueError`` if a try released more than is charged for each."""
    run, problem, ledger = given.run, given.problem, Ledger.from_json(part.ledger)
    if part.further:
        raise ValueError(
            "a try went on with other data, threads or libraries, and of its releases "
            f"{part.further:,} were made again with other sums, which no tuning "
            "charges: the tries in this folder have spent their budget, and more"
        )
    planned = problem.stated(problem.ledger(run.noise_multiplier))
    most = run.training.family.plans_at_most(problem.setting)
    if ledger.nodes != planned.nodes and not most:
        raise ValueError(
            f"{run.training.algorithm} released something else than was planned "
            "for, so that its tries cannot be charged"
        )
