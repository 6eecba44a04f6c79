"""A run by a real clock: who goes on does so from where it was itself."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from privaudit.files.folder import FolderError, RunFolder
from trainers.algorithms.asynchronous.real_time import RealTime
from trainers.numerics.releases import ReleaseJournal
from trainers.runs.parties import Parties, PartyKeeper, contents
from trainers.runs.problem import Problem
from trainers.runs.run import Assignment, Keeper, OneProcess, Part
from trainers.runs.run_keys import releases_file

_NEW, _BEGUN = 0, 1  # nobody has released anything; all had kept their start by then


def is_by_real_clock(problem: Problem) -> bool:
    return isinstance(problem.network, RealTime)


class ClockAlone(OneProcess):
    """All workers in this process, which steps one after the other as time goes."""

    def joined(
        self, given: Assignment
    ) -> contextlib.AbstractContextManager[Assignment]:
        """As given, on the CPU, with nobody to send to."""
        if given.run.device != "cpu":
            raise ValueError(
                f"the real clock runs on cpu only, got device {given.run.device}"
            )
        assert isinstance(given.problem.network, RealTime)
        self._network = given.problem.network.alone()
        problem = dataclasses.replace(given.problem, network=self._network)
        return super().joined(dataclasses.replace(given, problem=problem))

    def begins(self, given: Assignment, folder: RunFolder, *, ended: bool) -> None:
        """`FolderError` for a run that processes began, as there were until 0.2.0."""
        if not ended and folder.has("steps.bin"):
            raise FolderError(
                f"the run by the real clock in {folder.path} was stopped. It cannot go "
                "on, and what it released is in its ledger.json or steps.bin; choose "
                "another folder with --out"
            )

    def gathered(self, part: Part) -> list[Part] | None:
        return super().gathered(dataclasses.replace(part, sent=None))

    def remarks(self, parts: Sequence[Part]) -> tuple[str, ...]:
        return (*super().remarks(parts), *self._network.told)


class ClockParties(Parties):
    """`Parties` whose steps have no common round.

    Each keeps its state as often as a twentieth of the time allows; what it released
    since its last one is in the ledger by the journal, and is released no more.
    """

    def begins(self, given: Assignment, folder: RunFolder, *, ended: bool) -> None:
        """As `Parties.begins`; in place of rounds, how far each party is."""
        self._network = given.problem.network
        self._last = max(2, given.run.training.rounds)  # what stands for the end
        super().begins(given, folder, ended=ended)

    def kept(self, folder: RunFolder) -> list[int]:
        """Beside whom it can go on: none may have lost its folder."""
        found = contents(folder)
        if not found:
            return [_NEW]
        done = found[-1]["middle"]["done"]
        if done >= self._rounds:
            return [_BEGUN, self._last]
        released = ReleaseJournal.has_any(releases_file(self.key_file(folder)))
        return [_BEGUN] if released or done else [_NEW, _BEGUN]

    def keeper(self, given: Assignment, folder: RunFolder) -> ClockKeeper:
        others = self._party.exchange
        return ClockKeeper(given, folder, others, self._common, self._losses)

    def remarks(self, parts: Sequence[Part]) -> tuple[str, ...]:
        assert isinstance(self._network, RealTime)
        return (*super().remarks(parts), *self._network.told)


class ClockKeeper(PartyKeeper):
    """A `Keeper` of one party's workers: no other waits for its checkpoints."""

    _least = 0.0

    def _restore(self) -> None:
        """Go on from the last; it is the end only if that of all parties is."""
        found = contents(self._folder)
        if not found:
            return
        content = found[-1]
        if self._common < self._rounds:
            before = self._rounds - 1
            content["middle"]["done"] = min(content["middle"]["done"], before)
            content["points"] = [one for one in content["points"] if one[0] <= before]
        self._take(content)

    def keep(self, done: int, middle: Callable[[], Any]) -> None:
        """Write a checkpoint at the start, where it is due, and at the end."""
        if 0 < done < self._rounds:
            Keeper.keep(self, done, middle)
            return
        self._write(middle())
        if done:
            self._others.kept(done)

    def _store(self, content: dict[str, Any]) -> None:
        self._states.clear()  # the last is all that is needed
        super()._store(content)
