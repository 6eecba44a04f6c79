"""What the page of an audited program says; the template and figures are an audit's."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting import Certificate
from privaudit.ledger import Ledger
from privaudit.report import attack, limits, meaning, plots, table, words
from privaudit.report.numbers import claimed, down
from privaudit.report.program import FinishedProgram
from privaudit.report.standing import WORDS
from privaudit.results import Standing, UpperBound


def content(run: FinishedProgram) -> dict[str, Any]:
    """What the template is filled with, figures and the account aside."""
    claim, lower, result = run.config.claim, run.result.lower(), run.result
    upper = run.upper
    return {
        "kind": "audit",
        "title": f"Audit of {_name(run)}",
        "story": _story(run),
        "status": run.status,
        "heading": run.status.capitalize(),
        "verdict": " ".join(
            [result.verdict.reason, *result.verdict.misfits(result.beside)]
        ),
        "delta": f"{claim.delta:.15g}",
        "claimed": claimed(claim.epsilon),
        "standing": None if upper is None else upper.standing,
        "noise": None,
        "protected": False,
        "audited": down(lower.epsilon),
        "confidence": ("at least" if lower.epsilon else "the attack showed nothing")
        + f", with {100 * lower.confidence:g} % confidence",
        "assumptions": words.assumptions(run),
        "limits": limits.sentences(run),
        "otherwise": "" if upper is None else WORDS[upper.standing].otherwise,
        "operating_point": words.operating_point(run),
        "outside": attack.span(run.scores)[2],
        "runs": len(run.scores),
        "ledger_columns": table.COLUMNS,
        "ledger": [] if upper is None else table.rows(run),
        "meaning": meaning.paragraphs(run),
        "seen_by": words.seer(run),
        "command": _command(run),
        "versions": (f"privaudit {run.config.version}",),
        "own_data": True,
        "written": "as its user says",
        "unit": claim.unit,
        "seconds": f"{result.seconds:,.1f} s",
    }


def drawings(run: FinishedProgram) -> dict[str, str]:
    """The figures, drawn."""
    claim, lower = run.config.claim, run.result.lower()
    account: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    standing: Standing = "certified"
    if run.ledger is not None:
        certificate = _certificate(run.ledger, run.result.nodes)
        (entries,) = certificate.ledger.nodes
        if entries and all(entry.release.is_private for entry in entries):
            account, standing = certificate.trade_off, certificate.standing
    evidence = run.result.evidence
    drawn = {
        "scores": attack.histogram(run.scores, evidence, name="scores"),
        "roc": attack.roc(
            run.scores,
            evidence,
            claim,
            lower,
            name="roc",
            account=account,
            standing=standing,
        ),
    }
    for name, width in (("wide", 860), ("narrow", 400)):
        drawn[name] = plots.epsilon_axis(
            claim, run.upper, [("audited", lower)], width=width, name=name
        )
    return drawn


def _certificate(ledger: Ledger, bounds: Sequence[UpperBound]) -> Certificate:
    """Of the node that is worst off, where the record under attack is taken to be."""
    worst = max(range(len(bounds)), key=lambda node: bounds[node].epsilon)
    return Certificate.of(ledger, bounds[worst].relation).node(worst)


def _name(run: FinishedProgram) -> str:
    """The program without what says that it was given in Python."""
    program = run.config.program.removeprefix("own:")
    return program if run.config.is_function else f"the program {program}"


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
        "There is no account: nobody said what a run releases (audit-program takes "
        "--ledger, or --noise-multiplier, --sampling-rate and --steps)."
        if run.ledger is None
        else "What one run releases is what the user's ledger says; nothing here "
        "proves that the program does that.",
    ]


def _command(run: FinishedProgram) -> str:
    config, claim = run.config, run.config.claim
    program = [config.program] if config.is_function else ["--command", config.program]
    options: list[list[str]] = [
        ["--epsilon", repr(claim.epsilon)],
        ["--delta", repr(claim.delta)],
        ["--relation", claim.relation],
        ["--runs", str(config.runs)],
        ["--seed", str(config.seed)],
        ["--estimator", config.estimator],
        ["--confidence", repr(config.confidence)],
        *([["--ledger", str(run.path / "ledger.json")]] if run.ledger else []),
        *([["--serve"]] if config.serve else []),
        ["--out", "another-folder"],
    ]
    if config.is_function:
        options.insert(4, ["--batch", str(config.batch)])
    head = shlex.join(["privaudit", "audit-program", *program])
    return " \\\n    ".join([head, *(shlex.join(one) for one in options)])
