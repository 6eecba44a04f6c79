"""Five papers' tables and figures, at their own size where two cores can do it.

Cells whose name begins with "pilot" are some rounds each, and tell what others cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from reports.papers import bayrooti, deep_q, xu, zhou, zhu
from reports.papers.manifest import published
from reports.papers.running import pilot
from reports.study import Cell, shrunk, small

PAPERS: dict[str, Any] = {
    "zhu": zhu,
    "bayrooti": bayrooti,
    "deep-q": deep_q,
    "zhou": zhou,
    "xu": xu,
}


def everything() -> Iterator[Cell]:
    """All pilots, then each paper's cells."""
    for name in PAPERS:
        for settings in published(name).get("pilot", ()):
            of = {key: value for key, value in settings.items() if key != "name"}
            yield Cell(f"pilot {name} {settings['name']}", pilot, of)
    yield from deep_q.pilots()
    yield from itertools.chain.from_iterable(one.cells() for one in PAPERS.values())


def cells(quick: bool) -> Iterator[Cell]:
    """Pilots, and one run of each number of a table or point of a figure."""
    if not quick:
        return everything()
    size: dict[str, Any] = {"train": 300, "nodes": 3, "rounds": 3, "batch_size": 5.0}
    first = list(small(everything(), seeds=1, tested=100, points=2))
    return (shrunk(cell, **_quick(cell, size)) for cell in first)


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
