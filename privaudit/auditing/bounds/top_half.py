"""The top-half estimator, within Gaussian DP or a family of noise scales.

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

Where the worlds were dealt in another way, by fixed numbers for one, "member" is
guessed for as many of the upper ranks as there are members. How many of these are right
is at most what the pair with the claimed curve gives, ranked by its likelihood ratio
(``ranks.md``, step 3): the whole curve is needed, and not tau alone.

This speaks of tau, and of epsilon only through the family's curve. A mechanism with
another curve may have a smaller epsilon than the one returned.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting.pld.closed_form import epsilon_down
from privaudit.auditing.bounds._ranks import Pair, chance_of_top
from privaudit.auditing.bounds.binomial import limit_down
from privaudit.auditing.bounds.contract import Estimator, Evidence, Found, generator
from privaudit.auditing.scores import Scores
from privaudit.task_settings import Inside

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SOURCE = "privaudit, top_half.py; on Dong, Roth and Su, arXiv:1905.02383"
_TOLERANCE = 1e-4  # of the noise, or of mu, relative
_MOST_MU = 64.0
_LINES = 60  # that bound a curve, to either side
_LEAST_DELTA, _FARTHEST = 1e-9, 300.0  # where they end


@dataclasses.dataclass(frozen=True, slots=True)
class TopHalf(Estimator):
    """The least mu, and its epsilon, that allows so many right guesses."""

    name: ClassVar[str] = "top-half"
    source: ClassVar[str] = _SOURCE

    # share of alpha, spent on the ranking read backwards, for attacks whose
    # low scores say "member"
    reversed_share: Inside = 0.05

    @property
    def valid_for(self) -> str:
        """Mechanisms that are mu-GDP for some mu, and as bad as that."""
        return "mu-Gaussian DP"

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        if scores.design == "coin-flip":
            accuracy, evidence = self.accuracy(scores, alpha, seed)
            mu = 2 * special.ndtri(accuracy)
            return epsilon_down(max(0.0, float(mu)), delta), evidence
        refuted, evidence = self.refuted(scores, alpha, seed)

        def gaussian(mu: float) -> bool:
            # Rounded up: the rate at a false positive rate, by the Gaussian curve.
            return refuted(
                lambda fpr: np.minimum(
                    1.0, special.ndtr(special.ndtri(fpr) + mu) * (1 + 1e-12) + 1e-300
                )
            )

        if not gaussian(0.0):
            return 0.0, evidence
        low, high = 0.0, 1.0
        while high < _MOST_MU and gaussian(high):
            low, high = high, 2 * high
        while high - low > _TOLERANCE * high:
            middle = (low + high) / 2
            low, high = (middle, high) if gaussian(middle) else (low, middle)
        return epsilon_down(low, delta), evidence

    def accuracy(self, scores: Scores, alpha: float, seed: int) -> Found:
        """Lower limit of the accuracy (1 + tau) / 2 of coin-flip runs, >= 1/2."""
        runs = len(scores)
        order = np.lexsort((generator(seed, self.name).random(runs), -scores.score))
        called = np.zeros(runs, dtype=np.bool_)
        called[order[: runs // 2]] = True
        right = int(np.count_nonzero(called == scores.member))
        flipped = right < runs - right
        best = max(right, runs - right)
        share = self.reversed_share if flipped else 1 - self.reversed_share
        low = float(limit_down(best, runs, share * alpha))
        edge = scores.score[order[runs // 2 - 1]]
        note = f"{best:,} of {runs:,} guesses right, in the long run {low:.4f}"
        called ^= flipped
        return max(0.5, low), Evidence.of_called(scores, called, edge, flipped, note)

    def refuted(
        self, scores: Scores, alpha: float, seed: int
    ) -> tuple[Callable[[Callable[[Floats], Floats]], bool], Evidence]:
        """Test that refutes ROCs, from false to true positive rates; any design."""
        order, right, flipped = ranked(scores, generator(seed, self.name))
        level = (self.reversed_share if flipped else 1 - self.reversed_share) * alpha
        sizes = scores.member_runs, scores.non_member_runs

        def is_refuted(tpr_at: Callable[[Floats], Floats]) -> bool:
            return chance_of_top(tpr_at, right, *sizes) <= level

        return is_refuted, evidence_of_top(scores, order, right, flipped)


@dataclasses.dataclass(frozen=True, slots=True)
class NoiseFamily:
    """Mechanisms that differ in the scale of noise, whose accounts fall with it."""

    # what a reader is told: "Poisson-sampled Gaussian, rate 0.01, 1000 steps"
    name: str
    # (noise, epsilon) to a delta that is not below the true one
    delta_up: Callable[[float, float], float]
    # (noise, delta) to an epsilon that is not above the true one
    epsilon_down: Callable[[float, float], float]
    # least_noise, most_noise: where both are known, 0 < least < most; all that is below
    # counts as not refuted, and all above as refuted once ``most_noise`` is
    least_noise: float = 1e-2
    most_noise: float = 1e4
    # noise to epsilons of any sign, and a delta at each that is not below the true one,
    # for member against non-member: they bound the whole trade-off curve. By default
    # they are those of ``delta_up``, in both directions
    lines: Callable[[float], tuple[Floats, Floats]] | None = None
    _pairs: dict[float, Pair] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not 0 < self.least_noise < self.most_noise < math.inf:
            raise ValueError(
                "noise must go from a positive scale to a larger finite one, got "
                f"{self.least_noise} to {self.most_noise}"
            )

    def pair(self, noise: float) -> Pair:
        """Two laws whose ROC lies above that of any mechanism with ``noise``."""
        # Noises come again: as ends of cells, and for other scores.
        if noise not in self._pairs:
            self._pairs[noise] = Pair.above(*(self.lines or self._both_ways)(noise))
        return self._pairs[noise]

    def _both_ways(self, noise: float) -> tuple[Floats, Floats]:
        """Lines of ``delta_up``, in both directions."""
        far = 1.0
        while self.delta_up(noise, far) > _LEAST_DELTA and far < _FARTHEST:
            far *= 2
        each = np.concatenate([[0.0], far * np.geomspace(1e-3, 1, _LINES)])
        above = np.array([self.delta_up(noise, epsilon) for epsilon in each.tolist()])
        # The worlds swapped: TPR <= exp(-epsilon) FPR + 1 - (1 - delta) exp(-epsilon)
        swapped = 1 - (1 - above) * np.exp(-each)
        return np.concatenate([each, -each]), np.concatenate([above, swapped])


@dataclasses.dataclass(frozen=True, slots=True)
class OfFamily(Estimator):
    """Estimator within a family; runs do not limit it, the least noise there does."""

    family: NoiseFamily

    @property
    def valid_for(self) -> str:
        """The family's name."""
        return self.family.name

    @property
    def limited_by_runs(self) -> bool:
        """False: it ends at the least noise of the family."""
        return False


@dataclasses.dataclass(frozen=True, slots=True)
class TopHalfOfFamily(OfFamily):
    """Epsilon, within a family, of the most noise that is not refuted."""

    name: ClassVar[str] = "top-half-of-family"
    source: ClassVar[str] = _SOURCE

    reversed_share: Inside = 0.05

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        half, family = TopHalf(self.reversed_share), self.family
        if scores.design == "coin-flip":
            accuracy, evidence = half.accuracy(scores, alpha, seed)

            def refuted(noise: float) -> bool:
                return (1 + family.delta_up(noise, 0.0)) / 2 < accuracy

        else:
            curve_refuted, evidence = half.refuted(scores, alpha, seed)

            def refuted(noise: float) -> bool:
                return curve_refuted(family.pair(noise).tpr_at)

        noise = least_noise_refuted(refuted, family.least_noise, family.most_noise)
        if noise is None:
            return 0.0, evidence
        # The refuted end has more noise than any that is not: its epsilon is lower.
        return family.epsilon_down(noise, delta), evidence


def ranked(scores: Scores, random: np.random.Generator) -> tuple[Ints, int, bool]:
    """Runs by score; how many of the first are members; whether lowest come first."""
    order = np.lexsort((random.random(len(scores)), -scores.score))
    members = scores.member_runs
    worlds = scores.member[order]
    upper, lower = (
        int(np.count_nonzero(worlds[:members])),
        int(np.count_nonzero(worlds[len(worlds) - members :])),
    )
    if lower > upper:
        return order[::-1], lower, True
    return order, upper, False


def evidence_of_top(scores: Scores, order: Ints, right: int, flipped: bool) -> Evidence:
    """Evidence of the first of ``order``, as many as there are members."""
    members = scores.member_runs
    called = np.zeros(len(scores), dtype=np.bool_)
    called[order[:members]] = True
    edge = scores.score[order[members - 1]]
    note = f"{right:,} of {members:,} members among the first {members:,}"
    return Evidence.of_called(scores, called, edge, flipped, note)


def least_noise_refuted(
    refuted: Callable[[float], bool],
    least: float,
    most: float,
    tolerance: float = _TOLERANCE,
) -> float | None:
    """A noise that is refuted, near the least; None if nothing is.

    By halvings and doublings of the claimed noise, 1, and by bisection.
    """
    if not refuted(most):
        return None
    high = min(max(1.0, least), most)
    if refuted(high):
        low = max(high / 2, least)
        while low < high and refuted(low):
            low, high = max(low / 2, least), low
    else:
        low, high = high, min(2 * high, most)
        while not refuted(high):
            low, high = high, min(2 * high, most)
    while high - low > tolerance * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high
