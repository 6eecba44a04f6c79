"""Releases that one record enters which several nodes hold: the worst of them together.

A record at k nodes is in the releases of all k, which compose in sequence. Which nodes
these are is not known, so that every choice is accounted, but those that another one
dominates.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from privaudit.accounting.allocation import is_allocated
from privaudit.ledger import Entry
from privaudit.release import PoissonSampling, Release

Entries = tuple[Entry, ...]

MOST_COMBINATIONS = 256


def together(
    nodes: Sequence[Entries], overlap: int, node: int | None = None
) -> tuple[Entries, ...]:
    """Releases that a record at ``overlap`` nodes may be in, in sequence; the worst.

    Further nodes than ``nodes`` are taken to release no more than these; ``node`` holds
    the record, if given. ``ValueError`` if more than 256 combinations may be the worst,
    or a release is allocated at random.
    """
    if len(nodes) < overlap:
        nodes = [entries for entries in nodes for _ in range(overlap)]
    fixed = [] if node is None else [nodes[node]]
    others = [entries for index, entries in enumerate(nodes) if index != node]
    left = overlap - len(fixed)
    counts = collections.Counter(others[index] for index in may_be_worst(others, left))
    ways = list(
        itertools.islice(
            _combinations(list(counts.values()), left), MOST_COMBINATIONS + 1
        )
    )
    if len(ways) > MOST_COMBINATIONS:
        raise ValueError(
            f"overlap={overlap} over {len(set(nodes))} different nodes makes more than "
            f"{MOST_COMBINATIONS} combinations of them; make nodes' releases alike, or "
            "account a ledger of one node with all releases"
        )
    different = list(counts)
    return tuple(
        _in_sequence(
            fixed + [different[i] for i, often in enumerate(way) for _ in range(often)]
        )
        for way in ways
    )


def may_be_worst(nodes: Sequence[Entries], overlap: int) -> tuple[int, ...]:
    """Nodes among which are the worst ``overlap``; of nodes alike no more than that."""
    alike: dict[Entries, list[int]] = {}
    for node, entries in enumerate(nodes):
        alike.setdefault(entries, []).append(node)
    able = []
    for entries, same in alike.items():
        worse = [
            len(theirs) for other, theirs in alike.items() if _is_worse(other, entries)
        ]
        able += same[: max(0, overlap - sum(worse))]
    return tuple(sorted(able))


def _is_worse(one: Entries, other: Entries) -> bool:
    """Compare two nodes: ``one`` releases as ``other`` does, at no smaller rates.

    A Poisson sampled release of rate p is one of rate q > p on a sample of the records:
    by convexity its loss is no larger, at each step and so in sequence.
    """
    if one == other or len(one) != len(other):
        return False
    for mine, theirs in zip(one, other, strict=True):
        how, their = mine.release.sampling, theirs.release.sampling
        if not (
            isinstance(how, PoissonSampling) and isinstance(their, PoissonSampling)
        ):
            if mine != theirs:
                return False
            continue
        # All but the rate: a part that is secret, or another one, is no larger sample.
        how = msgspec.structs.replace(their, rate=how.rate)
        if (
            msgspec.structs.replace(theirs.release, sampling=how) != mine.release
            or mine.count != theirs.count
            or mine.disjoint != theirs.disjoint
            or how.rate < their.rate
        ):
            return False
    return True


def _combinations(counts: list[int], size: int) -> Iterator[tuple[int, ...]]:
    """Ways to take ``size`` things of several kinds, as numbers of each kind."""
    if not counts:
        if size == 0:
            yield ()
        return
    if sum(counts) < size:
        return
    for often in range(min(counts[0], size), -1, -1):
        for rest in _combinations(counts[1:], size - often):
            yield (often, *rest)


def _in_sequence(nodes: list[Entries]) -> Entries:
    """The releases of several nodes that hold one record; each has its own passes."""
    if any(map(is_allocated, itertools.chain.from_iterable(nodes))):
        raise ValueError(
            "random allocation is not accounted for records that several nodes hold; "
            "leave overlap at 1"
        )
    merged: dict[tuple[Release, int | None], int] = {}
    offset = 0
    for entries in nodes:
        passes = [e.disjoint for e in entries if e.disjoint is not UNSET]
        for entry in entries:
            where = None if entry.disjoint is UNSET else offset + entry.disjoint
            key = (entry.release, where)
            merged[key] = merged.get(key, 0) + entry.count
        offset += 1 + max(passes, default=-1)
    return tuple(
        Entry(release, count, UNSET if where is None else where)
        for (release, where), count in merged.items()
    )
