"""The folder of a training by another tool, read back."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
from typing import Any, Literal

from privaudit.accounting.recorded import RecordedResult, RecordedRun
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.json import Summary
from privaudit.ledger import Ledger
from privaudit.results import Claim, Judged, Status, UpperBound, round_up
from trainers.runs.outcome import TrainingResult

_MOST_ENTRIES = 100_000  # of a ledger that comes in a folder


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRecord(Judged[Status | None, UpperBound]):
    """A training that another tool made, of which there is a ledger."""

    path: pathlib.Path
    config: RecordedRun
    ledger: Ledger
    result: RecordedResult
    kind: Literal["record"] = "record"

    @property
    def trained_by(self) -> str:
        """Name of the tool that trained it."""
        return self.config.recorded

    account = "certified"  # what its figures were made by
    # of parties that were lost, none
    left: tuple[tuple[int, int], ...] = ()
    returned: tuple[tuple[int, int], ...] = ()
    has_missed: bool = False
    protected = True  # as far as its ledger goes

    @property
    def warning(self) -> str:
        """Warning that stands wherever the figures are."""
        return f"The noise is that of {self.config.recorded}: {self.config.how}."

    @property
    def releases(self) -> int:
        """Number of noisy sums, of all nodes."""
        return sum(entry.count for node in self.ledger.nodes for entry in node)

    @property
    def says(self) -> str:
        """Sentence with the tool's own figure; "" if that is not known."""
        if not self.result.says:
            return ""
        figures = ", ".join(
            f"{round_up(value)} ({name})" for name, value in self.result.says.items()
        )
        return (
            f"{self.config.recorded} itself says at delta {self.config.delta:.15g}: "
            f"epsilon {figures}"
        )

    summary = Summary(
        "folder=path kind recorded=config.recorded how=config.how "
        "claimed=config.claim.epsilon certified=upper.epsilon "
        "certified_lower=result.certificate.lower standing=upper.standing "
        "assumes=upper.assumes delta=upper.delta relation=upper.relation releases "
        "says=result.says seconds=result.seconds verdict=status"
    )

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        verdict = self.result.verdict
        figures = [str(self.upper), *([self.says] if self.says else [])]
        if verdict is not None:
            figures = [str(verdict.claim), *figures, str(verdict)]
        return [
            f"{self.path}: trained by {self.config.recorded}, {self.releases:,} "
            f"releases; its ledger was {self.config.how}",
            *figures,
        ]


def content(run: FinishedRecord) -> dict[str, Any]:
    """Values of the page of ``run`` that differ from other pages'."""
    tool = run.config.recorded
    story = [
        f"{tool[0].upper()}{tool[1:]} trained, and what it released is accounted "
        f"here. Its ledger was {run.config.how}: {run.releases:,} noisy sums."
    ]
    if run.says:
        story.append(f"{run.says[0].upper()}{run.says[1:]}.")
    verdict = run.result.verdict
    relation = shlex.join(["--relation", run.upper.relation])
    return {
        "title": f"A training by {tool}",
        "story": story,
        "verdict": "Nothing was claimed of this run, so that there is no verdict."
        if verdict is None
        else verdict.reason,
        "written": run.config.how,
        "command": f"privaudit epsilon --delta {run.config.delta!r} {relation} "
        + shlex.join(["--ledger", str(run.path / "ledger.json")]),
        "versions": (f"privaudit {run.config.version}", tool),
        "own_data": True,
        "seconds": f"{run.result.seconds:,.1f} s"
        if run.result.seconds
        else "a time that was not recorded",
    }


def ledger_in(folder: RunFolder) -> Ledger:
    """The ledger of ``folder``; `FolderError` if there is none or it is too long."""
    ledger = folder.read("ledger.json", Ledger)
    entries = sum(map(len, ledger.nodes))
    if entries > _MOST_ENTRIES:
        raise FolderError(
            f"{folder / 'ledger.json'} has {entries:,} releases that differ, and at "
            f"most {_MOST_ENTRIES:,} are accounted here; privaudit epsilon --ledger "
            "takes more"
        )
    return ledger


def check_belongs(
    folder: RunFolder,
    claim: Claim | None,
    result: AuditResult | TrainingResult | RecordedResult,
    ledger: Ledger,
) -> None:
    """Raise `FolderError` unless result and ledger are of one run, and its claim."""
    verdict = result.verdict
    if (None if verdict is None else verdict.claim) != claim:
        raise folder.broken("result.json", "its claim is not that of config.json")
    if result.status != (None if verdict is None else verdict.status):
        raise folder.broken("result.json", "its status is not that of its figures")
    if not result.nodes or len(result.nodes) != len(ledger.nodes):
        raise folder.broken("result.json", "its nodes are not those of ledger.json")


def load_record(folder: RunFolder) -> FinishedRecord:
    """The training in ``folder``, which is finished; `FolderError` if it is damaged."""
    config = folder.read("config.json", RecordedRun)
    if not folder.has("result.json"):
        raise FolderError(
            f"the training by {config.recorded} in {folder.path} was not finished, and "
            "cannot go on; what it may have released is in its ledger.json, which "
            "`privaudit epsilon --ledger` accounts"
        )
    result = folder.read("result.json", RecordedResult)
    ledger = ledger_in(folder)
    check_belongs(folder, config.claim, result, ledger)
    return FinishedRecord(path=folder.path, config=config, ledger=ledger, result=result)
