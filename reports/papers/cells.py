"""Five papers' tables and figures, at their own size where two cores can do it.

Cells whose name begins with "pilot" are some rounds each, and tell what others cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reports import published
from reports.asynchronous import cells as asynchronous  # noqa: F401  # of settings
from reports.audits import cells as audits  # noqa: F401  # the same
from reports.collaborative import cells as collaborative  # noqa: F401  # the same
from reports.papers import bayrooti, deep_q, xu, zhou, zhu
from reports.papers.running import pilot
from reports.study import Cell, Study, shrunk, small

PAPERS: dict[str, Any] = {
    "zhu": zhu,
    "bayrooti": bayrooti,
    "deep-q": deep_q,
    "zhou": zhou,
    "xu": xu,
}


def cells() -> Iterator[Cell]:
    """All pilots, then each paper's cells that are not declared."""
    for name in PAPERS:
        for settings in published(name).get("pilot", ()):
            of = {key: value for key, value in settings.items() if key != "name"}
            yield Cell(f"pilot {name} {settings['name']}", pilot, of)
    for paper in (zhu, bayrooti, zhou):
        yield from paper.cells()


def quick() -> Iterator[Cell]:
    """Pilots, and one run of each number of a table or point of a figure."""
    size: dict[str, Any] = {"train": 300, "nodes": 3, "rounds": 3, "batch_size": 5.0}
    for cell in small(Study("papers").cells().values(), seeds=1, tested=100, points=2):
        yield shrunk(cell, **_quick(cell, size))


def _quick(cell: Cell, size: dict[str, Any]) -> dict[str, Any]:
    """Settings of a cell that ends in a second."""
    linear = cell.settings.get("training", {}).get("model") == "one-vs-all"
    other = {"data": "digits", "model": "tanh-mlp", "hidden": 4}
    size = size | ({"data": "digits-pca"} if linear else other)
    return {
        "training": size,
        "values": size,
        "stages": [[5, 1.0, 1.0], [5, 0.1, 0.1]],
        "begin": [{"step_size": 1.0}],
    }
