"""Pairs of graphs that differ in an edge, or in a node with all its edges."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from privaudit.files.fingerprints import fingerprint

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Draw = Callable[["SearchStrategy[Any]"], Any]


def is_networkx(data: Any) -> bool:
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(data, networkx.Graph)


def of_networkx(
    graph: Any, drawn: Any, draw: Draw, unit: str, replace: bool
) -> tuple[Any, Any]:
    """Neighbours of a graph; edges are directed as those of it and ``drawn`` are."""
    from hypothesis import assume
    from hypothesis import strategies as st

    nodes, other = list(graph.nodes), graph.copy()
    turned = _turned([*graph.edges(), *drawn.edges()])

    def between(one: Any, two: Any) -> list[tuple[Any, Any]]:
        if not graph.is_directed():
            return [(one, two)]
        return [edge for edge in ((one, two), (two, one)) if turned(edge)]

    if unit == "edge":
        assume(len(nodes) > 1)
        ends = st.lists(st.sampled_from(nodes), min_size=2, max_size=2, unique=True)
        free = [edge for edge in between(*draw(ends)) if not graph.has_edge(*edge)]
        assume(free)
        other.add_edge(*free[0])
        if replace:
            assume(graph.number_of_edges() > 0)
            other.remove_edge(*draw(st.sampled_from(list(graph.edges))))
        return graph, other
    assume(nodes)
    # That of the most edges first, which leaks most.
    node = draw(st.sampled_from(sorted(nodes, key=graph.degree, reverse=True)))
    if not replace:
        other.remove_node(node)
        return other, graph
    other.remove_edges_from(list(_edges_of(graph, node)))
    rest = [one for one in nodes if one != node]
    joined = draw(st.lists(st.sampled_from(rest), unique=True)) if rest else []
    other.add_edges_from(edge for one in joined for edge in between(node, one)[:1])
    return graph, other


def _edges_of(graph: Any, node: Any) -> Any:
    if graph.is_directed():
        return [*graph.in_edges(node), *graph.out_edges(node)]
    return graph.edges(node)


def of_matrix(
    matrix: np.ndarray, drawn: np.ndarray, draw: Draw, unit: str, replace: bool
) -> tuple[Any, Any]:
    """Neighbours of a matrix; the strategy has ``drawn`` a second one.

    Where both are empty below the diagonal, so is the neighbour.
    """
    from hypothesis import assume
    from hypothesis import strategies as st

    many = len(matrix)
    if matrix.shape != (many, many):
        raise ValueError(f"an adjacency matrix is square, got shape {matrix.shape}")
    assume(matrix.any() or drawn.any())  # else it is not known which it may fill
    directed = any((one != one.T).any() for one in (matrix, drawn))
    allowed = ~np.eye(many, dtype=bool)
    for side in (np.triu, np.tril):
        if directed and not any((one != side(one)).any() for one in (matrix, drawn)):
            allowed = side(allowed)
    other = matrix.copy()

    def put(edge: tuple[int, int], value: int) -> None:
        other[edge] = value
        if not directed:
            other[edge[::-1]] = value

    if unit == "edge":
        free = [tuple(edge) for edge in np.argwhere((matrix == 0) & allowed).tolist()]
        assume(free)
        put(draw(st.sampled_from(free)), 1)
        if replace:
            edges = [tuple(edge) for edge in np.argwhere(matrix != 0).tolist()]
            assume(edges)
            put(draw(st.sampled_from(edges)), 0)
        return matrix, other
    assume(many)
    edges = (matrix != 0).sum(0) + (matrix != 0).sum(1)
    node = draw(st.sampled_from(np.argsort(-edges, kind="stable").tolist()))
    if not replace:
        return np.delete(np.delete(matrix, node, axis=0), node, axis=1), matrix
    for two, value in enumerate(
        draw(st.lists(st.integers(0, 1), min_size=many, max_size=many))
    ):
        if allowed[node, two]:
            put((node, two), value)
        if directed and allowed[two, node]:
            other[two, node] = draw(st.integers(0, 1))
    return matrix, other


def of_edges(
    edges: Any, drawn: Any, draw: Draw, unit: str, replace: bool
) -> tuple[Any, Any]:
    """Neighbours of undirected edges; nodes are those that have an edge.

    Made edges are turned as all those of ``edges`` and ``drawn``, a second draw, are:
    i < j, i > j, or from nodes that are always first to nodes that never are.
    """
    from hypothesis import assume
    from hypothesis import strategies as st

    for edge in (*edges, *drawn):
        if not isinstance(edge, (tuple, list, frozenset)) or len(edge) != 2:
            raise ValueError(
                f"by {unit} data are a list of edges, each a tuple of two nodes, got "
                f"{edge!r} in it"
            )
    unordered = isinstance(edges, (set, frozenset))
    kind = type(edges)
    listed: list[Any] = sorted(edges, key=fingerprint) if unordered else list(edges)
    nodes = list(dict.fromkeys(node for edge in listed for node in edge))
    assume(len(nodes) > 1)
    turned = _turned([tuple(edge) for edge in (*listed, *drawn)])

    def between(one: Any, two: Any) -> list[Any]:
        both = [edge for edge in ((one, two), (two, one)) if turned(edge)]
        return [type(listed[0])(edge) for edge in both[:1]]

    if unit == "edge":
        known = {frozenset(edge) for edge in listed}
        free = [
            edge
            for at, one in enumerate(nodes)
            for two in nodes[at + 1 :]
            if frozenset((one, two)) not in known
            for edge in between(one, two)
        ]
        assume(free or not replace)
        place = draw(st.integers(0, len(listed) - 1))
        before, after = listed[:place], listed[place + 1 :]
        if replace:
            return edges, kind([*before, draw(st.sampled_from(free)), *after])
        return kind([*before, *after]), edges
    many = collections.Counter(node for edge in listed for node in edge)
    node = draw(st.sampled_from([node for node, _ in many.most_common()]))
    rest = [edge for edge in listed if node not in edge]
    if not replace:
        return kind(rest), edges
    others = [edge for one in nodes if one != node for edge in between(node, one)]
    joined = draw(st.lists(st.sampled_from(others), unique_by=repr)) if others else []
    return edges, kind([*rest, *joined])


def _turned(edges: list[tuple[Any, Any]]) -> Callable[[tuple[Any, Any]], bool]:
    """Return whether an edge is turned as all of ``edges`` are."""
    firsts, seconds = ({edge[side] for edge in edges} for side in (0, 1))
    rules: list[Callable[[tuple[Any, Any]], bool]] = [
        lambda edge: bool(edge[0] < edge[1]),
        lambda edge: bool(edge[0] > edge[1]),
    ]
    if not firsts & seconds:
        rules.append(lambda edge: edge[0] in firsts and edge[1] in seconds)
    try:
        kept = [rule for rule in rules if all(map(rule, edges))]
    except TypeError:  # nodes that have no order
        kept = rules[2:]
    return lambda edge: all(rule(edge) for rule in kept)
