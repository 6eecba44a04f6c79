"""Search for settings by the rules that every study keeps.

- Published settings are always tried, as they stand.
- What is best is never at the edge of what was tried: the search goes on around it
  until all its neighbours were tried, or says that it ran out of tries.
- All that was tried is kept, so that pages can tell how much was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
    that a point lacks, or that are no numbers, stay. Equal points are tried once.

    Parameters
    ----------
    score
        Of a point, the higher the better.
    starts
        Points by option, such as the published settings; all are tried.
    lattice
        Factors by option, such as ``{"step_size": (1 / 3, 3)}``.
    most
        Tries, of which there are at least as many as starts.

    Returns
    -------
    list
        Points with their scores, in the order of trying.

    Examples
    --------
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
