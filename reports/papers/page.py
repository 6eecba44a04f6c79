"""Values and the chart of the pages."""

from __future__ import annotations

import functools
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any

from privaudit.results import round_up
from reports import pages
from reports.papers import zhou
from reports.papers.cells import PAPERS
from reports.papers.programme import DRAWN, VERDICTS, Found, Judged, Row, found, hours
from reports.study import Results

FEW = 4.0  # times, which a status may be reduced and still be near
COLOURS = {
    "at size": "C0",
    "near": "C9",
    "reduced": "0.8",
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
            f"**{of.status}**" + (f" ({DRAWN})" if row.printed is None else ""),
        )


def claims(
    paper: Any, judged: Iterable[Judged], *, brief: bool = False
) -> Iterable[tuple[str, ...]]:
    """Each with its verdict, the numbers that it rests on, and the paper's."""
    for claim, one in zip(paper.CLAIMS, judged, strict=True):
        assert one.word in VERDICTS
        told = one.brief or one.told if brief else one.told
        whose = "ours" if claim.ours else "paper"
        yield claim.text, whose, str(one), told, claim.printed


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
        name: [claim.judge(known) for claim in paper.CLAIMS]
        for name, paper in PAPERS.items()
    }
    papers = {
        name.replace("-", "_"): {
            "title": paper.TITLE,
            "picture": f"{name}.svg",
            "rows": list(rows(paper, known)),
            "claims": list(claims(paper, judged[name])),
            "runs": list(runs(name, known)),
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
    with pages.chart(path, figsize=(10, 3.6)) as axes:
        for place, paper in enumerate(PAPERS.values()):
            for column, row in enumerate(paper.ROWS):
                state = kind(row, known)
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
                    f"{letter[0]}{number}" + f"\n{row.part}".rstrip(),
                    ha="center",
                    va="center",
                    fontsize=7 if not row.part else 4.5,
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
            DRAWN: DRAWN,
        }
        for state, words in names.items():
            axes.barh([0], [0], color=COLOURS[state], edgecolor="0.4", label=words)
        axes.legend(
            ncols=5, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.02)
        )


def beside(paper: Any, path: pathlib.Path, known: Results) -> None:
    """A line for each setting that something of ours is known of.

    On the left, where any epsilon was certified, the claimed and the certified; on the
    right the printed accuracy, and ours.
    """
    lines = [one for one in paper.shown(known) if one.ours or one.certified is not None]
    epsilons = any(line.certified is not None for line in lines)
    size = (4 + 4 * epsilons, 1.5 + 0.17 * len(lines))
    options: dict[str, Any] = {"figsize": size, "sharey": True, "squeeze": False}
    with pages.chart(path, 1, 1 + epsilons, **options, layout="constrained") as grid:
        *left, right = grid[0]
        for place, line in enumerate(lines):
            for axes in left:
                _pair(axes, -place, line.claimed, line.certified)
            ours = line.ours
            _pair(right, -place, line.printed, statistics.mean(ours) if ours else None)
            if len(ours) > 1:
                right.plot(
                    [min(ours), max(ours)], [-place] * 2, color="C0", lw=4, alpha=0.3
                )
        for axes in left:
            _named(axes, "epsilon", paper.LABELS)
            _logarithmic(axes)
        named = ("printed", "here, mean and range of seeds")
        if all(line.printed is None for line in lines):
            named = ("none is printed", named[1])
        _named(right, "accuracy, per cent", named)
        places = [-place for place in range(len(lines))]
        grid[0][0].set_yticks(places, [line.label for line in lines], fontsize=7)


def _named(axes: Any, title: str, named: tuple[str, str]) -> None:
    axes.plot([], [], "o", color="0.4", fillstyle="none", label=named[0])
    axes.plot([], [], "o", color="C0", label=named[1])
    axes.set_xlabel(title, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(axis="x", color="0.9")
    axes.legend(fontsize=6, loc="lower center", bbox_to_anchor=(0.5, 1))


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
