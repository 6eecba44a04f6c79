"""The folder of an audit of a user program, read back."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Literal

from privaudit.auditing.programs.audit import (
    ProgramAudit,
    ProgramResult,
    digest_of_ledger,
)
from privaudit.auditing.scores import Scores
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.json import Summary
from privaudit.ledger import Ledger
from privaudit.report.recorded import ledger_in
from privaudit.results import Judged, Status, UpperBound


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FinishedProgram(Judged[Status, UpperBound | None]):
    """An audit of a program that is not ours; with an account if there is a ledger."""

    path: pathlib.Path
    config: ProgramAudit
    scores: Scores
    result: ProgramResult
    ledger: Ledger | None = None
    kind: Literal["program"] = "program"

    summary = Summary("folder=path kind program=config.program *result")

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        return [
            f"{self.path}: {self.config.name}, audited in {self.config.runs:,} runs",
            *self.result.lines(),
        ]


def load_program(folder: RunFolder) -> FinishedProgram:
    """The audit in ``folder``, which is finished; `FolderError` if it is damaged."""
    config = folder.read("config.json", ProgramAudit)
    result = folder.read("result.json", ProgramResult)
    if result.verdict.claim != config.claim:
        raise folder.broken("result.json", "its claim is not that of config.json")
    try:
        whole = Scores.load(folder / "scores.npz")
        scores = Scores(
            whole.member[: config.runs], whole.score[: config.runs], whole.design
        )
    except (OSError, ValueError) as error:
        raise folder.broken("scores.npz", error) from None
    if scores.member_runs != result.member_runs:
        raise FolderError(f"{folder / 'scores.npz'}: not the runs of result.json")
    ledger = None
    if config.ledger is not None:
        ledger = ledger_in(folder)
        if digest_of_ledger(ledger) != config.ledger:
            raise folder.broken("ledger.json", "not the ledger of config.json")
    return FinishedProgram(
        path=folder.path, config=config, scores=scores, result=result, ledger=ledger
    )
