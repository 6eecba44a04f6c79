"""Finished blocks of an audit, kept on disk so that it can resume."""

from __future__ import annotations

import dataclasses

import numpy as np

from privaudit.auditing.experiments.plan import Audit
from privaudit.auditing.scores import read_npz, run_arrays
from privaudit.files import json as _json
from privaudit.files import npz as _npz
from privaudit.files.folder import FolderError, RunFolder
from privaudit.ledger import Ledger
from trainers.runs.outcome import Curves


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Results of one block of runs."""

    member: np.ndarray  # (block,) bool, or (block, canaries)
    score: np.ndarray  # float64, likewise
    accuracy: np.ndarray  # (block,) float64
    ledger: Ledger


class Progress:
    """Blocks that are done, with their results; `scores.npz` between kills."""

    def __init__(self, audit: Audit, folder: RunFolder) -> None:
        self.audit = audit
        self.folder = folder
        self.done: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self.ledger: Ledger | None = None
        if folder.has("scores.npz"):
            self._read()

    def _read(self) -> None:
        # Written in the order ledger, curves, scores: scores vouch for the others.
        self.ledger = self.folder.read("ledger.json", Ledger)
        try:
            member, score, _ = read_npz(self.folder / "scores.npz")
            with _npz.opened(self.folder / "scores.npz") as file:
                blocks = file["block"].astype(int)
                arrays = member, score, file["accuracy"]
        except (OSError, ValueError) as error:
            raise self.folder.broken("scores.npz", error) from None
        for array in arrays:
            if len(array) != len(blocks):
                raise self.folder.broken("scores.npz", "its arrays differ in length")
        for number in np.unique(blocks):
            rows = blocks == number
            known = 0 <= number < self.audit.blocks
            if not known or rows.sum() != self._size(number):
                raise self.folder.broken("scores.npz", f"block {number} is not whole")
            member, score, right = (array[rows] for array in arrays)
            self.done[int(number)] = (member, score, right)

    def _size(self, number: int) -> int:
        return min(self.audit.block, self.audit.runs - number * self.audit.block)

    @property
    def runs(self) -> int:
        """Number of runs that are done."""
        return sum(len(kept[0]) for kept in self.done.values())

    def add(self, number: int, block: Block, curves: Curves | None) -> None:
        """Keep a finished block."""
        if self.ledger is None:
            self.ledger = block.ledger
            self.folder.write("ledger.json", block.ledger.to_json().encode())
        elif block.ledger != self.ledger:
            raise FolderError(
                f"block {number} released something else than the blocks before it: "
                "an algorithm's releases must not depend on the data or on chance"
            )
        if curves is not None:
            self.folder.write("curves.json", _json.encode(curves))
        kept = self._size(number)
        self.done[number] = (
            block.member[:kept],
            block.score[:kept],
            block.accuracy[:kept],
        )
        self._write()

    def _write(self) -> None:
        numbers = sorted(self.done)
        member, score, right = self.arrays()
        content = _npz.packed(
            **run_arrays(member, score),
            design="coin-flip",
            accuracy=right,
            block=np.repeat(numbers, [len(self.done[n][0]) for n in numbers]),
        )
        self.folder.write("scores.npz", content)

    def arrays(
        self, blocks: int | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Worlds, scores and accuracies of the first ``blocks``, by default all."""
        columns = zip(
            *(self.done[number] for number in sorted(self.done)[:blocks]), strict=True
        )
        member, score, right = (np.concatenate(column) for column in columns)
        return member, score, right

    def cut(self, blocks: int) -> None:
        """Leave those after the first ``blocks`` out: an earlier call began more."""
        self.done = {n: kept for n, kept in self.done.items() if n < blocks}
        self._write()
