"""The demo's three audits as sentences and as one page."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
from typing import Any

from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.json import Summary
from privaudit.report import plots, words
from privaudit.report.load import FinishedAudit
from privaudit.report.numbers import claimed, down, up
from privaudit.report.page import fill
from privaudit.report.sweep import load_sweep
from privaudit.report.verify import verified

_TIGHT = 0.75  # share of the certified epsilon from which the account is called tight
_LABELS = {
    "neighbour": ("neighbour", "What a neighbour sees"),
    "final-model": ("final model", "The final model alone"),
    "planted-bug": ("planted bug", "With a planted bug"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """One of the three audits, by its name."""

    name: str
    run: FinishedAudit

    @property
    def sentence(self) -> str:
        """Sentence on what it showed."""
        result = self.run.result
        lower, upper = result.lower(), result.upper()
        least, refuted = down(lower.epsilon), result.status == "refuted"
        if self.name == "final-model":
            return (
                "Somebody who has only the final model, and looks at its loss on one "
                f"mislabelled image, shows that epsilon is at least {least}: a low "
                "figure is not safety, only what this attack found."
            )
        if self.name == "planted-bug":
            end = "REFUTED" if refuted else "not refuted, in so few runs"
            return (
                "With the noise halved by mistake, the same neighbour shows at least "
                f"{least} of a claimed {claimed(result.verdict.claim.epsilon)}: {end}."
            )
        if refuted:
            chance = round(1 / (1 - lower.confidence))
            end = f"too much, as chance has it in at most one audit of {chance}"
        elif lower.epsilon >= _TIGHT * upper.epsilon:
            end = "the truth lies between the two"
        else:
            end = "more runs may show more"
        return (
            "A neighbour who reads the messages and knows all other records shows that "
            f"epsilon is at least {least} of the certified {up(upper.epsilon)}: "
            f"{end}."
        )

    summary = Summary("name sentence *run")

    def card(self) -> dict[str, Any]:
        """Values of its card on the page."""
        result = self.run.result
        lower = result.lower()
        runs = f"{lower.member_runs:,} with it, {lower.non_member_runs:,} without"
        return {
            "title": _LABELS[self.name][1],
            "status": result.status,
            "audited": down(lower.epsilon),
            "sentence": self.sentence,
            "facts": [
                ("canary to find", words.CANARIES[self.run.config.canary]),
                ("attacker sees", lower.threat_model),
                ("runs", runs),
            ],
        }


def load_views(path: str | os.PathLike[str]) -> list[View]:
    """The three audits of the demo's folder; `FolderError` if one is not finished."""
    views = []
    for row in load_sweep(pathlib.Path(path)).rows:
        if row.finished is None:
            raise FolderError(f"{pathlib.Path(path) / row.name}: {row.why}")
        views.append(View(row.name, row.finished))
    return views


def write(path: str | os.PathLike[str], views: list[View]) -> pathlib.Path:
    """Write ``report.html`` into the demo's folder, whose evidence must agree."""
    checked = verified(path)
    folder = RunFolder(path)
    folder.write("report.html", page_of(folder.path, views, str(checked)).encode())
    return folder / "report.html"


def is_demo(path: pathlib.Path) -> bool:
    """Return whether the demo's three audits are there."""
    return all((path / name / "config.json").exists() for name in _LABELS)


def page_of(path: pathlib.Path, views: list[View], checked: str) -> str:
    """The page of the demo's audits, with what was ``checked`` in words."""
    first = views[0].run
    claim, lower = first.config.claim, first.result.lower()
    lowers = [(_LABELS[view.name][0], view.run.result.lower()) for view in views]
    drawn = plots.epsilon_axes(claim, first.upper, lowers)
    assumptions = [
        (name, text)
        for name, text in words.assumptions(first)
        if name not in ("the attacker sees", "audited")
    ]
    audited = (
        f"each figure holds for itself with {100 * lower.confidence:g} % confidence "
        f"over its audit's coins, for {lower.valid_for} ({lower.method})"
    )
    commands = [
        shlex.join(["privaudit", "report", str(path / view.name)]) for view in views
    ]
    again = ["privaudit", "demo", "--seed", str(first.config.seed), "--out", str(path)]
    return fill(
        "demo.html.jinja",
        drawn,
        story=words.story(first)[0],
        others=[f"{view.run.config.runs:,}" for view in views[1:]],
        accuracy=f"{100 * (first.result.accuracy or 0.0):.0f}\N{NO-BREAK SPACE}%",
        epsilon=claimed(claim.epsilon),
        delta=f"{claim.delta:.15g}",
        certified=up(first.upper.epsilon),
        cards=[view.card() for view in views],
        assumptions=[*assumptions, ("audited", audited)],
        checked=checked,
        commands="\n".join([*commands, shlex.join(again)]),
        confidence=f"{100 * lower.confidence:g} %",
    )
