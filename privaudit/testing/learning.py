"""Scores learned on the first runs, bet on in the later ones.

Each is a function of an output that is large where the second data set is the likelier.
What is learned is fixed before the runs that it scores, so that a poor one costs power
and never validity.
"""

from __future__ import annotations

import collections
import importlib.util
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privaudit.testing.outputs import Floats, Readings

Worlds = NDArray[np.bool_]
Score = Callable[[Readings], Floats]

_COLUMNS = 4  # as many of the most telling ones are bet on alone
_CELLS = 2_000_000  # of a table that a classifier is given


def learned(readings: Readings, worlds: Worlds) -> dict[str, Score]:
    """The scores by name. None, where only one of the worlds was seen."""
    if worlds.all() or not worlds.any():
        return {}
    found: dict[str, Score] = {}
    if len(set(readings.events)) > 1:
        found["how often an event was seen"] = _events(readings, worlds)
    columns = readings.columns
    if not columns.shape[1] or (columns == columns[0]).all():
        return found
    found["bins of each coordinate"] = _bins(columns, worlds)
    if columns.shape[1] > 1:
        found["a linear classifier"] = _linear(columns, worlds)
        if columns.size <= _CELLS and importlib.util.find_spec("sklearn"):
            found["boosted trees"] = _trees(columns, worlds)
    if columns.shape[1] > _COLUMNS:
        for index in _telling(columns, worlds):
            found[f"coordinate {index}"] = column(index)
    return found


def column(index: int) -> Score:
    """A coordinate itself."""
    return lambda readings: readings.columns[:, index]


def _events(readings: Readings, worlds: Worlds) -> Score:
    """Logarithm of how much more often an event was seen in one world."""
    seen = [
        collections.Counter(
            event
            for event, member in zip(readings.events, worlds, strict=True)
            if member == world
        )
        for world in (False, True)
    ]
    ratio = {
        event: float(np.log((seen[1][event] + 0.5) / (seen[0][event] + 0.5)))
        for event in seen[0] | seen[1]
    }
    return lambda readings: np.array([ratio.get(one, 0.0) for one in readings.events])


def _bins(columns: Floats, worlds: Worlds) -> Score:
    """The sum over coordinates of the logarithm of the ratio in a bin."""
    many = 24 if columns.shape[1] == 1 else 10
    shares = np.linspace(0, 1, many + 1)[1:-1]
    edges = np.quantile(columns, shares, axis=0, method="lower")  # (edges, columns)
    places = _places(columns, edges)
    ratios = np.zeros((many, columns.shape[1]))
    for index in range(columns.shape[1]):
        here = [
            np.bincount(places[worlds == world, index], minlength=many) + 1.0
            for world in (False, True)
        ]
        ratios[:, index] = np.log(here[1]) - np.log(here[0])
    order = np.arange(columns.shape[1])
    return lambda readings: ratios[_places(readings.columns, edges), order].sum(axis=1)


def _places(columns: Floats, edges: Floats) -> NDArray[np.int64]:
    """Bin of each value.  # (runs, columns)"""
    found = [
        np.searchsorted(edges[:, index], columns[:, index], "right")
        for index in range(columns.shape[1])
    ]
    return np.stack(found, axis=1)


def _linear(columns: Floats, worlds: Worlds) -> Score:
    """Least squares on columns cut to a few deviations about their medians."""
    middle = np.median(columns, axis=0)
    with np.errstate(over="ignore"):
        spread = np.median(np.abs(columns - middle), axis=0)
    spread = np.where((spread > 0) & np.isfinite(spread), spread, 1.0)

    def cut(values: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.clip((values - middle) / spread, -8, 8)

    table = cut(columns)
    mean = table.mean(axis=0)
    table = table - mean
    normal = table.T @ table + np.eye(table.shape[1])
    weights = np.linalg.solve(normal, table.T @ (worlds - worlds.mean()))
    return lambda readings: cut(readings.columns) @ weights


def _trees(columns: Floats, worlds: Worlds) -> Score:
    """On one thread: such small tables gain nothing of several, and tests that run at
    the same time would wait for each other's."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import ThreadpoolController

    threads = ThreadpoolController()
    trees = HistGradientBoostingClassifier(
        max_iter=30,
        max_leaf_nodes=8,
        min_samples_leaf=20,
        early_stopping=False,
        random_state=0,
    )
    with threads.limit(limits=1):
        trees.fit(columns, worlds)

    def score(readings: Readings) -> Floats:
        with threads.limit(limits=1):
            return trees.decision_function(readings.columns)

    return score


def _telling(columns: Floats, worlds: Worlds) -> list[int]:
    """The coordinates that tell the worlds apart best, each alone, by rank."""
    ranks = columns.argsort(axis=0).argsort(axis=0)
    shift = ranks[worlds].mean(axis=0) - ranks[~worlds].mean(axis=0)
    return np.argsort(-np.abs(shift), kind="stable")[:_COLUMNS].tolist()
