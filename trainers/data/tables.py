"""A user's own data from a CSV file, by a TOML file of what is public about it."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import math
import pathlib
import reprlib
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor

from privaudit.files import csv, json, toml
from privaudit.files.manifest import digest
from trainers.data.transforms import NO_CLASS

_EMPTY = {"", "na", "n/a", "nan", "null", "none", "nil", "unknown", "?", "-", "."}
_MANY = 0.1  # of a column's cells, which nothing is learned of
Words = Annotated[list[str | int], msgspec.Meta(min_length=2)]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Public words about a table's columns: what its field knows, not its records.

    ``file``: the CSV, as seen from the TOML file. ``columns``: by name a range, two
    numbers or dates, which becomes [-1, 1] and a second number, 1 where the cell holds
    none; or words, which become a number each. ``target``: one column and the words of
    its classes. ``node``: one column and the words of its nodes; none: one node.
    ``test``: one in so many records is for a test, by a hash of its own cells: of
    places in the file, one record more would move all that follow.
    """

    file: str
    target: dict[str, Words]
    columns: dict[str, list[Any]]
    node: dict[str, Words] | None = None
    test: Annotated[int, msgspec.Meta(ge=2)] | None = None

    def __post_init__(self) -> None:
        named = self.target | (self.node or {})
        for what, said in (("target", self.target), ("node", self.node)):
            if said is not None and len(said) != 1:
                raise ValueError(f"{what} names one column, got {', '.join(said)}")
        if not self.columns:
            raise ValueError("columns names no column: the inputs are made of them")
        if both := self.target.keys() & self.columns:
            raise ValueError(f"{both.pop()} is the target: leave it out of columns")
        for name, said in [*self.columns.items(), *named.items()]:
            words = [str(x) for x in said if name in named or isinstance(x, str)]
            for at, word in enumerate(words):
                if word in words[:at]:
                    raise ValueError(f"column {name} has the word {word} twice")


def load(path: pathlib.Path) -> dict[str, Any]:
    """Shares, test data and number of classes of the table that ``path`` tells of.

    No cell decides how another is read. ``ValueError`` if a file is no such one, or a
    row is of no node.
    """
    try:
        table = json.convert(toml.read(path), Table)
        file = path.parent / table.file
        named = [*table.columns, *table.target, *(table.node or {})]
        read = [_reader(name, said) for name, said in table.columns.items()]
        (classes,) = (list(map(str, words)) for words in table.target.values())
        nodes = [list(map(str, words)) for words in (table.node or {}).values()]
        rows: list[list[tuple[list[float], int]]] = [[] for _ in (nodes or [[0]])[0]]
        tests: list[tuple[list[float], int]] = []
        for line, cells in csv.rows(file, named):
            each = zip(read, cells, strict=False)
            found = [x for one, cell in each for x in one(cell)]
            label = cells[len(read)].strip()
            record = found, classes.index(label) if label in classes else NO_CLASS
            where = cells[-1].strip()
            if nodes and where not in nodes[0]:
                raise ValueError(
                    f"line {line} of {file.name} is of {named[-1]} {where!r}, and "
                    f"nodes are {', '.join(nodes[0])}"
                )
            at = nodes[0].index(where) if nodes else 0
            (tests if _is_test(cells, table.test) else rows[at]).append(record)
    except OSError as error:
        of = "" if error.filename == str(path) else f"{error.filename}: "
        at = "" if path.is_absolute() else f" (seen from {pathlib.Path.cwd()})"
        raise ValueError(f"data {path}: {of}{error.strerror or error}{at}") from None
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(
            f"data {path}: {error} (below [columns] stand such as age = [20, 90] and "
            'sex = ["F", "M"]; docs/tutorial.md has one)'
        ) from None
    shares = [_data(each) for each in rows]
    test = [each for each in tests if each[1] != NO_CLASS]
    more = {"test": _data(test)} if test else {}
    return {"shares": shares, "classes": len(classes), **more}


def unread(path: pathlib.Path) -> Iterator[str]:
    """Complaints of columns, a tenth of whose cells are not as ``path`` says.

    Of the target, any such cell. Empty cells are none, nor words for them.
    """
    table = json.convert(toml.read(path), Table)
    said = {**table.columns, **table.target}
    rows = csv.rows(path.parent / table.file, [*said])
    cells = zip(*(own for _, own in rows), strict=True)
    for (name, wanted), own in zip(said.items(), cells, strict=False):
        held = [x for x in map(str.strip, own) if x.lower() not in _EMPTY]
        unlike = _unlike_words if name in table.target else _unlike
        found = [(why, x) for x in held if (why := unlike(wanted, x))]
        if len(found) > (0 if name in table.target else _MANY * len(held)):
            why, x = found[0]
            yield (
                f"{len(found):,} of {len(held):,} cells of column {name} that are not "
                f"empty are as {reprlib.repr(x)}: {why}"
            )


def _unlike(said: list[Any], cell: str) -> str:
    """Complaint of a cell of a column of words or of a range, or nothing."""
    if type(said[0]) is str:
        return _unlike_words(said, cell)
    value, low, high = map(_number, (cell, *said))
    if math.isnan(value):
        return (
            "no number, and counted as missing; numbers are written as 1234.5, "
            "and dates as 2024-05-17"
        )
    beyond = f"beyond {said[0]} to {said[1]}, and counted as an end of it"
    return "" if low <= value <= high else beyond


def _unlike_words(said: Words, cell: str) -> str:
    words = list(map(str, said))
    return "" if cell in words else f"none of {', '.join(words)}, and counts nothing"


def columns(path: pathlib.Path) -> str:
    """Digest of what the file at ``path`` says of columns, in their order."""
    table = json.convert(toml.read(path), Table)
    return digest(json.encode([table.target, [*table.columns.items()]]))


def _reader(name: str, said: list[Any]) -> Any:
    """From a cell of column ``name`` to its numbers."""
    if all(type(one) is str for one in said) and said:
        return lambda cell: [float(cell.strip() == word) for word in said]
    numbers = [_number(one) for one in said if not isinstance(one, str | bool)]
    low, high = numbers if len(numbers) == len(said) == 2 else (math.inf, -math.inf)
    if not low < high:
        raise ValueError(
            f"column {name} is a range, such as [20, 90], or a list of words, got "
            f"{', '.join(map(str, said)) or 'nothing'}"
        )

    def read(cell: str) -> list[float]:
        value = _number(cell.strip())
        if math.isnan(value):
            return [0.0, 1.0]
        value = min(max(value, low), high)
        return [(2 * value - low - high) / (high - low), 0.0]

    return read


def _is_test(cells: list[str], one_in: int | None) -> bool:
    number = int.from_bytes(hashlib.sha256("\0".join(cells).encode()).digest())
    return one_in is not None and number % one_in == 0


def _number(value: Any) -> float:
    """A finite number, or a date's days; nan of anything else."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return float(value) if math.isfinite(float(value)) else math.nan
    with contextlib.suppress(ValueError):
        return float(datetime.date.fromisoformat(str(value)[:10]).toordinal())
    return math.nan


def _data(records: list[tuple[list[float], int]]) -> tuple[Tensor, Tensor]:
    found = [x for x, _ in records], [label for _, label in records]
    return torch.tensor(found[0]), torch.tensor(found[1])
