"""Many steps of one kind, of different shifts and rates."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting.pld.cells import Noise, Scheme, Step
from privaudit.accounting.pld.line import Floats

Indices = NDArray[np.int64]

_TYPICAL = (16, 3)  # shifts, and rates of each, that stand for all
_MOST_TYPICAL = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """Steps alike but for ``shift``, ``rate`` and how often they were taken."""

    noise: Noise
    scheme: Scheme
    shift: Floats
    rate: Floats
    count: Floats
    # whether they are steps that were taken; else such as dominate these, of which from
    # below nothing is known
    known: bool = True

    @classmethod
    def of(
        cls,
        kind: tuple[Noise, Scheme, bool],
        shift: Floats,
        rate: Floats,
        count: Floats,
    ) -> Family:
        """Equal steps merged, in a fixed order, so that order does not matter."""
        noise, scheme, known = kind
        order = np.lexsort((rate, shift))
        shift, rate = shift[order], rate[order]
        new = np.append(True, (np.diff(shift) > 0) | (np.diff(rate) != 0))
        merged = np.add.reduceat(count[order], np.flatnonzero(new))
        return cls(noise, scheme, shift[new], rate[new], merged, known)

    @property
    def steps(self) -> float:
        return float(self.count.sum())

    @property
    def is_symmetric(self) -> bool:
        """True if both directions are the same pair."""
        return self.scheme != "poisson" or bool((self.rate == 1).all())

    def step(self, shift: float, rate: float) -> Step:
        return Step(self.noise, self.scheme, shift, rate)

    def tau(self, shift: Floats) -> Floats:
        """Total variation of the unsampled pair, less a constant."""
        if self.noise == "gaussian":
            return -2 * special.ndtr(-shift / 2)
        return -np.exp(-shift / 2)

    def typical(self) -> tuple[list[Step], Floats]:
        """About fifty steps in the place of all, with counts: loudest and frequent."""
        index = np.arange(self.shift.size)
        if self.shift.size > _MOST_TYPICAL:
            loud = self.rate**2 * np.expm1(np.minimum(self.shift**2, 30.0))
            weight = self.count / self.steps
            weight = weight + self.count * loud / float(self.count @ loud)
            # Of the largest shifts few are enough for large moments: a decade of them
            # weighs as much as the next.
            order = np.argsort(-self.shift, kind="stable")
            ranks = np.log1p(np.cumsum(self.count[order]))
            weight[order] += np.diff(ranks, prepend=0.0) / ranks[-1]
            shifts = _shares(self.shift, weight, np.zeros_like(index), _TYPICAL[0])
            rates = _shares(self.rate, weight, shifts, _TYPICAL[1])
            index = shifts * _TYPICAL[1] + rates
            index = np.unique(index, return_inverse=True)[1]
        counts = np.bincount(index, weights=self.count).astype(float)
        shift = np.bincount(index, weights=self.count * self.shift**2) / counts
        rate = np.bincount(index, weights=self.count * self.rate) / counts
        pairs = zip(shift.tolist(), rate.tolist(), strict=True)
        return [self.step(s**0.5, min(r, 1.0)) for s, r in pairs], counts


def _shares(values: Floats, weights: Floats, within: Indices, parts: int) -> Indices:
    """Index of the equally heavy part of ``parts`` for each value, ``within`` alike."""
    order = np.lexsort((values, within))
    group = np.unique(within[order], return_inverse=True)[1]
    done = np.cumsum(weights[order]) - 0.5 * weights[order]
    total = np.bincount(group, weights=weights[order])
    done -= (np.cumsum(total) - total)[group]
    found = np.empty(values.size, np.int64)
    found[order] = np.clip(parts * done / total[group], 0, parts - 1)
    return found
