"""The three accounts of a ledger, by observer; and what a budget is held to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from privaudit.accounting.account import account_nodes
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.views.butterfly import (
    among,
    check_at_one_node,
    check_covered,
    observed,
)
from privaudit.accounting.views.information import Floats
from privaudit.accounting.views.observer import ANY_NODE, Observer
from privaudit.accounting.views.protocol import LinearProtocol, distance, hops
from privaudit.accounting.views.view import of_nodes_seen
from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, Release, Sensitivity
from privaudit.results import Relation, UpperBound, check_delta, round_down

FOLLOWS = "all follow the protocol, and nothing but its messages is heard"
ASSUMES = (
    "noise and messages are real numbers: what the last digits of rounded ones give "
    "away is not in it",
    FOLLOWS,
)
SECRETS = "nobody tells a secret, and no release is made again with another sum"
REACTS_NOT = "no node's gradients depend on anything that the observer does not see"

# Algorithms whose ledgers alone say what each observer learns, and how they sum.
_PROVED = {
    "dp-butterfly": "butterfly",
    "dp-chain": "chain",
    "dp-mf-butterfly": "butterfly",
}
_DIGITS = 12  # of noise, rounded down: what differs by rounding is one account
_WIDTH = 1e-3


class Pair(msgspec.Struct, frozen=True):
    """Upper bounds on epsilon: what ``by`` learns of node ``of``.

    ``distance`` is how many hops a message of ``of`` takes to be heard; None if it
    never is.
    """

    of: int
    by: int | str
    nobody_reacts: float
    certified: float
    everything_seen: float
    distance: int | None


def figures(
    protocol: LinearProtocol,
    ledger: Ledger,
    delta: float,
    observers: Sequence[Observer] | None = None,
    relation: Relation | None = None,
) -> tuple[Pair, ...]:
    """The three accounts of every node by every observer.

    ``protocol``: its ``noise`` in the unit of the ledger's, node's input t being
    release t. ``ledger``: what every node releases; see `of_nodes` for whole nodes as
    the unit. ``delta``: in (0, 1). ``observers``: each node by itself, if None.
    ``relation``: as in `Certificate.of`. Raises ``ValueError`` if ledger and protocol
    do not fit, or a release is none of Gaussian noise.

    >>> ring = (np.eye(5) + np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0)) / 3
    >>> one = Release.of_sum(norm_bound=1, noise_multiplier=2, sampling=NoSampling())
    >>> pairs = figures(
    ...     LinearProtocol.averaging(ring, noise=2.0),
    ...     Ledger(nodes=((Entry(one),),) * 5),
    ...     delta=1e-5,
    ...     observers=[Observer.of(2)],
    ... )
    >>> [round(pair.nobody_reacts, 3) for pair in pairs]
    [0.0, 1.993, 1.993, 0.0]
    """
    check_delta(delta)
    if len(ledger.nodes) != protocol.nodes:
        raise ValueError(
            f"the protocol has {protocol.nodes} nodes and the ledger "
            f"{len(ledger.nodes)}; they must be those of one run"
        )
    check_at_one_node(ledger)
    releases = [releases_of(entries) for entries in ledger.nodes]
    for node, each in enumerate(releases):
        inputs = int((protocol.owner == node).sum())
        if len(each) != inputs:
            raise ValueError(
                f"node {node} has {len(each)} releases in the ledger and {inputs} "
                "inputs in the protocol"
            )
    chosen = Certificate.of(ledger, relation).relation
    sizes = {
        node: np.array([one.sensitivity_under(chosen) for one, _ in each])
        for node, each in enumerate(releases)
    }
    ways = hops(protocol)
    account = _Account(ledger, chosen, delta)
    pairs = []
    for observer in observers or [Observer.of(v) for v in range(protocol.nodes)]:
        observer.check(protocol.nodes)
        if observer.wire is not None and not protocol.seen_by(observer).any():
            raise ValueError(
                f"observer {observer.name}: nothing is ever sent between these two "
                "nodes; choose two that are neighbours"
            )
        wanted = {u: sizes[u] for u in sizes if u not in observer.nodes}
        for node, view in of_nodes_seen(protocol, observer, wanted):
            every = account(releases[node], view.everything_seen)
            certified = min(account(releases[node], view.certified), every)
            still = min(account(releases[node], view.nobody_reacts), certified)
            far = distance(ways, node, observer)
            pairs.append(Pair(node, observer.name, still, certified, every, far))
    return tuple(pairs)


def diluted(
    ledger: Ledger,
    delta: float,
    observers: Sequence[Observer] | None = None,
    relation: Relation | None = None,
    graph: str = "butterfly",
) -> tuple[Pair, ...]:
    """As `figures`, of sums on a ``graph`` of `observed` at points that all know."""
    check_delta(delta)
    chosen = Certificate.of(ledger, relation).relation
    account = _Account(ledger, chosen, delta)
    count = len(ledger.nodes)
    pairs = []
    for observer in observers or [Observer.of(v) for v in range(count)]:
        seen = observed(ledger, str(observer.name), chosen, graph)
        for node in sorted(set(range(count)) - set(observer.nodes)):
            own = releases_of(ledger.nodes[node], at_common_points=True)
            every = account(own, np.array([one.noise for one, _ in own]))
            told = min(account.of(seen.nodes[node], seen.failure), every)
            pairs.append(Pair(node, observer.name, told, told, every, 1))
    return tuple(pairs)


_One = tuple[Release, object]  # a release, and the pass that it is of


def releases_of(
    entries: Iterable[Entry], *, at_common_points: bool = False
) -> list[_One]:
    """One by one. ``ValueError`` for what has no account by observer."""
    found: list[_One] = []
    for entry in entries:
        check_covered(entry)
        if getattr(entry.release.sampling, "parts", 1) > 1 and not at_common_points:
            raise ValueError(
                "what an observer learns is accounted for noise that releases share in "
                "dp-mf-butterfly only"
            )
        found += [(entry.release, entry.disjoint)] * entry.count
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class _Account:
    """Epsilon of a node's releases with other noise; equal ones are worked out once."""

    ledger: Ledger
    relation: Relation
    delta: float
    _known: dict[Any, float] = dataclasses.field(default_factory=dict)

    def __call__(self, releases: Sequence[_One], spread: Floats) -> float:
        counts: dict[tuple[Release, object], int] = {}
        for (one, disjoint), noise in zip(releases, spread.tolist(), strict=True):
            if math.isinf(noise) or one.sensitivity_under(self.relation) == 0:
                continue
            if noise == 0:
                return math.inf
            less = float(round_down(noise, _DIGITS))
            key = (msgspec.structs.replace(one, noise=less), disjoint)
            counts[key] = counts.get(key, 0) + 1
        entries = tuple(
            Entry(one, count, disjoint)  # type: ignore[arg-type]
            for (one, disjoint), count in counts.items()
        )
        return self.of(entries, self.ledger.failure)

    def of(self, entries: tuple[Entry, ...], failure: float) -> float:
        """Epsilon of these releases alone."""
        if not entries:
            return 0.0
        if (entries, failure) not in self._known:
            ledger = msgspec.structs.replace(
                self.ledger, nodes=(entries,), failure=failure
            )
            found = Certificate.of(ledger, self.relation)
            found = found.epsilon(self.delta, _WIDTH, "upper")
            self._known[entries, failure] = found.upper
        return self._known[entries, failure]


def of_nodes(ledger: Ledger, sizes: Sequence[int]) -> Ledger:
    """A ledger whose unit is a whole node: all ``sizes[i]`` records of node i change.

    A sum moves by as many times what one record can move it; sampling hides nothing.

    >>> one = Release.of_sum(norm_bound=1, noise_multiplier=9, sampling=NoSampling())
    >>> whole = of_nodes(Ledger.of(one), [50]).nodes[0][0].release
    >>> whole.sensitivity.replace_one
    100.0
    """
    if len(sizes) != len(ledger.nodes):
        raise ValueError(
            f"there are sizes of {len(sizes)} nodes, and the ledger has "
            f"{len(ledger.nodes)}"
        )

    def whole(release: Release, records: int) -> Release:
        if getattr(release.sampling, "parts", 1) > 1:
            raise ValueError(
                "a node's records are in several parts, whose releases share noise: "
                "that is accounted for single records only"
            )
        moved = release.sensitivity_under("replace-one")
        return msgspec.structs.replace(
            release,
            norm_bound=release.norm_bound * records,
            sensitivity=Sensitivity(replace_one=moved * records),
            sampling=NoSampling(),
        )

    nodes = tuple(
        tuple(Entry(whole(entry.release, size), entry.count) for entry in entries)
        for entries, size in zip(ledger.nodes, sizes, strict=True)
    )
    return msgspec.structs.replace(ledger, nodes=nodes, unit="node")


def check_observer(algorithm: str, observer: str, nodes: int) -> str:
    """``observer``, as it is written down; ``ValueError`` if there is none such."""
    if algorithm not in _PROVED:
        raise ValueError(
            f"a budget for an observer is proved for {', '.join(_PROVED)}, not for "
            f"{algorithm}: leave --observer out, and see what each node learns with "
            "`privaudit views`"
        )
    who = among(nodes, observer)
    return ANY_NODE if who is None else str(who.name)


def observed_by(
    algorithm: str, ledger: Ledger, observer: str | None, relation: Relation
) -> Ledger:
    """``ledger`` as ``observer`` sees it; as it is, if that is None."""
    if observer is None:
        return ledger
    check_observer(algorithm, observer, len(ledger.nodes))
    return observed(ledger, observer, relation, _PROVED[algorithm])


def pairs_observed(
    algorithm: str, ledger: Ledger, delta: float, relation: Relation
) -> tuple[Pair, ...]:
    """Bounds of each node for each other one; none where no ledger alone says so."""
    if algorithm not in _PROVED or not any(ledger.nodes) or ledger.most_nodes > 1:
        return ()
    return diluted(ledger, delta, None, relation, _PROVED[algorithm])


def account_observed(
    algorithm: str,
    ledger: Ledger,
    observer: str | None,
    delta: float,
    relation: Relation,
    method: str = "certified",
) -> tuple[UpperBound, ...]:
    """As `account_nodes`, for ``observer``; for its own nodes of all releases."""
    seen = observed_by(algorithm, ledger, observer, relation)
    told = account_nodes(seen, delta, relation, method)
    if not seen.observing:
        return told
    every = account_nodes(ledger, delta, relation, method)
    return tuple(
        every[node] if node in seen.observing else told[node]
        for node in range(len(told))
    )
