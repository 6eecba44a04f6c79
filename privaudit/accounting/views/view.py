"""View of one node's sums by one observer, as independent releases above it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privaudit.accounting.views.information import (
    Floats,
    Information,
    dominating,
    information,
)
from privaudit.accounting.views.observer import Observer
from privaudit.accounting.views.protocol import LinearProtocol


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Noise of independent releases, which tell no less of one node's inputs.

    (inputs,) deviations each, in their unit: infinite where unseen, 0 without noise.
    """

    nobody_reacts: Floats
    certified: Floats
    everything_seen: Floats


def of_observer(
    protocol: LinearProtocol,
    observer: Observer,
    of: int,
    sizes: ArrayLike = 1.0,
) -> View:
    """View that ``observer`` has of ``of``'s inputs, which move by ``sizes``."""
    return next(of_nodes_seen(protocol, observer, {of: np.asarray(sizes, float)}))[1]


def of_nodes_seen(
    protocol: LinearProtocol, observer: Observer, sizes: Mapping[int, Floats]
) -> Iterator[tuple[int, View]]:
    """The views of several nodes by one observer, which are one calculation."""
    observer.check(protocol.nodes)
    hidden, noise, seen = told_to(protocol, observer)
    every = _all_releases(noise)
    told: dict[str, Information] = {}
    for name, rows in (
        ("nobody_reacts", seen),
        ("certified", np.concatenate([seen, points_of(protocol, seen)])),
    ):
        signal = rows[:, hidden]
        told[name] = information(signal, signal @ noise)
    told["everything_seen"] = every
    for node, size in sizes.items():
        own = np.flatnonzero(protocol.owner[hidden] == node)
        size = np.broadcast_to(
            np.where((size > 0) & np.isfinite(size), size, 1.0), own.shape
        )
        spreads = {name: _spread(one, every, own, size) for name, one in told.items()}
        yield node, View(**spreads)


def told_to(
    protocol: LinearProtocol, observer: Observer
) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """(inputs,): which are hidden; noise of these, and the rows that it is told."""
    inside = list(observer.nodes)
    hidden = ~np.isin(protocol.owner, inside)
    secret = ~protocol.known[:, inside].any(1)
    heard = protocol.messages[protocol.seen_by(observer)]
    # An observer knows where its own sums are taken, even where it did not hear enough.
    seen = np.concatenate([heard, protocol.points[~hidden]])
    return hidden, protocol.noise[np.ix_(hidden, secret)], seen


def _all_releases(noise: Floats) -> Information:
    """Information if every input is released by itself, ``noise`` (inputs, noises)."""
    own = (noise != 0).sum(1)
    if (
        noise.shape[0] == noise.shape[1]
        and not (noise - np.diag(noise.diagonal())).any()
    ):
        bare = own == 0
        square = np.where(bare, 1.0, noise.diagonal() ** 2)
        return Information(np.diag(np.where(bare, 0.0, 1 / square)), bare, 0.0)
    return information(np.eye(len(noise)), noise)


def _spread(
    told: Information, every: Information, own: NDArray[np.int_], size: Floats
) -> Floats:
    """The noise of independent releases above ``told`` of the inputs ``own``."""
    most = dominating(told.matrix[np.ix_(own, own)], size)
    if told.rounding and most.any():
        most = most + told.rounding * every.matrix.diagonal()[own]
    with np.errstate(divide="ignore"):
        return np.where(told.bare[own], 0.0, 1 / np.sqrt(most))


def points_of(protocol: LinearProtocol, seen: Floats) -> Floats:
    """Points at which every sum of a row is taken, these points' own sums included."""
    held = (seen != 0).any(0)
    rows = []
    for place in range(len(protocol.owner))[::-1]:
        if held[place]:
            rows.append(protocol.points[place])
            held |= protocol.points[place] != 0
    return np.array(rows).reshape(-1, len(held))
