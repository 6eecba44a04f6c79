"""The test of one pair: is a mechanism (epsilon, delta)-DP on two data sets?

Each run tosses a fair coin of its own for the data set. There are a few *looks*, each
at twice as many runs as the one before (four times, where runs are vectorised). At each
an attack is learned on all runs before it, and guesses the coins of the fresh ones; how
many are right, of all looks so far, is held against the claim by the exact test of
`privaudit.testing.coins`. So the last look is one at all runs but the very first, and
most of alpha is kept for it; the rest is shared by the others. The first look that
refutes the claim ends the runs. By the union bound a right mechanism is refuted by any
with probability at most alpha.
"""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import functools
import itertools
import math
import reprlib
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy import special

from privaudit.auditing.scores import real_numbers
from privaudit.files.arguments import public
from privaudit.files.user_code import by_generator
from privaudit.testing.fingerprints import fingerprint
from privaudit.testing.coins import LEVELS, Stage, Worlds, chance_together
from privaudit.testing.learning import Attack
from privaudit.testing.outputs import Reader, Readings, parts_of

Mechanism = Callable[[Any, Any], object]
Scoring = Callable[[Any], float] | Literal["bits"] | None

_BATCH, _WIDE_BATCH = 1024, 250_000  # runs between looks at the clock
_LEAST = 256  # runs of a first look; fewer are only learned from
_GROWTH, _WIDE_GROWTH = 2, 4
_LAST = 0.8  # of alpha, for the last look
_HIGHEST = 500  # claim; no runs refute more
_FINE = 1e-3  # how near a bound is to the largest, relatively


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of `judge`: what the runs on one pair of data sets showed.

    Parameters
    ----------
    refuted
        Whether the claim (``epsilon``, ``delta``) is refuted.
    bound
        Lower bound on epsilon at ``delta``, at the confidence ``level``; 0 if the runs
        showed nothing. Runs stop at a look that refutes the claim.
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
        The attack of the last look.
    growth
        How surely the last look spoke against the claim, per run: minus the logarithm
        of its p-value, divided by the number of runs.
    attack
        The attack itself, fixed; None if there was no look.
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
    attack: Attack | None = dataclasses.field(default=None, repr=False, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Sampler:
    """Runs of a mechanism on a pair, each on a data set by its own coin."""

    mechanism: Mechanism
    pair: tuple[Any, Any]
    score: Scoring
    vectorised: bool
    coins: np.random.Generator
    draws: np.random.Generator
    reader: Reader

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        pair: tuple[Any, Any],
        score: Scoring,
        vectorised: bool,
        stream: tuple[int, ...],
    ) -> Sampler:
        """The sampler whose random numbers are those of ``stream``."""
        coins, draws = (
            np.random.default_rng(one)
            for one in np.random.SeedSequence(stream).spawn(2)
        )
        called = mechanism if vectorised else by_generator(mechanism)
        reader = Reader(bits=score == "bits")
        return cls(called, pair, score, vectorised, coins, draws, reader)

    def run(self, runs: int) -> tuple[Worlds, Readings]:
        """The data set of each of ``runs``, and what they gave."""
        worlds = self.coins.random(runs) < 0.5
        if self.vectorised:
            worlds = np.sort(worlds)
            parts = [
                self._many(data, size)
                for data, size in zip(
                    self.pair, np.bincount(worlds, minlength=2).tolist(), strict=True
                )
                if size
            ]
            return worlds, Readings.joined(parts)
        outputs = [self.mechanism(self.pair[int(one)], self.draws) for one in worlds]
        if callable(self.score):
            return worlds, self.reader.read(_scored(self.score, outputs))
        return worlds, self.reader.read(outputs)

    def _many(self, data: Any, size: int) -> Readings:
        outputs = self.mechanism(data, size, self.draws)
        if callable(self.score):
            outputs = np.array(_numbers(self.score(outputs), size))
        parts = parts_of(outputs, size)
        if parts is None:
            return self.reader.read(list(outputs))
        return self.reader.read_arrays(parts)


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
    vectorised: bool = False,
) -> Verdict:
    """Test (epsilon, delta)-DP of ``mechanism`` on one pair; return the verdict.

    Parameters
    ----------
    mechanism, pair, epsilon, delta, confidence, runs, score, seed, vectorised
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
    sampler = Sampler.of(mechanism, pair, score, vectorised, (seed, k))
    claim = _as_written(epsilon)
    looks = _looks(runs, _WIDE_GROWTH if vectorised else _GROWTH)
    levels = _levels(alpha, len(looks) - 1)
    batch = _WIDE_BATCH if vectorised else _BATCH
    past: list[tuple[Worlds, Readings]] = []
    attack: Attack | None = None
    stages: list[Stage] = []
    done, bound, growth = 0, 0.0, 0.0
    stopped: Literal["refuted", "runs", "seconds"] = "runs"
    for end, level in zip(looks, levels, strict=True):
        if past:
            attack = Attack.of(
                Readings.joined([part for _, part in past]),
                np.concatenate([worlds for worlds, _ in past]),
                claim,
                delta,
                reader=sampler.reader,
                given=callable(score),
            )
        counts, fresh = np.zeros((2, LEVELS), dtype=np.int64), end - done
        while done < end and time.monotonic() - started < seconds:
            worlds, readings = sampler.run(min(batch, end - done))
            done += len(worlds)
            if attack is not None:
                counts += attack.guessed(readings, worlds)
            past.append((worlds, readings))
        if done < end:
            stopped = "seconds"
            break
        if attack is not None:
            stages.append(Stage(*counts, fresh, sampler.coins.random()))
            chance_of = functools.partial(chance_together, stages, delta=delta)
            found = chance_of(claim)
            growth = -math.log(found) / done
            ends = _ends(chance_of, level, claim, found <= level)
            bound = max(bound, ends[0])
            if found <= level:
                stopped = "refuted"
                break
    if done and sampler.reader.nothing:
        raise ValueError(
            f"the mechanism gave None in all {done:,} runs: let it return what it "
            "releases"
        )
    return Verdict(
        refuted=stopped == "refuted",
        epsilon=epsilon,
        delta=delta,
        bound=bound,
        most=_most_shown(tuple(looks), tuple(levels), delta),
        level=1 - alpha,
        runs=done,
        seconds=time.monotonic() - started,
        stopped=stopped,
        by=f"{attack.name}, learned on {attack.runs:,} runs" if attack else "nothing",
        growth=growth,
        seed=seed,
        k=k,
        attack=attack,
    )


def _looks(runs: int, growth: int) -> list[int]:
    """Runs at each look, rising to ``runs``; the first are only learned from."""
    found = [max(1, runs // growth), runs]
    while found[0] >= _LEAST:
        found.insert(0, found[0] // growth)
    return found if runs > 1 else found[:1]


def _levels(alpha: float, looks: int) -> list[float]:
    """Of each look, after one that has none."""
    early = [(1 - _LAST) * alpha / max(1, looks - 1)] * (looks - 1)
    last = [alpha - sum(early)] if looks else []
    return [0.0, *early, *last]


def _ends(
    chance_of: Callable[..., float], level: float, claim: float, refuted: bool
) -> tuple[float, float]:
    """An epsilon that is refuted at ``level``, or 0, and one near it that is not."""
    low, high = (claim, 2 * claim + 1) if refuted else (0.0, claim)
    while refuted and high < 2 * _HIGHEST and chance_of(high) <= level:
        low, high = high, 2 * high
    while high - low > _FINE * (0.1 + high):
        middle = (low + high) / 2
        fits = chance_of(middle) <= level
        low, high = (middle, high) if fits else (low, middle)
    return low, high


@functools.lru_cache(maxsize=64)
def _most_shown(
    looks: tuple[int, ...], levels: tuple[float, ...], delta: float
) -> float:
    """The epsilon that no look refutes, whatever it sees, >= 0: by all coins guessed.

    One (epsilon, delta)-DP mechanism tells each coin with a chance of at least 1 / (1 +
    exp(-epsilon)): where all are told likely enough, not even this is a refutation.
    """
    every = np.zeros(LEVELS, dtype=np.int64)
    stages, most = [], 0.0
    for (before, end), level in zip(itertools.pairwise(looks), levels[1:], strict=True):
        every[0] = end - before
        stages.append(Stage(every.copy(), every.copy(), end - before, 0.0))
        chance_of = functools.partial(chance_together, list(stages), delta=delta)
        most = max(most, _ends(chance_of, level, 0.0, chance_of(0.0) <= level)[1])
    return most


def _as_written(value: float) -> float:
    """The least float that is at or above the decimal that stands for ``value``.

    So a claim that is refuted at it prints as that decimal, and no less is shown: 1.2
    is a float a little below 1.2, and rounded down it would be 1.199.
    """
    text = decimal.Decimal(repr(float(value)))
    return value if decimal.Decimal(value) >= text else math.nextafter(value, math.inf)


def _scored(score: Callable[[Any], float], outputs: list[object]) -> list[float]:
    given = [score(output) for output in outputs]
    # Neither "1", nor None, which would count as not a number.
    if any(isinstance(value, (str, bytes, type(None))) for value in given):
        given = given[:1] * (len(outputs) + 1)
    return _numbers(given, len(outputs))


def _numbers(given: Any, runs: int) -> list[float]:
    found = np.zeros(0)
    with contextlib.suppress(ValueError):
        found = real_numbers(given)
    if found.shape != (runs,):
        first = given[0] if isinstance(given, list) else given
        raise ValueError(
            f"a score must give one number an output, got {reprlib.repr(first)}"
        )
    return found.astype(float).tolist()


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
