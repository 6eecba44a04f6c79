"""The folder of an audit of a user program, read back."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Literal

from privaudit.auditing.programs.audit import ProgramAudit, ProgramResult
from privaudit.auditing.scores import Scores
from privaudit.files.folder import FolderError, RunFolder
from privaudit.results import Status, round_down


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FinishedProgram:
    """An audit of a program that is not ours: a lower bound, and no account."""

    path: pathlib.Path
    config: ProgramAudit
    scores: Scores
    result: ProgramResult
    kind: Literal["program"] = "program"

    @property
    def status(self) -> Status:
        """The verdict in a word."""
        return self.result.status

    def summary(self) -> dict[str, Any]:
        """All figures, for `privaudit show --json`."""
        lower = self.result.lower()
        return {
            "folder": str(self.path),
            "kind": self.kind,
            "program": self.config.program,
            "claimed": self.config.claim.epsilon,
            "certified": None,
            "epsilon_lower": lower.epsilon,
            "confidence": lower.confidence,
            "delta": lower.delta,
            "relation": lower.relation,
            "runs": {
                "member": self.result.member_runs,
                "non_member": self.result.non_member_runs,
            },
            "method": lower.method,
            "most_shown": self.result.most_shown,
            "seconds": self.result.seconds,
            "verdict": self.status,
        }

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        return [
            f"{self.path}: {self.config.program}, audited in {self.config.runs:,} runs",
            str(self.config.claim),
            str(self.result.lower()),
            "the most that so many runs could have shown: "
            f"{round_down(self.result.most_shown)}",
            str(self.result.verdict),
        ]


def load_program(folder: RunFolder) -> FinishedProgram:
    """The audit in ``folder``, which is finished.

    Raises `privaudit.files.folder.FolderError` if a file is damaged, or not of the
    others.
    """
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
    return FinishedProgram(
        path=folder.path, config=config, scores=scores, result=result
    )
