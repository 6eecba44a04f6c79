"""The folder of an audit of a user program, read back, and the words of its page."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
from typing import Any, Literal

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
from privaudit.report.standing import WORDS
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


def content(run: FinishedProgram) -> dict[str, Any]:
    """Values of the page of ``run`` that differ from other pages'."""
    upper, result = run.upper, run.result
    return {
        "kind": "audit",
        "title": f"Audit of {_name(run)}",
        "story": _story(run),
        "verdict": result.verdict.reason,
        "otherwise": "" if upper is None else WORDS[upper.standing].otherwise,
        "command": _command(run),
        "versions": (f"privaudit {run.config.version}",),
        "own_data": True,
        "written": "as its user says",
    }


def _name(run: FinishedProgram) -> str:
    name = run.config.name
    return name if run.config.is_function else f"the program {name}"


def _story(run: FinishedProgram) -> list[str]:
    result, config = run.result, run.config
    how = "stayed alive and answered for" if config.serve else "was called for"
    early = ""
    if len(run.scores) < config.runs:
        early = f" of {config.runs:,} planned: by then the claim was refuted"
    return [
        *([] if config.about is None else [f"Its user says: {config.about}"]),
        f"The attacker sees one number for each run, the score that {_name(run)} gives "
        "it, and must tell from the scores alone in which runs the record under attack "
        "was among the data. Whatever else the program shows is not tested.",
        f"It {how} {len(run.scores):,} runs{early}. In {result.member_runs:,} of the "
        "runs the record under attack was among its data, by a fair coin each; in "
        f"the other {result.non_member_runs:,} it was not. The program scored each run "
        "by itself.",
        "There is no account: nobody said what a run releases (a ledger, or a noise "
        "multiplier, a sampling rate and a number of steps, may be given)."
        if run.ledger is None
        else "What one run releases is what the user's ledger says; nothing here "
        "proves that the program does that.",
    ]


def _command(run: FinishedProgram) -> str:
    config, claim = run.config, run.config.claim
    options: dict[str, Any] = {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "relation": claim.relation,
        "runs": config.runs,
        **({"batch": config.batch} if config.is_function else {}),
        "seed": config.seed,
        "estimator": config.estimator,
        "confidence": config.confidence,
        **({"ledger": str(run.path / "ledger.json")} if run.ledger else {}),
    }
    if config.is_given:
        settings = [f"        {name}={value!r},\n" for name, value in options.items()]
        return (
            f"privaudit.audit_program(\n    {config.name},  # which was given\n"
            f"    privaudit.ProgramSettings(\n{''.join(settings)}"
            '    ),\n    out="another-folder",\n)'
        )
    program = [config.program] if config.is_function else ["--command", config.program]
    lines = [["privaudit", "audit-program", *program]]
    lines += [[f"--{name}", str(value)] for name, value in options.items()]
    lines += [["--serve"]] if config.serve else []
    lines.append(["--out", "another-folder"])
    return " \\\n    ".join(map(shlex.join, lines))
