"""Values and pictures of the pages."""

from __future__ import annotations

import functools
import pathlib
import statistics
import textwrap
from collections.abc import Iterable
from typing import Any

from reports import pages, published
from reports.papers.cells import PAPERS
from reports.papers.programme import (
    DRAWN,
    VERDICTS,
    Claim,
    Judged,
    Row,
    Shown,
    claims_of,
    found,
    hours,
    rows_of,
)
from reports.study import Results

FEW = 4.0  # times, which a status may be reduced and still be near
KINDS = {  # colour, and words of the legend
    "at size": ("C0", "at size"),
    "near": ("C9", f"reduced, by at most {FEW:.0f}"),
    "reduced": ("0.8", "reduced, by more"),
    "other settings": ("C1", "of other settings"),
    "not run": ("white", "not run"),
    DRAWN: ("0.95", DRAWN),
}


def judged(paper: str, own: Results) -> list[tuple[Claim, Judged]]:
    """A paper's claims, each with its judgement."""
    judges = vars(PAPERS[paper])
    return [(claim, claim.judged(paper, judges, own)) for claim in claims_of(paper)]


def kind(row: Row, known: Results) -> str:
    """Status of a row, by which the picture colours it."""
    if row.size is None:
        return DRAWN
    of = found(row, known)
    if of.size is not None and row.missing:
        return "other settings"
    if of.size is not None and 1 < of.factor <= FEW:
        return "near"
    return of.status.split(" ")[0] if of.status.startswith("reduced") else of.status


def counted(items: Iterable[Row], known: Results) -> dict[str, int]:
    """Rows by kind of status."""
    kinds = [kind(row, known) for row in items]
    return {name: kinds.count(name) for name in KINDS}


def values(known: Results) -> dict[str, Any]:
    """All that the templates quote and that is not in the results."""
    papers = {
        name: {
            "name": name,
            "facts": published(name),
            "rows": [(row, found(row, known), hours(row, known)) for row in rows],
            "counts": counted(rows, known),
            "claims": (claims := judged(name, known)),
            "by": {claim.judge: one for claim, one in claims},
        }
        for name in PAPERS
        if (rows := rows_of(name))
    }
    every = [(name, row) for name in PAPERS for row in rows_of(name)]
    words = [one.word for paper in papers.values() for _, one in paper["claims"]]
    return {
        "papers": papers,
        "total": counted([row for _, row in every], known),
        "rows": [(name + row.name, row) for name, row in every],
        "judged": {one: words.count(one) for one in VERDICTS},
    }


def statuses(path: pathlib.Path, known: Results) -> None:
    """A bar for each paper: how many of its tables and figures have each status."""
    counts = [counted(rows_of(paper), known) for paper in PAPERS]
    with pages.chart(path, figsize=(pages.WIDTH, 4.2), layout="constrained") as axes:
        pages.labelled(
            axes, [published(name)["title"].split(":")[0] for name in PAPERS]
        )
        left, places = [0] * len(counts), [-0.2 - place for place in range(len(counts))]
        for name, (colour, words) in KINDS.items():
            more = [one[name] for one in counts]
            style = {"color": colour, "label": words, "edgecolor": "0.4"}
            axes.barh(places, more, 0.3, left, **style)
            left = [a + b for a, b in zip(left, more, strict=True)]
        axes.set_xlabel("tables and figures, or parts of one", fontsize=9)
        axes.figure.legend(ncols=2, fontsize=8, loc="outside lower center")


def beside(paper: str, path: pathlib.Path, known: Results) -> None:
    """A line for each setting that something of ours is known of, under its label.

    Above, where any epsilon was certified, the claimed and the certified; below the
    printed accuracy, and ours.
    """
    lines = list(PAPERS[paper].shown(known))
    above = [line for line in lines if line.certified is not None]
    below = [line for line in lines if line.ours]
    parts = [part for part in (above, below) if part]
    options: dict[str, Any] = {
        "figsize": (pages.WIDTH, sum(1.2 + 0.34 * len(part) for part in parts)),
        "height_ratios": [4 + len(part) for part in parts],
        "squeeze": False,
    }
    with pages.chart(path, len(parts), 1, **options, layout="constrained") as grid:
        for (axes,), part in zip(grid, parts, strict=True):
            _panel(axes, part, published(paper)["labels"] if part is above else None)


def _panel(axes: Any, part: list[Shown], labels: Iterable[str] | None) -> None:
    """Epsilons under ``labels``, or accuracies."""
    pages.labelled(axes, [line.label for line in part])
    for place, line in enumerate(part):
        said, ours = line.printed, line.ours
        if labels:
            said, ours = line.claimed, (line.certified or 0.0,)
        known = statistics.mean(ours)
        if said is not None:
            axes.plot([said, known], [-place] * 2, color="0.7", lw=0.8, zorder=1)
            axes.plot(said, -place, "o", color="0.4", fillstyle="none", markersize=4)
        axes.plot(known, -place, "o", color="C0", markersize=4)
        if len(ours) > 1:
            ends = [min(ours), max(ours)]
            axes.plot(ends, [-place] * 2, color="C0", lw=4, alpha=0.3)
    printed = any(line.printed is not None for line in part)
    words = "printed" if printed else "none is printed"
    named = labels or (words, "here, mean and range of seeds")
    first, second = ("\n".join(textwrap.wrap(words, 50)) for words in named)
    axes.plot([], [], "o", color="0.4", fillstyle="none", label=first)
    axes.plot([], [], "o", color="C0", label=second)
    axes.set_xlabel("epsilon" if labels else "accuracy, per cent", fontsize=9)
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1))
    if labels:
        axes.set_xscale("log", subs=[])
        axes.locator_params("x", subs=(1.0, 3.0), numticks=12)
        axes.xaxis.set_major_formatter("{x:g}")


CHARTS = {
    "statuses.svg": statuses,
    **{f"{name}.svg": functools.partial(beside, name) for name in PAPERS},
}
