"""Values and the chart of the pages."""

from __future__ import annotations

import functools
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any

from privaudit.results import round_up
from reports import pages
from reports.papers.cells import PAPERS
from reports.papers.programme import VERDICTS, Found, Row, found, hours
from reports.study import Results

FEW = 4.0  # times, which a status may be reduced and still be near
COLOURS = {"at size": "C0", "near": "C9", "reduced": "0.8", "not run": "white"}


def link(study: str) -> str:
    """To a study's page, from a page here."""
    return f"[{study}](../{study}/README.md)"


def here(of: Found) -> str:
    """What was computed, and where it stands."""
    if of.size is None:
        return ""
    where = "this programme" if of.study == "papers" else link(of.study)
    return f"{where}: {of.data}; {of.size}"


def cost(core_hours: float | None) -> str:
    """In core-hours."""
    if core_hours is None:
        return ""
    return f"{core_hours:,.0f}" if core_hours >= 10 else f"{core_hours:.2g}"


def rows(paper: Any, known: Results) -> Iterable[tuple]:
    """Of a paper's table of items."""
    for row in paper.ROWS:
        of = found(row, known)
        printed = "" if row.printed is None else f"{row.data}; {row.printed}"
        yield (
            row.name,
            row.shows,
            printed,
            here(of),
            row.differs,
            cost(hours(row, known)),
            f"**{of.status}**",
        )


def claims(paper: Any, known: Results) -> Iterable[tuple[str, ...]]:
    """Each with its verdict, the numbers that it rests on, and the paper's."""
    for claim in paper.CLAIMS:
        judged, told = claim.judge(known)
        assert judged in VERDICTS
        yield claim.text, f"**{judged}**", told, claim.printed


def runs(prefix: str, known: Results) -> Iterable[tuple]:
    """Runs of this programme, but pilots: accuracy in per cent, and epsilons."""
    for name, result in known.items():
        plain = name.removeprefix("published ")
        if not plain.startswith(prefix) or "accuracy" not in result:
            continue
        right = result["accuracy"]
        values = right if isinstance(right, list) else [right]
        if right is None:
            told = f"refused: {result['why']}"
        elif len(values) > 1:
            told = pages.spread(values)
        else:
            told = f"{100 * values[0]:.1f}"
        bounds = [
            result.get("add-or-remove-one"),
            result.get("replace-one", result.get("account")),
        ]
        start = result.get("start")
        yield (
            name.replace(" | ", ", "),  # which would end a column
            told,
            "" if start is None else f"{100 * start:.1f}",
            *("" if bound is None else round_up(bound) for bound in bounds),
            f"{known.records[name]['cpu']:.0f}",
        )


RUN_HEAD = [
    "run",
    "accuracy",
    "at the start",
    "certified, add-or-remove-one",
    "certified, replace-one",
    "CPU seconds",
]


def kind(of: Found) -> str:
    """Of a status, for the picture."""
    if of.size is not None and 1 < of.factor <= FEW:
        return "near"
    return of.status.split(" ")[0] if of.status.startswith("reduced") else of.status


def counted(items: list[Row], known: Results) -> dict[str, int]:
    """Rows by kind of status."""
    kinds = [kind(found(row, known)) for row in items]
    return {name: kinds.count(name) for name in COLOURS}


def summary(known: Results) -> Iterable[tuple]:
    """A line for each paper."""
    for name, paper in PAPERS.items():
        yield (
            f"[{paper.TITLE}]({name}.md)",
            len({row.item for row in paper.ROWS}),
            *counted(paper.ROWS, known).values(),
        )


def values(known: Results) -> dict[str, Any]:
    """Of all templates."""
    papers = {
        name.replace("-", "_"): {
            "title": paper.TITLE,
            "picture": f"{name}.svg",
            "rows": list(rows(paper, known)),
            "claims": list(claims(paper, known)),
            "runs": list(runs(name, known)),
        }
        for name, paper in PAPERS.items()
    }
    every = [row for paper in PAPERS.values() for row in paper.ROWS]
    verdicts = [
        (f"[{paper.TITLE}]({name}.md)", *claim)
        for name, paper in PAPERS.items()
        for claim in claims(paper, known)
    ]
    return {
        **papers,
        "pictures": [
            (paper.TITLE, f"{name}.md", f"{name}.svg") for name, paper in PAPERS.items()
        ],
        "summary": list(summary(known)),
        "total": counted(every, known),
        "all_rows": len(every),
        "items": sum(len({r.item for r in p.ROWS}) for p in PAPERS.values()),
        "verdicts": verdicts,
        "judged": {
            one: sum(line[2] == f"**{one}**" for line in verdicts) for one in VERDICTS
        },
        "run_head": RUN_HEAD,
        "training_times": list(training_times(known)),
        "seconds": f"{known.cpu:,.0f}",
        "few": f"{FEW:.0f}",
    }


def training_times(known: Results) -> Iterable[tuple]:
    """Table 3 of Bayrooti et al.: core-hours of 2 000 rounds of each method."""
    printed = {
        "sgd": (0.07, 0.1),
        "dsgd": (1.1, 1.25),
        "dsgt": (0.84, 1.24),
        "dinno": (0.9, 1.24),
    }
    for method, theirs in printed.items():
        figures = []
        for name, own in zip((method, f"dp-{method}"), theirs, strict=True):
            record = known.records.get(f"pilot bayrooti {name}")
            if record is None:
                figures.append(f"(*{own}*)")
                continue
            rounds = record["settings"]["training"]["rounds"]
            each = record["result"]["cpu"] / rounds * 2000 / 3600
            figures.append(f"{each:.2f} (*{own}*)")
        yield method, *figures


def statuses(path: pathlib.Path, known: Results) -> None:
    """A box for each table and figure."""
    with pages.chart(path, figsize=(8, 3.2)) as axes:
        for place, paper in enumerate(PAPERS.values()):
            for column, row in enumerate(paper.ROWS):
                state = kind(found(row, known))
                axes.barh(
                    -place,
                    0.9,
                    left=column,
                    color=COLOURS[state],
                    edgecolor="0.4",
                    linewidth=0.6,
                )
                letter, number = row.item.split(" ")
                axes.text(
                    column + 0.45,
                    -place,
                    f"{letter[0]}{number}",
                    ha="center",
                    va="center",
                    fontsize=7,
                )
        titles = [paper.TITLE.split(":")[0] for paper in PAPERS.values()]
        axes.set_yticks([-place for place in range(len(titles))], titles, fontsize=8)
        axes.set_xticks([])
        for side in axes.spines.values():
            side.set_visible(False)
        names = {
            "at size": "at size",
            "near": f"reduced, by at most {FEW:.0f}",
            "reduced": "reduced, by more",
            "not run": "not run",
        }
        for state, words in names.items():
            axes.barh([0], [0], color=COLOURS[state], edgecolor="0.4", label=words)
        axes.legend(
            ncols=4, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.02)
        )


def beside(paper: Any, path: pathlib.Path, known: Results) -> None:
    """A line for each setting: claimed and certified, printed and here."""
    from matplotlib.ticker import LogLocator, NullFormatter

    lines = list(paper.shown(known))
    size = (8, 1.2 + 0.17 * len(lines))
    with pages.chart(path, 1, 2, figsize=size, sharey=True, layout="constrained") as (
        left,
        right,
    ):
        for place, line in enumerate(lines):
            _pair(left, -place, line.claimed, line.certified)
            ours = line.ours
            _pair(right, -place, line.printed, statistics.mean(ours) if ours else None)
            if len(ours) > 1:
                right.plot(
                    [min(ours), max(ours)], [-place] * 2, color="C0", lw=4, alpha=0.3
                )
        for axes, title, named in (
            (left, "epsilon", ("claimed", "certified for the paper's noise")),
            (right, "accuracy, per cent", ("printed", "here, mean and range of seeds")),
        ):
            axes.plot([], [], "o", color="0.4", fillstyle="none", label=named[0])
            axes.plot([], [], "o", color="C0", label=named[1])
            axes.set_xlabel(title, fontsize=8)
            axes.tick_params(labelsize=7)
            axes.grid(axis="x", color="0.9")
            axes.legend(
                fontsize=7, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1)
            )
        left.set_xscale("log")
        left.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=12))
        left.xaxis.set_major_formatter("{x:g}")
        left.xaxis.set_minor_formatter(NullFormatter())
        places = [-place for place in range(len(lines))]
        left.set_yticks(places, [line.label for line in lines], fontsize=7)


def _pair(axes: Any, place: float, said: float | None, known: float | None) -> None:
    """What a paper says, and from there to what is known."""
    if said is not None and known is not None:
        axes.plot([said, known], [place] * 2, color="0.7", linewidth=0.8, zorder=1)
    if said is not None:
        axes.plot(said, place, "o", color="0.4", fillstyle="none", markersize=4)
    if known is not None:
        axes.plot(known, place, "o", color="C0", markersize=4)


CHARTS = {
    "statuses.svg": statuses,
    **{f"{name}.svg": functools.partial(beside, of) for name, of in PAPERS.items()},
}
