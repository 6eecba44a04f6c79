"""The rank walk: right guesses in every prefix of the ranked scores."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privaudit.auditing.bounds._null_walk import LARGEST, NullWalk, reaches
from privaudit.auditing.bounds._ranks import Pair
from privaudit.auditing.bounds.binomial import least_hits, limit_down
from privaudit.auditing.bounds.contract import Estimator, Evidence, Found, generator
from privaudit.auditing.scores import Scores, chance_of_counts
from privaudit.task_settings import AtLeastOne, Inside, Positive

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOLERANCE, _FINE = 1e-3, 2e-3  # of the pilot, in epsilon and relative to it
# Of the level; and of these, where the pilot aims: a test there seldom fails.
_PARTS = (0.9, 0.5), (0.1, 0.3)
_UNUSUAL = 0.1  # chance of counts as far from even under fair coins
_MOST = 100_000  # simulations, however small alpha is


@dataclasses.dataclass(frozen=True, slots=True)
class RankWalk(Estimator):
    """Number of right labels among the first k of the ranking, for many k at once.

    By the null law of so many members and others; for coin-flip worlds by the lesser of
    that bound and one for coins, so that dealt worlds give no more alarms.
    """

    name: ClassVar[str] = "rank-walk"
    source: ClassVar[str] = (
        "privaudit, rank_walk.md; on the decomposition of Kairouz, Oh and Viswanath, "
        "arXiv:1311.0776, Theorem 3.1"
    )

    # monte Carlo repeats of the null law. The level is exact for any number, since the
    # observed walk counts as one of them; more make the bound steadier
    simulations: AtLeastOne = 1999
    # how many lengths k are looked at, in geometric progression
    prefixes: AtLeastOne = 28
    # the level of the single prefix that orders the walks, as a share of alpha; near
    # one over the number of prefixes that are as good as independent
    share: Positive = 0.2
    # share of alpha, spent on the ranking read backwards, for attacks whose
    # low scores say "member"
    reversed_share: Inside = 0.05

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        random = generator(seed, self.name)
        # What a prefix shows is counted from the odds that it has without a leak.
        odds = math.log(scores.member_runs) - math.log(scores.non_member_runs)
        odds = 0.0 if scores.design == "coin-flip" else odds
        ways = self.ways(scores.member, scores.score, random, delta, alpha, odds=odds)
        # The way with the lesser statistic could not add but a little, and is left out.
        way = max(ways, key=lambda one: one.statistic)
        flipped = way is ways[1]
        evidence = _evidence(scores, way, flipped)
        if way.statistic == -math.inf:
            return 0.0, evidence
        simulations = max(self.simulations, min(_MOST, math.ceil(20 / way.alpha) - 1))
        most = LARGEST
        if scores.design == "coin-flip":
            null = NullWalk.draw(random, simulations, way.lengths, len(scores), delta)
            allowed = math.floor(way.alpha * (simulations + 1)) - 1
            most = null.largest_rejected(way.limits, allowed)
            counts = scores.member_runs, scores.non_member_runs
            if chance_of_counts(*counts) > _UNUSUAL:
                return most, evidence
        given = _GivenCounts(way, scores.member_runs, scores.non_member_runs, delta)
        return given.largest_rejected(random, simulations, most), evidence

    def ways(
        self,
        member: NDArray[np.bool_],
        score: Floats,
        random: np.random.Generator,
        delta: float,
        alpha: float,
        *,
        odds: float = 0.0,
    ) -> list[Way]:
        """Rankings by falling and by rising score, each at its share of alpha.

        ``odds``: logarithm of those of a member.
        """
        order = np.lexsort((random.random(len(score)), -score))
        shares = 1 - self.reversed_share, self.reversed_share
        return [
            self._one_way(member, way, delta, share * alpha, odds)
            for way, share in zip((order, order[::-1]), shares, strict=True)
        ]

    def _one_way(
        self,
        member: NDArray[np.bool_],
        order: Ints,
        delta: float,
        alpha: float,
        odds: float,
    ) -> Way:
        runs, half = len(order), len(order) // 2
        lengths = np.unique(
            np.round(np.geomspace(min(4, half), half, self.prefixes)).astype(int)
        )
        ranked = member[order]
        top = np.cumsum(ranked, dtype=np.int64)[lengths - 1]
        bottom = np.cumsum(~ranked[::-1], dtype=np.int64)[lengths - 1]
        leaks = _leaks_expected(runs, delta)
        level = self.share * alpha
        base = np.array([odds, -odds, 0.0])[:, None]
        each = prefix_epsilon(top, bottom, lengths, leaks, level) - base
        side, place = np.unravel_index(np.argmax(each), each.shape)
        limits = crossing_limits(each[side, place] + base, lengths, leaks, level)
        # Rounding in the quantile must not leave the observed walk outside.
        observed = np.stack([top, bottom, top + bottom])
        limits[side, place] = min(limits[side, place], observed[side, place])
        return Way(
            order=order,
            alpha=alpha,
            lengths=lengths,
            statistic=float(each[side, place]),
            side=int(side),
            length=int(lengths[place]),
            limits=limits,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """The observed walk along a ranking, and the region of walks as extreme."""

    order: Ints
    alpha: float
    lengths: Ints
    statistic: float
    side: int
    length: int
    limits: Ints


@dataclasses.dataclass(frozen=True, slots=True)
class _GivenCounts:
    """Walks of the pair that leaks most, with the members and others that there are."""

    way: Way
    members: int
    others: int
    delta: float

    def largest_rejected(
        self, random: np.random.Generator, simulations: int, most: float
    ) -> float:
        """Near the largest epsilon up to ``most`` that is rejected; 0 if none is.

        A pilot finds where to test; then one test, and a lower one if it fails (step
        7).
        """

        def share(epsilon: float) -> float:
            return float(np.mean(self._crosses(random, epsilon, simulations)))

        for part, caution in _PARTS:
            alpha, low, high = part * self.way.alpha, 0.0, min(1.0, most)
            if share(0.0) > caution * alpha:
                continue
            while high < most and share(high) <= caution * alpha:
                low, high = high, min(2 * high, most)
            if high == most and share(most) <= caution * alpha:
                low = most
            while high - low > max(_TOLERANCE, _FINE * low):
                middle = (low + high) / 2
                fits = share(middle) <= caution * alpha
                low, high = (middle, high) if fits else (low, middle)
            crossing = np.count_nonzero(self._crosses(random, low, simulations))
            if 1 + crossing <= alpha * (simulations + 1):
                return low
        return 0.0

    def _crosses(
        self, random: np.random.Generator, epsilon: float, simulations: int
    ) -> NDArray[np.bool_]:
        """Mask of walks that reach one of the limits, under (epsilon, delta)."""
        lengths, limits = self.way.lengths, self.way.limits
        runs = self.members + self.others
        cuts = np.union1d(lengths, runs - lengths)
        found = _leaky(epsilon, self.delta).draw(
            random, simulations, self.members, self.others, cuts
        )
        top = found[:, np.searchsorted(cuts, lengths)]
        left = self.members - found[:, np.searchsorted(cuts, runs - lengths)]
        return reaches(top, lengths - left, limits)


def _leaky(epsilon: float, delta: float) -> Pair:
    """Leaky randomised response: the pair that (epsilon, delta) allows (step 1)."""
    return Pair.above(
        np.array([epsilon, -epsilon]),
        np.array([delta, delta - math.expm1(-epsilon) * (1 - delta)]),
    )


def _leaks_expected(runs: int, delta: float) -> int:
    """Sure leaks at one end that a prefix is discounted by; any choice is valid."""
    mean = runs * delta / 2
    return math.ceil(mean + 0.2 * mean**0.75) if mean >= 0.05 else 0


def prefix_epsilon(
    top: Ints, bottom: Ints, lengths: Ints, leaks: int, level: float
) -> Floats:
    """Epsilon by top, bottom and both ends of each prefix (step 4).  # (3, lengths)"""
    trials, lost = _trials(lengths, leaks)
    right = np.stack([top, bottom, top + bottom])
    found = limit_down(np.maximum(right - lost, 0), trials, level)
    return special.logit(found)


def _trials(lengths: Ints, leaks: int) -> tuple[Ints, Ints]:
    lost = np.minimum(lengths, leaks)
    lost = np.stack([lost, lost, 2 * lost])
    return np.stack([lengths, lengths, 2 * lengths]) - lost, lost


def crossing_limits(
    statistic: Floats | float, lengths: Ints, leaks: int, level: float
) -> Ints:
    """Least right guesses in each prefix that reach ``statistic``.  # (3, lengths)"""
    trials, lost = _trials(lengths, leaks)
    return least_hits(trials, special.expit(statistic), level) + lost


def _evidence(scores: Scores, way: Way, flipped: bool) -> Evidence:
    """The prefix that stood out; its rates carry no limits."""
    called_in = way.order[: way.length] if way.side in (0, 2) else way.order[:0]
    called_out = way.order[-way.length :] if way.side in (1, 2) else way.order[:0]
    edge = called_in[-1] if len(called_in) else called_out[0]
    ends = ("top", "bottom", "top and bottom")[way.side]
    right = np.count_nonzero(scores.member[called_in]) + np.count_nonzero(
        ~scores.member[called_out]
    )
    guesses = len(called_in) + len(called_out)
    at = scores.score[edge]
    called = scores.score <= at if flipped else scores.score >= at
    note = f"{right:,} of {guesses:,} guesses right at the {ends} of the ranking"
    return Evidence.of_called(scores, called, at, flipped, note)
