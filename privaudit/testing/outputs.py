"""Outputs of a mechanism as columns of numbers and as events.

Numbers, arrays, sequences and dictionaries are taken apart into leaves. A leaf that is
a number is a column of its own; any other one is a column of codes. The *event* of an
output is all of it that is exact: whole numbers, texts, shapes, keys, and which numbers
are missing. Finite floats are read as real numbers: that two are equal to the last bit
is no event, for then every Laplace mechanism in floating point would be refuted
(Mironov 2012).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.probes.low_bits import Floats, lowest_bit

Path = tuple[Hashable, ...]

_MOST = 1e150  # stands for all above; what is not a number lies below all
_LARGEST = 10**150
_MISSING = -1.5e150
_WIDEST = 4096  # columns; outputs with ever new keys would have no end of them
_REAL = "a real number"
_NOT_RUN = (Iterator, AsyncIterator, Awaitable)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # multiplies events of parts before they are added


@dataclasses.dataclass(frozen=True, slots=True)
class Readings:
    """Outputs of some runs: ``columns`` (runs, columns), ``events`` (runs,) as codes.

    Later readings may have more columns; those of parts that had not been seen before.
    """

    columns: Floats
    events: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.events)

    @classmethod
    def joined(cls, parts: Sequence[Readings]) -> Readings:
        """All runs of ``parts``, in order."""
        width = max(part.columns.shape[1] for part in parts)
        return cls(
            np.concatenate([_widened(part.columns, width) for part in parts]),
            np.concatenate([part.events for part in parts]),
        )

    def __getitem__(self, chosen: slice | NDArray[np.bool_]) -> Readings:
        return Readings(self.columns[chosen], self.events[chosen])


def _widened(columns: Floats, width: int) -> Floats:
    more = width - columns.shape[1]
    return np.pad(columns, ((0, 0), (0, more)), constant_values=_MISSING)


class Reader:
    """Reads outputs into columns, one more for each part that is new."""

    def __init__(self, *, bits: bool) -> None:
        self._bits = bits
        self._codes: dict[Path, dict[Hashable, int]] = {}
        self._events: dict[Hashable, int] = {}
        self.nothing = True  # whether every output so far was None
        self.still = True  # whether all outputs so far were read alike
        self._first: tuple[Floats, np.int64] | None = None

    @property
    def is_number(self) -> bool:
        """Return whether every output so far was one number, or missing."""
        return len(self._codes) == 1 and not any(self._codes.values())

    def name(self, column: int) -> str:
        """Place of a column in the output."""
        parts = "".join(f"[{part!r}]" for part in list(self._codes)[column])
        return f"{'the lowest bit of ' if self._bits else ''}the output{parts}"

    def read(self, outputs: Sequence[object]) -> Readings:
        """Columns and events of ``outputs``, one a run."""
        self.nothing = self.nothing and all(one is None for one in outputs)
        table = _one_array(outputs)
        if table is not None:
            number = isinstance(outputs[0], float)
            paths = [()] if number else [(at,) for at in range(table.shape[1])]
            read = self.read_arrays(dict(zip(paths, table.T, strict=True)))
            event = self._event(tuple((path, _REAL) for path in paths))
            return dataclasses.replace(read, events=np.full(len(outputs), event))
        runs = [dict(_leaves(_plain(output))) for output in outputs]
        for leaves in runs:
            for path in leaves:
                if path not in self._codes and len(self._codes) < _WIDEST:
                    self._codes[path] = {}
        table = [
            [
                self._number(codes, leaves[path]) if path in leaves else math.nan
                for path, codes in self._codes.items()
            ]
            for leaves in runs
        ]
        events = [
            self._event(tuple((path, _exact(leaf)) for path, leaf in leaves.items()))
            for leaves in runs
        ]
        shape = len(outputs), len(self._codes)
        return self._readings(np.array(table, float).reshape(shape), np.array(events))

    def read_arrays(self, parts: Mapping[Path, NDArray[Any]]) -> Readings:
        """Columns and events of outputs whose parts are arrays, (runs,) each."""
        self.nothing = False
        runs = len(next(iter(parts.values())))
        events = np.zeros(runs, dtype=np.uint64)
        found: dict[Path, Floats] = {}
        for path, part in parts.items():
            codes = self._codes.setdefault(path, {})
            numeric = part.dtype.kind in "fiub"
            if numeric:
                found[path] = part.astype(float)
            if part.dtype.kind == "f":
                exact = np.isnan(part) + 2 * (part == np.inf) + 3 * (part == -np.inf)
            elif numeric:
                exact = part.astype(np.int64)
            else:
                kinds, places = np.unique(part, return_inverse=True)
                coded = [codes.setdefault(kind, len(codes)) for kind in kinds.tolist()]
                exact = np.array(coded)[places.ravel()]
                found[path] = exact.astype(float)
            # Sums of products modulo 2^64: events of which two are alike cost power.
            events = events * _ODD + exact.astype(np.int64).view(np.uint64) * _ODD
            events ^= events >> np.uint64(29)
        none = np.full(runs, math.nan)
        columns = np.stack([found.get(path, none) for path in self._codes], axis=1)
        return self._readings(columns, events.view(np.int64))

    def _readings(self, columns: Floats, events: NDArray[np.int64]) -> Readings:
        if self._bits:
            columns = lowest_bit(columns)
        columns = np.nan_to_num(np.clip(columns, -_MOST, _MOST), nan=_MISSING)
        if self.still and len(events):
            self._first = self._first or (columns[0], events[0])
            row, event = self._first
            same = row.shape == columns[0].shape and (columns == row).all()
            self.still = bool(same and (events == event).all())
        return Readings(columns, events)

    def _event(self, exact: Hashable) -> int:
        return self._events.setdefault(exact, len(self._events))

    @staticmethod
    def _number(codes: dict[Hashable, int], leaf: Any) -> float:
        if isinstance(leaf, int):
            return float(max(-_LARGEST, min(leaf, _LARGEST)))
        if isinstance(leaf, numbers.Real):
            return float(leaf)
        return float(codes.setdefault(_exact(leaf), len(codes)))


def _one_array(outputs: Sequence[object]) -> Floats | None:
    """Outputs that are all finite floats, or arrays of floats of one shape, as rows."""
    first = outputs[0]
    if not (
        (isinstance(first, float) and all(isinstance(one, float) for one in outputs))
        or (
            isinstance(first, np.ndarray)
            and first.size
            and all(
                isinstance(one, np.ndarray)
                and one.dtype.kind == "f"
                and one.shape == first.shape
                for one in outputs
            )
        )
    ):
        return None
    table = np.array(outputs, float).reshape(len(outputs), -1)
    return table if np.isfinite(table).all() else None


def parts_of(given: Any, runs: int) -> dict[Path, NDArray[Any]] | None:
    """Parts of ``runs`` outputs, (runs,) each; None if they are a list of outputs.

    Raises ``ValueError`` unless there are as many as ``runs``.
    """
    parts = dict(_parts(given, (), runs))
    if any(part.dtype.kind not in "fiubUS" for part in parts.values()):
        return None
    return parts or None


def _parts(given: Any, path: Path, runs: int) -> Iterator[tuple[Path, NDArray[Any]]]:
    if hasattr(given, "columns") and hasattr(given, "to_dict"):  # a frame of pandas
        given = {name: given[name].to_numpy() for name in given.columns}
    names = getattr(getattr(given, "dtype", None), "names", None)
    if names:  # an array of records
        given = {name: given[name] for name in names}
    if isinstance(given, (Mapping, tuple)):
        named = given.items() if isinstance(given, Mapping) else enumerate(given)
        for name, part in named:
            yield from _parts(part, (*path, name), runs)
        return
    if isinstance(given, np.ma.MaskedArray) and given.dtype.kind in "fiub":
        given = np.ma.filled(given.astype(float), math.nan)
    table = _plain(given)
    if isinstance(table, list):
        table = np.fromiter(table, dtype=object, count=len(table))
    if not isinstance(table, np.ndarray) or not table.ndim or len(table) != runs:
        shape = getattr(table, "shape", type(given).__name__)
        raise ValueError(
            f"a vectorised mechanism must give {runs:,} outputs, as an array whose "
            "first axis is the run, a dictionary or tuple of such arrays, or a list; "
            f"got {shape}"
        )
    if table.dtype.kind == "c":
        yield from _parts((table.real, table.imag), path, runs)
        return
    flat = table.reshape(runs, -1)
    if table.ndim == 1:
        yield path, table
        return
    for place in range(flat.shape[1]):
        yield (*path, place), flat[:, place]


def _plain(output: object) -> object:
    """Arrays of numpy, and of those who give one, as arrays; scalars as numbers.

    A set is read by what is in it, {"a"} as {"a": True}; one of other than texts and
    whole numbers as a sorted list, for floats in it are no events.
    """
    if isinstance(output, Set):
        if all(isinstance(part, (str, bytes, numbers.Integral)) for part in output):
            return dict.fromkeys(output, True)
        try:
            return sorted(output)
        except TypeError:
            return sorted(output, key=repr)
    if isinstance(output, np.generic):
        return output.item()
    if hasattr(output, "detach"):  # a tensor that may have a gradient
        output = output.detach().cpu()
    if hasattr(output, "__array__") and not isinstance(output, np.ndarray):
        return np.asarray(output)
    return output


def _leaves(output: object, path: Path = ()) -> Iterator[tuple]:
    """(path, leaf) of all leaves; lengths and keys are leaves themselves if empty."""
    if isinstance(output, np.ndarray):
        if output.dtype.kind == "O":
            output = output.tolist()
        else:
            for index, leaf in enumerate(output.ravel().tolist()):
                yield (*path, index), leaf
            if output.size == 0:
                yield path, str(output.shape)
            return
    if isinstance(output, Mapping):
        for key in sorted(output, key=repr):
            yield from _leaves(_plain(output[key]), (*path, key))
    elif isinstance(output, (list, tuple)):
        for index, part in enumerate(output):
            yield from _leaves(_plain(part), (*path, index))
    else:
        yield path, output
        return
    if not output:
        yield path, repr(output)


def _exact(leaf: object) -> Hashable:
    if isinstance(leaf, numbers.Integral):
        return int(leaf)
    if isinstance(leaf, numbers.Real):
        return _REAL if math.isfinite(leaf) else repr(leaf)
    what = f"got {type(leaf).__name__}"
    if isinstance(leaf, _NOT_RUN):
        raise ValueError(
            f"a mechanism must return what it releases, {what}, which has not run: "
            "give a function that collects it, or awaits it (asyncio.run)"
        )
    told = isinstance(leaf, (type, type(None), type(...)))
    told = told or type(leaf).__hash__ is not object.__hash__
    with contextlib.suppress(TypeError):
        hash(leaf)
        if told:
            return leaf
    raise ValueError(
        "a mechanism gives a number, an array, a sequence or dictionary of these, or "
        f"something that can be hashed and compared; {what}: give a score"
    )
