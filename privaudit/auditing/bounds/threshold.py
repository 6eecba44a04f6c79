"""Choosing a threshold on one part of the runs, to be tested on the rest.

A region of scores and an order of the worlds are four inequalities of (epsilon,
delta)-DP. What is chosen on one part is fixed for the other: it costs runs, not
confidence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.bounds.contract import Tail, generator
from privaudit.auditing.scores import Scores

_CANDIDATES = 128

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """The scores of both worlds, cut in two at random."""

    members: Floats
    non_members: Floats
    members_left: Floats
    non_members_left: Floats


def split(scores: Scores, share: float, seed: int, purpose: str) -> Split:
    """The runs that choose (``share`` of each world, at least one) and those left."""
    random = generator(seed, purpose)
    members = random.permutation(scores.members)
    non_members = random.permutation(scores.non_members)
    first, second = (max(1, round(share * len(one))) for one in (members, non_members))
    return Split(
        members[:first], non_members[:second], members[first:], non_members[second:]
    )


def counts(world: Floats, thresholds: Floats, tail: Tail) -> NDArray[np.int64]:
    """Number of scores, sorted, that each threshold calls member.  # (thresholds,)"""
    if tail == "upper":
        return len(world) - np.searchsorted(world, thresholds, "left")
    return np.searchsorted(world, thresholds, "right")


def called(world: Floats, threshold: float, tail: Tail) -> int:
    """Number of the scores that one threshold calls member."""
    return int(
        np.count_nonzero(world >= threshold if tail == "upper" else world <= threshold)
    )


def candidates(pooled: Floats) -> Floats:
    """At most 128 of the distinct scores, dense towards both ends of the ranking."""
    distinct, repeats = np.unique(pooled, return_counts=True)
    if len(distinct) <= _CANDIDATES:
        return distinct
    rank = np.cumsum(repeats)
    ends = np.geomspace(1, len(pooled) / 2, _CANDIDATES // 2)
    wanted = np.concatenate([ends, len(pooled) - ends])
    return distinct[np.unique(np.searchsorted(rank, wanted).clip(0, len(distinct) - 1))]


def choose(
    parts: Split, predict: Callable[[Floats, Floats], Floats]
) -> tuple[float, Tail]:
    """The threshold and tail for which ``predict`` promises most."""
    thresholds = candidates(np.concatenate([parts.members, parts.non_members]))
    best: tuple[float, float, Tail] | None = None
    members, non_members = np.sort(parts.members), np.sort(parts.non_members)
    for tail in ("upper", "lower"):
        hits = counts(members, thresholds, tail)
        alarms = counts(non_members, thresholds, tail)
        promised = predict(
            # Half a run at each end: a threshold that no run has passed yet is not one
            # that none will pass.
            (hits + 0.5) / (len(parts.members) + 1) * len(parts.members_left),
            (alarms + 0.5) / (len(parts.non_members) + 1) * len(parts.non_members_left),
        )
        place = int(np.argmax(promised))
        if best is None or promised[place] > best[0]:
            best = float(promised[place]), float(thresholds[place]), tail
    assert best is not None
    return best[1], best[2]
