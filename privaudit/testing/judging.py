"""The test of one pair: is a mechanism (epsilon, delta)-DP on two data sets?

Each run tosses a fair coin of its own for the data set, and bets as in
`privaudit.auditing.bounds.betting` are settled on the coins, for several scores at a
time. The average of their wealths, with weights that are fixed beforehand, is a
nonnegative supermartingale under the claim like each of them, so that by Ville's
inequality it ever reaches 1 / alpha with probability at most alpha: one may look after
every batch and stop at once. Half of the capital is bet on the outputs themselves, a
quarter each on what is learned on the first twentieth and the first fifth of the runs.
Capital that is not bet is kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import math
import reprlib
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy import special

from privaudit.auditing.bounds import Game, Wealth
from privaudit.auditing.scores import real_numbers
from privaudit.files.arguments import public
from privaudit.files.user_code import by_generator
from privaudit.testing.fingerprints import fingerprint
from privaudit.testing.learning import Score, column, learned
from privaudit.testing.outputs import Floats, Reader, Readings

Mechanism = Callable[[Any, Any], object]
Scoring = Callable[[Any], float] | Literal["bits"] | None

_FIRST, _BATCH = 64, 1024
_ALONE = 8  # coordinates; of more, those that tell most are learned
_HIGHEST = 500  # claim; exp() of it and of the grid above is a float
_CELLS = 20_000_000  # of the table that is kept to learn from


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of `judge`: what the runs on one pair of data sets showed.

    Parameters
    ----------
    refuted
        Whether the claim (``epsilon``, ``delta``) is refuted.
    bound
        Lower bound on epsilon at ``delta``, at the confidence ``level``; 0 if the runs
        showed nothing. Runs stop as soon as it reaches the claim.
    level
        Confidence of this pair, 1 - alpha / (k (k + 1)): 1 minus the chance that a
        correct mechanism is refuted.
    runs, seconds
        Number of runs made, and the time that they took.
    most
        The largest bound that so many runs can show for any mechanism. A claim of this
        epsilon or more could not have been refuted.
    stopped
        Why the runs ended: a refutation, the planned number of ``runs``, or
        ``seconds``.
    by
        The score that showed most.
    growth
        Logarithm of the final wealth of the bets against the claim, divided by the
        number of runs.
    """

    refuted: bool
    epsilon: float
    delta: float
    bound: float
    most: float
    level: float
    runs: int
    seconds: float
    stopped: Literal["refuted", "runs", "seconds"]
    by: str
    growth: float
    seed: int
    k: int


@dataclasses.dataclass(slots=True)
class _Bet:
    name: str
    score: Score
    log_share: float  # of the capital
    wealth: Wealth


@public
def judge(
    mechanism: Mechanism,
    pair: tuple[Any, Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    confidence: float = 0.999,
    runs: int = 20_000,
    score: Scoring = None,
    seed: int = 0,
    k: int = 1,
    seconds: float = math.inf,
) -> Verdict:
    """Test (epsilon, delta)-DP of ``mechanism`` on one pair; return the verdict.

    Parameters
    ----------
    mechanism, pair, epsilon, delta, confidence, runs, score, seed
        As in `privaudit.testing.assert_private`.
    k
        The pair's number in its test, from 1. The pair is tested at 1 - confidence
        divided by k (k + 1), with random numbers from (seed, k).
    seconds
        Time after which it stops, with the verdict so far.

    Raises
    ------
    ValueError
        If a value is out of its range, an output cannot be read, or all outputs are
        None.

    Examples
    --------
    >>> from privaudit.testing import judge
    >>> def count(data, rng):
    ...     return len(data) + rng.laplace(scale=0.5)
    >>> judge(count, ([], [1]), epsilon=1.0).refuted  # its epsilon is 2
    True
    """
    _check(pair, epsilon, delta, confidence, runs, score, seed, k)
    if not seconds >= 0:
        raise ValueError(f"seconds must be >= 0, got {seconds}")
    started = time.monotonic()
    alpha = (1 - confidence) / (k * (k + 1))
    called = by_generator(mechanism)
    coins, draws = (
        np.random.default_rng(stream)
        for stream in np.random.SeedSequence((seed, k)).spawn(2)
    )
    game = Game(delta, 1 - alpha, _grid(epsilon))
    claim = game.epsilons.index(_as_written(epsilon))
    stages = {max(200, runs // 20): 0.25, max(800, runs // 5): 0.25}
    bets: list[_Bet] = []
    reader: Reader | None = None
    kept: list[Readings] = []
    worlds = np.zeros(0, dtype=np.bool_)
    highest = np.full(len(game.epsilons), -math.inf)
    total, refuted, nothing = highest, False, True
    stopped: Literal["refuted", "runs", "seconds"] = "runs"
    while len(worlds) < runs:
        if time.monotonic() - started >= seconds:
            stopped = "seconds"
            break
        done = len(worlds)
        ends = [done + min(_BATCH, max(done, _FIRST)), runs, *stages]
        batch = min(end for end in ends if end > done) - done
        members = coins.random(batch) < 0.5
        outputs = [called(pair[int(member)], draws) for member in members]
        nothing = nothing and all(output is None for output in outputs)
        if callable(score):
            outputs = _scored(score, outputs)
        if reader is None:
            # Which columns there are is known before any of them is bet on.
            reader = Reader(outputs, bits=score == "bits")
            bets = _first_bets(reader, game, whole=callable(score))
        else:
            readings = reader.read(outputs)
            for bet in bets:
                bet.wealth = bet.wealth.after(members, bet.score(readings))
        worlds = np.concatenate([worlds, members])
        if done < max(stages) and not callable(score):
            kept.append(reader.read(outputs))
            if len(worlds) in stages:
                past = Readings.joined(kept)
                most = max(1, _CELLS // max(1, past.columns.shape[1]))
                past = Readings(past.columns[-most:], past.events[-most:])
                share = stages[len(worlds)]
                bets += _learned_bets(past, worlds[-most:], share, game)
        total = _together(bets, len(game.epsilons))
        highest = np.maximum(highest, total)
        refuted = bool((highest[: claim + 1] >= -math.log(alpha)).all())
        if refuted:
            stopped = "refuted"
            break
    if nothing and len(worlds):
        raise ValueError(
            f"the mechanism gave None in all {len(worlds):,} runs: let it return what "
            "it releases"
        )
    standing = np.flatnonzero(highest < -math.log(alpha))
    last = standing[0] if len(standing) else len(highest)
    best = max(bets, key=lambda bet: _value(bet)[claim], default=None)
    return Verdict(
        refuted=refuted,
        epsilon=epsilon,
        delta=delta,
        bound=game.epsilons[last - 1] if last else 0.0,
        most=_most_shown(runs - _FIRST, delta, alpha),  # the first are only read
        level=1 - alpha,
        runs=len(worlds),
        seconds=time.monotonic() - started,
        stopped=stopped,
        by=best.name if best else "nothing",
        growth=float(total[claim]) / len(worlds) if len(worlds) else 0.0,
        seed=seed,
        k=k,
    )


def _most_shown(runs: int, delta: float, alpha: float) -> float:
    """The epsilon that no test refutes at ``alpha`` by coins of so many runs, >= 0.

    One (epsilon, delta)-DP mechanism tells each coin with probability p = delta + (1 -
    delta) / (1 + exp(-epsilon)), so that all are told with p^runs: where that is alpha
    or more, not even this may count as a refutation.
    """
    told = (alpha ** (1 / runs) - delta) / (1 - delta) if runs > 0 else 0.0
    return max(0.0, float(special.logit(told))) if told > 0 else 0.0


def _first_bets(reader: Reader, game: Game, *, whole: bool) -> list[_Bet]:
    """On the coordinates themselves, where they are few."""
    many = len(reader.names)
    if many > _ALONE:
        return []
    share = math.log((1.0 if whole else 0.5) / max(1, many))
    return [
        _Bet("the score" if whole else name, column(index), share, game.start())
        for index, name in enumerate(reader.names)
    ]


def _learned_bets(
    past: Readings, worlds: np.ndarray, share: float, game: Game
) -> list[_Bet]:
    found = learned(past, worlds)
    return [
        _Bet(
            f"{name}, learned on {len(past):,} runs",
            score,
            math.log(share / len(found)),
            game.start(),
        )
        for name, score in found.items()
    ]


def _value(bet: _Bet) -> Floats:
    """Logarithm of what a bet is worth now, against each epsilon."""
    return bet.log_share + special.logsumexp(bet.wealth.log_wealth, axis=1)


def _together(bets: list[_Bet], points: int) -> Floats:
    """Logarithm of all wealth, what is not bet included."""
    values = [_value(bet) for bet in bets]
    rest = 1 - sum(math.exp(bet.log_share) for bet in bets)
    if rest > 1e-9:
        values.append(np.full(points, math.log(rest)))
    return special.logsumexp(values, axis=0)


def _as_written(value: float) -> float:
    """The least float that is at or above the decimal that stands for ``value``.

    So a bound that is refuted at it is no less than the decimal that is printed: 1.2 is
    a float a little below 1.2, and 1.1999 would be all that it shows.
    """
    text = decimal.Decimal(repr(float(value)))
    return value if decimal.Decimal(value) >= text else math.nextafter(value, math.inf)


def _grid(epsilon: float) -> tuple[float, ...]:
    """The claim, and some points below and above it for the bound."""
    below = epsilon * np.array([0.0, 0.25, 0.5, 0.75, 0.9])
    above = epsilon + np.array([0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0])
    points = {float(f"{point:.4g}") for point in (*below, *above)}
    return tuple(sorted(_as_written(point) for point in {*points, float(epsilon)}))


def _scored(score: Callable[[Any], float], outputs: list[object]) -> list[object]:
    given = [score(output) for output in outputs]
    found = np.zeros(0)
    # Neither "1", nor None, which would count as not a number.
    if not any(isinstance(value, (str, bytes, type(None))) for value in given):
        with contextlib.suppress(ValueError):
            found = real_numbers(given)
    if found.shape != (len(outputs),):
        raise ValueError(
            f"a score must give one number an output, got {reprlib.repr(given[0])}"
        )
    return found.tolist()


def check_differ(pair: tuple[Any, Any]) -> None:
    """Raise ``ValueError`` unless these are two data sets that differ."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError("pair must be a tuple of two data sets")
    if fingerprint(pair[0]) == fingerprint(pair[1]):
        raise ValueError(
            "the two data sets of the pair are equal, so that nothing tells them apart"
        )


def _check(
    pair: tuple[Any, Any],
    epsilon: float,
    delta: float,
    confidence: float,
    runs: int,
    score: Scoring,
    seed: int,
    k: int,
) -> None:
    check_differ(pair)
    for name, value, least in (("runs", runs, 1), ("k", k, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} must be >= {least}, got {value}")
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be >= 0 and finite, got {epsilon}")
    if epsilon > _HIGHEST:
        raise ValueError(
            f"epsilon must be <= {_HIGHEST}, got {epsilon:g}: no runs refute so much"
        )
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if not (score is None or score == "bits" or callable(score)):
        raise ValueError(
            f"score must be a function of an output or 'bits', got {score!r}"
        )
