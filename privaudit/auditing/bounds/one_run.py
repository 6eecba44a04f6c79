"""Estimators from the canaries' scores of one run, for any mechanism.

The scores are then of the canaries of one run, and "runs" below and in a ``Scores`` are
canaries. They are not independent, so that the estimators for many runs do not hold;
these do, and hold for many independent runs too.

The k highest scores are called member, the k lowest not, and the rest is passed over;
or, where the theorems' guesses are spent on one side, which sampling makes the better
one, the 2 k highest are called member and nothing else is said.
Each theorem bounds, for a number of guesses fixed beforehand, P(W >= v) for the number
W of right ones under a hypothesis that is weaker the larger its parameter (epsilon, or
mu). For each v any parameter L(v) may be returned at which that bound is at most alpha:
if the true parameter is t, the result exceeds t only if W >= v0, the least v with
L(v) > t, and the chance of that is at most alpha by the bound for v0 at L(v0), which is
a true hypothesis too. A few k are tried, each at its part of alpha.

The relation: the theorems read coins S in {0, 1}^m and an output whose law, given S,
is (epsilon, delta)- or f-close to that given S with one coin turned, and nothing else
of the data. So they hold under add-or-remove-one where a coin decides whether its
canary is there, and under replace-one where it decides which of two records is. A coin
of the first kind shows nothing of a replace-one guarantee: the data sets that it
decides between differ in size, and are no neighbours.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from scipy import special

from privaudit.accounting.pld.closed_form import epsilon_down
from privaudit.auditing.bounds.binomial import mass
from privaudit.auditing.bounds.contract import Estimator, Evidence, Found, generator
from privaudit.auditing.scores import Design, Scores
from privaudit.files.arguments import Checked
from privaudit.task_settings import Inside

_TOLERANCE = 1e-4  # of the search; the refuted end is returned
_LARGEST = 64.0


@dataclasses.dataclass(frozen=True, slots=True)
class Guesses:
    """So many guesses made, so many of them right, to be tested at a level."""

    made: int
    right: int
    level: float

    def __str__(self) -> str:
        return f"{self.right:,} of {self.made:,} guesses right in one run"


@dataclasses.dataclass(frozen=True, slots=True)
class _OneRun(Estimator):
    """The search that both theorems share."""

    designs: ClassVar[tuple[Design, ...]] = ("coin-flip", "one-run")

    # of all canaries: how many are guessed at, high and low together, in (0, 1]
    shares: tuple[float, ...] = (1.0, 0.4, 0.15, 0.05)
    # share of alpha, spent on low scores that say "member"
    reversed_share: Inside = 0.1
    # share of alpha for each of ``shares``; equal ones if none are given
    weights: tuple[float, ...] = ()
    # how many of ``shares``, from the first on, are guesses "member" alone
    one_sided: int = 0

    def __post_init__(self) -> None:
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise ValueError(f"shares must be in (0, 1], got {self.shares}")
        Checked.__post_init__(self)
        if self.weights and (
            len(self.weights) != len(self.shares)
            or min(self.weights) <= 0
            or math.fsum(self.weights) > 1 + 1e-12
        ):
            raise ValueError(
                "weights must be one for each share, positive and at most 1 together, "
                f"got {self.weights}"
            )
        if not 0 <= self.one_sided <= len(self.shares):
            raise ValueError(
                f"one_sided counts some of {len(self.shares)} shares, got "
                f"{self.one_sided}"
            )

    @abc.abstractmethod
    def bound(
        self, canaries: int, guesses: int, right: int, delta: float, alpha: float
    ) -> float:
        """Epsilon from ``right`` of ``guesses``, at level ``alpha``; 0 if none."""

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        canaries = len(scores)
        best, note = 0.0, "no more right guesses than by chance"
        for one in self.guesses(scores, alpha, seed):
            epsilon = self.bound(canaries, one.made, one.right, delta, one.level)
            if epsilon > best:
                best, note = epsilon, str(one)
        return best, Evidence(testing_runs=canaries, note=note)

    def guesses(self, scores: Scores, alpha: float, seed: int) -> list[Guesses]:
        """Right guesses, by share and reading; levels are ``alpha`` together."""
        canaries = len(scores)
        ties = generator(seed, self.name).random(canaries)
        ranked = scores.member[np.lexsort((ties, -scores.score))]
        weights = self.weights or (1 / len(self.shares),) * len(self.shares)
        found = []
        for place, (share, weight) in enumerate(zip(self.shares, weights, strict=True)):
            each = min(max(1, math.floor(share * canaries / 2)), canaries // 2)
            hits = int(np.count_nonzero(ranked[:each]))
            hits += int(np.count_nonzero(~ranked[canaries - each :]))
            turned = 2 * each - hits
            if place < self.one_sided:
                hits = int(np.count_nonzero(ranked[: 2 * each]))
                turned = int(np.count_nonzero(ranked[canaries - 2 * each :]))
            for right, part in (
                (hits, 1 - self.reversed_share),
                (turned, self.reversed_share),
            ):
                found.append(Guesses(2 * each, right, part * weight * alpha))
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class OneRun(_OneRun):
    """Any mechanism: Theorem 5.2 of Steinke, Nasr and Jagielski 2023."""

    name: ClassVar[str] = "one-run"
    source: ClassVar[str] = "Steinke, Nasr and Jagielski, arXiv:2305.08846, Theorem 5.2"

    def bound(
        self, canaries: int, guesses: int, right: int, delta: float, alpha: float
    ) -> float:
        return _largest(
            lambda epsilon: p_value(canaries, guesses, right, epsilon, delta) <= alpha
        )


@dataclasses.dataclass(frozen=True, slots=True)
class OneRunGaussian(_OneRun):
    """Gaussian DP: the test of Mahloujifar, Melis and Chaudhuri 2024."""

    name: ClassVar[str] = "one-run-gaussian"
    source: ClassVar[str] = "Mahloujifar, Melis and Chaudhuri, arXiv:2410.22235"

    @property
    def valid_for(self) -> str:
        """Mechanisms that are mu-GDP for some mu."""
        return "mu-Gaussian DP"

    def bound(
        self, canaries: int, guesses: int, right: int, delta: float, alpha: float
    ) -> float:
        mu = _largest(lambda mu: gaussian_refuted(canaries, guesses, right, mu, alpha))
        return epsilon_down(mu, delta)


def p_value(
    canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> float:
    """Bound of P(W >= right) under (epsilon, delta)-DP (Theorem 5.2).

    f(v) + 2 m delta max over i >= 1 of (f(v - i) - f(v)) / i for m canaries, where f is
    the upper tail of Binomial(guesses, e^epsilon / (1 + e^epsilon)).
    """
    if right <= 0:
        return 1.0
    chance = special.expit(epsilon)
    tail = float(special.bdtrc(right - 1.0, guesses, chance))
    if delta == 0 or tail >= 1:
        return tail
    # f(v - i) - f(v) over i falls once the mass at v - i is below the mean of those
    # before it; masses fall below the mode.
    mode = math.floor((guesses + 1) * chance)
    last = max(1, min(right, right - mode + 12 * math.isqrt(guesses) + 12))
    hits = right - np.arange(1, last + 1)
    sums = np.cumsum(mass(hits, guesses, chance))
    slope = np.max(sums / np.arange(1, last + 1))
    return min(1.0, tail + 2 * canaries * delta * float(slope))


def gaussian_refuted(
    canaries: int, guesses: int, right: int, mu: float, alpha: float
) -> bool:
    """Return whether ``right`` right guesses are as rare as ``alpha`` by mu-GDP."""
    return curve_refuted(
        canaries,
        guesses,
        right,
        lambda hit: float(special.ndtr(special.ndtri(hit) - mu)),
        alpha,
    )


def curve_refuted(
    canaries: int,
    guesses: int,
    right: int,
    least_of: Callable[[float], float],
    alpha: float,
) -> bool:
    """Return whether f-DP makes ``right`` or more right guesses as rare as ``alpha``.

    The recursion of Mahloujifar, Melis and Chaudhuri (2024) for two choices a canary:
    from the observed number of right guesses down, what probability the numbers below
    must have.

    ``canaries``, ``guesses``, ``right``: how many there are, are guessed at, and are
    guessed right. ``least_of``: from a probability h in [0, 1] of an event under one
    data set to the least that it has under a neighbour: f(1 - h) for a trade-off
    function f. Too small a value only weakens the test. ``alpha``: in (0, 1).
    """
    if right <= 0:
        return False
    hit = alpha * right / canaries
    miss = alpha * (guesses - right) / canaries
    for count in range(right - 1, -1, -1):
        # Blowing up an event of this probability by mu-GDP, inverted.
        least = least_of(min(hit, 1.0))
        if least <= miss:
            break
        hit += count / (guesses - count) * (least - miss)
        miss = least
        if hit + miss > guesses / canaries:
            return True
    return hit + miss > guesses / canaries


def _largest(refuted: Callable[[float], bool]) -> float:
    """A parameter that is refuted, near the largest; 0 if 0 is not refuted."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if low >= _LARGEST:
            return low
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
