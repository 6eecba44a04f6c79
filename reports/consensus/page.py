"""The chart of the page."""

from __future__ import annotations

import pathlib

from reports import pages
from reports.consensus.cells import EPSILONS, GRAPHS, TABLE_1
from reports.study import Results


def draw(path: pathlib.Path, known: Results) -> None:
    """Accuracy against connectivity."""
    at, found = [1.0, 0.7, 0.39, 0.06], {}
    for place, epsilon in enumerate(EPSILONS[1:], start=1):
        lines = found[f"epsilon {epsilon:g}"] = []
        for colour, method in enumerate(("DSGD", "DSGT", "DiNNO")):
            style = {"color": f"C{colour}"}
            runs = [known[f"{method} {epsilon} {g} 1.0"]["accuracy"] for g in GRAPHS]
            means = list(map(pages.mean, runs))
            lines.append(pages.Line(at, means, None, {**style, "label": method}))
            theirs = [TABLE_1[graph][method][place][0] for graph in GRAPHS]
            style |= {"ls": ":", "alpha": 0.6, "marker": ""}
            lines.append(pages.Line(at, theirs, None, style))
    words = {"xlabel": "normalised Fiedler value", "ylabel": "accuracy, per cent"}
    titled = "solid: here; dotted: paper"
    pages.panels(path, found, rows=2, size=(7, 6), titled=titled, **words)


CHARTS = {"graphs.svg": draw}
