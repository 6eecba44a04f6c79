"""Attacks learned on past runs, to be judged on later ones.

A score is a function of outputs that tells the data sets apart: what is learned is
fixed before the runs that it is tested on, so that a poor one costs power and never
validity. Scores are learned on a half of the past runs and compared on the other half.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from privaudit.testing.coins import Ints, Plan, Worlds
from privaudit.testing.outputs import Floats, Reader, Readings

Score = Callable[[Readings], Floats]

_COLUMNS = 8  # as many of the most telling ones are guessed by alone
_CELLS = 20_000_000  # of the table that is learned from
_TREE_CELLS = 4_000_000
_WHOLE = 1e6  # of whole numbers up to it, as of 0 and 1, sums are looked at
_SEEN = 0.5  # runs that are added to how often an event was seen in each world


@dataclasses.dataclass(frozen=True, slots=True)
class Attack:
    """A score and the plan of guesses by it, both fixed."""

    name: str
    score: Score
    plan: Plan
    runs: int  # that it was learned on
    reader: Reader  # of these

    @classmethod
    def of(
        cls,
        past: Readings,
        worlds: Worlds,
        epsilon: float,
        delta: float,
        *,
        reader: Reader,
        given: bool = False,
    ) -> Attack:
        """The strongest attack against a claim, by past runs.

        ``given``: the only column is a score of the user's, and nothing is learned.
        """
        most = max(1, _CELLS // max(1, past.columns.shape[1]))
        past, worlds = past[-most:], worlds[-most:]
        # Halves by turns: vectorised runs come sorted by data set.
        half = np.arange(len(worlds)) % 2 == 0

        def planned(name: str, score: Score, chosen: Worlds | slice) -> Attack:
            seen = score(past[chosen])
            plan = Plan.of(seen, worlds[chosen], epsilon, delta)
            return cls(name, score, plan, len(worlds), reader)

        everything = slice(None)
        whole = [
            planned("the score" if given else reader.name(at), column(at), everything)
            for at in _telling(past.columns, worlds)
        ]
        scores = () if given else _learned(past[half], worlds[half])
        learned = [planned(name, score, ~half) for name, score in scores]

        def surely(attack: Attack) -> float:  # but for one standard deviation
            runs = np.count_nonzero(~half) if attack in learned else len(worlds)
            return attack.plan.strength - runs**-0.5

        return max([*whole, *learned], key=surely)

    def guessed(self, readings: Readings, worlds: Worlds) -> tuple[Ints, Ints]:
        """Count right guesses, and all guesses, of each weight."""
        return self.plan.guessed(self.score(readings), worlds)


def _learned(past: Readings, worlds: Worlds) -> Iterator[tuple[str, Score]]:
    """The scores by name; none where only one of the worlds was seen."""
    if worlds.all() or not worlds.any():
        return
    if (past.events != past.events[0]).any():
        yield "how often an event was seen", _events(past, worlds)
    columns = past.columns
    if (columns == columns[0]).all():
        return
    yield "bins of each coordinate", _bins(columns, worlds)
    if columns.shape[1] > 1:
        if (np.abs(columns) <= _WHOLE).all() and (columns % 1 == 0).all():
            sums = _bins(columns.cumsum(axis=1), worlds)
            yield "bins of partial sums", lambda readings: sums(_summed(readings))
        yield "a linear classifier", _linear(columns, worlds)
        if importlib.util.find_spec("sklearn"):
            most = max(1, _TREE_CELLS // columns.shape[1])
            yield "boosted trees", _trees(columns[-most:], worlds[-most:])


def column(index: int) -> Score:
    """A coordinate itself."""
    return lambda readings: readings.columns[:, index]


def _events(past: Readings, worlds: Worlds) -> Score:
    """Logarithm of how much more often an event was seen in one world."""
    known, places = np.unique(past.events, return_inverse=True)
    seen = [
        np.bincount(places[worlds == world], minlength=len(known)) + _SEEN
        for world in (False, True)
    ]
    # One more, for events that were not seen.
    ratio = np.append(np.log(seen[1]) - np.log(seen[0]), 0.0)

    def score(readings: Readings) -> Floats:
        place = np.minimum(np.searchsorted(known, readings.events), len(known) - 1)
        return ratio[np.where(known[place] == readings.events, place, len(known))]

    return score


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

    def score(readings: Readings) -> Floats:
        places = _places(readings.columns[:, : len(order)], edges)
        return ratios[places, order].sum(axis=1)

    return score


def _summed(readings: Readings) -> Readings:
    return dataclasses.replace(readings, columns=readings.columns.cumsum(axis=1))


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
    table = table - table.mean(axis=0)
    normal = table.T @ table + np.eye(table.shape[1])
    weights = np.linalg.solve(normal, table.T @ (worlds - worlds.mean()))
    return lambda readings: cut(readings.columns[:, : len(weights)]) @ weights


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
            return trees.decision_function(readings.columns[:, : columns.shape[1]])

    return score


def _telling(columns: Floats, worlds: Worlds) -> list[int]:
    """The coordinates that tell the worlds apart best, each alone, by rank."""
    many = columns.shape[1]
    if many <= _COLUMNS or worlds.all() or not worlds.any():
        return list(range(min(many, _COLUMNS)))
    ranks = columns.argsort(axis=0).argsort(axis=0)
    shift = ranks[worlds].mean(axis=0) - ranks[~worlds].mean(axis=0)
    return np.argsort(-np.abs(shift), kind="stable")[:_COLUMNS].tolist()
