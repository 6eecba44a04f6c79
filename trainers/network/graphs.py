"""Makes graphs of nodes, round by round."""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.views.butterfly import hears
from trainers.network.topology import Topology, check_nodes, strongly_connected

_TRIES = 2000  # random graphs drawn before a search gives up


def complete(nodes: int) -> Topology:
    check_nodes(nodes)
    return Topology(np.ones((1, nodes, nodes), dtype=bool))


def path(nodes: int) -> Topology:
    """Each node and the next one hear each other; the ends have one neighbour."""
    return Topology.of_edges(nodes, ((i, i + 1) for i in range(nodes - 1)))


def ring(nodes: int) -> Topology:
    return Topology.of_edges(nodes, [(i, (i + 1) % nodes) for i in range(nodes)])


def directed_ring(nodes: int) -> Topology:
    """Each node sends to the next, the last to the first."""
    edges = [(i, (i + 1) % nodes) for i in range(nodes)]
    return Topology.of_edges(nodes, edges, directed=True)


def star(nodes: int) -> Topology:
    """Node 0 joined with all others."""
    return Topology.of_edges(nodes, [(0, i) for i in range(1, nodes)])


def torus(nodes: int) -> Topology:
    """A grid as square as it gets, whose opposite sides are joined."""
    check_nodes(nodes)
    high = max(d for d in range(1, math.isqrt(nodes) + 1) if nodes % d == 0)
    wide = nodes // high
    if high < 2:
        raise ValueError(
            f"a torus of {nodes} nodes is no grid; use a product of two numbers >= 2"
        )
    edges = []
    for row in range(high):
        for column in range(wide):
            here = row * wide + column
            edges.append((here, row * wide + (column + 1) % wide))
            edges.append((here, (row + 1) % high * wide + column))
    return Topology.of_edges(nodes, edges)


def erdos_renyi(nodes: int, probability: float, seed: int = 0) -> Topology:
    """A connected graph in which each pair is joined with ``probability``.

    The first connected one of at most 2 000 draws, so that its law is that of Erdos and
    Renyi's graph, given that it is connected.
    """
    check_nodes(nodes)
    if not 0 <= probability <= 1:
        raise ValueError(
            f"the probability of an edge must be in [0, 1], got {probability}"
        )
    generator = np.random.default_rng(seed)
    for _ in range(_TRIES):
        drawn = np.triu(generator.random((nodes, nodes)) < probability, 1)
        if strongly_connected(drawn | drawn.T):
            return Topology((drawn | drawn.T)[None])
    raise ValueError(
        f"none of {_TRIES:,} graphs of {nodes} nodes with edge probability "
        f"{probability:g} is connected; about ln(nodes) / nodes = "
        f"{math.log(nodes) / nodes:.2g} is needed"
    )


def normalised_fiedler(topology: Topology) -> float:
    """lambda_2 of the graph Laplacian over the number of nodes, in [0, 1].

    The connectivity of Bayrooti, Gao and Prorok 2023: 1 for the complete graph, 0 for
    one that is not connected. Raises ``ValueError`` for directed graphs, for those that
    change, and for a single node.
    """
    if topology.directed or len(topology.hears) > 1 or topology.nodes < 2:
        raise ValueError(
            "the Fiedler value is for undirected graphs of two nodes or more that stay "
            f"the same; this has {topology.nodes} nodes, {len(topology.hears)} graphs, "
            f"{'directed' if topology.directed else 'undirected'}"
        )
    adjacency = topology.hears[0].astype(np.float64)
    laplacian = np.diag(adjacency.sum(1)) - adjacency
    return float(np.linalg.eigvalsh(laplacian)[1]) / topology.nodes


def with_fiedler(
    nodes: int, target: float, seed: int = 0, *, tolerance: float | None = None
) -> Topology:
    """A random connected graph whose `normalised_fiedler` is close to ``target``.

    A walk over connected graphs: starting from Erdos and Renyi's, edges are added one
    by one, at random, while the value is too small, and taken away while it is too
    large (never one that disconnects). It stops at the first graph within
    ``tolerance``, a tenth of the target or 0.05 if that is less, and starts again after
    as many steps as there are pairs; all of it draws from ``seed`` alone.
    """
    check_nodes(nodes)
    tolerance = min(0.05, target / 10) if tolerance is None else tolerance
    if nodes < 2 or not 0 < target <= 1 or not tolerance > 0:
        raise ValueError(
            "a target of the normalised Fiedler value must be in (0, 1], on two nodes "
            f"or more, within a tolerance > 0; got {target:g}, {nodes}, {tolerance:g}"
        )
    generator = np.random.default_rng(seed)
    pairs = np.argwhere(np.triu(np.ones((nodes, nodes), dtype=bool), 1))
    nearest = math.inf
    adjacency = np.zeros((nodes, nodes), dtype=bool)
    for step in range(_TRIES):
        if step % len(pairs) == 0:
            adjacency = _random_tree(nodes, generator)
            extra = pairs[generator.random(len(pairs)) < target * generator.random()]
            _join(adjacency, extra, True)
        value = normalised_fiedler(Topology(adjacency[None]))
        nearest = min(nearest, value, key=lambda v: abs(v - target))
        if abs(value - target) <= tolerance:
            return Topology(adjacency[None])
        small = value < target
        for pair in generator.permutation(pairs):
            if adjacency[tuple(pair)] == small:
                continue
            _join(adjacency, pair[None], small)
            if small or strongly_connected(adjacency):
                break
            _join(adjacency, pair[None], True)
    raise ValueError(
        f"no graph of {nodes} nodes with a normalised Fiedler value within "
        f"{tolerance:g} of {target:g} was found in {_TRIES:,} steps (nearest: "
        f"{nearest:.3g}); use another seed, number of nodes or target"
    )


def _random_tree(nodes: int, generator: np.random.Generator) -> np.ndarray:
    """(nodes, nodes) bool: each node, in random order, joined with an earlier one."""
    adjacency = np.zeros((nodes, nodes), dtype=bool)
    order = generator.permutation(nodes)
    for place in range(1, nodes):
        earlier = order[generator.integers(place)]
        _join(adjacency, np.array([[order[place], earlier]]), True)
    return adjacency


def _join(adjacency: np.ndarray, pairs: np.ndarray, joined: bool) -> None:
    adjacency[pairs[:, 0], pairs[:, 1]] = joined
    adjacency[pairs[:, 1], pairs[:, 0]] = joined


def exponential(nodes: int) -> Topology:
    """The directed exponential graph: in round k, i sends to i + 2^(k mod period).

    The period is floor(log2(nodes - 1)) + 1, so that the hops are 1, 2, 4, ...; modulo
    the number of nodes (Assran et al. 2019). With column-stochastic or uniform weights
    each column has two entries of 1/2. EXP of the DPPS paper is the same.
    """
    check_nodes(nodes)
    hops = [2**power for power in range(max(1, (nodes - 1).bit_length()))]
    return Topology(np.stack([_hop(nodes, hop) for hop in hops]))


def of_sums(nodes: int, kind: str = "butterfly") -> Topology:
    """Exchanges of sums: see `privaudit.accounting.views.butterfly`.

    ``butterfly``: recursive doubling, in which a node and its partner hear each other.
    Round t k + r joins nodes whose places in step t differ in bit r alone, of k bits.
    With uniform weights all have the mean after k rounds. Of nodes that are no power of
    two, some fold into others first, and are told the sum at last. ``halving``: these
    exchanges there and back, to gather. ``chain``: each node hears the one before it,
    by turns, and all the last one, in another order in each step. Raises ``ValueError``
    for too many nodes.
    """
    return Topology(hears(nodes, kind))


def d_out(nodes: int, degree: int) -> Topology:
    """Node i sends to i, i + 1, ..., i + ``degree`` - 1 modulo the number of nodes.

    As in the DPPS paper; ``degree`` counts the node itself. Raises ``ValueError`` if it
    is not in 1, ..., ``nodes``.
    """
    check_nodes(nodes)
    if not 1 <= degree <= nodes:
        raise ValueError(f"d of a d-out graph must be in [1, {nodes}], got {degree}")
    hops = [_hop(nodes, hop) for hop in range(1, degree)]
    return Topology(np.any([np.zeros((nodes, nodes), dtype=bool), *hops], axis=0)[None])


def _hop(nodes: int, hop: int) -> np.ndarray:
    hears = np.zeros((nodes, nodes), dtype=bool)
    hears[(np.arange(nodes) + hop) % nodes, np.arange(nodes)] = True
    return hears
