"""The chart of the page."""

from __future__ import annotations

import itertools
import pathlib

from reports import pages
from reports.pushsum.cells import GRAPHS
from reports.study import Results


def draw(path: pathlib.Path, known: Results) -> None:
    """One run of each estimate, with the real sensitivity of that run."""
    found = {}
    for graph, layers in itertools.product(GRAPHS, (1, 2)):
        lines = found[f"{graph}, {layers} shared"] = []
        estimates = ("published", "certified", "data-independent")
        for colour, name in enumerate(estimates):
            cell = known[f"figure 2 {graph} {layers} {name}"]
            for what, style in (("used", {"label": name}), ("real", {"ls": ":"})):
                style |= {"color": f"C{colour}", "marker": ""}
                y = cell[what]
                lines.append(pages.Line(range(len(y)), y, None, style))
    words = {"yscale": "log", "xlabel": "round", "ylabel": "sensitivity"}
    titled = "estimate; dotted: real, in that run"
    pages.panels(path, found, rows=2, size=(8, 6.5), titled=titled, **words)


CHARTS = {"sensitivity.svg": draw}
