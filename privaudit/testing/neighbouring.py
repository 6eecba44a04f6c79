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
from privaudit.testing import extremes
from privaudit.testing.fingerprints import fingerprint

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Unit = Literal["record", "user", "edge", "node"]
Draw = Callable[["SearchStrategy[Any]"], Any]
_HOW = (
    "neighbours makes pairs of lists, tuples, sets, arrays, tables and ledgers by "
    "record, and of networkx graphs, lists of edges and adjacency matrices by edge or "
    "node; other data can be made a list of records and turned back in the test"
)


@public
def neighbours(
    strategy: SearchStrategy[Any],
    *,
    relation: Relation,
    unit: Unit = "record",
    rows_per_user: int | None = None,
) -> SearchStrategy[tuple[Any, Any]]:
    """A hypothesis strategy for data sets that differ in one record, person or edge.

    Parameters
    ----------
    strategy
        A strategy for single data sets: lists, tuples or sets of records (a table is a
        list of dictionaries), arrays whose rows are records, pandas data frames,
        ledgers whose records are releases; or graphs, as networkx graphs, lists of
        edges or adjacency matrices.
    relation
        "add-or-remove-one": the second data set has one more, at any place.
        "replace-one": one of the second is another; both have equally many.
    unit
        What they differ in: "record"; "user", several records of one person at any
        places; or for graphs "edge" or "node" (with all its edges).
    rows_per_user
        Most records of one person, >= 1; for unit "user" alone.

    Notes
    -----
    Records that are added, or that replace others, come from a second draw of
    ``strategy``. In half of the pairs of numbers, in lists and arrays, they are at the
    ends of what the strategy allows, and the other records are at one end together;
    infinities, nan and the least floats, where it allows them, are ends as well. A list
    may be longer than the strategy's maximum, by one or a person's
    records, and is never shorter than its minimum: records are removed only where the
    second draw is shorter. Under "replace-one" a person's records are replaced by as
    many. Pairs of equal data sets are left out.

    Raises
    ------
    ValueError
        If relation or unit is unknown, ``rows_per_user`` is missing or too small, or
        (when drawn) the data are of another kind.

    Examples
    --------
    >>> from hypothesis import strategies as st
    >>> from privaudit.testing import neighbours
    >>> pairs = neighbours(st.lists(st.floats(0, 1)), relation="add-or-remove-one")
    """
    from hypothesis import strategies as st

    if not isinstance(strategy, st.SearchStrategy):
        raise ValueError(f"strategy must be a strategy of hypothesis, got {strategy!r}")
    if (unit == "user") != (rows_per_user is not None):
        raise ValueError(
            "rows_per_user, the most records of one person, goes with unit='user', got "
            f"unit={unit!r} and rows_per_user={rows_per_user}"
        )
    if rows_per_user is not None and rows_per_user < 1:
        raise ValueError(f"rows_per_user must be >= 1, got {rows_per_user}")

    far = extremes.records_of(strategy)

    @st.composite
    def pairs(draw: DrawFn) -> tuple[Any, Any]:
        data = draw(strategy)
        replace = relation == "replace-one"
        if unit in ("record", "user"):
            rows, others, spare, build = _records(data, draw(strategy), draw, replace)
            if far and draw(st.booleans()):
                # All records at one end, and what differs at any.
                end = draw(st.sampled_from(far))
                rows = [end] * len(rows)
                others = [draw(st.sampled_from(far))] * max(1, len(others))
                data = build(rows)
            if replace:
                changed = _replaced(rows, others, draw, rows_per_user or 1)
            else:
                changed = _resized(rows, others, draw, rows_per_user or 1, spare)
            pair = (data, build(changed))
            return pair if len(changed) >= len(rows) else pair[::-1]
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


def _records(
    data: Any, other: Any, draw: Draw, replace: bool
) -> tuple[list[Any], list[Any], int, Callable[[list[Any]], Any]]:
    """Records of two draws, how many more the first has, and data of changed records.

    Of sets the second draw's records are those that the first does not have.
    """
    from hypothesis import assume
    from hypothesis import strategies as st

    build: Callable[[list[Any]], Any]
    if isinstance(data, Ledger):
        node = draw(st.integers(0, len(data.nodes) - 1))
        rows, others = list(data.nodes[node]), list(other.nodes[0])

        def build(changed: list[Any]) -> Any:
            nodes = (*data.nodes[:node], tuple(changed), *data.nodes[node + 1 :])
            return Ledger(
                nodes=nodes,
                unit=data.unit,
                failure=data.failure,
                assumes=data.assumes,
            )
    elif isinstance(data, (list, tuple)):
        rows, others, build = list(data), list(other), type(data)
    elif isinstance(data, (set, frozenset)):
        # In an order that is the same in every process.
        rows, others = (sorted(one, key=fingerprint) for one in (data, other - data))

        def build(changed: list[Any]) -> Any:
            assume(len(set(changed)) == len(changed))
            return type(data)(changed)

        return rows, others, len(data) - len(other), build
    elif isinstance(data, np.ndarray) and data.ndim:
        assume(other.shape[1:] == data.shape[1:])
        rows, others = list(data), list(other)

        def build(changed: list[Any]) -> Any:
            return np.array(changed, dtype=data.dtype).reshape(-1, *data.shape[1:])
    elif _is_frame(data):
        assume(list(other.columns) == list(data.columns))
        rows, others = (
            [frame.iloc[at : at + 1] for at in range(len(frame))]
            for frame in (data, other.astype(data.dtypes))
        )

        def build(changed: list[Any]) -> Any:
            import pandas as pd

            frame = pd.concat(changed or [data.iloc[:0]], ignore_index=True)
            return frame.set_index(data.index) if replace else frame
    else:
        raise ValueError(f"got {type(data).__name__} by record: {_HOW}")
    return rows, others, len(rows) - len(others), build


def _resized(
    rows: list[Any], others: list[Any], draw: Draw, most: int, spare: int
) -> list[Any]:
    """Up to ``most`` rows more, or up to ``spare`` fewer, at any places.

    What is drawn shrinks to one row more, at the end.
    """
    from hypothesis import assume
    from hypothesis import strategies as st

    if spare > 0 and (not others or draw(st.booleans())):
        gone = set(_places(len(rows), min(most, spare), draw))
        return [row for at, row in enumerate(rows) if at not in gone]
    assume(others)
    changed = list(rows)
    for _ in range(draw(st.integers(1, most)) if most > 1 else 1):
        row = others[draw(st.integers(0, len(others) - 1))]
        changed.insert(len(changed) - draw(st.integers(0, len(changed))), row)
    return changed


def _replaced(rows: list[Any], others: list[Any], draw: Draw, most: int) -> list[Any]:
    """Up to ``most`` rows replaced by others, in their places."""
    from hypothesis import assume
    from hypothesis import strategies as st

    assume(rows and others)
    changed = list(rows)
    for place in _places(len(rows), most, draw):
        changed[place] = others[draw(st.integers(0, len(others) - 1))]
    return changed


def _places(many: int, most: int, draw: Draw) -> list[int]:
    """From 1 to ``most`` different places of ``many``."""
    from hypothesis import strategies as st

    place = st.integers(0, many - 1)
    if most == 1:
        return [draw(place)]
    return draw(st.lists(place, min_size=1, max_size=min(most, many), unique=True))


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
    """Neighbours of undirected edges; nodes are those that have an edge."""
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
