"""The ends of what a strategy of hypothesis allows for a record.

Faults of the field's libraries are at ends: clip bounds, sums that overflow, the least
floats, infinities and nan, no data at all. hypothesis seldom draws them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
from typing import Any

from privaudit.files import tables

_MOST = 12  # records
_LONG = 8  # records in one that is a list
_LEAST_FLOAT = 5e-324


def records_of(strategy: Any) -> list[Any]:
    """Extreme records of lists, arrays and tables; [] if not known.

    Of tables of pandas they are dictionaries, of polars and of lists mapped to tables,
    these, each of one row.

    Reads attributes of hypothesis' strategies that it does not document: where a
    version has others, nothing is known.

    >>> from hypothesis import strategies as st
    >>> records_of(st.lists(st.integers(0, 9)))
    [0, 9]
    """
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        inner = _unwrapped(strategy)
        if type(inner).__name__ in ("ListStrategy", "UniqueListStrategy"):
            unique = type(inner).__name__ == "UniqueListStrategy"
            return [] if unique else _ends(inner.element_strategy)
        if type(inner).__name__ == "ArrayStrategy":
            import numpy as np

            shape = inner.shape
            if not isinstance(shape, tuple):
                return []
            ends = _ends(inner.element_strategy)
            return [np.full(shape[1:], end, dtype=inner.dtype)[()] for end in ends]
        if type(inner).__name__ == "MappedStrategy":  # of lists, to tables
            rows = [inner.pack([end]) for end in records_of(inner.mapped_strategy)]
            return rows if all(map(tables.kind_of, rows)) else []
        if strategy.function.__name__ == "dataframes":
            return _of_polars(*strategy._LazyStrategy__args)
        return _of_pandas(strategy)
    return []


def beside(record: Any, others: list[Any]) -> list[Any]:
    """Those of ``others`` that differ in one field; of tuples and dictionaries."""

    def fields(one: Any) -> list[Any]:
        return list(one.values() if isinstance(one, dict) else one)

    if not isinstance(record, (tuple, dict)):
        return []
    return [
        one for one in others if sum(map(operator.ne, fields(one), fields(record))) == 1
    ]


def _of_polars(columns: Any) -> list[Any]:
    """Rows of `polars.testing.parametric`'s tables whose columns have strategies."""
    if not all(type(one).__module__.startswith("polars.") for one in columns):
        return []
    import polars  # pyrefly: ignore[missing-import]

    parts = {one.name: [] if one.unique else _ends(one.strategy) for one in columns}
    types = {one.name: one.dtype for one in columns}
    return [polars.DataFrame([row], schema=types) for row in _products(parts)]


def _of_pandas(strategy: Any) -> list[Any]:
    """Rows of `hypothesis.extra.pandas`' frames, as dictionaries, or values of series.

    [] for columns that are unique or whose ends are not known.
    """
    import inspect

    function = strategy.function
    if function.__module__ != "hypothesis.extra.pandas.impl":
        return []
    given = inspect.signature(function).bind(
        *strategy._LazyStrategy__args, **strategy._LazyStrategy__kwargs
    )
    asked = given.arguments
    if function.__name__ == "series" and not asked.get("unique"):
        return _column_ends(asked.get("elements"), asked.get("dtype"))
    if function.__name__ != "data_frames":
        return []
    if asked.get("rows") is not None:
        found = _ends(asked["rows"])
        return found if all(isinstance(end, dict) for end in found) else []
    parts = {
        one.name: [] if one.unique else _column_ends(one.elements, one.dtype)
        for one in asked["columns"]
    }
    return _products(parts)


def _column_ends(elements: Any, dtype: Any) -> list[Any]:
    if elements is not None:
        return _ends(elements)
    import numpy as np
    from hypothesis.extra.numpy import from_dtype

    return _ends(from_dtype(np.dtype(dtype)))


def _products(parts: dict[Any, list[Any]]) -> list[dict[Any, Any]]:
    """Dictionaries of one end of each; those where all are the first, the last, first.

    The products alone would reach the ends of the last few only.
    """
    ends = list(parts.values())
    if not all(ends):
        return []
    corners = [tuple(one[0] for one in ends), tuple(one[1 % len(one)] for one in ends)]
    values = [*corners, *itertools.islice(itertools.product(*ends), _MOST)]
    return [dict(zip(parts, one, strict=True)) for one in dict.fromkeys(values)]


def _unwrapped(strategy: Any) -> Any:
    while type(strategy).__name__ == "LazyStrategy":
        strategy = strategy.wrapped_strategy
    return strategy


def _ends(strategy: Any) -> list[Any]:
    """Extreme values of one record, all of which the strategy allows."""
    inner = _unwrapped(strategy)
    kind = type(inner).__name__
    found: list[Any] = []
    if kind == "FloatStrategy":
        found = _floats(inner)
    elif kind == "NanStrategy":
        found = [math.nan]
    elif kind == "IntegersStrategy":
        found = [end for end in (inner.start, inner.end) if end is not None]
    elif kind == "JustStrategy":
        found = [inner.value]
    elif kind == "BooleansStrategy":
        found = [False, True]
    elif kind == "SampledFromStrategy" and not inner._transformations:
        elements = list(inner.elements)
        found = [elements[0], elements[-1]]
    elif kind == "OneOfStrategy":
        found = [end for part in inner.original_strategies for end in _ends(part)]
    elif kind == "MappedStrategy" and isinstance(inner.pack, type):  # of numpy's types
        found = [inner.pack(end) for end in _ends(inner.mapped_strategy)]
    elif kind == "ListStrategy":  # of one person's records, say: many alike, or few
        sizes = [min(inner.max_size, inner.min_size + _LONG), inner.min_size]
        ends = _ends(inner.element_strategy)
        found = [[end] * int(size) for size in sizes for end in ends]
    elif kind == "TupleStrategy":
        parts = dict(enumerate(map(_ends, inner.element_strategies)))
        found = [tuple(one.values()) for one in _products(parts)]
    elif kind == "FixedDictStrategy" and not inner.optional:
        found = _products({name: _ends(part) for name, part in inner.mapping.items()})
    return list({repr(end): end for end in found}.values())[:_MOST]


def _floats(strategy: Any) -> list[float]:
    low, high = strategy.min_value, strategy.max_value
    ends = [low, high] if math.isfinite(high) else [1.0, low, high]
    if low < 0 < high:
        ends.append(0.0)
    least = max(strategy.smallest_nonzero_magnitude, _LEAST_FLOAT)
    ends += [end for end in (least, -least) if low <= end <= high]
    if strategy.allow_nan:
        ends.append(math.nan)
    return [float(end) for end in ends]
