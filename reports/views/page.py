"""Values and the chart of the page."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from privaudit.results import round_down, round_up
from reports import pages
from reports.study import Results
from reports.views.cells import (
    DELTA,
    GOSSIP,
    HEARS,
    NODES,
    NOISE,
    ORDINARY,
    STEPS,
    SUMS,
)


def rows(known: Results, what: str) -> Iterable[tuple]:
    """By graph: each figure's mean over all pairs, and the worst pair's certified."""
    for graph in (*GOSSIP, *SUMS):
        cell = known.get(f"{what} {graph}")
        if cell is None:
            continue
        means = (round_up(cell[name]["mean"], 3) for name in cell)
        saved = 1 - cell["certified"]["mean"] / cell["everything_seen"]["mean"]
        most = round_up(cell["certified"]["most"], 3)
        yield graph, *means, most, f"{100 * saved:.0f} %"


def values(results: Results) -> dict:
    """Of the template."""
    return {
        "averaging": rows(results, "averaging"),
        "training": rows(results, "training"),
        "ordinary": (
            (
                f"{step:g}",
                by,
                *(
                    round_up(cell[name], 3)
                    for name in ("nobody_reacts", "certified", "everything_seen")
                ),
                f"{cell['mu_nobody_reacts']:.2f}",
                f"{cell['mu_attack']:.2f}",
                round_down(cell["shown"], 3),
            )
            for step in ORDINARY
            for by in HEARS
            if (cell := results.get(f"ordinary {step:g} by {by}")) is not None
        ),
        "nodes": NODES,
        "noise": f"{NOISE:g}",
        "delta": f"{DELTA:g}",
        "steps": STEPS,
    }


def draw(path: pathlib.Path, known: Results) -> None:
    """Share of everything seen that a node learns of another, in the mean."""
    with pages.chart(
        path, columns=2, figsize=(10, 4.6), sharex=True, layout="constrained"
    ) as axes:
        for axis, what in zip(axes, ("averaging", "training"), strict=True):
            names = [
                g for g in (*GOSSIP, *SUMS) if known.get(f"{what} {g}") is not None
            ]
            for place, graph in enumerate(names):
                cell = known[f"{what} {graph}"]
                every = cell["everything_seen"]["mean"]
                for name, colour, width in (
                    ("certified", "#b9c4d6", 0.8),
                    ("nobody_reacts", "#31507a", 0.35),
                ):
                    axis.barh(-place, cell[name]["mean"] / every, width, color=colour)
            axis.set_yticks([-place for place in range(len(names))], names)
            axis.set(xlim=(0, 1), xlabel="of everything seen")
        axes[0].set_title("one vector each, averaged")
        axes[1].set_title("training: wide is proved, narrow is not")


CHARTS = {"graphs.svg": draw}
