"""pandas in and out; it is imported when a frame is asked for, and never before."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from privaudit.files.csv import check_known


def frame_of(
    # what is within a field of a row becomes ``field_within``
    columns: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    index: str | None = None,  # the column that numbers the rows
) -> Any:
    """A ``pandas.DataFrame`` of columns by name, or of rows with such fields."""
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "a frame needs pandas, which is not installed: pip install pandas"
        ) from None
    made = (
        pandas.DataFrame(dict(columns))
        if isinstance(columns, Mapping)
        else pandas.json_normalize(list(columns), sep="_")
    )
    return made if index is None else made.set_index(index)


def is_frame(value: Any) -> bool:
    """Return whether ``value`` is a table with named columns, as pandas' frames are."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def columns_of(
    frame: Any,
    names: Sequence[str],
    *,
    what: str,
    optional: Sequence[str] | None = None,
) -> Any:
    """The columns ``names`` of ``what``, a frame, as one array, in that order.

    Those of ``optional`` that are there follow; if any are named, others are an error.
    """
    known = [str(name) for name in frame.columns]
    for name in names:
        if name not in known:
            raise ValueError(
                f"{what} has the columns {' and '.join(names)}, and this frame has no "
                f"{name}; its columns: {', '.join(known) or 'none'}"
            )
    if optional is not None:
        check_known(known, (*names, *optional))
    there = [name for name in optional or () if name in known]
    return frame[[*names, *there]].to_numpy(dtype=float)


def check_aligned(
    one: Any, other: Any, names: tuple[str, str], *, by_place: bool = False
) -> None:
    """``ValueError`` if pandas' rows of two are numbered otherwise: would not fit.

    ``by_place``: rows of one that is not pandas' are numbered from 0 on.
    """
    known: list[Any] = [getattr(value, "index", None) for value in (one, other)]
    indices = [index for index in known if hasattr(index, "equals")]  # no list's method
    if len(indices) == 2:
        fit = indices[0].equals(indices[1])
    else:
        fit = not by_place or all([*one] == [*range(len(one))] for one in indices)
    if not fit:
        raise ValueError(
            f"{names[0]} and {names[1]} have other indices, so that rows would not fit "
            "(those of an array are 0, 1, 2, ...): align them first, or give "
            ".to_numpy() of both"
        )
