"""Five papers' tables and figures, at their own size where two cores can do it.

Cells whose name begins with "pilot" are a few rounds each, and tell what the rest costs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from reports.papers import bayrooti, deep_q, xu, zhou, zhu
from reports.study import Cell, shrunk

PAPERS = {"zhu": zhu, "bayrooti": bayrooti, "deep-q": deep_q, "zhou": zhou, "xu": xu}


def everything() -> Iterator[Cell]:
    """All pilots, then each paper's cells."""
    papers = PAPERS.values()
    yield from itertools.chain.from_iterable(paper.pilots() for paper in papers)
    yield from itertools.chain.from_iterable(paper.cells() for paper in papers)


def cells(quick: bool) -> Iterator[Cell]:
    """Pilots, and one run of each number of a table or point of a figure."""
    if not quick:
        return everything()
    size = {"data": "digits", "train": 300, "nodes": 3, "rounds": 3}
    size |= {"batch_size": 5.0, "model": "softmax"}
    more = {"training": size, "stages": [[3, 1.0, 1.0], [3, 0.1, 0.1]], "points": 2}
    return _quick(more)


def _quick(more: dict) -> Iterator[Cell]:
    raise NotImplementedError
