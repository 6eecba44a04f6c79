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
    """A status, for the picture."""
    if row.printed is None:
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
    """A box for each table and figure, not more of them in a row than a phone shows."""
    style = {"edgecolor": "0.4", "linewidth": 0.6}
    with pages.chart(path, figsize=(pages.WIDTH, 7.2)) as axes:
        top = 0.0
        for paper in PAPERS:
            title = published(paper)["title"].split(":")[0]
            axes.text(0, top - 0.2, title, fontsize=10, fontweight="bold")
            for place, row in enumerate(rows_of(paper)):
                line, column = divmod(place, 6)
                state, low = kind(row, known), top + line + 0.4
                axes.barh(low, 0.94, left=column, color=KINDS[state][0], **style)
                letter, number = row.name.split(" ")
                axes.text(
                    column + 0.47,
                    low,
                    f"{letter[0]}{number}" + f"\n{row.part}".rstrip(),
                    ha="center",
                    va="center",
                    fontsize=10 if not row.part else 7,
                    color="white" if state == "at size" else "black",
                )
            top += -(-len(rows_of(paper)) // 6) + 0.8
        axes.set_ylim(top - 0.7, -0.7)
        axes.set_axis_off()
        for colour, words in KINDS.values():
            axes.bar([0], [0], 0, color=colour, label=words, **style)
        axes.legend(ncols=2, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 0))


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
        _logarithmic(axes)


def _logarithmic(axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=12))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


CHARTS = {
    "statuses.svg": statuses,
    **{f"{name}.svg": functools.partial(beside, name) for name in PAPERS},
}
