"""The test of one pair: is a mechanism (epsilon, delta)-DP on two data sets?

Each run tosses a fair coin of its own for the data set. There are a few *looks*, each
at twice as many runs as the one before (four times, where runs are vectorised). At each
an attack is learned on all runs before it, and guesses the coins of the fresh ones; how
many are right, of all looks so far, is held against the claim by the exact test of
`privaudit.testing.coins`. So the last look is one at all runs but the very first, and
most of alpha is kept for it; the rest is shared by the others. Where an output is one
number, nine tenths of alpha are for `best` on all runs, the strongest bound of a fixed
size: its ranking and its test of two binomials, in its shares. The first look that
refutes the claim ends the runs. By the union bound a right mechanism is refuted by any
with probability at most alpha.
"""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import functools
import math
import time
from typing import Any, Literal

import numpy as np
from scipy import special

from privaudit.auditing.bounds.best import SHARES
from privaudit.auditing.bounds.contract import generator
from privaudit.auditing.bounds.rank_walk import RankWalk
from privaudit.auditing.bounds.two_binomial import TwoBinomial
from privaudit.auditing.scores import Scores
from privaudit.files.arguments import number, public
from privaudit.files.fingerprints import check_differ, fingerprint
from privaudit.files.pasting import name_of
from privaudit.testing.coins import LEVELS, Ranking, Stage, Worlds, chance_together
from privaudit.testing.learning import Attack
from privaudit.testing.outputs import Readings
from privaudit.testing.sampling import Mechanism, Sampler, Scoring

__tracebackhide__ = True  # pytest shows where a test calls, and its mechanism

_BATCH, _WIDE_BATCH = 1024, 250_000  # runs between looks at the clock
_LEAST = 256  # runs of a first look; fewer are only learned from
_GROWTH, _WIDE_GROWTH = 2, 4
_LAST = 0.96  # of alpha, for the last look
_FIXED = 0.9  # of alpha, for `best` on all runs; a part of that
_HIGHEST = 500  # claim; no runs refute more
_FINE = 1e-3  # how near a bound is to the largest, relatively


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of `judge`: what the runs on one pair of data sets showed.

    ``refuted``: whether the claim (``epsilon``, ``delta``) is refuted. ``bound``: lower
    bound on epsilon at ``delta``, at the confidence ``level``; 0 if the runs showed
    nothing. Runs stop at a look that refutes the claim. ``level``: confidence of this
    pair, 1 - alpha / (k (k + 1)): 1 minus the chance that a correct mechanism is
    refuted. ``runs``, ``seconds``: number of runs made, and the time that they took.
    ``most``: the largest bound that so many runs can show for any mechanism. A claim of
    this epsilon or more could not have been refuted. ``still``: whether all outputs
    were the same. ``stopped``: why the runs ended: a
    refutation, the planned number of ``runs``, or ``seconds``. ``by``: the attack of
    the last look. ``growth``: how surely the last look spoke against the claim, per
    run: minus the logarithm of its p-value, divided by the number of runs. ``attack``:
    the attack itself, fixed; None if there was no look.
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
    still: bool
    attack: Attack | None = dataclasses.field(default=None, repr=False, compare=False)


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
        If a value is out of its range, an output cannot be read, all outputs are
        None, or data were changed.

    Examples
    --------
    >>> from privaudit.testing import judge
    >>> def count(data, rng):
    ...     return len(data) + rng.laplace(scale=0.5)
    >>> judge(count, ([], [1]), epsilon=1.0).refuted  # its epsilon is 2
    True
    """
    epsilon, delta = number("epsilon", epsilon), number("delta", delta)
    _check(pair, epsilon, delta, confidence, runs, score, seed, k)
    if not seconds >= 0:
        raise ValueError(f"seconds must be >= 0, got {seconds}")
    started, data = time.monotonic(), fingerprint(pair)
    alpha = (1 - confidence) / (k * (k + 1))
    sampler = Sampler.of(mechanism, pair, score, vectorised, (seed, k))
    claim = _as_written(epsilon)
    looks = _looks(runs, _WIDE_GROWTH if vectorised else _GROWTH)
    levels, fixed = _levels(alpha, len(looks) - 1), 0.0
    batch = _WIDE_BATCH if vectorised else _BATCH
    past: list[tuple[Worlds, Readings]] = []
    attack: Attack | None = None
    evidence = _Evidence([], 0.0)
    done, growth = 0, 0.0
    stopped: Literal["refuted", "runs", "seconds"] = "runs"
    for end in looks:
        if past:
            if attack is None and sampler.reader.is_number:
                fixed = _FIXED * alpha
                levels[-1] -= fixed
            learn = functools.partial(
                Attack.of,
                Readings.joined([part for _, part in past]),
                np.concatenate([worlds for worlds, _ in past]),
                reader=sampler.reader,
                given=callable(score),
            )
            attack = learn(claim, delta)
            if end == runs and attack.plan.strength < (end - done) ** -0.5:
                attack = learn(0.0, delta)  # nothing above the claim: what is below it
        counts, fresh = np.zeros((2, LEVELS), dtype=np.int64), end - done
        while done < end and time.monotonic() - started < seconds:
            worlds, readings = sampler.run(min(batch, end - done))
            done += len(worlds)
            if attack is not None:
                counts += attack.guessed(readings, worlds)
            if end < runs or fixed:
                past.append((worlds, readings))
        if done < end:
            stopped = "seconds"
            break
        if attack is not None:
            right, guesses = counts
            stage = Stage(right, guesses, fresh, sampler.coins.random())
            evidence = _Evidence(
                [*evidence.stages, stage], levels[len(evidence.stages) + 1]
            )
            if end == runs and fixed and sampler.reader.is_number:
                evidence.add_best(past, delta, fixed, seed)
            growth = -math.log(evidence.chance(claim, delta)) / done
            if evidence.refutes(claim, delta):
                stopped = "refuted"
                break
    refuted = stopped == "refuted"
    if fingerprint(pair) != data:
        raise ValueError(f"{name_of(mechanism)} changed its data: give it a copy")
    if done and sampler.reader.nothing:
        raise ValueError(
            f"the mechanism gave None in all {done:,} runs: let it return what it "
            "releases"
        )
    return Verdict(
        refuted=refuted,
        epsilon=epsilon,
        delta=delta,
        bound=_bound(evidence, claim, delta, refuted),
        most=_most_shown(looks, levels, fixed, delta),
        level=1 - alpha,
        runs=done,
        seconds=time.monotonic() - started,
        stopped=stopped,
        by=f"{attack.name}, learned on {attack.runs:,} runs" if attack else "nothing",
        growth=growth,
        seed=seed,
        k=k,
        still=sampler.reader.still,
        attack=attack,
    )


def _looks(runs: int, growth: int) -> list[int]:
    """Runs at each look, rising to ``runs``; the first are only learned from."""
    found = [max(1, runs // growth), runs]
    while found[0] >= _LEAST:
        found.insert(0, found[0] // growth)
    return found if runs > 1 else found[:1]


def _levels(alpha: float, looks: int) -> list[float]:
    """Levels of the looks; the first, which is only learned from, has none."""
    early = [(1 - _LAST) * alpha / max(1, looks - 1)] * (looks - 1)
    last = [alpha - sum(early)] if looks else []
    return [0.0, *early, *last]


@dataclasses.dataclass(slots=True)
class _Evidence:
    """Tests of one look; the last one has those of `best`, at their own levels."""

    stages: list[Stage]
    level: float
    ranking: Ranking | None = None
    counted: float = 0.0  # what the test of two binomials refutes

    def add_best(
        self, seen: list[tuple[Worlds, Readings]], delta: float, alpha: float, seed: int
    ) -> None:
        """All runs by their one number: what `best` does at alpha, with its seed."""
        score = np.concatenate([part.columns[:, 0] for _, part in seen])
        worlds = np.concatenate([worlds for worlds, _ in seen])
        walk, binomials = (share * alpha for share in SHARES)
        found = Ranking.of(score, worlds, generator(seed, RankWalk.name), delta, walk)
        if found.chance(0.0, delta) <= walk:
            self.ranking = found
        # Coins that fall more unevenly than one in a million are refused.
        with contextlib.suppress(ValueError):
            scores = Scores(worlds, score, "coin-flip")
            self.counted, _ = TwoBinomial().find(scores, delta, binomials, seed)

    def chance(self, epsilon: float, delta: float) -> float:
        """p-value of the stages."""
        return chance_together(self.stages, epsilon, delta)

    def refutes(self, epsilon: float, delta: float) -> bool:
        """Return whether a test refutes (epsilon, delta)-DP at its level."""
        if self.stages and self.chance(epsilon, delta) <= self.level:
            return True
        ranking = self.ranking
        if ranking and ranking.chance(epsilon, delta) <= ranking.level:
            return True
        return epsilon < self.counted


def _bound(evidence: _Evidence, claim: float, delta: float, refuted: bool) -> float:
    """Nearly the largest epsilon that the last look refutes."""
    low, high = (claim, 2 * claim + 1) if refuted else (0.0, claim)
    while refuted and high < _HIGHEST and evidence.refutes(high, delta):
        low, high = high, 2 * high
    while high - low > _FINE * (0.1 + high):
        middle = (low + high) / 2
        low, high = (middle, high) if evidence.refutes(middle, delta) else (low, middle)
    return low


def _most_shown(
    looks: list[int], levels: list[float], fixed: float, delta: float
) -> float:
    """The epsilon that no look refutes, whatever it sees, >= 0: by all coins guessed.

    One (epsilon, delta)-DP mechanism tells each coin with a chance of delta + (1 -
    delta) / (1 + exp(-epsilon)): where all are told likely enough, not even this is a
    refutation.
    """
    fresh = np.diff(looks)

    def shown(epsilon: float) -> bool:
        told = math.log(delta + (1 - delta) * float(special.expit(epsilon)))
        normal = -special.ndtri_exp(told * fresh)
        together = np.cumsum(np.sqrt(fresh) * normal) / np.sqrt(np.cumsum(fresh))
        staged = (special.log_ndtr(-together) <= np.log(levels[1:])).any()
        ranked = max(SHARES[0] * fixed, 1e-300)  # two binomials are of fewer runs
        return bool(staged or told * looks[-1] <= math.log(ranked))

    low, high = 0.0, float(_HIGHEST)
    while high - low > _FINE * (0.1 + high):
        middle = (low + high) / 2
        low, high = (middle, high) if shown(middle) else (low, middle)
    return high if shown(0.0) else 0.0


def _as_written(value: float) -> float:
    """The least float that is at or above the decimal that stands for ``value``.

    So a claim that is refuted at it prints as that decimal, and no less is shown: 1.2
    is a float a little below 1.2, and rounded down it would be 1.199.
    """
    text = decimal.Decimal(repr(float(value)))
    return value if decimal.Decimal(value) >= text else math.nextafter(value, math.inf)


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
    allowed = (
        (0 <= epsilon < math.inf, "epsilon must be >= 0 and finite", epsilon),
        (epsilon <= _HIGHEST, f"no runs refute more than epsilon {_HIGHEST}", epsilon),
        (0 <= delta < 1, "delta must be in [0, 1)", delta),
        (0 < confidence < 1, "confidence must be in (0, 1)", confidence),
    )
    for holds, words, given in allowed:
        if not holds:
            raise ValueError(f"{words}, got {given}")
    if not (score is None or score == "bits" or callable(score)):
        raise ValueError(
            f"score must be a function of an output or 'bits', got {score!r}"
        )
