"""The chart of the page."""

from __future__ import annotations

import pathlib

from reports import pages
from reports.collaborative.cells import DATA, EPSILONS, POLICIES
from reports.study import Results


def draw(path: pathlib.Path, known: Results) -> None:
    """Accuracy by epsilon, ten nodes, convex, all classes accounted together."""
    found = {}
    for data in DATA:
        lines = found[data] = []
        where = f"{data} | 10 | convex | "
        for policy in POLICIES:
            cells = known.starting(f"{where}{policy} | joint | ")
            if at := sorted(map(float, cells)):
                runs = [cells[str(epsilon)]["accuracy"] for epsilon in at]
                lines.append(pages.Line.of_runs(at, runs, label=policy))
        for policy, ls in (("noiseless", "-"), ("local alone", ":")):
            level = pages.mean(known[f"{where}{policy} | none | 0.0"]["accuracy"])
            style = {"color": "gray", "ls": ls, "marker": "", "label": policy}
            lines.append(pages.Line(EPSILONS, [level] * len(EPSILONS), None, style))
    words = {"xscale": "log", "xlabel": "epsilon", "ylabel": "accuracy, per cent"}
    pages.panels(path, found, rows=2, size=(7, 8), **words)


CHARTS = {"epsilon.svg": draw}
