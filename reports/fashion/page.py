"""Values and the chart of the page."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

from privaudit.results import round_up
from reports import pages
from reports.study import Results

BUDGETS = ("1", "4", "8", "none")
ROWS = {
    "central": "all data at one place, DP-SGD",
    "Opacus": "the same, by Opacus in the same time",
    "complete graph": "one class a node, DP-DSGT, complete graph",
    "ring": "one class a node, DP-DSGT, ring",
}


def of(known: Results, row: str, budget: str) -> dict[str, Any] | None:
    """Result of a cell; None if it is none, or was not computed."""
    return known.get(f"{row} epsilon={budget}")


def accuracies(known: Results) -> Iterable[tuple]:
    """In per cent; of nodes their mean, and the worst in brackets."""
    for row, words in ROWS.items():
        texts = []
        for budget in BUDGETS:
            cell = of(known, row, budget)
            text = "" if cell is None else f"{100 * cell['accuracy']:.1f}"
            if cell is not None and row in ("complete graph", "ring"):
                text += f" ({100 * cell['worst']:.1f})"
            texts.append(text)
        yield words, *texts


def costs(known: Results) -> Iterable[tuple]:
    """Cost of each cell, and its noise."""
    for row, words in ROWS.items():
        for budget in BUDGETS:
            cell = of(known, row, budget)
            if cell is None:
                continue
            certified = cell["certified"]
            theirs = cell.get("theirs")
            yield (
                words,
                budget,
                f"{cell['rounds']:,}",
                f"{cell['multiplier']:.3f}" if certified else "",
                round_up(certified) if certified else "",
                f"{theirs:.3f}" if theirs else "",
                f"{cell['cpu']:.0f}",
            )


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    modes = {cell["mode"] for cell in known.values() if "mode" in cell}
    times = [cell["cpu"] for cell in known.values()]
    apart = [
        abs(known[f"central epsilon={b}"]["accuracy"] - cell["accuracy"])
        for b, cell in known.starting("Opacus epsilon=").items()
    ]
    return {
        "behind": f"{100 * max(apart):.1f}",
        "budgets": [f"epsilon {b}" if b != "none" else "no privacy" for b in BUDGETS],
        "accuracies": accuracies(known),
        "costs": costs(known),
        "modes": " and ".join(sorted(modes)),
        "most": f"{max(times):.0f}",
        "minutes": f"{known.cpu / 60:.0f}",
        "cell": lambda row, budget: (
            f"{100 * known[f'{row} epsilon={budget}']['accuracy']:.1f}"
        ),
    }


def accuracy(path: pathlib.Path, known: Results) -> None:
    """Accuracy against the budget."""
    with pages.chart(path, figsize=(7, 4)) as axes:
        for (row, words), style in zip(
            ROWS.items(), ("-", ":", "--", "-."), strict=True
        ):
            cells = [of(known, row, budget) for budget in BUDGETS[:3]]
            points = [100 * cell["accuracy"] for cell in cells if cell is not None]
            axes.plot(
                range(len(points)),
                points,
                style,
                color="C0" if row != "Opacus" else "C1",
                marker="o",
                label=words,
            )
        axes.set_xticks(range(3), [f"epsilon {budget}" for budget in BUDGETS[:3]])
        axes.set_ylabel("accuracy on test data, per cent")
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize="small")


CHARTS = {"accuracy.svg": accuracy}
