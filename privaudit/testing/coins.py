"""The exact test of a claim by guesses of fair coins, and plans of guesses.

Each run tosses a fair coin for its data set. A *plan* is fixed before the runs that it
is tested on: for some outputs it guesses the coin, with a weight that is a whole
number. The statistic is the sum of the weights of right guesses.

(epsilon, delta)-DP on a pair of data sets is randomised response, true with chance
p = 1 / (1 + exp(-epsilon)), that tells the coin for sure with chance delta, and
whatever is done with its answer (Kairouz, Oh and Viswanath, arXiv:1311.0776, Theorem
3.1). So, given the outputs, a guess of a run that was not told is right with chance p
at most, each by its own coin; and those that are told, of number Bin(runs, delta), can
do no more than to be right where weights are largest. The chance of the statistic that
was seen, or more, is summed over both: weighted sums of binomials, by convolution.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, signal, special, stats

from privaudit.auditing.bounds.binomial import mass
from privaudit.testing.outputs import Floats

Worlds = NDArray[np.bool_]
Ints = NDArray[np.int64]

LEVELS = 4  # weights are whole numbers up to it
_WIDE = 12.0  # standard deviations, and as many counts, that are summed over
_LOST = 1e-15  # chance outside of these, and what rounding adds
_LONG = 10_000_000  # products, from which on convolution is by Fourier transform
_FOURIER = 1e-12  # far above what its rounding comes to, in a sum of chances
_PORTIONS = 24  # of the number of runs that are told
_COARSE = 0.05  # chance; one below it is not made smaller by chance
_FEW = 8  # runs in the least group that is guessed by itself
_PRIOR = 8.0  # runs, as the claim allows at most, that are added to each group's


def chance(
    right: Ints,
    guesses: Ints,
    runs: int,
    epsilon: float,
    delta: float,
    uniform: float = 0.0,
) -> float:
    """Largest chance of as many right guesses, or more, under (epsilon, delta)-DP.

    Grows with epsilon and delta.

    Parameters
    ----------
    right, guesses
        Right guesses, and all, of weight 1, 2, ...  # (levels,)
    runs
        How many there were, those without a guess included.
    uniform
        A random number in [0, 1), independent of the runs: that part of the chance of
        just as many is left out where the result stays above `_COARSE`. So a count that
        says little says no less than it should.

    >>> coins = chance(np.array([9]), np.array([10]), 10, 0.0, 0.0)  # 11 of 2^10 ways
    >>> 0 <= coins - 11 / 1024 < 1e-7  # and what doubles may be off
    True
    """
    weights = np.arange(1, len(guesses) + 1)
    seen = int(weights @ right)
    true = float(special.expit(epsilon))
    total, before = np.zeros(2), 0.0
    for told in _told(runs, delta):
        share = float(stats.binom.cdf(told, runs, delta)) - before
        before += share
        # Told runs are taken from the largest weights.
        above = np.cumsum(guesses[::-1])[::-1] - guesses
        taken = np.minimum(guesses, np.maximum(told - above, 0))
        left = seen - int(weights @ taken)
        total += share * _above(left, guesses - taken, true)
    total += max(0.0, 1 - before)
    most, more = np.minimum(1.0, total * (1 + 1e-6) + _LOST).tolist()
    return max(most - uniform * (most - more), min(most, _COARSE))


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """Guesses of fresh runs by a plan that was fixed before them."""

    right: Ints
    guesses: Ints
    runs: int
    uniform: float


def chance_together(stages: Sequence[Stage], epsilon: float, delta: float) -> float:
    """The chance under (epsilon, delta)-DP of stages as telling, or more.

    Whatever came before, the chance of a stage is at most u with probability at most u,
    so that its normal quantile is at most a normal number. A sum of these with weights
    that are fixed, the roots of how many runs there are, is one as well (Stouffer).
    """
    runs = np.array([stage.runs for stage in stages], float)
    each = [
        chance(one.right, one.guesses, one.runs, epsilon, delta, one.uniform)
        for one in stages
    ]
    normal = -special.ndtri(np.minimum(each, 1 - _LOST))
    return float(special.ndtr(-(np.sqrt(runs / runs.sum()) @ normal)))


def _told(runs: int, delta: float) -> list[int]:
    """Numbers of told runs, each standing for all from the one before up to it."""
    if not delta:
        return [0]
    high = int(stats.binom.isf(_LOST, runs, delta))
    if high <= _PORTIONS:
        return list(range(high + 1))
    levels = np.append(np.linspace(0, 1, _PORTIONS)[1:-1], [0.99, 0.999, 1 - 1e-6])
    return sorted({*stats.binom.ppf(levels, runs, delta).astype(int).tolist(), high})


def _above(seen: int, guesses: Ints, true: float) -> Floats:
    """Chances that a weighted sum of binomials is at least ``seen``, and above."""
    if seen < 0:
        return np.ones(2)
    first, chances, lost = 0, np.ones(1), 0.0
    for weight, many in enumerate(guesses.tolist(), start=1):
        if not many:
            continue
        margin = _WIDE * math.sqrt(many * true * (1 - true)) + _WIDE**2
        low = max(0, math.floor(many * true - margin))
        high = min(many, math.ceil(many * true + margin))
        spread = np.zeros((high - low) * weight + 1)
        spread[::weight] = mass(np.arange(low, high + 1), many, true)
        if len(spread) * len(chances) > _LONG:
            chances = np.maximum(signal.fftconvolve(chances, spread), 0)
            lost += _FOURIER
        else:
            chances = np.convolve(chances, spread)
        first += low * weight
    ends = [max(0, seen - first), max(0, seen + 1 - first)]
    return np.array([chances[end:].sum() for end in ends]) + lost


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Guesses of the coin by a score, with their weights.

    Parameters
    ----------
    edges
        That part the scores into groups, rising.  # (groups - 1,)
    weights
        Of the guess in each group: above 0 for the second data set, below 0 for the
        first, 0 for none.  # (groups,)
    strength
        Estimate of how far, in standard deviations of one run, guesses are more often
        right than the claim allows.
    """

    edges: Floats
    weights: Ints
    strength: float

    @classmethod
    def of(cls, score: Floats, worlds: Worlds, epsilon: float, delta: float) -> Plan:
        """The plan that past runs, (runs,) each, favour against a claim.

        Where the second data set is the likelier is taken to rise with the score, or to
        fall with it, whichever fits.
        """
        edges = _edges(score)
        places = np.searchsorted(edges, score, "right")
        runs, members = (
            np.bincount(places, minlength=len(edges) + 1, weights=counted).astype(float)
            for counted in (None, worlds)
        )
        full = runs > 0
        runs, members = runs[full], members[full]
        plans = [
            _weighed(
                optimize.isotonic_regression(
                    members / runs, weights=runs, increasing=rising
                ).x,
                runs,
                epsilon,
                delta,
            )
            for rising in (True, False)
        ]
        strength, given = max(plans, key=lambda plan: plan[0])
        weights = np.zeros(len(full), dtype=np.int64)
        weights[full] = given
        return cls(edges, weights, strength)

    def guessed(self, score: Floats, worlds: Worlds) -> tuple[Ints, Ints]:
        """Right guesses, and all, of each weight from 1 on."""
        weights = self.weights[np.searchsorted(self.edges, score, "right")]
        right = (weights > 0) == worlds

        def counted(chosen: Worlds) -> Ints:
            many = np.bincount(np.abs(weights[chosen]), minlength=LEVELS + 1)
            return many[1:].astype(np.int64)

        return counted(right), counted(weights != 0)


def _edges(score: Floats) -> Floats:
    """Ranks that double from both ends, and sixteenths."""
    many = len(score)
    ranks = _FEW * 2.0 ** np.arange(max(1, math.ceil(math.log2(max(2, many / _FEW)))))
    ranks = np.concatenate([ranks, many - ranks, many * np.arange(1, 16) / 16])
    ranks = ranks[(ranks >= _FEW) & (ranks <= many - _FEW)].astype(int)
    ordered = np.sort(score)
    # At the value, and just above it: a value that comes often is a group.
    edges = ordered[np.unique(ranks)]
    often = edges[1:][edges[1:] == edges[:-1]]
    return np.unique(np.concatenate([edges, np.nextafter(often, np.inf)]))


def _weighed(
    share: Floats, runs: Floats, epsilon: float, delta: float
) -> tuple[float, Ints]:
    """The strongest weights of groups, and how strong they are, by their shares."""
    true = special.expit(epsilon)
    sign = np.where(share >= 0.5, 1, -1)
    right = np.where(share >= 0.5, share, 1 - share)
    # Groups of equal shares are one group, whose share is the surer.
    _, pooled = np.unique(share, return_inverse=True)
    runs_of = np.bincount(pooled, weights=runs)[pooled]
    right = (right * runs_of + _PRIOR * true) / (runs_of + _PRIOR)
    log = np.maximum(special.logit(right) - epsilon, 0.0)
    best: tuple[float, Ints] = 0.0, np.zeros(len(share), dtype=np.int64)
    top = float(log.max(initial=0.0))
    if not top > 0:
        return best
    many = runs.sum()
    found = [np.ceil(LEVELS * log / top - 1e-9)]
    found += [(log > cut).astype(float) for cut in np.unique(np.append(log, 0.0))[:-1]]
    for weights in found:
        gain = float(runs @ (weights * (right - true)))
        spread = float(runs @ (weights**2)) * true * (1 - true)
        told = many * delta * float(weights.max()) * (1 - true)
        spread += told * float(weights.max())
        strength = (gain - told) / math.sqrt(max(spread, 1e-300) * many)
        if strength > best[0]:
            best = strength, (sign * weights).astype(np.int64)
    return best
