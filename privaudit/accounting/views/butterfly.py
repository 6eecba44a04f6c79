"""Sums of all nodes at a common model: what each node hears, in closed form.

*By recursive doubling*, of 2^k nodes. Node i is at place a_t i in step t, the product
in GF(2^k) with a_t going through all elements but 0. In exchange r the nodes whose
places differ in bit r alone swap what they have summed. So v first hears node u's
release in a sum of 2^b releases, b the highest bit in which their places differ, and
every pair meets in a sum of 2^b nodes 2^b times in 2^k - 1 steps. Of other numbers of
nodes, 2^k do so, after each of the others has *folded* its release into that of one of
them, and before that one tells it the sum of all.

*By recursive halving* each sends, in exchange r, only the half of what it has summed
that its partner goes on with, and then all gather the sums, backwards. Everybody is at
the same places and hears the same sums, of some coordinates: all that is accounted by
recursive doubling holds.

*Along a chain*, of any number: each adds its release to what it hears and hands it on,
and the last tells all. Of what node v hears, u's release is among those before v, or
among those behind it.

Who is where changes with every step (`slots`). Theorem and proof: docs/butterfly.md.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from privaudit.accounting.certificate import relation_of
from privaudit.accounting.views.grid import MOST_MU2, failure_up
from privaudit.accounting.views.observer import ANY_NODE, Observer
from privaudit.ledger import RESUMED, Entry, Ledger
from privaudit.release import PoissonSampling, RandomAllocation, Release
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


_MOST = {"butterfly": 128, "halving": 128, "chain": 64}  # but for powers of two
_MOST_RELEASES = 10_000_000  # of a node: they are looked at one by one
_ENTRIES = 1 << 22  # of a cycle's graphs, at most


def exchanges(nodes: int, graph: str = "butterfly") -> int:
    """Number of exchanges in a step.

    k of 2^k nodes, up to 1024, and two more of other numbers, up to 128; by ``halving``
    2 k, and two more; as many as nodes of a ``chain``, up to 64. ``ValueError`` of
    other numbers.

    >>> exchanges(8), exchanges(6), exchanges(6, "chain"), exchanges(6, "halving")
    (3, 4, 6, 6)
    """
    bits = int(nodes).bit_length() - 1
    swaps = bits * (2 if graph == "halving" else 1)
    if graph != "chain" and nodes == 1 << bits and bits in _PRIMITIVE:
        return swaps
    if not 2 <= nodes <= _MOST[graph]:
        more = "" if graph == "chain" else ", or 256, 512 or 1024"
        raise ValueError(f"a {graph} has 2 to {_MOST[graph]} nodes{more}, got {nodes}")
    return nodes if graph == "chain" else swaps + 2


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
def slots(nodes: int, graph: str = "butterfly") -> NDArray[np.int_]:
    """(steps of a cycle, nodes): each node's place, in each step another.

    Of a butterfly of 2^k nodes the product with a_t. Else, in step q (p - 1) + a - 1,
    p the least prime that is no less than the number n of nodes: the rank of a i modulo
    p, and a + q more, modulo n. For n = p every two nodes are at every two places
    equally often in a cycle; else about so. Long cycles are cut.

    >>> slots(4).tolist()
    [[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]]
    >>> slots(3, "chain").tolist()
    [[1, 2, 0], [2, 1, 0], [2, 0, 1], [0, 2, 1], [0, 1, 2], [1, 0, 2]]
    """
    if graph == "halving":
        return slots(nodes)
    rounds = exchanges(nodes, graph)
    if graph == "butterfly" and nodes == 1 << rounds:
        return np.array(
            [[_product(a, i, rounds) for i in range(nodes)] for a in range(1, nodes)]
        )
    prime = next(
        p
        for p in itertools.count(nodes)
        if p > 1 and all(p % d for d in range(2, math.isqrt(p) + 1))
    )
    turns = max(1, min(nodes, _ENTRIES // (rounds * nodes**2 * (prime - 1))))
    return np.array(
        [
            (np.argsort(np.argsort(a * np.arange(nodes) % prime)) + a + q) % nodes
            for q in range(turns)
            for a in range(1, prime)
        ]
    )


@functools.cache
def folded(nodes: int) -> NDArray[np.int_]:
    """(nodes,): the place of a butterfly's 2^k that whoever is in a slot sums at.

    Slots from 2^k on are of those that fold; the places that they fold into are spread.

    >>> folded(6).tolist()
    [0, 1, 2, 3, 0, 2]
    """
    whole = 1 << (nodes.bit_length() - 1)
    rest = nodes - whole
    return np.append(np.arange(whole), np.arange(rest) * whole // max(rest, 1))


@functools.lru_cache(maxsize=8)
def hears(nodes: int, graph: str = "butterfly") -> NDArray[np.bool_]:
    """(steps of a cycle times exchanges, nodes, nodes): whether i hears j, i not j."""
    where, found = slots(nodes, graph), []
    rounds = exchanges(nodes, graph)
    for slot in where:
        me, other = slot[:, None], slot
        if graph == "chain":
            found += [(me == r + 1) & (other == r) for r in range(rounds - 1)]
            found.append((other == nodes - 1) & (me != other))
            continue
        whole = 1 << (nodes.bit_length() - 1)
        place = folded(nodes)[slot]
        sums, same = slot < whole, place[:, None] == place
        fold = same & sums[:, None] & ~sums
        both = sums[:, None] & sums
        apart = place[:, None] ^ place
        swaps = [both & (apart == 1 << bit) for bit in range(whole.bit_length() - 1)]
        swaps += swaps[::-1] if graph == "halving" else []
        found += swaps if nodes == whole else [fold, *swaps, fold.T]
    result = np.array(found)
    result.flags.writeable = False
    return result


def fresh_noises(
    nodes: int, steps: int, of: int, observer: Observer, graph: str = "butterfly"
) -> NDArray[np.int_]:
    """(steps,): of how many releases the least sum is in which ``of`` is heard.

    Of nodes that are not the observer's. 1 for a wire, and for whoever hears all.

    >>> fresh_noises(4, 6, 0, Observer.of(3)).tolist()
    [2, 1, 2, 2, 1, 2]
    """
    observer.check(nodes)
    exchanges(nodes, graph)
    if not observer.nodes:
        return np.ones(steps, int)
    if of in observer.nodes:
        raise ValueError(f"node {of} is of the observer: nothing of it is hidden")
    least = _along_chain if graph == "chain" else _in_butterfly
    return np.resize(least(slots(nodes, graph), of, list(observer.nodes)), steps)


def _along_chain(where: NDArray, of: int, inside: list[int]) -> NDArray[np.int_]:
    """Number of nodes between two of the observer's, around ``of``; or to an end."""
    mine, theirs = where[:, [of]], where[:, inside]
    before = np.where(theirs < mine, theirs, -1).max(1)
    behind = np.where(theirs > mine, theirs, where.shape[1]).min(1)
    return behind - before - 1


def _in_butterfly(where: NDArray, of: int, inside: list[int]) -> NDArray[np.int_]:
    """All in the part of the network that some of the observer's is told of ``of``."""
    nodes = where.shape[1]
    whole = 1 << (nodes.bit_length() - 1)
    place, sums = folded(nodes)[where], where < whole
    apart = place[:, [of]] ^ place[:, inside]
    # Whoever folds hears nothing but the sum of all. Of the least its highest bit.
    least = np.where(sums[:, inside], apart, whole).min(1)
    power = (1 << np.frexp(least)[1]) >> 1
    if nodes == whole:
        return power
    # One that folds into one of the observer's is heard alone.
    power = np.maximum(power, 1)[:, None]
    together = place // power == place[:, [of]] // power
    together[:, inside] = False
    return together.sum(1)


def turns(how: PoissonSampling, sizes: NDArray[np.int_]) -> NDArray[np.float64]:
    """Noises that hide a turn of ``how``, of sums of ``sizes`` noises in each step.

    (turns,): in ascending order, at most those of any part. A turn at step t moves step
    t + i by c_i, whose noise is independent: together sum_i c_i^2 / s_t+i of what one
    noise tells, over |c|^2. ``sizes``: (turns times parts,), as if the run had so many
    steps: of the last turn a ledger does not say how many it has.
    """
    square = np.square((1.0, *how.shares))
    told = np.convolve(1 / sizes, square[::-1])[len(how.shares) :]
    by_part = np.sort(told.reshape(-1, how.parts), axis=0)[::-1].max(1)
    # Rounded, so that turns are alike; down, as what is told is rounded up.
    return 1 / (np.ceil(by_part / square.sum() * 1e6 * (1 + 1e-12)) / 1e6)


def observed(
    ledger: Ledger,
    observer: str,
    relation: Relation | None = None,
    graph: str = "butterfly",
) -> Ledger:
    """Ledger of each node as ``observer`` sees it, with the noise that it meets.

    Nodes of the observer have no releases in it: nothing of theirs is hidden from it,
    and `Certificate.node` of them says infinity. Valid where ``ledger`` is of a run
    whose sums are exact, see ``grid.md``; where releases were made again with other
    sums, or have next to no noise, all is taken as seen.

    ``ledger``: of all nodes: a release a step, or a turn. Of several runs, or of steps
    that differ, all is taken as seen: compose what is observed of each run.
    ``observer``: as `Observer.parse` takes it, or ``any-node``: for each node whichever
    other one learns most of it, or a bit more. ``relation``: the neighbour relation, as
    of `Certificate.of`. ``graph``: ``butterfly`` or ``chain``: how sums are made.
    Raises ``ValueError`` if there is no such observer, or nobody is left to be
    protected; nodes have different noise; noise is not Gaussian, or sampling a random
    allocation.

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
    who = among(nodes, observer)
    inside = set() if who is None else set(who.nodes)
    check_at_one_node(ledger)
    for entry in itertools.chain.from_iterable(ledger.nodes):
        check_covered(entry)
    if max(sum(e.count for e in entries) for entries in ledger.nodes) > _MOST_RELEASES:
        raise ValueError(
            f"what an observer learns is accounted for at most {_MOST_RELEASES:,} "
            "releases a node"
        )
    releases = [
        [entry.release for entry in entries for _ in range(entry.count)]
        for entries in ledger.nodes
    ]
    if len({one.noise for each in releases for one in each}) > 1 or (
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
        sizes: NDArray = np.ones(len(each))
        how = each[0].sampling if each and not bare else None
        if isinstance(how, PoissonSampling) and how.parts > 1:
            # Which turns are heard best depends on the part: it counts as known.
            each = [one.of_known_part() for one in each]
            like = _alike(nodes, node, who, graph)
            sizes = _turns(nodes, how, len(each), like, who, graph)
            most = nodes
        elif not bare:
            sizes = _sizes(nodes, len(each), node, who, graph)
            most = max(most, int(sizes.max(initial=1)))
        counts: dict[Release, int] = collections.Counter(
            one if size == 1 else _less(one, size)
            for one, size in zip(each, sizes.tolist(), strict=True)
        )
        found.append(tuple(itertools.starmap(Entry, counts.items())))
    name, failure = ANY_NODE if who is None else str(who.name), ledger.failure
    if most > 1:
        failure = math.nextafter(failure + failure_up(most), 1)
    return msgspec.structs.replace(
        ledger, nodes=tuple(found), failure=failure, observer=name
    )


def among(nodes: int, observer: str) -> Observer | None:
    """``observer`` of so many nodes; None if it is any node.

    ``ValueError`` if there is none such, or nobody is left to be protected.
    """
    if observer == ANY_NODE:
        return None
    who = Observer.parse(observer)
    who.check(nodes)
    if len(who.nodes) == nodes:
        raise ValueError(
            f"observer {who.name}: nobody is left to be protected, all nodes collude"
        )
    return who


def check_at_one_node(ledger: Ledger) -> None:
    """``ValueError`` for records at several nodes: no account by observer has them."""
    if ledger.most_nodes > 1:
        raise ValueError(
            "what an observer learns is accounted for records at one node: leave "
            "overlap at 1"
        )


def check_covered(entry: Entry) -> None:
    """``ValueError`` for what has no account by observer."""
    if entry.release.mechanism != "gaussian":
        raise ValueError(
            "what an observer learns is accounted for Gaussian noise only, and "
            f"this release has {entry.release.mechanism} noise"
        )
    if isinstance(entry.release.sampling, RandomAllocation):
        raise ValueError(
            "what an observer learns is not accounted for random allocation; use "
            "Poisson sampling"
        )


def _is_covered(releases: list[Release], relation: Relation) -> bool:
    """Return whether `failure_up` pays for exact sums of these."""
    if not all(one.noise > 0 for one in releases):
        return False
    moved = [one.sensitivity_under(relation) / one.noise for one in releases]
    return math.fsum(x**2 for x in moved) <= MOST_MU2


@functools.lru_cache(maxsize=256)
def _turns(
    nodes: int,
    how: PoissonSampling,
    count: int,
    of: int,
    observer: Observer | None,
    graph: str,
) -> NDArray[np.float64]:
    """(turns,): as `_sizes`, of noise that steps share."""
    others = set(range(nodes)) - {of}
    every = [Observer.of(by) for by in others] if observer is None else [observer]
    met = (fresh_noises(nodes, count * how.parts, of, by, graph) for by in every)
    return np.min([turns(how, sizes) for sizes in met], axis=0)


def _less(release: Release, size: float) -> Release:
    """With the noise of ``size`` releases, rounded down."""
    noise = float(round_down(release.noise * math.sqrt(size), 12))
    return msgspec.structs.replace(release, noise=noise)


def _sizes(
    nodes: int, steps: int, of: int, observer: Observer | None, graph: str
) -> NDArray[np.int_]:
    """(steps,): `fresh_noises`; by any node, a sequence that is below all of theirs."""
    if observer is not None:
        return fresh_noises(nodes, steps, of, observer, graph)
    return _worst(nodes, steps, _alike(nodes, of, None, graph), graph)


def _alike(nodes: int, of: int, observer: Observer | None, graph: str) -> int:
    """A node of which any one other node learns as much as of ``of``."""
    alike = graph == "butterfly" and nodes & (nodes - 1) == 0
    return 0 if alike and observer is None else of


@functools.lru_cache(maxsize=256)
def _worst(nodes: int, steps: int, of: int, graph: str) -> NDArray[np.int_]:
    cycle = len(slots(nodes, graph))
    whole, rest = divmod(steps, cycle)
    most = np.zeros(nodes, int)
    for by in set(range(nodes)) - {of}:
        met = fresh_noises(nodes, cycle, of, Observer.of(by), graph)
        counts = whole * np.bincount(met, minlength=nodes)
        counts += np.bincount(met[:rest], minlength=nodes)
        most = np.maximum(most, counts.cumsum())
    return np.repeat(np.arange(nodes), np.diff(most, prepend=0))
