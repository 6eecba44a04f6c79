"""Anytime-valid bounds: a bet against each epsilon, settled after every run.

For each epsilon a gambler starts with 1 and, before a run, stakes part of the wealth on
a wager whose expectation is at most 0 if that epsilon holds. The wealth is then a
nonnegative supermartingale, and by Ville's inequality it reaches 1 / alpha, ever, with
probability at most alpha. So one may look after every run, stop at any time for any
reason, and go on later. Thresholds and stakes are chosen from runs that are over.

The wagers, for a run with a fair coin B and score s, and E = e^epsilon:

- any mechanism: 1[s in A] (1[B = 1] - E 1[B = 0]) - delta / 2, for a set A of scores;
  its mean is (P(A) - E Q(A) - delta) / 2 <= 0. With the worlds swapped likewise. One
  such wager is made at each end of the scores;
- mu-Gaussian DP: 1[guess right] - Phi(mu / 2), for any guess from s, since a guess is
  right with probability at most (1 + total variation) / 2.

The bound is the largest epsilon of a fixed grid such that it and all below have been
refuted at some time. If epsilon0 is true, the least point of the grid at or above it is
true as well, and the bound exceeds epsilon0 only if that one is refuted.

Sources: Ville 1939; Waudby-Smith and Ramdas, arXiv:2010.09686; Gonzalez et al.,
"Sequentially Auditing Differential Privacy", arXiv:2509.07055.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from privaudit.auditing.bounds._bets import WEIGHTS, bet_on_guesses, bet_on_regions
from privaudit.auditing.bounds.contract import Estimator, Evidence
from privaudit.auditing.scores import Design, Scores, checked_runs

Floats = NDArray[np.float64]
Against = Literal["any mechanism", "mu-Gaussian DP"]
ANY: Against = "any mechanism"

_FIRST = 8  # runs before the first bet
_CHUNK = 512  # runs settled at a time, for memory
_GROWTH = 1.1  # thresholds are chosen anew when there are so many times more runs

DEFAULT_GRID = tuple(
    np.concatenate([np.arange(0, 0.6, 0.02), np.geomspace(0.6, 16, 110)]).tolist()
)


@dataclasses.dataclass(frozen=True, slots=True)
class Game:
    """What is bet against: fixed before the first run.

    Parameters
    ----------
    delta, confidence
        Of the bound, in [0, 1) and (0, 1); ``delta`` > 0 against Gaussian DP.
    epsilons
        Rising, the grid of the bound; one claim alone is a grid too. The bound is a
        point of it, so that a verdict, which asks for more than the claim, needs one a
        little above the claim.
    against
        All mechanisms with (epsilon, delta)-DP, or those with mu-GDP only.
    """

    delta: float
    confidence: float = 0.95
    epsilons: tuple[float, ...] = DEFAULT_GRID
    against: Against = "any mechanism"

    def __post_init__(self) -> None:
        gaussian = self.against == "mu-Gaussian DP"
        if not 0 <= self.delta < 1 or (gaussian and self.delta == 0):
            raise ValueError(
                f"delta must be in [0, 1), and above 0 against Gaussian DP, "
                f"got {self.delta}"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")
        rising = all(a < b for a, b in itertools.pairwise(self.epsilons))
        if not self.epsilons or not rising or not self.epsilons[0] >= 0:
            raise ValueError("the grid of epsilons must rise from 0 or above")

    def start(self) -> Wealth:
        """The wealth before the first run: 1 against every epsilon."""
        points = len(self.epsilons)
        return Wealth(
            game=self,
            log_wealth=np.tile(np.log(WEIGHTS[self.against]), (points, 1)),
            highest=np.zeros(points),
            member=np.zeros(0, dtype=np.bool_),
            score=np.zeros(0),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Wealth:
    """The state of a game after some runs; ``after`` gives the next one.

    Parameters
    ----------
    log_wealth
        Of each strategy, now.  # (epsilons, strategies)
    highest
        Of all strategies together, after any run so far.  # (epsilons,)
    member, score
        The runs so far, in order.  # (runs,)
    """

    game: Game
    log_wealth: Floats
    highest: Floats
    member: NDArray[np.bool_]
    score: Floats

    @property
    def refuted(self) -> NDArray[np.bool_]:
        """Which points of the grid have been refuted.  # (epsilons,)"""
        return self.highest >= -math.log1p(-self.game.confidence)

    @property
    def epsilon(self) -> float:
        """The bound so far: all points of the grid up to it are refuted; or 0."""
        standing = np.flatnonzero(~self.refuted)
        last = standing[0] if len(standing) else len(self.refuted)
        return self.game.epsilons[last - 1] if last else 0.0

    def stop(self, claim: float, most_runs: int) -> Literal["refuted", "spent"] | None:
        """Whether to stop: the claim is refuted, or the planned runs are spent.

        The claim must lie on the grid, else the next point above it has to be refuted.
        """
        above = np.searchsorted(self.game.epsilons, claim)
        if self.refuted[: above + 1].all() and above < len(self.refuted):
            return "refuted"
        return "spent" if len(self.score) >= most_runs else None

    def after(self, member: ArrayLike, score: ArrayLike) -> Wealth:
        """The wealth after further runs, one or many, in the order that they were made.

        Each run must have tossed its own fair coin for its world.
        """
        worlds, scores = checked_runs(member, score)
        wealth, done = self, 0
        while done < len(scores):
            seen = len(wealth.score)
            past, renewed = _plan_runs(seen)
            stop = done + renewed - seen
            wealth = wealth._settle(worlds[done:stop], scores[done:stop], past)
            done = stop
        return wealth

    def _settle(self, member: NDArray[np.bool_], score: Floats, past: int) -> Wealth:
        log_wealth, highest = self.log_wealth, self.highest
        if past:
            plan = bet_on_guesses if self.game.against != ANY else bet_on_regions
            gains_of = plan(self.game, self.member[:past], self.score[:past])
            for start in range(0, len(score), _CHUNK):
                part = slice(start, start + _CHUNK)
                path = log_wealth + np.cumsum(gains_of(member[part], score[part]), 0)
                log_wealth = path[-1]
                total = special.logsumexp(path, axis=2)
                highest = np.maximum(highest, total.max(axis=0))
        return Wealth(
            game=self.game,
            log_wealth=log_wealth,
            highest=highest,
            member=np.concatenate([self.member, member]),
            score=np.concatenate([self.score, score]),
        )


def _plan_runs(seen: int) -> tuple[int, int]:
    """Runs that the present plan rests on, and the number at which it is renewed.

    Fixed numbers, so that it does not matter in which portions runs come.
    """
    past, renewed = 0, _FIRST
    while renewed <= seen:
        past, renewed = renewed, max(renewed + 1, math.ceil(_GROWTH * renewed))
    return past, renewed


@dataclasses.dataclass(frozen=True, slots=True)
class Betting(Estimator):
    """The bet against every epsilon, over the runs in the order that they have.

    Parameters
    ----------
    epsilons
        Rising, the grid of the bound.
    """

    name: ClassVar[str] = "betting"
    source: ClassVar[str] = "Waudby-Smith and Ramdas, arXiv:2010.09686; betting.py"
    designs: ClassVar[tuple[Design, ...]] = ("coin-flip",)
    against: ClassVar[Against] = "any mechanism"

    epsilons: tuple[float, ...] = DEFAULT_GRID

    @property
    def valid_for(self) -> str:
        """What the bets are against."""
        return self.against

    def find(
        self, scores: Scores, delta: float, alpha: float, seed: int
    ) -> tuple[float, Evidence]:
        """See ``Estimator.find``. Tosses no coins of its own."""
        if delta == 0 and self.against == "mu-Gaussian DP":
            return 0.0, Evidence(note="at delta 0 there is no Gaussian to bet against")
        game = Game(delta, 1 - alpha, self.epsilons, self.against)
        wealth = game.start().after(scores.member, scores.score)
        return wealth.epsilon, Evidence(
            testing_runs=len(scores),
            note="valid whenever one stops and however often one has looked",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class BettingGaussian(Betting):
    """The same against Gaussian DP."""

    name: ClassVar[str] = "betting-gaussian"
    against: ClassVar[Against] = "mu-Gaussian DP"
