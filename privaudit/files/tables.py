"""Tables by row, with the types of their columns: of pandas, polars and arrow.

A pandas table or series whose index rises, as time does, still rises with a row more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class Table:
    """Rows of a table of polars or arrow, each a table of one row."""

    def __init__(self, join: Callable[[list[Any]], Any]) -> None:
        self._join = join

    def rows(self, table: Any) -> list[Any]:
        """Every row by itself."""
        return [table.slice(at, 1) for at in range(len(table))]

    def alike(self, table: Any, other: Any) -> bool:
        """Return whether both have the same columns."""
        return list(table.schema) == list(other.schema)

    def typed(self, other: Any, table: Any) -> Any:
        """``other`` with the types of ``table``."""
        return other.cast(table.schema)

    def joined(self, rows: list[Any], table: Any, replace: bool) -> Any:
        """The table of ``rows``, otherwise as ``table`` is."""
        return self._join(rows) if rows else table.slice(0, 0)

    def record(self, end: Any, row: Any) -> Any:
        """``row`` with extreme values: ``end``, which is a table as well."""
        return self.typed(end, row) if len(row) else end

    def content(self, table: Any) -> tuple[Any, ...]:
        """Plain values that are equal for equal tables, however these are kept."""
        names = [getattr(one, "name", one) for one in table.schema]
        columns = [table[name].to_numpy().tolist() for name in names]
        return str(table.schema), columns


class Pandas(Table):
    """Rows of a data frame or a series of pandas."""

    def rows(self, table: Any) -> list[Any]:
        return [table.iloc[at : at + 1] for at in range(len(table))]

    def alike(self, table: Any, other: Any) -> bool:
        one, two = (list(getattr(x, "columns", ())) for x in (table, other))
        return one == two

    def typed(self, other: Any, table: Any) -> Any:
        return other.astype(table.dtypes)

    def joined(self, rows: list[Any], table: Any, replace: bool) -> Any:
        """The table of ``rows``; replaced ones take the index of those they replace."""
        found = self._join(rows) if rows else table.iloc[:0]
        if replace:
            return found.set_axis(table.index, axis=0)
        if type(table.index).__name__ == "RangeIndex":
            return found.reset_index(drop=True)
        rises = table.index.is_monotonic_increasing
        return found.sort_index(kind="stable") if rises else found

    def record(self, end: Any, row: Any) -> Any:
        """``row`` with the values ``end``: a dictionary for a frame, or one itself."""
        if isinstance(end, type(row)):
            end = end.set_axis(row.index, axis=0) if len(row) else end
            return end.astype(row.dtypes)
        given = {"index": row.index} if len(row) else {}
        if not hasattr(row, "columns"):
            given["name"] = row.name
        return type(row)([end], **given).astype(row.dtypes)

    def content(self, table: Any) -> tuple[Any, ...]:
        one, names = hasattr(table, "dtype"), getattr(table, "columns", [])
        kinds = [str(table.dtype), table.name] if one else [*map(str, table.dtypes)]
        values = table.T.to_numpy(object).tolist()
        return kinds, [*names], table.index.tolist(), values


def kind_of(data: Any) -> Table | None:
    """Return what handles rows of ``data``; None if it is no table."""
    pandas, polars, arrow = (
        sys.modules.get(name) for name in ("pandas", "polars", "pyarrow")
    )
    if pandas is not None and isinstance(data, (pandas.DataFrame, pandas.Series)):
        return Pandas(pandas.concat)
    if polars is not None and isinstance(data, polars.DataFrame):
        return Table(polars.concat)
    if arrow is not None and isinstance(data, arrow.Table):
        return Table(arrow.concat_tables)
    return None
