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

A *ranking* guesses by an order of the outputs that no coin had a part in, so that it
needs no runs to learn from: its first k, for many k, are one data set's, its last k the
other's. Under a claim right guesses among them run, as k grows, ahead of no more than a
walk of independent steps that are right with chance p; the chance that such a walk
anywhere goes as far as what was seen is summed step by step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, signal, special, stats

from privaudit.auditing.bounds.binomial import mass
from privaudit.auditing.bounds.rank_walk import RankWalk, Way
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

    Grows with epsilon and delta. ``right``, ``guesses``: right ones, and all, of weight
    1, 2, ...  # (levels,). ``runs``: those without a guess included. ``uniform``: a
    random number in [0, 1), independent of the runs: that part of the chance of just as
    many is left out where the result stays above `_COARSE`, so that a count that says
    little says no less than it should.

    >>> coins = chance(np.array([9]), np.array([10]), 10, 0.0, 0.0)  # 11 of 2^10 ways
    >>> 0 <= coins - 11 / 1024 < 1e-7  # and what doubles may be off
    True
    """
    weights = np.arange(1, len(guesses) + 1)
    seen = int(weights @ right)
    true = float(special.expit(epsilon))
    total, rest = np.zeros(2), 1.0
    for told, share in _told(runs, delta):
        rest -= share
        # Told runs are taken from the largest weights.
        above = np.cumsum(guesses[::-1])[::-1] - guesses
        taken = np.minimum(guesses, np.maximum(told - above, 0))
        left = seen - int(weights @ taken)
        total += share * _above(left, guesses - taken, true)
    total += max(0.0, rest)
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
    """p-value of all stages together under (epsilon, delta)-DP.

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
    # A chance of 1 stands as one a little less, which is seen less often than it says.
    lost = len(stages) * _LOST
    return float(special.ndtr(-(np.sqrt(runs / runs.sum()) @ normal))) + lost


def _told(runs: int, delta: float) -> Iterator[tuple[int, float]]:
    """Numbers of told runs, and the chance of all from the one before up to each."""
    high = int(stats.binom.isf(_LOST, runs, delta)) if delta else 0
    numbers: Sequence[int] = range(high + 1)
    if high > _PORTIONS:
        levels = np.append(np.linspace(0, 1, _PORTIONS)[1:-1], [0.99, 0.999, 1 - 1e-6])
        found = stats.binom.ppf(levels, runs, delta).astype(int).tolist()
        numbers = sorted({*found, high})
    before = 0.0
    for told in numbers:
        below = float(stats.binom.cdf(told, runs, delta))
        yield told, below - before
        before = below


def _above(seen: int, guesses: Ints, true: float) -> Floats:
    """Chances that a weighted sum of binomials is at least ``seen``, and above."""
    if seen < 0:
        return np.ones(2)
    first, chances, lost = 0, np.ones(1), 0.0
    for weight, many in enumerate(guesses.tolist(), start=1):
        if not many:
            continue
        low, inner = _binomial(many, true)
        spread = np.zeros((len(inner) - 1) * weight + 1)
        spread[::weight] = inner
        chances, more = _summed(chances, spread)
        lost += more
        first += low * weight
    ends = [max(0, seen - first), max(0, seen + 1 - first)]
    return np.array([chances[end:].sum() for end in ends]) + lost


def _binomial(many: int, true: float) -> tuple[int, Floats]:
    """Chances of counts from the first one on; what is left out is within `_LOST`."""
    margin = _WIDE * math.sqrt(many * true * (1 - true)) + _WIDE**2
    low = max(0, math.floor(many * true - margin))
    high = min(many, math.ceil(many * true + margin))
    return low, mass(np.arange(low, high + 1), many, true)


def _summed(one: Floats, other: Floats) -> tuple[Floats, float]:
    """Convolution, and what its rounding may come to in a sum of chances."""
    if len(one) * len(other) > _LONG:
        return np.maximum(signal.fftconvolve(one, other), 0), _FOURIER
    return np.convolve(one, other), 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Ranking:
    """Right guesses along a ranking, both ways: the walks of the bound `RankWalk`.

    They are ranked as there, and its chance that a walk under the claim reaches what
    was seen is summed here, by kind of walk (the first k, the last k, both), where it
    simulates all kinds together: tails are as small as they are, in a hundredth of the
    time, and at most the sum above the simulated ones (a tenth, where they are small).
    """

    ways: tuple[Way, ...]
    runs: int
    level: float

    @classmethod
    def of(
        cls,
        score: Floats,
        worlds: Worlds,
        random: np.random.Generator,
        delta: float,
        level: float,
    ) -> Ranking:
        """The ranking by a score, (runs,), that knows no coin; ties by ``random``."""
        ways = RankWalk().ways(worlds, score, random, delta, level)
        return cls(tuple(ways), len(score), level)

    def chance(self, epsilon: float, delta: float) -> float:
        """p-value: largest chance under (epsilon, delta)-DP that a walk goes so far."""
        true, each, rest = float(special.expit(epsilon)), np.zeros(len(self.ways)), 1.0
        for told, share in _told(self.runs, delta):
            rest -= share
            each += [share * _walks(way, told, true) for way in self.ways]
        shares = [way.alpha / self.level for way in self.ways]
        found = float(((each + max(0.0, rest)) / shares).min())
        return min(1.0, found * (1 + 1e-6) + _LOST)


def _walks(way: Way, told: int, true: float) -> float:
    """Chance that a walk of any kind reaches a limit, the told runs first."""
    found = 0.0
    for many, limits in zip((1, 1, 2), way.limits, strict=True):
        lengths = many * way.lengths
        # Whichever runs are told do no more than as the first guesses of a walk.
        sure = np.minimum(lengths, told)
        found += _reached(lengths - sure, limits - sure, true)
    return found


def _reached(lengths: Ints, limits: Ints, true: float) -> float:
    """Chance that a walk, right with chance ``true`` at each step, reaches a limit."""
    first, chances, reached, before = 0, np.ones(1), 0.0, 0
    for length, limit in zip(lengths.tolist(), limits.tolist(), strict=True):
        low, spread = _binomial(length - before, true)
        chances, lost = _summed(chances, spread)
        reached += lost
        before, first = length, first + low
        end = max(0, limit - first)
        reached += float(chances[end:].sum())
        chances = chances[:end]
        if not len(chances):
            break
    return min(reached + len(lengths) * _LOST, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Guesses of the coin by a score, with their weights."""

    edges: Floats  # that part the scores into groups, rising.  # (groups - 1,)
    # of the guess in each group: above 0 for the second data set, below 0 for the
    # first, 0 for none.  # (groups,)
    weights: Ints
    # estimate of how far, in standard deviations of one run, guesses are more often
    # right than the claim allows
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
    right = np.minimum(right, 1 - 2.0**-53)  # of a claim whose ``true`` is 1 in floats
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
