"""One HTML file that says what a run showed: no scripts, no network."""

from __future__ import annotations

import contextlib
import importlib.resources
import math
import os
import pathlib
import re
from typing import Any

from privaudit.auditing.bounds.contract import ANY
from privaudit.files.folder import RunFolder
from privaudit.files.text import visible
from privaudit.report import (
    attack,
    command,
    limits,
    meaning,
    plots,
    program,
    recorded,
    table,
    views,
    words,
)
from privaudit.report.attempts import Together, beside
from privaudit.report.load import (
    FinishedAudit,
    FinishedTraining,
    Paged,
    audits_in,
    load_any,
)
from privaudit.report.numbers import at_most, claimed, down, seer
from privaudit.report.program import FinishedProgram
from privaudit.report.standing import WORDS
from privaudit.report.verify import verified
from privaudit.results import Claim, LowerBound, UpperBound, seen_by
from privaudit.task_settings import is_own
from privaudit.version import __version__

_PACKAGE = importlib.resources.files(__package__ or "privaudit.report")
_NO_BOUND = "too little noise, or none, for any bound"


def write(
    path: str | os.PathLike[str], *, signer: str | os.PathLike[str] | None = None
) -> pathlib.Path:
    """Write ``report.html`` into the folder of a finished run, and return its path.

    It is made again from the folder's evidence, signed by ``signer`` if given, and
    names other audits of the claim beside it. Equal folders give equal bytes.
    `FolderError` if there is no finished run; `EvidenceError` if figures disagree with
    the evidence: no page is written; ``ModuleNotFoundError`` without the extra
    ``report``.
    """
    run = load_any(path)
    checked = verified(path, signer=signer)
    folder = RunFolder(path)
    others = beside(run) if isinstance(run, FinishedAudit | FinishedProgram) else None
    folder.write("report.html", render(run, str(checked), others).encode())
    return folder / "report.html"


def keep(path: str | os.PathLike[str]) -> None:
    """`write`, where the extra ``report`` is installed; else there is no page."""
    with contextlib.suppress(ModuleNotFoundError):
        write(path)


def render(
    run: Paged | FinishedProgram,
    checked: str = "not checked against its evidence",
    others: Together | None = None,
) -> str:
    """The page of ``run``, with what was ``checked`` in words, beside ``others``."""
    content = _content(run)
    if others is not None:
        content["story"] = [
            *content["story"],
            f"More than once: {others}. Counted are the audits in this folder's "
            "parent; what was tried elsewhere is not.",
        ]
    return fill("page.html.jinja", _figures(run), **content, checked=checked)


def _harmless(value: Any) -> Any:
    """Remove characters that act on a page from an expression of a template."""
    # Of a Markup, which is ours, nothing is changed.
    return visible(value, keep="\n\t") if type(value) is str else value


def style() -> str:
    """The one style sheet of all pages."""
    return _PACKAGE.joinpath("page.css").read_text(encoding="utf-8")


def fill(name: str, figures: dict[str, str], **content: Any) -> str:
    """The template ``name`` with its ``content``, which is escaped, and ``figures``."""
    import jinja2
    import markupsafe  # what jinja2 escapes with

    environment = jinja2.Environment(
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.from_string(
        _PACKAGE.joinpath(name).read_text(encoding="utf-8")
    )
    drawn = {
        name: markupsafe.Markup(drawing)  # ours, and escaped where it is made
        for name, drawing in figures.items()
    }
    text = template.render(
        style=markupsafe.Markup(style()), figures=drawn, version=__version__, **content
    )
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)  # on one line


def of_figures(
    claim: Claim | None, upper: UpperBound | None, status: str | None
) -> dict[str, Any]:
    """Template's values for claim, account and verdict; nothing of an audit."""
    about = upper or claim  # a program without an account has a claim
    assert about is not None
    return {
        "unit": about.unit,
        "status": status,
        "heading": None if status is None else status.capitalize(),
        "delta": f"{about.delta:.15g}",
        "claimed": None if claim is None else claimed(claim.epsilon),
        "standing": upper and upper.standing,
        "certified": upper and at_most(upper),
        "worth": upper and _worth(upper),
        "noise": None,
        "protected": False,
        "audited": None,
        "contradicted": False,
        "attacks": [],
        "attack_limits": [],
        "seen_by": seer(upper) if upper else "",
    }


def _content(run: Paged | FinishedProgram) -> dict[str, Any]:
    upper = run.upper
    sizes = run.config.own_sizes if isinstance(run, FinishedTraining) else None
    content = of_figures(run.config.claim, upper, run.status) | {
        "kind": run.kind,
        "assumptions": words.assumptions(run),
        "ledger": table.rows(run.ledger, run.result.nodes, sizes) if run.ledger else [],
        "meaning": meaning.paragraphs(run),
        "seconds": f"{run.result.seconds:,.1f} s",
    }
    if (attacked := attacked_in(run)) is not None:
        content |= _of_attack(attacked, upper)
    if isinstance(run, FinishedProgram):
        return content | program.content(run)
    if isinstance(run, recorded.FinishedRecord):
        return content | recorded.content(run)
    content |= {
        "title": words.title(run.config.settings),
        "story": words.story(run),
        "verdict": words.verdict(run),
        "written": "as the program wrote it down while it ran",
        "command": command.again(run),
        "versions": command.versions(run),
        "own_data": is_own(run.config.settings.data),
    }
    if run.kind == "training":
        content |= {"noise": run.result.noise, "protected": run.result.protected}
    if isinstance(run, FinishedTraining) and attacked is not None:
        content |= words.attacks(run)
    if isinstance(attacked, FinishedAudit):
        content["otherwise"] = WORDS[limits.certificate_of(attacked).standing].otherwise
    return content


def attacked_in(run: Paged | FinishedProgram) -> FinishedAudit | FinishedProgram | None:
    """The attack that the page of ``run`` shows: the strongest of a training's."""
    if isinstance(run, FinishedAudit | FinishedProgram):
        return run
    if not isinstance(run, FinishedTraining):
        return None
    return max(
        audits_in(RunFolder(run.path)),
        key=lambda one: one.result.lower().epsilon,
        default=None,
    )


def _of_attack(
    run: FinishedAudit | FinishedProgram, upper: UpperBound | None
) -> dict[str, Any]:
    """Values of the template for an attack."""
    lower = run.result.lower()
    return {
        "audited": down(lower.epsilon),
        "confidence": ("at least" if lower.epsilon else "the attack showed nothing")
        + f", with {100 * lower.confidence:g} % confidence"
        + ("" if lower.valid_for == ANY else f", for {lower.valid_for}"),
        "contradicted": upper is not None and lower.epsilon > upper.epsilon,
        "limits": limits.sentences(run),
        "operating_point": words.operating_point(run),
        "outside": attack.span(run.scores)[2],
        "has_limits": attack.has_limits(run.result.evidence),
        "runs": len(run.scores),
    }


def _worth(bound: UpperBound) -> str:
    if bound.epsilon == math.inf:
        return _NO_BOUND
    return WORDS[bound.standing].at_most + seen_by(bound.observer).replace(";", ",")


def _figures(run: Paged | FinishedProgram) -> dict[str, str]:
    lowers: list[tuple[str, LowerBound]] = []
    drawn: dict[str, str] = {}
    if (attacked := attacked_in(run)) is not None:
        lower, evidence = attacked.result.lower(), attacked.result.evidence
        lowers = [("audited", lower)]
        drawn["scores"] = attack.histogram(attacked.scores, evidence)
        account = limits.accounted(attacked)
        about = evidence, attacked.config.claim, lower, account
        drawn["roc"] = attack.roc(attacked.scores, *about)
    drawn |= plots.epsilon_axes(run.config.claim, run.upper, lowers)
    if isinstance(run, FinishedProgram | recorded.FinishedRecord):
        return drawn
    made = {"views": views.on_page(run)}
    if isinstance(attacked, FinishedAudit):
        made["tradeoff"] = limits.trade_off(attacked)
        made["runs"] = limits.against_runs(attacked)
    drawn |= {name: one for name, one in made.items() if one is not None}
    nodes, curves = len(run.ledger.nodes), run.curves
    if curves.rounds:
        if curves.accuracy is not None or curves.loss is not None:
            drawn["quality"] = plots.quality(curves, nodes)
        if nodes > 1 and curves.consensus is not None:
            drawn["consensus"] = plots.consensus(curves)
    return drawn
