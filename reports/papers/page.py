"""Values and the chart of the pages."""

from __future__ import annotations

import functools
import pathlib
import statistics
import textwrap
from collections.abc import Iterable
from typing import Any

from privaudit.results import round_up
from reports import pages, unsettled
from reports.papers import zhou
from reports.papers.cells import PAPERS
from reports.papers.programme import DRAWN, VERDICTS, Found, Judged, Row, found, hours
from reports.study import Results

WIDTH = 4.6  # inches of a picture: read on a phone without turning it
FEW = 4.0  # times, which a status may be reduced and still be near
COLOURS = {
    "at size": "C0",
    "near": "C9",
    "reduced": "0.8",
    "not settled": "C1",
    "not run": "white",
    DRAWN: "0.95",
}


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
        if row.assumed:
            printed += f" (assumed: {row.assumed})"
        yield (
            row.name,
            row.shows,
            printed,
            here(of),
            row.differs,
            cost(hours(row, known)),
            f"**{of.status}**" + _remark(row, of),
        )


def _remark(row: Row, of: Found) -> str:
    """Beside a status: that nothing is to be run, or why results are others."""
    if row.printed is None:
        return f" ({DRAWN})"
    return ", but not settled (above)" if row.unsettled and of.size is not None else ""


def claims(
    paper: Any, judged: Iterable[Judged], *, brief: bool = False
) -> Iterable[tuple[str, ...]]:
    """Each with its verdict, the numbers that it rests on, and the paper's."""
    for claim, one in zip(paper.CLAIMS, judged, strict=True):
        assert one.word in VERDICTS
        told = one.brief or one.told if brief else one.told
        whose = "ours" if claim.ours else "paper"
        yield claim.text, whose, str(one), told, claim.printed


def reasons(paper: Any) -> list[str]:
    """Why rows and claims are not settled, each once."""
    marked = [*paper.ROWS, *paper.CLAIMS]
    return list(dict.fromkeys(one.unsettled for one in marked if one.unsettled))


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


CLAIM_HEAD = ["claim", "whose", "verdict", "from", "printed"]


def kind(row: Row, known: Results) -> str:
    """Of a status, for the picture."""
    if row.printed is None:
        return DRAWN
    of = found(row, known)
    if of.size is not None and row.unsettled:
        return "not settled"
    if of.size is not None and 1 < of.factor <= FEW:
        return "near"
    return of.status.split(" ")[0] if of.status.startswith("reduced") else of.status


def counted(items: list[Row], known: Results) -> dict[str, int]:
    """Rows by kind of status."""
    kinds = [kind(row, known) for row in items]
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
    judged = {
        name: [claim.judged(known) for claim in paper.CLAIMS]
        for name, paper in PAPERS.items()
    }
    papers = {
        name.replace("-", "_"): {
            "title": paper.TITLE,
            "picture": f"{name}.svg",
            "rows": list(rows(paper, known)),
            "claims": list(claims(paper, judged[name])),
            "runs": list(runs(name, known)),
            "unsettled": reasons(paper),
        }
        for name, paper in PAPERS.items()
    }
    every = [row for paper in PAPERS.values() for row in paper.ROWS]
    verdicts = [
        (f"[{name}]({name}.md)", *claim)
        for name, paper in PAPERS.items()
        for claim in claims(paper, judged[name], brief=True)
    ]
    words = [one.word for each in judged.values() for one in each]
    return {
        **papers,
        "answers": [
            (paper.TITLE, f"{name}.md", paper.answer(known))
            for name, paper in PAPERS.items()
        ],
        "pictures": [
            (paper.TITLE, f"{name}.md", f"{name}.svg") for name, paper in PAPERS.items()
        ],
        "summary": list(summary(known)),
        "total": counted(every, known),
        "all_rows": len(every),
        "items": sum(len({r.item for r in p.ROWS}) for p in PAPERS.values()),
        "verdicts": verdicts,
        "judged": {one: words.count(one) for one in VERDICTS},
        "run_head": RUN_HEAD,
        "claim_head": CLAIM_HEAD,
        "training_times": list(training_times(known)),
        "sensitivities": list(zhou.sensitivities(known)),
        "training_seconds": list(zhou.seconds(known)),
        "seconds": f"{known.cpu:,.0f}",
        "few": f"{FEW:.0f}",
        "again": unsettled.AGAIN,
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
    """A box for each table and figure, not more of them in a row than a phone shows."""
    names = {
        "at size": "at size",
        "near": f"reduced, by at most {FEW:.0f}",
        "reduced": "reduced, by more",
        "not settled": "of other settings",
        "not run": "not run",
        DRAWN: DRAWN,
    }
    with pages.chart(path, figsize=(WIDTH, 7.2)) as axes:
        top = 0.0
        for paper in PAPERS.values():
            title = paper.TITLE.split(":")[0]
            axes.text(0, top - 0.2, title, fontsize=10, fontweight="bold")
            for place, row in enumerate(paper.ROWS):
                line, column = divmod(place, 6)
                state = kind(row, known)
                style = {"edgecolor": "0.4", "linewidth": 0.6}
                low = top + line
                axes.barh(low + 0.4, 0.94, left=column, color=COLOURS[state], **style)
                letter, number = row.item.split(" ")
                axes.text(
                    column + 0.47,
                    low + 0.4,
                    f"{letter[0]}{number}" + f"\n{row.part}".rstrip(),
                    ha="center",
                    va="center",
                    fontsize=10 if not row.part else 7,
                    color="white" if state == "at size" else "black",
                )
            top += -(-len(paper.ROWS) // 6) + 0.8
        axes.set_ylim(top - 0.7, -0.7)
        axes.set_axis_off()
        for state, words in names.items():
            axes.bar([0], [0], 0, color=COLOURS[state], ec="0.4", lw=0.6, label=words)
        axes.legend(ncols=2, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 0))


def beside(paper: Any, path: pathlib.Path, known: Results) -> None:
    """A line for each setting that something of ours is known of, under its label.

    Above, where any epsilon was certified, the claimed and the certified; below the
    printed accuracy, and ours.
    """
    lines = [one for one in paper.shown(known) if one.ours or one.certified is not None]
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
            _named(axes, "epsilon", paper.LABELS)
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


def _named(axes: Any, title: str, named: tuple[str, str]) -> None:
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
