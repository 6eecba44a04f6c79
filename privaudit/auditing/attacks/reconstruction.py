"""Reconstruction of a node's vectors by an observer, from what it hears.

Messages are linear combinations of all nodes' noisy vectors, whose coefficients are
public. Without noise an observer reads off every vector that the combinations fix,
however far away its node is (El Mrini, Cyffers and Bellet, "Privacy Attacks in
Decentralized Learning", 2024); with noise, the vector and that vector's own noise. Of
the others it has mixtures at best.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privaudit.accounting.views import LinearProtocol, Observer

Floats = NDArray[np.float64]

_NOTHING = 1e-8  # singular values below, over the largest, are rounding
_WHOLE = 1 - 1e-6  # of a vector, what is no rounding short of all


@dataclasses.dataclass(frozen=True, eq=False)
class Reconstruction:
    """The best linear guess at a node's vectors: ``mixture @ vectors``, and noise."""

    inputs: NDArray[np.int_]  # (inputs,): which vectors of the protocol are the node's
    # (inputs,) bool: whether what is heard fixes the vector with its noise, so that
    # without noise it is read off exactly
    solved: NDArray[np.bool_]
    # (inputs, inputs of the protocol): of which vectors each guess is made
    mixture: Floats
    noise: Floats  # (inputs,): standard deviation of what noise adds to each guess
    # (inputs,): root mean squared error of each guess, of entries of the spread that
    # was given; 0 is exact
    error: Floats
    _read: Floats
    _rows: Floats
    _seen: NDArray[np.bool_]

    def __call__(self, messages: ArrayLike, known: ArrayLike = 0.0) -> Floats:
        """(inputs, dims): the guesses.

        ``messages``: (messages, dims); ``known``: (inputs, dims): of each noisy vector
        what the observer knows: all of its own, and the noise that it shares with
        others.
        """
        heard = np.asarray(messages, float)[self._seen]
        of_it = np.broadcast_to(
            np.asarray(known, float), (self._rows.shape[1], heard.shape[1])
        )
        return self._read @ (heard - self._rows @ of_it)


def reconstruction(
    protocol: LinearProtocol, observer: Observer, of: int, spread: float = 1.0
) -> Reconstruction:
    """Best guess of ``observer`` at the vectors of node ``of``, and its error.

    ``protocol``: what is sent, with its noise. ``observer``: who hears. ``of``: a node.
    ``spread``: standard deviation of the vectors' entries, about 0, as far as is known:
    noise is weighed against it. Without noise it does not matter. Returns the guesses,
    to be called with what was heard.

    Examples
    --------
    On a path of four nodes, after three rounds of averaging, one end has solved for all
    other vectors; after two for those at distance one and two.

    >>> path = np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
    >>> for rounds in (2, 3):
    ...     protocol = LinearProtocol.averaging(path, noise=0.0, rounds=rounds)
    ...     found = [reconstruction(protocol, Observer.of(3), u) for u in (2, 1, 0)]
    ...     print([bool(one.solved[0]) for one in found])
    [True, True, False]
    [True, True, True]
    """
    observer.check(protocol.nodes)
    if not 0 <= of < protocol.nodes:
        raise ValueError(
            f"there is no node {of}; the nodes are 0 to {protocol.nodes - 1}"
        )
    if not (spread > 0 and np.isfinite(spread)):
        raise ValueError(f"spread must be finite and > 0, got {spread:g}")
    inside = list(observer.nodes)
    hidden = ~np.isin(protocol.owner, inside)
    inputs = np.flatnonzero((protocol.owner == of) & hidden)
    seen = protocol.seen_by(observer)
    rows = protocol.messages[seen]
    told = rows * hidden
    noise = told @ protocol.noise[:, ~protocol.known[:, inside].any(1)]
    # Of which rows there are, not of their size: each alike, however diluted.
    size = abs(told).max(1, initial=0)
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)[:, None]
    both = np.concatenate([spread * told, noise], 1) * scale
    # The conditional mean of normal numbers, given linear functions of them.
    read = np.zeros((len(inputs), len(rows)))
    if len(rows):
        read = spread * np.linalg.pinv(both, rcond=_NOTHING)[inputs] * scale.T
    fixed = (np.linalg.pinv(told * scale, rcond=_NOTHING) @ (told * scale)).diagonal()
    mixture = read @ told
    added = read @ noise
    off = spread * (np.eye(len(hidden))[inputs] - mixture)
    return Reconstruction(
        inputs,
        fixed[inputs] > _WHOLE,
        mixture,
        np.linalg.norm(added, axis=1),
        np.hypot(np.linalg.norm(off, axis=1), np.linalg.norm(added, axis=1)),
        read,
        rows,
        seen,
    )
