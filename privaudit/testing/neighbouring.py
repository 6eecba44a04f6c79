"""Strategies of hypothesis for pairs of neighbouring data sets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from privaudit.files.arguments import public
from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, PoissonSampling, Release, Sensitivity
from privaudit.results import Relation
from privaudit.testing.fingerprints import fingerprint

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Unit = Literal["record", "edge", "node"]
Draw = Callable[["SearchStrategy[Any]"], Any]
_HOW = (
    "neighbours makes pairs of lists, tuples, sets, arrays, tables and ledgers by "
    "record, and of networkx graphs, lists of edges and adjacency matrices by edge or "
    "node; other data can be made a list of records and turned back in the test"
)


@public
def neighbours(
    strategy: SearchStrategy[Any], *, relation: Relation, unit: Unit = "record"
) -> SearchStrategy[tuple[Any, Any]]:
    """A hypothesis strategy for data sets that differ in one record, edge or node.

    Parameters
    ----------
    strategy
        A strategy for single data sets: lists, tuples or sets of records (a table is a
        list of dictionaries), arrays whose rows are records, pandas data frames,
        ledgers whose records are releases; or graphs, as networkx graphs, lists of
        edges or adjacency matrices.
    relation
        "add-or-remove-one": the second data set has one more. "replace-one": one of the
        second is another; both have equally many.
    unit
        What they differ in: "record", or for graphs "edge" or "node" (with all its
        edges).

    Notes
    -----
    The record that is added, or that replaces another, comes from a second draw of
    ``strategy``. A list may be one longer than the strategy's maximum, and is never
    shorter than its minimum. Pairs of equal data sets are left out.

    Raises
    ------
    ValueError
        If relation or unit is unknown, or (when drawn) the data are of another kind.

    Examples
    --------
    >>> from hypothesis import strategies as st
    >>> from privaudit.testing import neighbours
    >>> pairs = neighbours(st.lists(st.floats(0, 1)), relation="add-or-remove-one")
    """
    from hypothesis import strategies as st

    if not isinstance(strategy, st.SearchStrategy):
        raise ValueError(f"strategy must be a strategy of hypothesis, got {strategy!r}")

    @st.composite
    def pairs(draw: DrawFn) -> tuple[Any, Any]:
        data = draw(strategy)
        replace = relation == "replace-one"
        if unit == "record":
            return _by_record(data, draw, strategy, replace)
        if _is_networkx(data):
            return _networkx(data, draw, unit, replace)
        if isinstance(data, np.ndarray) and data.ndim == 2:
            return _adjacency(data, draw, unit, replace)
        if isinstance(data, (list, tuple, set, frozenset)):
            return _edge_list(data, draw, unit, replace)
        raise ValueError(f"got {type(data).__name__} by {unit}: {_HOW}")

    return pairs().filter(lambda pair: fingerprint(pair[0]) != fingerprint(pair[1]))


@public
def ledgers(*, max_releases: int = 4, max_count: int = 1000) -> SearchStrategy[Ledger]:
    """A hypothesis strategy for one node's ledgers of noisy Gaussian sums.

    Sums are of all records, or of a Poisson sample. There are at most ``max_releases``
    kinds of release, each with a count of at most ``max_count``.
    """
    from hypothesis import strategies as st

    for name, most in (("max_releases", max_releases), ("max_count", max_count)):
        if most < 1:
            raise ValueError(f"{name} must be >= 1, got {most}")
    releases = st.builds(
        Release,
        mechanism=st.just("gaussian"),
        norm_bound=st.just(1.0),
        noise=st.floats(0.5, 20.0),
        sensitivity=st.just(Sensitivity(add_or_remove_one=1.0, replace_one=2.0)),
        sampling=st.one_of(
            st.just(NoSampling()), st.builds(PoissonSampling, st.floats(0.001, 0.5))
        ),
    )
    entries = st.lists(
        st.builds(Entry, releases, st.integers(1, max_count)),
        min_size=1,
        max_size=max_releases,
    )
    return st.builds(lambda node: Ledger(nodes=(tuple(node),)), entries)


def _by_record(
    data: Any, draw: Draw, strategy: SearchStrategy[Any], replace: bool
) -> tuple[Any, Any]:
    from hypothesis import assume
    from hypothesis import strategies as st

    if isinstance(data, Ledger):
        node = draw(st.integers(0, len(data.nodes) - 1))
        rows, others = list(data.nodes[node]), draw(strategy).nodes[0]

        def build(changed: list[Any]) -> Any:
            nodes = (*data.nodes[:node], tuple(changed), *data.nodes[node + 1 :])
            return Ledger(
                nodes=nodes,
                unit=data.unit,
                failure=data.failure,
                assumes=data.assumes,
            )
    elif isinstance(data, (list, tuple)):
        rows, others, build = list(data), draw(strategy), type(data)
    elif isinstance(data, (set, frozenset)):
        # In an order that is the same in every process; a record is in a set once.
        rows, build = sorted(data, key=fingerprint), type(data)
        others = sorted(draw(strategy) - data, key=fingerprint)
    elif isinstance(data, np.ndarray) and data.ndim:
        rows, others = list(data), draw(strategy)
        assume(others.shape[1:] == data.shape[1:])

        def build(changed: list[Any]) -> Any:
            return np.array(changed, dtype=data.dtype).reshape(-1, *data.shape[1:])
    elif _is_frame(data):
        return _frames(data, draw(strategy), draw, replace)
    else:
        raise ValueError(f"got {type(data).__name__} by record: {_HOW}")
    assume(len(others) > 0)
    record = others[draw(st.integers(0, len(others) - 1))]
    if not replace:
        return data, build([*rows, record])
    assume(rows)
    place = draw(st.integers(0, len(rows) - 1))
    return data, build([*rows[:place], record, *rows[place + 1 :]])


def _frames(data: Any, others: Any, draw: Draw, replace: bool) -> tuple[Any, Any]:
    import pandas as pd
    from hypothesis import assume
    from hypothesis import strategies as st

    assume(len(others) > 0 and list(others.columns) == list(data.columns))
    at = draw(st.integers(0, len(others) - 1))
    record = others.iloc[at : at + 1].astype(data.dtypes)
    if not replace:
        if not len(data):
            return data, record.reset_index(drop=True)
        return data, pd.concat([data, record], ignore_index=True)
    assume(len(data) > 0)
    place = draw(st.integers(0, len(data) - 1))
    parts = [data.iloc[:place], record, data.iloc[place + 1 :]]
    other = pd.concat([part for part in parts if len(part)], ignore_index=True)
    return data, other.set_index(data.index)


def _is_frame(data: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _is_networkx(data: Any) -> bool:
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(data, networkx.Graph)


def _networkx(graph: Any, draw: Draw, unit: Unit, replace: bool) -> tuple[Any, Any]:
    from hypothesis import assume
    from hypothesis import strategies as st

    nodes, other = list(graph.nodes), graph.copy()
    if unit == "edge":
        assume(len(nodes) > 1)
        ends = st.lists(st.sampled_from(nodes), min_size=2, max_size=2, unique=True)
        one, two = draw(ends)
        assume(not graph.has_edge(one, two))
        other.add_edge(one, two)
        if replace:
            assume(graph.number_of_edges() > 0)
            other.remove_edge(*draw(st.sampled_from(list(graph.edges))))
        return graph, other
    assume(nodes)
    node = draw(st.sampled_from(nodes))
    if not replace:
        other.remove_node(node)
        return other, graph
    other.remove_edges_from(list(_edges_of(graph, node)))
    rest = [one for one in nodes if one != node]
    joined = draw(st.lists(st.sampled_from(rest), unique=True)) if rest else []
    other.add_edges_from((node, one) for one in joined)
    return graph, other


def _edges_of(graph: Any, node: Any) -> Any:
    if graph.is_directed():
        return [*graph.in_edges(node), *graph.out_edges(node)]
    return graph.edges(node)


def _adjacency(
    matrix: np.ndarray, draw: Draw, unit: Unit, replace: bool
) -> tuple[Any, Any]:
    from hypothesis import assume
    from hypothesis import strategies as st

    many = len(matrix)
    if matrix.shape != (many, many):
        raise ValueError(f"an adjacency matrix is square, got shape {matrix.shape}")
    directed = not (matrix == matrix.T).all()
    other = matrix.copy()

    def put(edge: tuple[int, int], value: int) -> None:
        other[edge] = value
        if not directed:
            other[edge[::-1]] = value

    if unit == "edge":
        free = np.argwhere((matrix == 0) & ~np.eye(many, dtype=bool))
        free = [tuple(edge) for edge in free.tolist()]
        assume(free)
        put(draw(st.sampled_from(free)), 1)
        if replace:
            edges = [tuple(edge) for edge in np.argwhere(matrix != 0).tolist()]
            assume(edges)
            put(draw(st.sampled_from(edges)), 0)
        return matrix, other
    assume(many)
    node = draw(st.integers(0, many - 1))
    if not replace:
        rest = np.delete(np.delete(matrix, node, axis=0), node, axis=1)
        return rest, matrix
    for two, value in enumerate(
        draw(st.lists(st.integers(0, 1), min_size=many, max_size=many))
    ):
        if two != node:
            put((node, two), value)
            if directed:
                other[two, node] = draw(st.integers(0, 1))
    return matrix, other


def _edge_list(edges: Any, draw: Draw, unit: Unit, replace: bool) -> tuple[Any, Any]:
    """Of undirected edges; its nodes are those that have an edge."""
    from hypothesis import assume
    from hypothesis import strategies as st

    unordered = isinstance(edges, (set, frozenset))
    kind = type(edges)
    listed: list[Any] = sorted(edges, key=fingerprint) if unordered else list(edges)
    nodes = list(dict.fromkeys(node for edge in listed for node in edge))
    assume(len(nodes) > 1)
    if unit == "edge":
        known = {frozenset(edge) for edge in listed}
        free = [
            (one, two)
            for at, one in enumerate(nodes)
            for two in nodes[at + 1 :]
            if frozenset((one, two)) not in known
        ]
        if replace:
            assume(free)
            place = draw(st.integers(0, len(listed) - 1))
            more = draw(st.sampled_from(free))
            return edges, kind([*listed[:place], more, *listed[place + 1 :]])
        place = draw(st.integers(0, len(listed) - 1))
        return kind([*listed[:place], *listed[place + 1 :]]), edges
    node = draw(st.sampled_from(nodes))
    rest = [edge for edge in listed if node not in edge]
    if not replace:
        return kind(rest), edges
    others = [one for one in nodes if one != node]
    joined = draw(st.lists(st.sampled_from(others), unique=True))
    return edges, kind([*rest, *((node, one) for one in joined)])
