"""Parallel composition: of releases on disjoint records, those that one enters.

**Claim.** Let a node publish, one after another and each as it likes given what was
published before, the releases of one pass: a partition of its records into parts, drawn
without a look at any record's value, and for each part one release of it. Then for two
data sets that differ in one record the privacy loss of all of them together is that of
the one release whose part holds the record (McSherry 2009, Theorem 4, with adaptivity).

**Proof.** Fix the partition; it has one law in both worlds. Let the record lie in part
k. By the chain rule the likelihood ratio of a transcript is the product over i of
p_i(y_i | y_1..y_{i-1}) / p'_i(y_i | y_1..y_{i-1}). For i != k the part is the same in
both worlds, so that given the same past the factor is 1; what remains is factor k,
which is that of release k for every past. A record enters one of k = 1..T, so that the
worst release bounds all. With several passes one factor of each remains, and all
releases outside passes: the composition of these is the bound, and the worst choice of
one release a pass is the node's.

**Relations.** *Replace one*: the new record stands in the old one's place, since no
value is looked at; both are in part k and the release's replace-one sensitivity counts
once. (Had the value chosen the part, two parts would change.) *Add or remove one*: the
other records must keep their parts, an empty place left behind. Batches that fill up
again shift all later ones, and are no such partition; their releases carry no
add-or-remove-one sensitivity, and every account then refuses the relation.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import TypeVar

from msgspec import UNSET

from privaudit.ledger import Entry
from privaudit.release import NoSampling, RandomAllocation, Release
from privaudit.results import Relation

Entries = tuple[Entry, ...]
T = TypeVar("T")

MOST_VIEWS = 256


def views(entries: Entries, relation: Relation) -> tuple[Entries, ...]:
    """Ways a record can enter: all that is in no pass, and one release of each pass.

    The node's loss is that of the worst. Of unsampled releases of one noise only the
    costliest is kept. ``ValueError`` if there are more than 256 ways, or no meaning.
    """
    shared = outside_passes(entries)
    if len(shared) == len(entries):
        return (entries,)
    passes: dict[int, list[Release]] = {}
    for entry in entries:
        if entry.disjoint is not UNSET:
            passes.setdefault(entry.disjoint, []).append(entry.release)
    worst = (_worst(releases, relation) for releases in passes.values())
    choices = [releases for releases in worst if releases]
    if math.prod(map(len, choices)) > MOST_VIEWS:
        raise ValueError(
            f"{len(choices)} passes with up to {max(map(len, choices))} kinds of "
            f"releases: there are more than {MOST_VIEWS} ways through them; account "
            "the ledger without its passes, or make their releases alike"
        )
    found = (
        _merged([*shared, *map(Entry, way)]) for way in itertools.product(*choices)
    )
    return tuple(dict.fromkeys(found))


def worst_way(
    entries: Entries,
    relation: Relation,
    cost: Callable[[Entries], T],
    worse: Callable[[T, T], T],
) -> T:
    """Cost of the worst of what a record can enter; ``worse`` is that of two costs.

    Every account of passes goes through here. Raises ``ValueError`` as `views`.

    >>> worst_way((), "replace-one", len, max)
    0
    """
    return functools.reduce(worse, map(cost, views(entries, relation)))


def outside_passes(entries: Entries) -> Entries:
    """Releases that every record enters: all that a lower side can rest on."""
    return tuple(entry for entry in entries if entry.disjoint is UNSET)


def _worst(releases: list[Release], relation: Relation) -> list[Release]:
    """Those of a pass that may cost a record most; none if nothing is told."""
    kept: dict[object, Release] = {}
    for release in releases:
        if not release.sensitivity_under(relation):
            continue
        if release.details is not UNSET:  # no two of these are compared
            kept[release] = release
            continue
        ratio = release.noise_over_sensitivity(relation)
        # A larger shift against equal noise is the smaller one blurred less.
        key: object = release
        if isinstance(release.sampling, NoSampling):
            key = release.mechanism if release.is_private else None
        if key not in kept or ratio < kept[key].noise_over_sensitivity(relation):
            kept[key] = release
    return [kept[None]] if None in kept else list(kept.values())


def _merged(entries: list[Entry]) -> Entries:
    counts: dict[Release, int] = {}
    in_order = []  # the epochs of random allocations are told by it
    for entry in entries:
        if isinstance(entry.release.sampling, RandomAllocation):
            in_order.append(entry)
            continue
        counts[entry.release] = counts.get(entry.release, 0) + entry.count
    return (*in_order, *itertools.starmap(Entry, counts.items()))
