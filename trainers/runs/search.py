"""Search for settings on data that judge without a price, by the rules of all studies.

- Published settings are always tried, as they stand.
- What is best is never at the edge of what was tried: the search goes on around it
  until all its neighbours were tried, or says that it ran out of tries.
- All that was tried is kept, so that pages can tell how much was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import Training

HELD_OUT = 0.2

Point = dict[str, Any]


def climb(
    score: Callable[[Point], float],
    starts: Sequence[Point],
    lattice: Mapping[str, Sequence[float]],
    *,
    most: int = 30,
) -> list[tuple[Point, float]]:
    """Try the starts, then the neighbours of the best, until it has none left.

    A neighbour has one option of ``lattice`` multiplied by one of its factors; options
    that a point lacks, or that are no numbers, stay. Equal points are tried once, and
    after ``most`` tries none but starts. Points come with their scores, the higher the
    better, in the order of trying.

    >>> tried = climb(lambda p: -abs(p["x"] - 9), [{"x": 1}], {"x": (1 / 3, 3)})
    >>> [round(point["x"], 2) for point, _ in tried]
    [1, 0.33, 3, 9, 27]
    """
    if not starts:
        raise ValueError("climb needs at least one start")
    tried: dict[tuple, tuple[Point, float]] = {}

    def attempt(point: Point) -> None:
        tried.setdefault(_key(point), (point, score(point)))

    for start in starts:
        if _key(start) not in tried:
            attempt(start)
    while left := untried(list(tried.values()), lattice):
        for point in left:
            if len(tried) >= most:
                return list(tried.values())
            attempt(point)
    return list(tried.values())


def untried(
    tried: Sequence[tuple[Point, float]], lattice: Mapping[str, Sequence[float]]
) -> list[Point]:
    """Neighbours of the best point that were not tried; none: it is not at an edge."""
    best, _ = chosen(tried)
    known = {_key(point) for point, _ in tried}
    around = (
        {**best, option: best[option] * factor}
        for option, factors in lattice.items()
        if isinstance(best.get(option), (int, float))
        for factor in factors
    )
    return [point for point in around if _key(point) not in known]


def chosen(tried: Sequence[tuple[Point, float]]) -> tuple[Point, float]:
    """The best, the first of equal ones."""
    return max(tried, key=lambda one: one[1])


def _key(point: Point) -> tuple:
    """Equal for points that differ by the rounding of factors alone."""
    return tuple(
        (name, float(f"{value:.6g}") if isinstance(value, (int, float)) else value)
        for name, value in sorted(point.items())
    )


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[Point]:
    """All points of a grid of values by option.

    >>> combinations({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    product = itertools.product(*grid.values())
    return [dict(zip(grid, values, strict=True)) for values in product]


def held_out_accuracy(
    training: Training, noise_multiplier: float, *, seed: int = 0
) -> float:
    """Accuracy on a fifth of the training data, held out; 0 if it diverges.

    What a search learns so from private data is in *no* ledger of the run that follows:
    search on public data, or have it charged, by `privaudit.tune`.
    """
    problem = Problem.of(training, seed=seed, held_out=HELD_OUT)
    try:
        models, _ = problem.train(noise_multiplier, Streams(seed))
    except ValueError as error:
        if "not finite" not in str(error):
            raise
        return 0.0
    return float(accuracy(problem.gradients(), models, problem.test).mean())
