"""A run over parties by a real clock: who goes on does so from where it was itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from privaudit.files.folder import RunFolder
from trainers.algorithms.asynchronous.real_time import OverProcesses
from trainers.numerics.releases import ReleaseJournal
from trainers.runs.parties import Parties, PartyKeeper, contents
from trainers.runs.run import Assignment, Keeper, Part
from trainers.runs.run_keys import releases_file

_NEW, _BEGUN = 0, 1  # nobody has released anything; all had kept their start by then


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
        return ClockKeeper(
            given, folder, self._party.exchange, self._common, self._losses
        )

    def remarks(self, parts: Sequence[Part]) -> tuple[str, ...]:
        """As of parties; and how stale gradients were."""
        assert isinstance(self._network, OverProcesses)
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
