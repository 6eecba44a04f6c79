"""Stakes of each bet of the betting estimator, from earlier runs only: valid."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting import gdp

Floats = NDArray[np.float64]
Gains = Callable[[NDArray[np.bool_], Floats], Floats]

_FRACTIONS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8, 0.95])
_THRESHOLDS = 24
# Of the way from the most right guesses under the null to none wrong: what noise a
# tenth too small, half of what it should be, or next to none comes to.
_HOPES = np.tile([0.03, 0.12, 0.65], 2)
_WAYS = np.repeat([0, 1], 3)
WEIGHTS = {
    "any mechanism": np.array([1.0]),
    "mu-Gaussian DP": np.outer([0.98, 0.02], [0.1, 0.55, 0.35]).ravel(),
}


def _tails(member: NDArray[np.bool_], score: Floats) -> tuple[Floats, Floats, Floats]:
    """Thresholds, and past shares at or above each, half a run added, (thresholds,)."""
    past = len(score)
    ordered = np.sort(score)
    ranks = np.geomspace(1, past / 2, _THRESHOLDS // 2)
    ranks = np.unique(np.round(np.concatenate([ranks, past - ranks])).astype(int))
    thresholds = np.unique(ordered[past - ranks])
    found = []
    for world in (member, ~member):
        inside = np.sort(score[world])
        above = len(inside) - np.searchsorted(inside, thresholds, "left")
        found.append((above + 0.5) / (past + 1))
    return thresholds, found[0], found[1]


def bet_on_regions(
    delta: float,
    epsilons: tuple[float, ...],
    past_member: NDArray[np.bool_],
    past_score: Floats,
) -> Gains:
    """Logs of factors of wealth, planned on the past.  # (runs, epsilons, 1)"""
    odds = np.exp(np.array(epsilons))  # (epsilons,)
    # 1 + stake * wager >= 1 - fraction for the two bets together.
    stakes = _FRACTIONS / (odds[:, None] + delta)  # (epsilons, fractions)
    thresholds, above_in, above_out = _tails(past_member, past_score)
    least = 0.5 / (len(past_score) + 1)
    whole = np.mean(past_member)
    below_in = np.maximum(whole - above_in, least)
    below_out = np.maximum(1 - whole - above_out, least)

    def best(right: Floats, wrong: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Threshold, stake and expected growth for each epsilon, from the past."""
        rest = np.maximum(1 - right - wrong, 0)
        growth = (
            right[:, None, None] * np.log1p(stakes * (1 - delta / 2))
            + wrong[:, None, None] * np.log1p(-stakes * (odds[:, None] + delta / 2))
            + rest[:, None, None] * np.log1p(-stakes * delta / 2)
        )  # (thresholds, epsilons, fractions)
        flat = growth.transpose(1, 0, 2).reshape(len(odds), -1)
        place = flat.argmax(axis=1)
        most = flat[np.arange(len(odds)), place]
        stake = stakes[np.arange(len(odds)), place % len(_FRACTIONS)]
        return place // len(_FRACTIONS), np.where(most > 0, stake, 0.0), most

    def wager(inside: NDArray[np.bool_], right: NDArray[np.bool_]) -> Floats:
        return np.where(inside, np.where(right[:, None], 1.0, -odds), 0.0) - delta / 2

    # High scores called member and low ones not, or the other way about.
    ways = (
        (best(above_in, above_out), best(below_out, below_in), True),
        (best(above_out, above_in), best(below_in, below_out), False),
    )
    expected = [
        np.maximum(top[2], 0) + np.maximum(bottom[2], 0) for top, bottom, _ in ways
    ]
    chosen = expected[0] >= expected[1], expected[0] < expected[1]

    def gains(member: NDArray[np.bool_], score: Floats) -> Floats:
        change = np.zeros((len(score), len(odds)))
        for (top, bottom, usual), where in zip(ways, chosen, strict=True):
            upper, lower = thresholds[top[0]], thresholds[bottom[0]]
            # One of them is lost only where the other is won, or not made at all.
            says = member if usual else ~member
            both = top[1] * wager(score[:, None] >= upper, says)
            both += bottom[1] * wager(score[:, None] < lower, ~says)
            change += np.where(where, both, 0.0)
        return np.log1p(change)[:, :, None]

    return gains


def bet_on_guesses(
    delta: float,
    epsilons: tuple[float, ...],
    past_member: NDArray[np.bool_],
    past_score: Floats,
) -> Gains:
    """The same against Gaussian DP, for each strategy.  # (runs, epsilons, strategies)

    "Member" is guessed for as large an upper part as members had in the past; half of
    the strategies, with a fiftieth of the wealth, guess the other way.
    """
    chance = _most_right(delta, epsilons)[:, None]
    # Stakes that are best if the share of right guesses is this.
    hoped = chance + (1 - chance) * _HOPES  # (epsilons, strategies)
    gain, loss = np.log(hoped / chance), np.log1p(-hoped) - np.log1p(-chance)
    # The median would lie amidst the larger world's scores where the coins fell
    # unevenly: with few runs that costs more than anything else.
    share = (np.count_nonzero(past_member) + 1) / (len(past_member) + 2)
    edge = float(np.quantile(past_score, 1 - share, method="higher"))
    # Just above it where too many lie on it or above, so that ties are guessed.
    at, over = np.mean(past_score >= edge), np.mean(past_score > edge)
    if over + at > 2 * share:
        edge = float(np.nextafter(edge, np.inf))

    def gains(member: NDArray[np.bool_], score: Floats) -> Floats:
        right = (score >= edge) == member
        right = np.stack([right, ~right], axis=1)[:, _WAYS]  # (runs, strategies)
        return np.where(right[:, None, :], gain, loss)

    return gains


@functools.lru_cache(maxsize=8)
def _most_right(delta: float, epsilons: tuple[float, ...]) -> Floats:
    """Chance of a right guess under Gaussian DP at each epsilon, rounded up."""
    mus = gdp.mu(np.array(epsilons), delta) * (1 + 1e-9)  # within 1e-12 from below
    return special.ndtr(mus / 2) * (1 + 1e-12)
