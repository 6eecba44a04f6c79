"""Values and pictures of the pages."""

from __future__ import annotations

import functools
import pathlib
import statistics
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from privaudit.results import round_up
from reports import pages
from reports.papers import bayrooti, zhou, zhu
from reports.papers.cells import PAPERS
from reports.papers.manifest import published, table
from reports.papers.programme import (
    DRAWN,
    VERDICTS,
    Claim,
    Judged,
    Row,
    claims_of,
    found,
    hours,
    rows_of,
)
from reports.study import Results

WIDTH = 4.6  # inches of a picture: read on a phone without turning it
FEW = 4.0  # times, which a status may be reduced and still be near
COLOURS = {
    "at size": "C0",
    "near": "C9",
    "reduced": "0.8",
    "other settings": "C1",
    "not run": "white",
    DRAWN: "0.95",
}


def judged(paper: str, own: Results) -> list[tuple[Claim, Judged]]:
    """A paper's claims, each with its judgement."""
    judges = PAPERS[paper].JUDGES
    return [(claim, claim.judged(paper, judges, own)) for claim in claims_of(paper)]


def runs(prefix: str, known: Results) -> Iterator[tuple]:
    """Runs of this programme, but pilots: accuracy in per cent, and epsilons."""
    for name, result in known.items():
        plain = name.removeprefix("published ")
        if not plain.startswith(prefix) or "accuracy" not in result:
            continue
        right, start = result["accuracy"], result.get("start")
        several = right if isinstance(right, list) else [right]
        if right is None:
            told = f"refused: {result['why']}"
        elif len(several) > 1:
            told = pages.spread(several)
        else:
            told = f"{100 * several[0]:.1f}"
        bounds = [
            result.get("add-or-remove-one"),
            result.get("replace-one", result.get("account")),
        ]
        yield (
            name.replace(" | ", ", "),  # which would end a column
            told,
            "" if start is None else f"{100 * start:.1f}",
            *("" if bound is None else round_up(bound) for bound in bounds),
            f"{known.records[name]['cpu']:.0f}",
        )


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
    return {name: kinds.count(name) for name in COLOURS}


def values(known: Results) -> dict[str, Any]:
    """All that the templates quote."""
    papers = {
        name: {
            "facts": published(name),
            "page": f"{name}.md",
            "picture": f"{name}.svg",
            "rows": [(row, found(row, known), hours(row, known)) for row in rows],
            "counts": counted(rows, known),
            "claims": judged(name, known),
            "runs": list(runs(name, known)),
        }
        for name in PAPERS
        if (rows := rows_of(name))
    }
    every = [row for name in PAPERS for row in rows_of(name)]
    words = [one.word for paper in papers.values() for _, one in paper["claims"]]
    return {
        "papers": papers,
        "total": counted(every, known),
        "all_rows": len(every),
        "items": sum(len({r.name for r in rows_of(name)}) for name in PAPERS),
        "judged": {one: words.count(one) for one in VERDICTS},
        "training_times": list(bayrooti.training_times(known)),
        "sensitivities": list(zhou.sensitivities(known)),
        "training_seconds": list(zhou.seconds(known)),
        "traces": list(zhou.traces(known)),
        "folders": list(zhou.folders()),
        "stored": table("zhou-traces"),
        "searches": list(zhu.searches(known)),
        "seconds": f"{known.cpu:,.0f}",
        "few": f"{FEW:.0f}",
    }


def statuses(path: pathlib.Path, known: Results) -> None:
    """A box for each table and figure, not more of them in a row than a phone shows."""
    names = {
        "at size": "at size",
        "near": f"reduced, by at most {FEW:.0f}",
        "reduced": "reduced, by more",
        "other settings": "of other settings",
        "not run": "not run",
        DRAWN: DRAWN,
    }
    with pages.chart(path, figsize=(WIDTH, 7.2)) as axes:
        top = 0.0
        for paper in PAPERS:
            title = published(paper)["title"].split(":")[0]
            axes.text(0, top - 0.2, title, fontsize=10, fontweight="bold")
            for place, row in enumerate(rows_of(paper)):
                line, column = divmod(place, 6)
                state = kind(row, known)
                style = {"edgecolor": "0.4", "linewidth": 0.6}
                low = top + line
                axes.barh(low + 0.4, 0.94, left=column, color=COLOURS[state], **style)
                letter, number = row.name.split(" ")
                axes.text(
                    column + 0.47,
                    low + 0.4,
                    f"{letter[0]}{number}" + f"\n{row.part}".rstrip(),
                    ha="center",
                    va="center",
                    fontsize=10 if not row.part else 7,
                    color="white" if state == "at size" else "black",
                )
            top += -(-len(rows_of(paper)) // 6) + 0.8
        axes.set_ylim(top - 0.7, -0.7)
        axes.set_axis_off()
        for state, words in names.items():
            axes.bar([0], [0], 0, color=COLOURS[state], ec="0.4", lw=0.6, label=words)
        axes.legend(ncols=2, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 0))


def beside(paper: str, path: pathlib.Path, known: Results) -> None:
    """A line for each setting that something of ours is known of, under its label.

    Above, where any epsilon was certified, the claimed and the certified; below the
    printed accuracy, and ours.
    """
    every = PAPERS[paper].shown(known)
    lines = [one for one in every if one.ours or one.certified is not None]
    above = [line for line in lines if line.certified is not None]
    below = [line for line in lines if line.ours]
    parts = [part for part in (above, below) if part]
    options: dict[str, Any] = {
        "figsize": (WIDTH, sum(1.2 + 0.34 * len(part) for part in parts)),
        "height_ratios": [4 + len(part) for part in parts],
        "squeeze": False,
    }
    with pages.chart(path, len(parts), 1, **options, layout="constrained") as grid:
        for (axes,), part in zip(grid, parts, strict=True):
            for place, line in enumerate(part):
                axes.annotate(
                    line.label,
                    (0, -place),
                    (2, 5),
                    xycoords=axes.get_yaxis_transform(),
                    textcoords="offset points",
                    fontsize=8,
                )
            axes.set_ylim(0.5 - len(part), 0.9)
            axes.set_yticks([])
        if above:
            axes = grid[0][0]
            for place, line in enumerate(above):
                _pair(axes, -place, line.claimed, line.certified)
            _named(axes, "epsilon", published(paper)["labels"])
            _logarithmic(axes)
        if below:
            _accuracies(grid[-1][0], below)


def _accuracies(axes: Any, lines: list[Any]) -> None:
    for place, line in enumerate(lines):
        _pair(axes, -place, line.printed, statistics.mean(line.ours))
        if len(line.ours) > 1:
            ends = [min(line.ours), max(line.ours)]
            axes.plot(ends, [-place] * 2, color="C0", lw=4, alpha=0.3)
    printed = any(line.printed is not None for line in lines)
    words = "printed" if printed else "none is printed"
    _named(axes, "accuracy, per cent", (words, "here, mean and range of seeds"))


def _named(axes: Any, title: str, named: Iterable[str]) -> None:
    first, second = ("\n".join(textwrap.wrap(words, 50)) for words in named)
    axes.plot([], [], "o", color="0.4", fillstyle="none", label=first)
    axes.plot([], [], "o", color="C0", label=second)
    axes.set_xlabel(title, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", color="0.9")
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1))


def _logarithmic(axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=12))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _pair(axes: Any, place: float, said: float | None, known: float | None) -> None:
    """Draw a line from what a paper says to what is known."""
    if said is not None and known is not None:
        axes.plot([said, known], [place] * 2, color="0.7", linewidth=0.8, zorder=1)
    if said is not None:
        axes.plot(said, place, "o", color="0.4", fillstyle="none", markersize=4)
    if known is not None:
        axes.plot(known, place, "o", color="C0", markersize=4)


CHARTS = {
    "statuses.svg": statuses,
    **{f"{name}.svg": functools.partial(beside, name) for name in PAPERS},
}
