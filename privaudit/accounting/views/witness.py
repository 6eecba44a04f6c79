"""The witness of what an observer learns of a node: see `privaudit.accounting.witness`.

Beside the releases it has the observer's view, as matrices of exact numbers: the rows
that are told, with the points of all sums in them, and the noise of hidden sums. The
kernel proves from these that the releases say at least as much.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.certificate import Certificate
from privaudit.accounting.views.figures import FOLLOWS, releases_of
from privaudit.accounting.views.observer import Observer
from privaudit.accounting.views.protocol import LinearProtocol
from privaudit.accounting.views.view import of_observer, points_of, told_to
from privaudit.accounting.witness import line_of
from privaudit.ledger import Entry, Ledger
from privaudit.results import Relation, round_down

_ROOM = 1 - 1e-9  # of noise, for rounding of what the releases are found with


def witness_of(
    protocol: LinearProtocol,
    ledger: Ledger,
    delta: float,
    observer: Observer,
    of: int,
    relation: Relation | None = None,
) -> dict[str, object]:
    """Document of the certified figure of what ``observer`` learns of node ``of``.

    Arguments as of `figures`; `privaudit.kernel` checks it.

    >>> from privaudit.release import NoSampling, Release
    >>> one = Release.of_sum(norm_bound=1, noise_multiplier=2, sampling=NoSampling())
    >>> ring = (np.eye(5) + np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0)) / 3
    >>> protocol = LinearProtocol.averaging(ring, noise=2.0)
    >>> ledger = Ledger(nodes=((Entry(one),),) * 5)
    >>> found = witness_of(protocol, ledger, 1e-5, Observer.of(2), 1)
    >>> found["upper"], len(found["nodes"][0]["groups"][0]["view"]["told"])
    ('1.99509', 2)
    """
    chosen = Certificate.of(ledger, relation).relation
    releases = [one for one, _ in releases_of(ledger.nodes[of])]
    sizes = np.array([one.sensitivity_under(chosen) for one in releases])
    spread = of_observer(protocol, observer, of, sizes).certified * _ROOM
    seen, own = [], []
    for one, noise in zip(releases, spread.tolist(), strict=True):
        if np.isinf(noise):  # nothing is seen of it
            own.append(None)
            continue
        seen.append(msgspec.structs.replace(one, noise=float(round_down(noise, 12))))
        own.append(seen[-1])
    part = msgspec.structs.replace(
        ledger,
        nodes=(tuple(map(Entry, seen)),),
        assumes=(*ledger.assumptions, FOLLOWS),
        observer=str(observer.name),
    )
    found: dict[str, Any] = Certificate.of(part, chosen).witness(delta)
    hidden, view = _view(protocol, observer)
    mine = iter(zip(own, sizes.tolist(), strict=True))
    lines: list[dict[str, object] | None] = []
    view["moves"] = []
    for owner in protocol.owner[hidden]:
        one, size = next(mine) if owner == of else (None, 0.0)
        lines.append(one and line_of(one, chosen, 1))
        view["moves"].append(repr(size))
    groups = [{"lines": lines, "view": view}]
    return {**found, "lower": None, "nodes": [{"groups": groups}]}


def _view(
    protocol: LinearProtocol, observer: Observer
) -> tuple[NDArray[np.bool_], dict[str, Any]]:
    """Inputs that are hidden; rows told, and points and noise of these, as text."""
    hidden, noise, told = told_to(protocol, observer)
    told = np.concatenate([told, points_of(protocol, told)])[:, hidden]
    told = np.unique(told[told.any(1)], axis=0)
    every = {
        "told": told,
        "points": protocol.points[np.ix_(hidden, hidden)],
        "noise": noise,
    }
    found = {
        k: [[repr(x) for x in row] for row in v.tolist()] for k, v in every.items()
    }
    return hidden, {**found, "count": 1}
