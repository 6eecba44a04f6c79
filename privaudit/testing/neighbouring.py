"""Strategies of hypothesis for pairs of neighbouring data sets."""

from __future__ import annotations

import copy
import dataclasses
import numbers
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from privaudit.files import tables
from privaudit.files.arguments import public
from privaudit.files.fingerprints import fingerprint
from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, PoissonSampling, Release, Sensitivity
from privaudit.results import Relation
from privaudit.testing import extremes, graphs

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Unit = Literal["record", "user", "window", "count", "edge", "node"]
Draw = Callable[["SearchStrategy[Any]"], Any]
_HOW = (
    "neighbours makes pairs of lists, tuples, sets, arrays, tables and ledgers by "
    "record, of histograms by count, and of networkx graphs, lists of edges and "
    "adjacency matrices by edge or node; other data can be made a list of records and "
    "turned back in the test"
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
        list of dictionaries), arrays whose rows are records, tables of pandas, polars
        or arrow and series of pandas, ledgers whose records are releases; histograms,
        as lists, arrays or series of counts or a dictionary of them by category; or
        graphs, as networkx graphs, lists of edges or adjacency matrices.
    relation
        "add-or-remove-one": the second data set has one more, at any place.
        "replace-one": one of the second is another; both have equally many.
    unit
        What they differ in: "record"; "user", several records of one person at any
        places; "window", several that stand side by side, as in a time series; for
        histograms "count", a record that is counted; for graphs "edge" or "node" (with
        all its edges).
    rows_per_user
        Most records of one person, >= 1; for unit "user" or "window", and for "count"
        where it is more than one.

    Notes
    -----
    Records that are added, or that replace others, come from a second draw of
    ``strategy``. In half of the pairs of numbers, in lists and arrays, they are at the
    ends of what the strategy allows, and the other records are at one end together, or
    half of them where the changed one is, which may differ in one field alone;
    infinities, nan and the least floats, where it allows them, are ends as well. A list
    may be longer than the strategy's maximum, by one or a person's records, and is
    never shorter than its minimum: records are removed only where the second draw is
    shorter. Under "replace-one" a person's records are replaced by as many. Pairs of
    equal data sets are left out.

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
    needed = unit in ("user", "window")
    if rows_per_user is None if needed else rows_per_user and unit != "count":
        raise ValueError(
            "rows_per_user, the most records of one person, goes with unit='user', "
            f"'window' or 'count', got {unit=} and {rows_per_user=}"
        )
    most = 1 if rows_per_user is None else rows_per_user
    if most < 1:
        raise ValueError(f"rows_per_user must be >= 1, got {rows_per_user}")

    far = extremes.records_of(strategy)

    @st.composite
    def pairs(draw: DrawFn) -> tuple[Any, Any]:
        data = draw(strategy)
        replace = relation == "replace-one"
        if unit in ("record", "user", "window"):
            found = _records(data, draw(strategy), draw, replace)
            rows, others, build = found.rows, found.others, found.build
            data = data if rows else build([])
            # The first that hypothesis tries, and what it shrinks to.
            if far and not draw(st.booleans()):
                # All records at one end, and what differs at any, first the next; or
                # half of them beside it, for what looks at the middle rank.
                end = draw(st.sampled_from(far))
                more = draw(st.sampled_from([*far[1:], far[0]]))
                if beside := extremes.beside(end, far):  # a count that moves, say
                    more = draw(st.sampled_from([more, *beside]))
                like, many = others or rows or [build([])], len(rows)
                here = many - draw(st.sampled_from([0, many // 2]))
                others = [found.record(more, row) for row in like]
                rows = [
                    found.record(end if at < here else more, row)
                    for at, row in enumerate(rows)
                ]
                data = build(rows)
            together = unit == "window"
            if replace:
                changed = _replaced(rows, others, draw, most, together)
            else:
                changed = _resized(rows, others, draw, most, found.spare, together)
            pair = (data, build(changed))
            return pair if len(changed) >= len(rows) else pair[::-1]
        if unit == "count":
            return _histogram(data, draw(strategy), draw, most, replace)
        if graphs.is_networkx(data):
            return graphs.of_networkx(data, draw(strategy), draw, unit, replace)
        if isinstance(data, np.ndarray) and data.ndim == 2:
            return graphs.of_matrix(data, draw(strategy), draw, unit, replace)
        if isinstance(data, (list, tuple, set, frozenset)):
            return graphs.of_edges(data, draw(strategy), draw, unit, replace)
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Records:
    """Records of one draw, those of another, and data of changed ones."""

    rows: list[Any]
    others: list[Any]
    spare: int  # how many the first draw has more
    build: Callable[[list[Any]], Any]
    # makes a record of an extreme one (`privaudit.testing.extremes`) and a row
    record: Callable[[Any, Any], Any] = lambda end, row: end


def _records(data: Any, other: Any, draw: Draw, replace: bool) -> _Records:
    """Records of two draws; of sets the second's are those that the first lacks."""
    from hypothesis import assume
    from hypothesis import strategies as st

    spare = len(data) - len(other) if hasattr(data, "__len__") else 0
    if isinstance(data, Ledger):
        node = draw(st.integers(0, len(data.nodes) - 1))
        rows, others = list(data.nodes[node]), list(other.nodes[0])

        def ledger(changed: list[Any]) -> Ledger:
            nodes = (*data.nodes[:node], tuple(changed), *data.nodes[node + 1 :])
            return msgspec.structs.replace(data, nodes=nodes)

        return _Records(rows, others, len(rows) - len(others), ledger)
    if isinstance(data, (list, tuple)):
        kinds = {
            numbers.Number if isinstance(one, numbers.Number | np.bool_) else type(one)
            for one in data
        }
        if isinstance(data, tuple) and len(kinds - {type(None)}) > 1:
            names = ", ".join(type(one).__name__ for one in data)
            raise ValueError(
                f"a tuple is taken for one of records, got one of ({names}): draw "
                "public arguments as their own argument of @given"
            )
        return _Records(list(data), list(other), spare, type(data))
    if isinstance(data, (set, frozenset)):
        # In an order that is the same in every process.
        rows, others = (sorted(one, key=fingerprint) for one in (data, other - data))

        def different(changed: list[Any]) -> Any:
            assume(len(set(changed)) == len(changed))
            return type(data)(changed)

        return _Records(rows, others, spare, different)
    if isinstance(data, np.ndarray) and data.ndim:
        assume(other.shape[1:] == data.shape[1:])

        def stacked(changed: list[Any]) -> Any:
            return np.array(changed, dtype=data.dtype).reshape(-1, *data.shape[1:])

        return _Records(list(data), list(other), spare, stacked)
    kind = tables.kind_of(data)
    if kind is None:
        raise ValueError(f"got {type(data).__name__} by record: {_HOW}")
    assume(kind.alike(data, other))
    if not len(data):  # which may not know its types
        data = kind.joined([], other, False)
    rows, others = kind.rows(data), kind.rows(kind.typed(other, data))

    def table(changed: list[Any]) -> Any:
        return kind.joined(changed, data, replace)

    return _Records(rows, others, spare, table, kind.record)


def _resized(
    rows: list[Any],
    others: list[Any],
    draw: Draw,
    most: int,
    spare: int,
    together: bool,
) -> list[Any]:
    """Up to ``most`` rows more, or up to ``spare`` fewer, at any places.

    What is drawn shrinks to one row more, at the end.
    """
    from hypothesis import assume
    from hypothesis import strategies as st

    if spare > 0 and (not others or draw(st.booleans())):
        gone = set(_places(len(rows), min(most, spare), draw, together))
        return [row for at, row in enumerate(rows) if at not in gone]
    assume(others)
    changed, place = list(rows), 0  # from the end
    for number in range(draw(st.integers(1, most)) if most > 1 else 1):
        row = others[draw(st.integers(0, len(others) - 1))]
        if not (together and number):
            place = draw(st.integers(0, len(changed)))
        changed.insert(len(changed) - place, row)
    return changed


def _replaced(
    rows: list[Any], others: list[Any], draw: Draw, most: int, together: bool
) -> list[Any]:
    """Up to ``most`` rows replaced by others, in their places."""
    from hypothesis import assume
    from hypothesis import strategies as st

    assume(rows and others)
    changed = list(rows)
    for place in _places(len(rows), most, draw, together):
        changed[place] = others[draw(st.integers(0, len(others) - 1))]
    return changed


def _places(many: int, most: int, draw: Draw, together: bool) -> list[int]:
    """From 1 to ``most`` different places of ``many``, side by side if ``together``."""
    from hypothesis import strategies as st

    place, most = st.integers(0, many - 1), min(most, many)
    if most == 1:
        return [draw(place)]
    if together:
        wide = draw(st.integers(1, most))
        first = draw(st.integers(0, many - wide))
        return list(range(first, first + wide))
    return draw(st.lists(place, min_size=1, max_size=most, unique=True))


def _histogram(
    data: Any, other: Any, draw: Draw, most: int, replace: bool
) -> tuple[Any, Any]:
    """Up to ``most`` counts more, or moved to other places.

    A category that loses its last is gone if the second draw lacks it, and no count of
    either is 0; else the strategy may always have it, and it stays, at 0. One that the
    first draw lacks may come.
    """
    from hypothesis import assume
    from hypothesis import strategies as st

    changed: Any = list(data) if isinstance(data, tuple) else copy.deepcopy(data)
    places: list[Any]
    stays: list[Any]
    cells: Any = changed
    if isinstance(data, Mapping):
        places = list(dict.fromkeys([*data, *other]))
        stays = places if 0 in [*data.values(), *other.values()] else list(other)
    elif isinstance(data, (list, tuple, np.ndarray)) or _is_series(data):
        places = list(np.ndindex(np.shape(data)))
        cells = changed.iloc if _is_series(data) else changed
        if isinstance(data, (list, tuple)):
            places = list(range(len(data)))
        stays = places
    else:
        raise ValueError(f"got {type(data).__name__} by count: {_HOW}")
    assume(places)

    def value(place: Any) -> Any:
        return changed.get(place, 0) if isinstance(data, Mapping) else cells[place]

    for _ in range(draw(st.integers(1, most)) if most > 1 else 1):
        into = draw(st.sampled_from(places))
        if replace:
            full = [one for one in places if value(one) >= 1 and one != into]
            assume(full)
            from_ = draw(st.sampled_from(full))
            cells[from_] = value(from_) - 1
            if from_ not in stays and not cells[from_]:
                del changed[from_]
        cells[into] = value(into) + 1
    return data, tuple(changed) if isinstance(data, tuple) else changed


def _is_series(data: Any) -> bool:
    return isinstance(tables.kind_of(data), tables.Pandas) and np.ndim(data) == 1
