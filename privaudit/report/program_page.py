"""Page of an audited program: its words; the template and figures are an audit's."""

from __future__ import annotations

import shlex
from typing import Any

from privaudit.report.program import FinishedProgram
from privaudit.report.standing import WORDS


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
