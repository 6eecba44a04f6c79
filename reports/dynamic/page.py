"""The chart of the page, and what one method gains over another."""

from __future__ import annotations

import math
import pathlib
import statistics

from reports import pages
from reports.dynamic.cells import EPSILONS, METHODS, NAMES, key_of
from reports.papers.manifest import published
from reports.study import Results


def gain(known: Results, how: str, method: str, epsilon: float) -> tuple[float, float]:
    """Gain over Const-D2P in points, and its standard error, seed by seed.

    Equal seeds have equal starts and draws.
    """
    one, other = (
        known[key_of(how, name, epsilon)]["accuracy"] for name in (method, "const-d2p")
    )
    points = [100 * (a - b) for a, b in zip(one, other, strict=True)]
    error = statistics.stdev(points) / math.sqrt(len(points))
    return statistics.mean(points), error


def draw(path: pathlib.Path, known: Results) -> None:
    """Accuracy by method and epsilon: by what these runs really are, and as printed."""
    titles = {"certified": "equal certified epsilon", "paper": "the paper's noise"}
    found: dict[str, list[pages.Line]] = {}
    for how, title in titles.items():
        lines = found[title] = []
        for method in METHODS:
            cells = [known[key_of(how, method, epsilon)] for epsilon in EPSILONS]
            runs = [cell["accuracy"] for cell in cells]
            spent = [cell["certified"] for cell in cells]
            lines.append(pages.Line.of_runs(spent, runs, label=NAMES[method]))
    printed = published("zhu")["table_2"]
    found["the paper's table, claimed epsilon"] = [
        pages.Line(EPSILONS, [printed[method][str(e)] for e in EPSILONS])
        for method in METHODS
    ]
    words = {"xlabel": "epsilon", "ylabel": "accuracy, per cent", "xscale": "log"}
    pages.panels(path, found, rows=3, size=(6, 9), **words)


CHARTS = {"accuracy.svg": draw}
