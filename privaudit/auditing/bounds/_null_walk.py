"""Simulated rank walks under the null by epsilon: steps 3 and 5 of ``rank_walk.md``."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privaudit.auditing.bounds.binomial import mass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGEST = 64.0  # beyond it no number of runs decides anything; e^64 is a finite double
_TOLERANCE = 1e-4  # of the bisection, in epsilon; the safe end is returned


def reaches(top: Ints, bottom: Ints, limits: Ints) -> NDArray[np.bool_]:
    """Mask of walks with so many right guesses, (walks, lengths), at some limit."""
    either = (top >= limits[0]) | (bottom >= limits[1]) | (top + bottom >= limits[2])
    return either.any(axis=1)


@dataclasses.dataclass(frozen=True, slots=True)
class NullWalk:
    """Walks under the null by epsilon, by common random numbers (step 5)."""

    leaked: Ints  # sure leaks within each prefix, (2, simulations, lengths)
    # drive the right guesses among the new positions of a prefix that hold no leak in
    # any simulation, (2, simulations, lengths)
    uniforms: Floats
    # one uniform for each further position; 2 where a leak takes it, (2, simulations,
    # positions) for each prefix
    extras: tuple[Floats | None, ...]
    # how many positions ``uniforms`` stands for, one number a length
    common: tuple[int, ...]

    @classmethod
    def draw(
        cls,
        random: np.random.Generator,
        simulations: int,
        lengths: Ints,
        runs: int,
        delta: float,
    ) -> NullWalk:
        """Random numbers for ``simulations`` walks over ``runs`` runs."""
        # A run leaks "member" or "non-member", delta / 2 each: never both.
        ends = random.multinomial(
            runs, [delta / 2, delta / 2, 1 - delta], size=simulations
        )[:, :2].T
        leaked = np.minimum(ends[:, :, None], lengths)
        fresh = np.diff(lengths - leaked, axis=2, prepend=0)
        common = fresh.min(axis=(0, 1))
        extras: list[Floats | None] = []
        for column in range(len(lengths)):
            further = fresh[:, :, column] - common[column]
            width = further.max()
            if width:
                draws = random.random((2, simulations, width))
                extras.append(
                    np.where(np.arange(width) < further[:, :, None], draws, 2.0)
                )
            else:
                extras.append(None)
        return cls(
            leaked=leaked,
            uniforms=random.random((2, simulations, len(lengths))),
            extras=tuple(extras),
            common=tuple(common.tolist()),
        )

    def only(self, walks: NDArray[np.bool_]) -> NullWalk:
        """Some of the walks."""
        return NullWalk(
            leaked=self.leaked[:, walks],
            uniforms=self.uniforms[:, walks],
            extras=tuple(
                None if extra is None else extra[:, walks] for extra in self.extras
            ),
            common=self.common,
        )

    def crosses(self, epsilon: float, limits: Ints) -> NDArray[np.bool_]:
        """Mask of walks that reach one of ``limits``, and do at larger epsilon."""
        right = float(special.expit(epsilon))
        steps = np.empty(self.uniforms.shape, dtype=np.int64)
        for column, (extra, common) in enumerate(
            zip(self.extras, self.common, strict=True)
        ):
            steps[:, :, column] = _quantile(self.uniforms[:, :, column], common, right)
            if extra is not None:
                steps[:, :, column] += np.count_nonzero(extra < right, axis=2)
        top, bottom = self.leaked + np.cumsum(steps, axis=2)
        return reaches(top, bottom, limits)

    def largest_rejected(self, limits: Ints, allowed: int) -> float:
        """Largest epsilon at which at most ``allowed`` walks cross; 0 if none is."""
        walks = self
        crossing = walks.crosses(0.0, limits)
        if np.count_nonzero(crossing) > allowed:
            return 0.0
        # Of a rejected epsilon the crossing walks, of another the rest, are settled.
        low, high = 0.0, 1.0
        while True:
            allowed -= int(np.count_nonzero(crossing))
            walks = walks.only(~crossing)
            crossing = walks.crosses(high, limits)
            if np.count_nonzero(crossing) > allowed:
                break
            low, high = high, 2 * high
            if low >= LARGEST:
                return low
        walks = walks.only(crossing)
        while high - low > _TOLERANCE:
            middle = (low + high) / 2
            crossing = walks.crosses(middle, limits)
            if np.count_nonzero(crossing) <= allowed:
                low, walks = middle, walks.only(~crossing)
                allowed -= int(np.count_nonzero(crossing))
            else:
                high, walks = middle, walks.only(crossing)
        return low


def _quantile(uniform: Floats, trials: int, right: float) -> Ints:
    """Binomial quantiles at ``uniform``; pointwise growing with ``right``."""
    if trials == 0:
        return np.zeros(uniform.shape, dtype=np.int64)
    # Twelve standard deviations and some for skewness: what is cut off is far below
    # the spacing of the uniforms.
    width = 12 * math.sqrt(trials * right * (1 - right)) + 40
    first = max(0, math.floor(trials * right - width))
    last = min(trials, math.ceil(trials * right + width))
    hits = np.arange(first, last + 1)
    below = np.cumsum(mass(hits, trials, right))
    return np.minimum(first + np.searchsorted(below, uniform), last)
