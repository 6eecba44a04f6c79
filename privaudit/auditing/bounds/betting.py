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

**The order of bets.** The coin of a run must be fair given the runs bet on before it. A
game that is played while runs are made has that by itself. The rows of a file may stand
in any order, sorted by world for one, and the next row's world is then no coin. So
`Betting` shuffles them first.

*Lemma.* Let the runs be independent, each with its own fair coin; they need not be
alike. Let a file list them in any order, which may depend on worlds and scores. If the
rows are permuted uniformly, by random numbers independent of the runs, the wagers below
are fair or worse in the permuted order.

*Proof.* Given the runs, whatever order the file has, each order of betting has the same
chance. So the order of betting is independent of worlds and scores. Given that order,
the next run is independent of those bet on before, its coin is fair, and its score
follows the law of its world. QED.

The rows are sorted by score before they are permuted, so that the bound does not depend
on the file's order; ties stand as they stood, which worlds must not decide (rows of
somebody's are dealt anew: `Scores.shuffled`). Two things are lost. The number of runs
must be fixed beforehand: a longer file is shuffled anew, and its bound is another bet.
And the chance is over the permutation too: its seed must not be chosen by the bound.

Fixed designs are refused: where it is known beforehand that 500 of 1 000 runs are
members, the last world follows from the others, and no order makes it a coin.

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
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from privaudit.auditing.bounds._bets import WEIGHTS, bet_on_guesses, bet_on_regions
from privaudit.auditing.bounds.contract import Estimator, Evidence, Found, generator
from privaudit.auditing.scores import (
    LEAST_CHANCE,
    Design,
    Scores,
    chance_in_words,
    chance_of_counts,
    checked_runs,
)
from privaudit.files.arguments import Checked
from privaudit.task_settings import Inside

Floats = NDArray[np.float64]
Against = Literal["any mechanism", "mu-Gaussian DP"]
ANY: Against = "any mechanism"
Order = Literal["shuffled", "time"]
ORDERS: tuple[Order, ...] = get_args(Order)
_NOTES: dict[Order, str] = {
    "shuffled": "bets on the rows in an order shuffled by the seed; valid for a number "
    "of runs that was fixed beforehand",
    "time": "bets on the rows as they stand; assumes that they stand in the order of "
    "the runs, that each run drew its world by a fair coin of its own, independent of "
    "the runs before it, and that no run looked at later ones; then valid whenever one "
    "stops and however often one has looked",
}

_FIRST = 8  # runs before the first bet
_CHUNK = 512  # runs settled at a time, for memory
_GROWTH = 1.1  # thresholds are chosen anew when there are so many times more runs

DEFAULT_GRID = tuple(
    np.concatenate([np.arange(0, 0.6, 0.02), np.geomspace(0.6, 16, 110)]).tolist()
)


@dataclasses.dataclass(frozen=True, slots=True)
class Game(Checked):
    """Game of bets against a claim: fixed before the first run."""

    # delta, confidence: of the bound; delta in [0, 1), and > 0 against Gaussian DP
    delta: float
    confidence: Inside = 0.95
    # rising, the grid of the bound; one claim alone is a grid too. The bound is a point
    # of it, so that a verdict, which asks for more than the claim, needs one a little
    # above the claim
    epsilons: tuple[float, ...] = DEFAULT_GRID
    # all mechanisms with (epsilon, delta)-DP, or those with mu-GDP only
    against: Against = "any mechanism"

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        gaussian = self.against == "mu-Gaussian DP"
        if not 0 <= self.delta < 1 or (gaussian and self.delta == 0):
            raise ValueError(
                f"delta must be in [0, 1), and above 0 against Gaussian DP, "
                f"got {self.delta}"
            )
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
    """The state of a game after some runs; ``after`` gives the next one."""

    game: Game
    log_wealth: Floats  # of each strategy, now, (epsilons, strategies)
    highest: Floats  # of all strategies together, after any run so far, (epsilons,)
    # member, score: the runs so far, in order, (runs,)
    member: NDArray[np.bool_]
    score: Floats

    @property
    def refuted(self) -> NDArray[np.bool_]:
        """Mask of the grid's points that have been refuted.  # (epsilons,)"""
        return self.highest >= -math.log1p(-self.game.confidence)

    @property
    def epsilon(self) -> float:
        """The bound so far: all points of the grid up to it are refuted; or 0."""
        standing = np.flatnonzero(~self.refuted)
        last = standing[0] if len(standing) else len(self.refuted)
        return self.game.epsilons[last - 1] if last else 0.0

    def stop(self, claim: float, most_runs: int) -> Literal["refuted", "spent"] | None:
        """Return whether the claim, or the next point, is refuted, or runs end."""
        above = np.searchsorted(self.game.epsilons, claim)
        if self.refuted[: above + 1].all() and above < len(self.refuted):
            return "refuted"
        return "spent" if len(self.score) >= most_runs else None

    def after(self, member: ArrayLike, score: ArrayLike) -> Wealth:
        """The wealth after further runs, in order, each of a fair coin of its own."""
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
            delta, epsilons = self.game.delta, self.game.epsilons
            gains_of = plan(delta, epsilons, self.member[:past], self.score[:past])
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
    """Runs that the present plan rests on, and the number at which it is renewed."""
    past, renewed = 0, _FIRST
    while renewed <= seen:
        past, renewed = renewed, max(renewed + 1, math.ceil(_GROWTH * renewed))
    return past, renewed


@dataclasses.dataclass(frozen=True, slots=True)
class Betting(Estimator):
    """The bet against every epsilon, run by run."""

    name: ClassVar[str] = "betting"
    source: ClassVar[str] = "Waudby-Smith and Ramdas, arXiv:2010.09686; betting.py"
    designs: ClassVar[tuple[Design, ...]] = ("coin-flip",)
    against: ClassVar[Against] = "any mechanism"

    epsilons: tuple[float, ...] = DEFAULT_GRID  # rising, the grid of the bound
    # ``shuffled``: the rows are permuted by the seed, and may stand in any order.
    # ``time``: they are taken as they stand, which must be the order of the runs.
    # Audits shuffle: each of their runs has its own coin, drawn apart from all scores,
    # and how many there are is fixed beforehand
    order: Order = "shuffled"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order must be {' or '.join(ORDERS)}, got {self.order!r}")

    @property
    def valid_for(self) -> str:
        """Claim that the bets are against."""
        return self.against

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        if delta == 0 and self.against == "mu-Gaussian DP":
            return 0.0, Evidence(note="at delta 0 there is no Gaussian to bet against")
        game = Game(delta, 1 - alpha, self.epsilons, self.against)
        rows = np.arange(len(scores))
        if self.order == "time":
            _check_time(scores)
        else:
            rows = np.argsort(scores.score, kind="stable")  # ties know no worlds
            rows = generator(seed, "order of bets").permutation(rows)
        wealth = game.start().after(scores.member[rows], scores.score[rows])
        return wealth.epsilon, Evidence(
            testing_runs=len(scores), note=_NOTES[self.order]
        )


def _check_time(scores: Scores) -> None:
    """Raise ``ValueError`` if fair coins hardly give the worlds in this order."""
    changes = int(np.count_nonzero(np.diff(scores.member)))
    chance = chance_of_counts(changes, len(scores) - 1 - changes)
    if chance < LEAST_CHANCE:
        raise ValueError(
            f"{len(scores):,} rows whose world changes {changes:,} times are refused "
            "as in order of time: coins do so or further from the mean with chance "
            f"{chance_in_words(chance)}, below {LEAST_CHANCE:g}; use the order shuffled"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class BettingGaussian(Betting):
    """The same against Gaussian DP."""

    name: ClassVar[str] = "betting-gaussian"
    against: ClassVar[Against] = "mu-Gaussian DP"
