"""The ends of what a strategy of hypothesis allows for a record.

Faults of the field's libraries are at ends: clip bounds, sums that overflow, the least
floats, infinities and nan, no data at all. hypothesis seldom draws them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

_MOST = 12  # records
_LEAST_FLOAT = 5e-324


def records_of(strategy: Any) -> list[Any]:
    """Extreme records of lists, tuples of equal records and arrays; [] if not known.

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
    return []


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
    elif kind == "TupleStrategy":
        parts = [_ends(part) for part in inner.element_strategies]
        found = list(itertools.islice(itertools.product(*parts), _MOST))
    elif kind == "FixedDictStrategy" and not inner.optional:
        parts = [_ends(part) for part in inner.mapping.values()]
        found = [
            dict(zip(inner.mapping, values, strict=True))
            for values in itertools.islice(itertools.product(*parts), _MOST)
        ]
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
