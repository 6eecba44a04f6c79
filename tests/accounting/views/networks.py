"""Gossip as a linear protocol, written down by hand, and its ledger."""

from __future__ import annotations

import numpy as np

from privaudit.accounting.views import LinearProtocol
from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, PoissonSampling, Release


def gossip(cycle, rounds, noise, step=1.0, *, mixed=False):
    """theta <- W theta - step y, y taken at theta; theta is sent. Noise (nodes, T).

    With ``mixed``, y is taken at W theta.
    """
    cycle = np.array(cycle, float)
    cycle = cycle[None] if cycle.ndim == 2 else cycle
    nodes = cycle.shape[1]
    inputs = nodes * rounds
    theta = np.zeros((nodes, inputs))
    messages, heard, points = [], [], np.zeros((inputs, inputs))
    for k in range(rounds):
        matrix = cycle[k % len(cycle)]
        messages.append(theta)
        heard.append(((matrix > 0) | np.eye(nodes, dtype=bool)).T)
        own = slice(k * nodes, (k + 1) * nodes)
        points[own] = matrix @ theta if mixed else theta
        theta = matrix @ theta
        theta[:, own] -= step * np.eye(nodes)
    spread = np.broadcast_to(np.array(noise, float), (nodes, rounds)).T.ravel()
    return LinearProtocol(
        nodes,
        np.tile(np.arange(nodes), rounds),
        np.concatenate(messages),
        np.tile(np.arange(nodes), rounds),
        np.concatenate(heard),
        spread,
        points=points,
    )


def releases(noise, sampling=1.0):
    """Of sums of records of norm 1."""
    if isinstance(sampling, float):
        sampling = PoissonSampling(sampling) if sampling < 1 else NoSampling()
    return Release.of_sum(norm_bound=1.0, noise_multiplier=noise, sampling=sampling)


def gossip_ledger(protocol, noise, sampling=1.0):
    """A ledger for a protocol's inputs; ``noise`` is of all, or one an input."""
    each = np.broadcast_to(np.array(noise, float), protocol.owner.shape)
    return Ledger(
        nodes=tuple(
            tuple(Entry(releases(z, sampling)) for z in each[protocol.owner == node])
            for node in range(protocol.nodes)
        )
    )
