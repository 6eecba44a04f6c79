"""Sums by recursive doubling at a common model: what each node hears, in closed form.

Of 2^k nodes, node i is at place a_t i in step t, the product in GF(2^k) with a_t going
through all elements but 0. In exchange r the nodes whose places differ in bit r alone
swap what they have summed. So v first hears node u's release in a sum of 2^b releases,
b the highest bit in which their places differ, and every pair meets in a sum of 2^b
nodes 2^b times in 2^k - 1 steps. Theorem and proof: docs/butterfly.md.
"""

from __future__ import annotations

import functools
import math

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from privaudit.accounting.certificate import relation_of
from privaudit.accounting.views.grid import MOST_MU2, failure_up
from privaudit.accounting.views.observer import ANY_NODE, Observer
from privaudit.ledger import RESUMED, Entry, Ledger
from privaudit.release import Release
from privaudit.results import Relation, round_down

_PRIMITIVE = {
    1: 0b11,
    2: 0b111,
    3: 0b1011,
    4: 0b10011,
    5: 0b100101,
    6: 0b1000011,
    7: 0b10000011,
    8: 0b100011101,
    9: 0b1000010001,
    10: 0b10000001001,
}


def exchanges(nodes: int) -> int:
    """How many exchanges make a step, k. ``ValueError`` unless 2 <= 2^k <= 1024.

    >>> exchanges(8)
    3
    """
    found = int(nodes).bit_length() - 1
    if found not in _PRIMITIVE or nodes != 1 << found:
        raise ValueError(
            f"a butterfly has 2, 4, 8, ... or 1024 nodes, a power of two, got {nodes}"
        )
    return found


def _product(one: int, other: int, bits: int) -> int:
    """In GF(2^bits)."""
    result = 0
    while other:
        if other & 1:
            result ^= one
        other >>= 1
        one <<= 1
        if one >> bits:
            one ^= _PRIMITIVE[bits]
    return result


@functools.cache
def places(nodes: int) -> NDArray[np.int_]:
    """(nodes - 1, nodes): each node's place in the steps of a cycle.

    >>> places(4).tolist()
    [[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]]
    """
    bits = exchanges(nodes)
    return np.array(
        [[_product(a, i, bits) for i in range(nodes)] for a in range(1, nodes)]
    )


def fresh_noises(
    nodes: int, steps: int, of: int, observer: Observer
) -> NDArray[np.int_]:
    """(steps,): of how many releases the least sum is in which ``of`` is heard.

    1 for a wire, and for whoever hears everything.

    >>> fresh_noises(4, 6, 0, Observer.of(3)).tolist()
    [2, 1, 2, 2, 1, 2]
    """
    observer.check(nodes)
    if not observer.nodes:
        exchanges(nodes)
        return np.ones(steps, int)
    if of in observer.nodes:
        raise ValueError(f"node {of} is of the observer: nothing of it is hidden")
    where = places(nodes)
    apart = where[:, [of]] ^ where[:, list(observer.nodes)]
    return np.resize(_msb(apart.min(1)), steps)


def observed(ledger: Ledger, observer: str, relation: Relation | None = None) -> Ledger:
    """What ``observer`` learns of each node: the ledger, with the noise that it meets.

    Nodes of the observer have no releases in it: nothing of theirs is hidden from it,
    and `Certificate.node` of them says infinity. Valid where ``ledger`` is of a run
    whose sums are exact, see ``grid.md``; where releases were made again with other
    sums, or have next to no noise, all is taken as seen.

    Parameters
    ----------
    ledger
        Of all nodes: a release a step. Of several runs, or steps that differ, all is
        taken as seen: compose what is observed of each run.
    observer
        As `Observer.parse` takes it, or ``any-node``: for each node whichever other
        one learns most of it, or a bit more.
    relation
        The neighbour relation, as of `Certificate.of`.

    Raises
    ------
    ValueError
        If there is no such observer, or nobody is left to be protected; or nodes have
        different noise.

    >>> from privaudit.release import NoSampling
    >>> release = Release.of_sum(
    ...     norm_bound=1, noise_multiplier=3.0, sampling=NoSampling()
    ... )
    >>> seen = observed(Ledger.of(release, 3, nodes=4), "any-node")
    >>> [(round(e.release.noise, 3), e.count) for e in seen.nodes[0]], seen.observer
    ([(3.0, 1), (4.243, 2)], 'any-node')
    """
    if ledger.observer is not UNSET:
        raise ValueError(
            f"the ledger is of what {ledger.observer} sees already: give the run's own"
        )
    nodes = len(ledger.nodes)
    who = None if observer == ANY_NODE else Observer.parse(observer)
    name = ANY_NODE if who is None else str(who.name)
    inside = set() if who is None else set(who.nodes)
    if who is not None:
        who.check(nodes)
    if len(inside) == nodes:
        raise ValueError(
            f"observer {name}: nobody is left to be protected, all nodes collude"
        )
    releases = [
        [entry.release for entry in entries for _ in range(entry.count)]
        for entries in ledger.nodes
    ]
    if len({(one.noise, one.norm_bound) for each in releases for one in each}) > 1 or (
        len({len(each) for each in releases}) > 1 and RESUMED not in ledger.assumptions
    ):
        raise ValueError(
            "what an observer learns of sums by recursive doubling is accounted where "
            "all nodes release equally often, with equal noise"
        )
    chosen = relation or relation_of(ledger)
    bare = RESUMED in ledger.assumptions or not all(
        _is_covered(each, chosen) for each in releases
    )
    # Of steps that differ, or of several runs, which each begin the cycle anew, a
    # ledger does not say which come with which sums.
    bare |= any(len(entries) > 1 for entries in ledger.nodes)
    found, most = [], 1
    for node, each in enumerate(releases):
        if node in inside:
            found.append(())
            continue
        sizes = np.ones(len(each), int)
        if not bare:
            sizes = _sizes(nodes, len(each), node, who)
        most = max(most, int(sizes.max(initial=1)))
        counts: dict[Release, int] = {}
        for one, size in zip(each, sizes.tolist(), strict=True):
            less = one if size == 1 else _less(one, size)
            counts[less] = counts.get(less, 0) + 1
        found.append(tuple(Entry(one, count) for one, count in counts.items()))
    return msgspec.structs.replace(
        ledger,
        nodes=tuple(found),
        failure=math.nextafter(ledger.failure + failure_up(most), 1)
        if most > 1
        else ledger.failure,
        observer=name,
    )


def _is_covered(releases: list[Release], relation: Relation) -> bool:
    """Whether `failure_up` pays for exact sums of these."""
    if not all(one.noise > 0 for one in releases):
        return False
    moved = [one.sensitivity_under(relation) / one.noise for one in releases]
    return math.fsum(x**2 for x in moved) <= MOST_MU2


def _less(release: Release, size: int) -> Release:
    """With the noise of ``size`` releases, rounded down."""
    noise = float(round_down(release.noise * math.sqrt(size), 12))
    return msgspec.structs.replace(release, noise=noise)


def _sizes(nodes: int, steps: int, of: int, observer: Observer | None) -> NDArray:
    """(steps,): `fresh_noises`; by any node, a sequence that is below all of theirs.

    Noises are fixed beforehand, so that an account does not depend on their order: it
    is enough that no node has more steps with 2^b noises or fewer, for any b.
    """
    if observer is not None:
        return fresh_noises(nodes, steps, of, observer)
    powers = 1 << np.arange(exchanges(nodes))
    most = np.zeros(len(powers), int)
    cycle = _msb(places(nodes)[:, 1:])  # (steps of a cycle, by how far nodes are apart)
    for bit, power in enumerate(powers):
        fewer = cycle <= power
        whole, rest = divmod(steps, len(cycle))
        counts = whole * fewer.sum(0) + fewer[:rest].sum(0)
        most[bit] = counts.max()
    return np.repeat(powers, np.diff(most, prepend=0))


def _msb(places: NDArray[np.int_]) -> NDArray[np.int_]:
    """The highest bit of each, as a power of two."""
    return 1 << (np.frexp(places)[1] - 1)
