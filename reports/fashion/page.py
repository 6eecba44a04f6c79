"""The chart of the page."""

from __future__ import annotations

import pathlib

from reports import pages, told
from reports.study import Results

ROWS = told(__file__)["page"]["ROWS"]


def accuracy(path: pathlib.Path, known: Results) -> None:
    """Accuracy against the budget."""
    lines = []
    for (row, label), ls in zip(ROWS.items(), ("-", ":", "--", "-."), strict=True):
        found = known.starting(f"{row} epsilon=")
        style = {"label": label, "ls": ls, "color": "C1" if ls == ":" else "C0"}
        y = [100 * found[budget]["accuracy"] for budget in "148" if budget in found]
        lines.append(pages.Line(range(len(y)), y, None, style))
    ticks = {"xticks": range(3), "xticklabels": ("1", "4", "8"), "xlabel": "epsilon"}
    words = {"ylabel": "accuracy on test data, per cent", **ticks}
    pages.panels(path, {"": lines}, size=(7, 4), **words)


CHARTS = {"accuracy.svg": accuracy}
