"""Costs of single things, fitted to measured rows, with what is not known of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import nnls

Row = dict[str, float]
_DRAWS = 500  # of rows with repetition


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """A median and the middle 90 per cent of what resampled rows give."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Cost:
        """Cost multiplied by a factor."""
        return Cost(self.value * factor, self.low * factor, self.high * factor)

    def plus(self, other: Cost) -> Cost:
        """Both; as if all that is wrong with one were wrong with the other."""
        return Cost(
            self.value + other.value, self.low + other.low, self.high + other.high
        )

    def widened(self, factor: float) -> Cost:
        """With an upper end so many times as far, for what a fit cannot know."""
        return Cost(self.value, self.low, max(self.high, self.value * factor))


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """A sum of costs, each >= 0, times what a row has of them; relative least squares.

    ``costs`` is by name.
    """

    costs: dict[str, Cost]
    terms: Callable[[Row], dict[str, float]]

    def predicted(self, row: Row) -> float:
        """Cost of a row by the fit."""
        return sum(
            self.costs[name].value * amount for name, amount in self.terms(row).items()
        )

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        seen: Callable[[Row], float],
        terms: Callable[[Row], dict[str, float]],
    ) -> Fit:
        """From rows, what was seen of them, and how much they have of each cost."""
        names = list(terms(rows[0]))
        amounts = np.array([[terms(row)[name] for name in names] for row in rows])
        values = np.array([seen(row) for row in rows])
        scaled = amounts / values[:, None]
        # Columns of about one size: nnls is not indifferent to units.
        size = np.maximum(scaled.max(0), np.finfo(float).tiny)
        random = np.random.default_rng(0)

        def solve(chosen: np.ndarray) -> np.ndarray:
            return nnls(scaled[chosen] / size, np.ones(len(chosen)))[0] / size

        draws = np.array(
            [solve(random.integers(len(rows), size=len(rows))) for _ in range(_DRAWS)]
        )
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        best = solve(np.arange(len(rows)))
        return cls(
            {
                name: Cost(*map(float, each))
                for name, *each in zip(names, best, low, high, strict=True)
            },
            terms,
        )


def rate(rows: Sequence[Row], seen: Callable[[Row], float]) -> Cost:
    """The median over rows, and between which nine in ten of them are."""
    values = [seen(row) for row in rows]
    return Cost(*(float(np.quantile(values, q)) for q in (0.5, 0.05, 0.95)))
