"""The bound of an ideal attack: scores drawn from the ledger's dominating pair.

The sum of releases' log likelihood ratios is the best score (Neyman and Pearson): as
many runs tell how much of a gap is for want of runs, whatever the attack.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.bounds.contract import Estimator, generator
from privaudit.auditing.scores import Design, Scores
from privaudit.ledger import Entry
from privaudit.release import RandomAllocation
from privaudit.results import Relation

_CHUNK = 1 << 22  # normal numbers at once
_FARTHEST = 1e100
_REPEATS = 7  # the middle of three was 1.0 where that of many is 0.1
_LEAST = 3  # made always, however many normal numbers they take
_MOST_DRAWN = 1 << 25  # normal numbers in all of them


def ideal_scores(
    entries: tuple[Entry, ...],
    relation: Relation,
    member: NDArray[np.bool_],
    random: np.random.Generator,
) -> NDArray[np.float64] | None:
    """Scores of the best attack on a record of ``entries``; None if it is unknown."""
    total = np.zeros(len(member))
    for entry in entries:
        release = entry.release
        if release.mechanism != "gaussian" or not release.is_private:
            return None
        if isinstance(release.sampling, RandomAllocation):
            return None
        replaces = relation == "replace-one"
        # Replacing a vector by its opposite moves a sum by twice its norm.
        moved = release.sensitivity_under(relation) / (2 if replaces else 1)
        shift, rate = moved / release.noise, release.sampling.rate
        if shift > _FARTHEST:
            return None
        columns = max(1, _CHUNK // len(member))
        for first in range(0, entry.count, columns):
            size = (len(member), min(columns, entry.count - first))
            drawn = random.random(size) < rate
            sign = np.where(member, 1.0, -1.0 if replaces else 0.0)
            x = random.standard_normal(size) + shift * sign[:, None] * drawn
            total += _log_ratio(x, shift, rate).sum(1)
            if replaces:
                total -= _log_ratio(-x, shift, rate).sum(1)
    return total


def reachable(
    estimator: Estimator,
    entries: tuple[Entry, ...],
    relation: Relation,
    member: NDArray[np.bool_],
    delta: float,
    confidence: float,
    seed: int,
    design: Design = "coin-flip",
) -> float | None:
    """About the bound of the best attack in the worlds ``member``; None if unknown."""
    worlds = member.tobytes(), member.shape
    return _reachable(
        estimator, entries, relation, worlds, delta, confidence, seed, design
    )


@functools.lru_cache(maxsize=64)  # a run, its page and its check ask for the same
def _reachable(
    estimator: Estimator,
    entries: tuple[Entry, ...],
    relation: Relation,
    worlds: tuple[bytes, tuple[int, ...]],
    delta: float,
    confidence: float,
    seed: int,
    design: Design,
) -> float | None:
    flat = np.frombuffer(worlds[0], dtype=np.bool_)
    member = flat.reshape(worlds[1])
    found = []
    drawn = len(flat) * sum(entry.count for entry in entries)
    for repeat in range(max(_LEAST, min(_REPEATS, _MOST_DRAWN // max(1, drawn)))):
        random = generator(seed + repeat, "the best attack")
        scores = ideal_scores(entries, relation, flat, random)
        if scores is None:
            return None
        bound = estimator(
            Scores.of_runs(member, scores.reshape(member.shape), design),
            delta,
            confidence,
            relation=relation,
            threat_model="all",
            seed=seed + repeat,
        )
        found.append(bound.epsilon)
    return float(np.median(found))


def _log_ratio(
    x: NDArray[np.float64], shift: float, rate: float
) -> NDArray[np.float64]:
    exponent = shift * x - shift * shift / 2
    if rate >= 1:
        return exponent
    if rate == 0:
        return np.zeros_like(x)
    return np.logaddexp(exponent + np.log(rate), np.log1p(-rate))
