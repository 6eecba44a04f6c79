"""The top half of the ranking against a claimed curve: Gaussian DP, or any family.

Guess "member" for the upper half of the pooled ranks. **Lemma.** Let every run toss a
fair coin, and let the two worlds be at most tau apart in total variation. Whatever
guesses are made from the scores of all m runs, the number of right ones is
stochastically at most Binomial(m, (1 + tau) / 2).

*Proof.* Given all scores the coins are independent, and coin i equals any guess with
probability at most c(s_i) = max over b of P(B_i = b | s_i). So the number of right
guesses is dominated by a sum of independent Bernoulli(c(s_i)). The scores are
independent and alike, hence that sum is, no longer given the scores,
Binomial(m, E c(s)); and E c(s) is half of one plus the total variation. QED.

mu-GDP has tau = 2 Phi(mu / 2) - 1: right guesses are at most Binomial(m, Phi(mu / 2)).
A family of mechanisms has tau(noise) = delta(noise, epsilon = 0).

This speaks of tau, and of epsilon only through the family's curve. A mechanism with
another curve may have a smaller epsilon than the one returned.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from scipy import special

from privaudit.auditing.bounds._gaussian import epsilon_down
from privaudit.auditing.bounds.binomial import limit_down
from privaudit.auditing.bounds.contract import Estimator, Evidence, Rate, generator
from privaudit.auditing.scores import Design, Scores

_SOURCE = "privaudit, top_half.py; on Dong, Roth and Su, arXiv:1905.02383"
_TOLERANCE = 1e-4  # of the noise, relative


@dataclasses.dataclass(frozen=True, slots=True)
class TopHalf(Estimator):
    """The least mu, and its epsilon, that allows so many right guesses.

    Parameters
    ----------
    reversed_share
        Share of alpha, in (0, 1), spent on the ranking read backwards, for attacks
        whose low scores say "member".
    """

    name: ClassVar[str] = "top-half"
    source: ClassVar[str] = _SOURCE
    designs: ClassVar[tuple[Design, ...]] = ("coin-flip",)

    reversed_share: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.reversed_share < 1:
            raise ValueError(
                f"reversed_share must be in (0, 1), got {self.reversed_share}"
            )

    @property
    def valid_for(self) -> str:
        """Mechanisms that are mu-GDP for some mu, and as bad as that."""
        return "mu-Gaussian DP"

    def find(
        self, scores: Scores, delta: float, alpha: float, seed: int
    ) -> tuple[float, Evidence]:
        """See ``Estimator.find``."""
        accuracy, evidence = self.accuracy(scores, alpha, seed)
        mu = 2 * special.ndtri(accuracy)
        return epsilon_down(max(0.0, float(mu)), delta), evidence

    def accuracy(
        self, scores: Scores, alpha: float, seed: int
    ) -> tuple[float, Evidence]:
        """A lower limit of (1 + tau) / 2, at least 1/2, at level ``alpha``."""
        runs = len(scores)
        order = np.lexsort((generator(seed, self.name).random(runs), -scores.score))
        called = np.zeros(runs, dtype=np.bool_)
        called[order[: runs // 2]] = True
        right = int(np.count_nonzero(called == scores.member))
        flipped = right < runs - right
        best = max(right, runs - right)
        share = self.reversed_share if flipped else 1 - self.reversed_share
        low = float(limit_down(best, runs, share * alpha))
        if flipped:
            called = ~called
        edge = order[runs // 2 - 1]
        return max(0.5, low), Evidence(
            threshold=float(scores.score[edge]),
            tail="lower" if flipped else "upper",
            tpr=_plain_rate(called[scores.member]),
            fpr=_plain_rate(called[~scores.member]),
            testing_runs=runs,
            note=f"{best:,} of {runs:,} guesses right, in the long run {low:.4f}",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class NoiseFamily:
    """Mechanisms that differ in the scale of their noise, by their accounts.

    More noise must not increase either account.

    Parameters
    ----------
    name
        What a reader is told: "Poisson-sampled Gaussian, rate 0.01, 1000 steps".
    delta_up
        (noise, epsilon) to a delta that is not below the true one.
    epsilon_down
        (noise, delta) to an epsilon that is not above the true one.
    least_noise, most_noise
        Where both are known, 0 < least < most; all that is below counts as not refuted,
        and all above as refuted once ``most_noise`` is.
    """

    name: str
    delta_up: Callable[[float, float], float]
    epsilon_down: Callable[[float, float], float]
    least_noise: float = 1e-2
    most_noise: float = 1e4

    def __post_init__(self) -> None:
        if not 0 < self.least_noise < self.most_noise < math.inf:
            raise ValueError(
                "noise must go from a positive scale to a larger finite one, got "
                f"{self.least_noise} to {self.most_noise}"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class TopHalfOfFamily(Estimator):
    """Epsilon, within a family, of the most noise that is not refuted."""

    name: ClassVar[str] = "top-half-of-family"
    source: ClassVar[str] = _SOURCE
    designs: ClassVar[tuple[Design, ...]] = ("coin-flip",)

    family: NoiseFamily
    reversed_share: float = 0.05

    @property
    def valid_for(self) -> str:
        """The family's name."""
        return self.family.name

    def find(
        self, scores: Scores, delta: float, alpha: float, seed: int
    ) -> tuple[float, Evidence]:
        """See ``Estimator.find``."""
        accuracy, evidence = TopHalf(self.reversed_share).accuracy(scores, alpha, seed)
        family = self.family

        def refuted(noise: float) -> bool:
            return (1 + family.delta_up(noise, 0.0)) / 2 < accuracy

        bracket = _octave(refuted, family.least_noise, family.most_noise)
        if bracket is None:
            return 0.0, evidence
        low, high = bracket
        while high - low > _TOLERANCE * high:
            middle = math.sqrt(low * high)
            if refuted(middle):
                high = middle
            else:
                low = middle
        # The refuted end has more noise than any that is not: its epsilon is lower.
        return family.epsilon_down(high, delta), evidence


def _octave(
    refuted: Callable[[float], bool], least: float, most: float
) -> tuple[float, float] | None:
    """Two noises a factor two apart at most, of which the larger alone is refuted.

    They are halvings and doublings of the noise that is claimed: far below it, an
    account of many steps takes long, and the same factors come again with other scores.
    Both are ``least`` if all is refuted, None if nothing is.
    """
    if not refuted(most):
        return None
    high = min(max(1.0, least), most)
    if not refuted(high):
        low, high = high, min(2 * high, most)
        while not refuted(high):
            low, high = high, min(2 * high, most)
        return low, high
    while high > least:
        low = max(high / 2, least)
        if not refuted(low):
            return low, high
        high = low
    return least, least


def _plain_rate(called: np.ndarray) -> Rate:
    return Rate(int(np.count_nonzero(called)), len(called), 0.0, 1.0)
