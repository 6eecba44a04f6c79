"""The whole ranking against the curve of a family of mechanisms, by weighted ranks.

Its middle says little of a mechanism whose losses are rare and large. So each stretch
of ranks, from both ends, is weighted by how much more often it is right if the noise is
a little less than what is tested; weights do not increase inwards. Noises are tested
from the largest down, until one is not refuted. ``ranks.md`` beside this file has the
proof; the numbers of its steps are used below.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from privaudit.auditing.bounds._ranks import chance_of_top
from privaudit.auditing.bounds.contract import Found, generator
from privaudit.auditing.bounds.top_half import (
    NoiseFamily,
    OfFamily,
    evidence_of_top,
    least_noise_refuted,
    ranked,
)
from privaudit.auditing.scores import Scores
from privaudit.task_settings import AtLeastOne, Inside

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST = 100_000  # simulations, however small alpha is
# A record that is drawn seldom, but then always, is seen at the very top alone, where
# weights that look for less noise hardly look.
_TOPS, _RATIO, _LEAST_TOP = 8, 4, 8  # parts, each a fourth of the last, 8 at least
_STRETCHES = 20  # of ranks, from either end
_CELL = 1.2  # ratio of the noises at both ends of a cell, which has weights of its own
_LESS = 1.2  # noise tested over the noise that the weights look for
_LEVELS = (0.5, 0.9)  # of alpha, that a pilot expects where it says to test
_PILOT, _STEPS = 300, 2  # simulations of the pilot, and its steps


@dataclasses.dataclass(frozen=True, slots=True)
class RanksOfFamily(OfFamily):
    """Epsilon, within a family, of the least noise that is refuted with all above it.

    What is tested is the order of the two worlds given how many there are of each.
    ``reversed_share``: of alpha, for the ranking read backwards; ``top_share``: of the
    rest, for upper parts alone, which tell where to begin. The level is exact for
    any number of ``simulations``: the observed ranking is one of them.
    """

    name: ClassVar[str] = "ranks-of-family"
    source: ClassVar[str] = (
        "privaudit, ranks.md; on Blackwell, Ann. Math. Statist. 24 (1953), and Dong, "
        "Roth and Su, arXiv:1905.02383"
    )

    reversed_share: Inside = 0.05
    top_share: Inside = 0.02
    simulations: AtLeastOne = 999

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        order, right, flipped = ranked(scores, generator(seed, self.name))
        alpha *= self.reversed_share if flipped else 1 - self.reversed_share
        evidence = evidence_of_top(scores, order, right, flipped)
        sizes = scores.member_runs, scores.non_member_runs
        family = self.family
        tops = _tops(scores.member_runs)
        found = np.cumsum(scores.member[order])[tops - 1].tolist()
        level = self.top_share * alpha / len(tops)

        def refuted(noise: float) -> bool:
            tpr_at = family.pair(noise).tpr_at
            return any(
                chance_of_top(tpr_at, right, *sizes, length) <= level
                for right, length in zip(found, tops.tolist(), strict=True)
            )

        start = least_noise_refuted(refuted, family.least_noise, family.most_noise)
        test = _Test.of(self, scores.member[order], (1 - self.top_share) * alpha, seed)
        noise = test.least_refuted(math.inf if start is None else start)
        if noise == math.inf:
            return 0.0, evidence
        # The refuted end has more noise than any that is not: its epsilon is lower.
        return family.epsilon_down(noise, delta), evidence


@dataclasses.dataclass(frozen=True, slots=True)
class _Test:
    """The test of one noise after the other (step 4)."""

    family: NoiseFamily
    alpha: float
    simulations: int
    seed: int
    members: int
    others: int
    cuts: Ints  # ranks at which one stretch ends and the next begins
    top: int  # how many of the stretches are at the top, and count members
    seen: Floats  # right guesses in each stretch

    @classmethod
    def of(
        cls, of: RanksOfFamily, worlds: NDArray[np.bool_], alpha: float, seed: int
    ) -> _Test:
        """Build the test of ``worlds``, sorted by falling scores."""
        members = int(np.count_nonzero(worlds))
        others = len(worlds) - members
        top, bottom = (_ends(count) for count in (members, others))
        cuts = np.unique(np.concatenate([top, len(worlds) - bottom]))
        cuts = cuts[(cuts > 0) & (cuts < len(worlds))]
        counted = int(np.searchsorted(cuts, members, "right"))
        found = np.cumsum(worlds)[cuts - 1]
        return cls(
            family=of.family,
            alpha=alpha,
            simulations=max(of.simulations, min(_MOST, math.ceil(20 / alpha) - 1)),
            seed=seed,
            members=members,
            others=others,
            cuts=cuts,
            top=counted,
            seen=_right(found, cuts, counted, members, others),
        )

    def least_refuted(self, noise: float) -> float:
        """The least noise that is refuted, ``noise`` if none below it is."""
        least, most = self.family.least_noise, self.family.most_noise
        count = math.ceil(math.log(most / least) / math.log(_CELL))
        ends = np.geomspace(most, least, count + 1).tolist()
        for number, low in enumerate(ends):
            if low >= noise:
                continue
            high = min(noise, ends[number - 1]) if number else noise
            weights = self._weights(low)
            for aim in self._aims(weights, low, high, number):
                if not self._refuted(weights, aim, number):
                    return noise
                noise = aim
            if noise > low:
                break
        return noise

    def _aims(
        self, weights: Floats, low: float, high: float, number: int
    ) -> list[float]:
        """Points of a cell to test, falling, by simulations that decide only this."""
        wanted = -special.ndtri(np.array(_LEVELS) * self.alpha)  # falling

        def beyond(noise: float) -> float:
            """Deviations by which what is seen exceeds the mean."""
            null = self._null(weights, noise, number, 0, _PILOT)
            deviation = max(float(null.std()), 1e-9 * float(weights.max()))
            return (float(self.seen @ weights) - float(null.mean())) / deviation

        at_low = beyond(low)
        if at_low >= wanted[0]:
            return [low]
        if high == math.inf or (at_high := beyond(high)) <= wanted[-1]:
            return []
        slope = (at_high - at_low) / math.log(high / low)
        if slope <= 0:  # by chance: what is seen is as likely at either end
            return []
        near, found = high, at_high
        middle = float(wanted[len(wanted) // 2])
        for _ in range(_STEPS):
            near = min(max(near * math.exp((middle - found) / slope), low), high)
            found = beyond(near)
        aims = np.clip(near * np.exp((wanted - found) / slope), low, None)
        return np.unique(aims[aims < high])[::-1].tolist()

    def _weights(self, noise: float) -> Floats:
        """Log odds of a right guess if there is less noise, over those at ``noise``."""
        less = max(noise / _LESS, self.family.least_noise)
        sizes = np.diff(self.cuts, prepend=0, append=self.members + self.others)
        odds = []
        for one in (less, noise):
            found = self.family.pair(one).expected(self.members, self.others, self.cuts)
            right = _right(found, self.cuts, self.top, self.members, self.others)
            odds.append(special.logit(np.clip(right / sizes, 1e-3, 1 - 1e-3)))
        weights = np.maximum(odds[0] - odds[1], 0.0)
        for end, falling in (
            (slice(None, self.top), True),
            (slice(self.top, None), False),
        ):
            weights[end] = optimize.isotonic_regression(
                weights[end], weights=sizes[end], increasing=not falling
            ).x
        return weights if weights.any() else np.ones(len(weights))

    def _refuted(self, weights: Floats, noise: float, number: int) -> bool:
        null = self._null(weights, noise, number, 1, self.simulations)
        # Sums of equal counts must be equal, in whatever order they are added.
        seen = float(self.seen @ weights) - 1e-9 * float(weights.max())
        reached = 1 + int(np.count_nonzero(null >= seen))
        return reached <= self.alpha * (self.simulations + 1)

    def _null(
        self, weights: Floats, noise: float, number: int, purpose: int, simulations: int
    ) -> Floats:
        """The sum of weights under the pair of ``noise``.  # (simulations,)"""
        random = generator(self.seed, f"ranks {number} {purpose} {noise!r}")
        drawn = self.family.pair(noise).draw(
            random, simulations, self.members, self.others, self.cuts
        )
        return _right(drawn, self.cuts, self.top, self.members, self.others) @ weights


def _ends(count: int) -> Ints:
    """Ends of stretches, counted from one end of the ranking."""
    return np.unique(
        np.round(np.geomspace(min(3, count), count, _STRETCHES)).astype(np.int64)
    )


def _tops(members: int) -> Ints:
    """Lengths of the first parts that are tested by themselves; the last has all."""
    lengths = members // _RATIO ** np.arange(_TOPS)
    return np.unique(lengths[(lengths >= _LEAST_TOP) | (lengths == members)])


def _right(found: NDArray, cuts: Ints, top: int, members: int, others: int) -> Floats:
    """Right guesses in each stretch, from the members up to each cut."""
    ends = np.append(cuts, members + others)
    zero = np.zeros((*found.shape[:-1], 1))
    whole = np.concatenate([zero, found, zero + members], axis=-1)
    inside = np.diff(whole, axis=-1)
    sizes = np.diff(ends, prepend=0)
    return np.where(np.arange(len(ends)) < top, inside, sizes - inside)
