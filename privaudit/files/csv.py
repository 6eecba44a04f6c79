"""Tables from CSV files, read so that no value is taken for another.

Byte-order marks, quotes, blank lines and Windows line ends are read; a column named
twice, a row of more cells than the first, as decimal commas give, or a line end within
a cell, as a quote that is not closed gives, is an error.
"""

from __future__ import annotations

import csv
import io
import pathlib
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

from privaudit.files.folder import MOST_HASHED, opened_regular


def rows(
    path: pathlib.Path, names: Sequence[str], optional: Sequence[str] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """The number of each line below the header, and its cells in columns ``names``.

    Blank lines and other columns are passed over; cells of ``optional`` follow. With
    it, an unknown column is an error. ``ValueError``, which does not name the file, if
    it is no such table; ``OSError`` if it cannot be read.
    """
    with opened_regular(path, MOST_HASHED) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        lines = csv.reader(text, skipinitialspace=True, strict=True)
        records = _each_a_line(lines)
        try:
            header = [name.strip() for name in next(records, [])]
            there = [name for name in optional or () if name in header]
            places = [_place(name, header, names) for name in (*names, *there)]
            if optional is not None:
                check_known(header, (*names, *optional))
            for cells in records:
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) != len(header):
                    raise ValueError(
                        f"line {lines.line_num} has {len(cells)} cells, the first line "
                        f"{len(header)}: {reprlib.repr(','.join(cells))}; numbers are "
                        "written with a point, not a comma"
                    )
                yield lines.line_num, [cells[place] for place in places]
        except UnicodeDecodeError as error:
            raise ValueError(
                f"it is no UTF-8 text ({error.reason} at byte {error.start}); save it "
                "as UTF-8, uncompressed"
            ) from None


def _each_a_line(lines: Any) -> Iterator[list[str]]:
    """Records of a reader; ``ValueError`` for one that is not one whole line."""
    begun = 1
    try:
        for cells in lines:
            if any("\n" in cell or "\r" in cell for cell in cells):
                raise csv.Error("it goes on in another, within quotes: close them")
            begun = lines.line_num + 1
            yield cells
    except csv.Error as error:
        raise ValueError(f"line {begun}: {error}") from None


def _place(name: str, header: list[str], names: Sequence[str]) -> int:
    if header.count(name) > 1:
        raise ValueError(f"the first line names the column {name} more than once")
    if name not in header:
        missing = [each for each in names if each not in header]
        raise ValueError(
            f"the first line must name, between commas, the columns "
            f"{' and '.join(names)}; missing: {', '.join(missing)}; it has "
            f"{', '.join(header[:8])[:200] or 'none'}"
        )
    return header.index(name)


def check_known(columns: Sequence[str], names: Sequence[str]) -> None:
    """``ValueError`` for a column that nothing would be made of."""
    others = [name for name in columns if name not in names]
    if others:
        raise ValueError(
            f"there is no use for the column {reprlib.repr(others[0])}: the columns "
            f"are {', '.join(names)}; rename it, or leave it out"
        )
