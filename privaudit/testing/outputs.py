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
import datetime
import decimal
import math
import numbers
import sys
import types
import zlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.probes.low_bits import Floats, lowest_bit
from privaudit.files import tables

Path = tuple[Hashable, ...]

_MOST = 1e150  # stands for infinity; what is not a number lies below all
_LARGE = 1e100  # numbers above count by their logarithms, so that squares are finite
_MISSING = -1.5e150
_WIDEST = 4096  # columns, or twice an output's parts: keys may be ever new
_REST: Path = (..., "rest")  # parts beyond these share one
_FEW = 16  # categories that are numbered as they come
_FORM = ...  # the last of a path to a type of what has parts
_DIGIT = 2**53
_EPOCH = datetime.datetime(1970, 1, 1)
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
        self._forms: dict[Path, Hashable] = {}  # the first at each place
        self._widest = _WIDEST
        self.nothing = True  # whether every output so far was None
        self.still = True  # whether all outputs so far were read alike
        self._first: tuple[Floats, np.int64] | None = None

    @property
    def is_number(self) -> bool:
        """Return whether every output so far was one number, or missing."""
        return len(self._codes) == 1 and not any(self._codes.values())

    def name(self, column: int) -> str:
        """Place of a column in the output."""
        path = list(self._codes)[column]
        if path == _REST:
            return "the sum of further parts of the output"
        parts = "".join(f"[{part!r}]" for part in path if part is not _FORM)
        what = "the type of " if path[-1:] == (_FORM,) else ""
        return f"{'the lowest bit of ' if self._bits else what}the output{parts}"

    def read(self, outputs: Sequence[object]) -> Readings:
        """Columns and events of ``outputs``, one a run."""
        self.nothing = self.nothing and all(one is None for one in outputs)
        table = _one_array(outputs)
        if table is not None:
            form, parts = _apart(outputs[0]) or (None, [((), None)])
            if form is None or not self._told([((_FORM,), form)]):
                paths = [place for place, _ in parts]
                read = self.read_arrays(dict(zip(paths, table.T, strict=True)))
                event = self._event(tuple((path, _REAL) for path in paths))
                events = np.full(len(outputs), event)
                return dataclasses.replace(read, events=events)
        try:
            runs = [self._told(_leaves(output)) for output in outputs]
        except RecursionError:
            raise ValueError(
                "an output contains itself, or is nested too deeply to be read"
            ) from None
        for leaves in runs:
            self._widest = max(self._widest, 2 * len(leaves))
            for path in leaves:
                if path not in self._codes:
                    wide = len(self._codes) >= self._widest
                    self._codes.setdefault(_REST if wide else path, {})
        table = [self._row(leaves) for leaves in runs]
        events = [
            self._event(tuple((path, _exact(leaf)) for path, leaf in leaves.items()))
            for leaves in runs
        ]
        shape = len(outputs), len(self._codes)
        return self._readings(np.array(table, float).reshape(shape), np.array(events))

    def read_many(self, given: Any, runs: int) -> Readings:
        """Columns and events of what a vectorised mechanism gives for ``runs``.

        Raises ``ValueError`` unless there are as many outputs.
        """
        parts = dict(_parts(given, (), runs))
        forms = {path: one for path, one in parts.items() if path[-1:] == (_FORM,)}
        arrays = {path: one for path, one in parts.items() if path not in forms}
        if arrays and all(one.dtype.kind in "fiubUS" for one in arrays.values()):
            return self.read_arrays(arrays, forms)
        if [*arrays] == [()]:
            return self.read(list(arrays[()]))
        if not arrays and not isinstance(given, (Mapping, tuple)):
            return self.read(list(given))  # arrays without numbers
        if not arrays:
            raise _not_as_many(given, runs)
        rows = zip(*[one.tolist() for one in arrays.values()], strict=True)
        return self.read([forms | dict(zip(arrays, row, strict=True)) for row in rows])

    def read_arrays(
        self,
        parts: Mapping[Path, NDArray[Any]],
        forms: Mapping[Path, Hashable] = types.MappingProxyType({}),
    ) -> Readings:
        """Columns and events of outputs whose parts are arrays, (runs,) each."""
        self.nothing = False
        runs = len(next(iter(parts.values())))
        told = self._told(forms.items())
        events = np.full(runs, self._event(("forms", *told.items())), dtype=np.uint64)
        found: dict[Path, Floats] = {
            path: np.full(runs, self._number(self._codes.setdefault(path, {}), form))
            for path, form in told.items()
        }
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
                coded = [_coded(codes, kind) for kind in kinds.tolist()]
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
        large = np.isfinite(columns) & (np.abs(columns) > _LARGE)
        if large.any():
            size = _LARGE * (1 + np.log(np.abs(columns[large]) / _LARGE))
            columns[large] = np.copysign(size, columns[large])
        columns = np.nan_to_num(np.clip(columns, -_MOST, _MOST), nan=_MISSING)
        if self.still and len(events):
            self._first = self._first or (columns[0], events[0])
            row, event = self._first
            same = row.shape == columns[0].shape and (columns == row).all()
            self.still = bool(same and (events == event).all())
        return Readings(columns, events)

    def _told(self, leaves: Iterable[tuple[Path, Any]]) -> dict[Path, Any]:
        """The leaves, but for forms that are the first at their place."""
        return {
            path: leaf
            for path, leaf in leaves
            if path[-1:] != (_FORM,) or self._forms.setdefault(path, leaf) != leaf
        }

    def _event(self, exact: Hashable) -> int:
        return self._events.setdefault(exact, len(self._events))

    def _row(self, leaves: Mapping[Path, Any]) -> list[float]:
        row = [
            self._number(codes, leaves[path]) if path in leaves else math.nan
            for path, codes in self._codes.items()
        ]
        if (codes := self._codes.get(_REST)) is not None:
            more = [leaf for path, leaf in leaves.items() if path not in self._codes]
            row[[*self._codes].index(_REST)] = sum(
                self._number(codes, leaf) for leaf in more
            )
        return row

    @staticmethod
    def _number(codes: dict[Hashable, int], leaf: Any) -> float:
        if isinstance(leaf, (int, float)):
            return _real(leaf)
        return float(_coded(codes, _exact(leaf)))


def _coded(codes: dict[Hashable, int], kind: Hashable) -> int:
    """Code of a category; of many, by no order: that of many runs is by data set."""
    if kind not in codes:
        few = len(codes) < _FEW
        codes[kind] = len(codes) if few else zlib.crc32(repr(kind).encode())
    return codes[kind]


def _one_array(outputs: Sequence[object]) -> Floats | None:
    """Outputs that are all finite floats, or as many of them in one form, as rows."""
    first: Any = outputs[0]
    if type(first) is np.ndarray:
        form = first.dtype, first.shape
        alike = first.dtype.kind == "f" and all(
            type(one) is np.ndarray and (one.dtype, one.shape) == form
            for one in outputs
        )
    elif type(first) in (list, tuple):
        alike = all(
            type(one) is type(first)
            and len(one) == len(first)
            and all(isinstance(part, float) for part in one)
            for one in outputs
        )
    else:
        alike = all(isinstance(one, float) for one in outputs)
    if not alike or not np.size(first):
        return None
    table = np.array(outputs, float).reshape(len(outputs), -1)
    return table if np.isfinite(table).all() else None


def _parts(given: Any, path: Path, runs: int) -> Iterator[tuple[Path, Any]]:
    """Parts of ``runs`` outputs, (runs,) each, and forms."""
    pandas = isinstance(tables.kind_of(given), tables.Pandas)
    if pandas and given.index.tolist() != [*range(len(given))]:
        raise ValueError(
            "the index of a table of many outputs must number the runs, from 0: "
            "reset_index() makes it a column"
        )
    if hasattr(given, "columns") and hasattr(given, "to_dict"):  # a frame of pandas
        given = {name: given[name].to_numpy() for name in given.columns}
    names = getattr(getattr(given, "dtype", None), "names", None)
    if names:  # an array of records
        given = {name: given[name] for name in names}
    if isinstance(given, (Mapping, tuple)):
        named = given.items() if isinstance(given, Mapping) else enumerate(given)
        yield (*path, _FORM), "tuple" if isinstance(given, tuple) else "dictionary"
        for name, part in named:
            yield from _parts(part, (*path, name), runs)
        return
    if isinstance(given, np.ma.MaskedArray):
        if given.dtype.kind == "f":
            given = given.filled(math.nan)
        else:
            yield from _parts(np.ma.getmaskarray(given), (*path, "mask"), runs)
            given = given.filled(given.dtype.type())
    table = _array(given)
    if isinstance(table, list):
        table = np.fromiter(table, dtype=object, count=len(table))
    if not isinstance(table, np.ndarray) or not table.ndim or len(table) != runs:
        raise _not_as_many(given, runs)
    if table.dtype.kind == "c":
        yield from _parts({"real": table.real, "imag": table.imag}, path, runs)
        return
    if table.dtype.kind in "mM":
        table = table.view(np.int64)
    if table.dtype.kind in "fiub":  # of others it may go by all runs together
        yield (*path, _FORM), str(table.dtype)
    for place in np.ndindex(table.shape[1:]):
        yield (*path, *place), table[:, *place]


def _not_as_many(given: Any, runs: int) -> ValueError:
    shape = getattr(_array(given), "shape", type(given).__name__)
    return ValueError(
        f"a vectorised mechanism must give {runs:,} outputs, as an array whose "
        "first axis is the run, a dictionary or tuple of such arrays, or a list; "
        f"got {shape}"
    )


def _array(output: Any) -> Any:
    """Arrays of whoever gives one as those of numpy."""
    if hasattr(output, "detach"):  # a tensor that may have a gradient
        output = output.detach().cpu()
        output = output.float() if "bfloat16" in str(output.dtype) else output
    if hasattr(output, "__array__") and not isinstance(output, np.ndarray):
        return np.asarray(output)
    return output


def _apart(output: Any) -> tuple[Hashable, list[tuple[Path, Any]]] | None:
    """Form of what has parts, and these with their places; None for what has none.

    A set is read by what is in it, {"a"} as {"a": True}; one of other than texts and
    whole numbers as a sorted list, for floats in it are no events. So are labels of
    pandas. Numbers of other kinds are floats, times whole numbers of microseconds.
    """
    if isinstance(output, (bool, int, float, str, bytes, type, type(None))):
        return None
    if isinstance(output, complex):
        return "complex", [(("real",), output.real), (("imag",), output.imag)]
    if isinstance(output, (list, tuple)):
        form = "list" if isinstance(output, list) else "tuple"
        return form, [((at,), part) for at, part in enumerate(output)]
    if isinstance(output, Mapping):
        return "dictionary", [((key,), output[key]) for key in sorted(output, key=repr)]
    if isinstance(output, Set):
        if _are_names(output):
            return "set", [((part,), True) for part in sorted(output, key=repr)]
        try:
            ordered = sorted(output)
        except TypeError:
            ordered = sorted(output, key=repr)
        return "set", [((at,), part) for at, part in enumerate(ordered)]
    if isinstance(output, (numbers.Real, decimal.Decimal)):
        return type(output).__name__, [((), _real(output))]
    if isinstance(output, datetime.date | datetime.time | datetime.timedelta):
        zone = getattr(output, "tzinfo", None)
        return f"{type(output).__name__} {zone}", [((), _microseconds(output))]
    if dataclasses.is_dataclass(output):
        fields = [one.name for one in dataclasses.fields(output)]
        found = {name: getattr(output, name) for name in fields}
        found |= getattr(output, "__dict__", {})
        return type(output).__name__, [((name,), part) for name, part in found.items()]
    kind = tables.kind_of(output)
    if isinstance(kind, tables.Pandas):
        return _of_pandas(output)
    if kind is not None:
        content = enumerate(kind.content(output))
        return type(output).__name__, [((at,), part) for at, part in content]
    array = _array(output)
    if not isinstance(array, np.ndarray):
        return None
    form = type(output).__name__, str(getattr(output, "dtype", array.dtype))
    if array.dtype.names:
        return form, [((name,), array[name]) for name in array.dtype.names]
    if array.dtype.kind in "mM":
        array = array.view(np.int64)
    if array.dtype.kind in "US":  # whose length is that of the longest
        form = type(output).__name__, array.dtype.kind
    flat = array if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
    return form, [*zip(np.ndindex(array.shape), flat.ravel().tolist(), strict=True)]


def _of_pandas(table: Any) -> tuple[Hashable, list[tuple[Path, Any]]]:
    """Form and parts of a series or a frame: of names, by these."""
    kind = getattr(table, "dtype", None)
    form = type(table).__name__, str(kind), repr(getattr(table, "name", None))
    labels, values = table.index, table.tolist() if kind is not None else []
    if kind is None:
        labels = table.columns
        values = [table.iloc[:, at] for at in range(len(labels))]
    known = getattr(kind, "categories", None)
    form = *form, None if known is None else repr(known.tolist())
    if labels.is_unique and _are_names(labels):
        names = labels.tolist()
        return (*form, *names), [((n,), v) for n, v in zip(names, values, strict=True)]
    parts = [((at,), part) for at, part in enumerate(values)]
    return form, [(("labels",), labels.tolist()), *parts]


def _are_names(found: Iterable[Any]) -> bool:
    return all(isinstance(one, (str, bytes, numbers.Integral)) for one in found)


def _real(value: Any) -> float:
    """The number as a float, the largest where it is beyond all."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(sys.float_info.max, value > 0 or -1)


def _microseconds(time: Any) -> int | float:
    """A time or a duration as a whole number; nan where pandas has none."""
    if isinstance(time, datetime.time):
        time = datetime.datetime.combine(_EPOCH, time)
    elif isinstance(time, datetime.date) and not isinstance(time, datetime.datetime):
        time = datetime.datetime.combine(time, datetime.time())
    if isinstance(time, datetime.datetime):
        time = time - _EPOCH.replace(tzinfo=time.tzinfo)
    return time // datetime.timedelta(microseconds=1)


def _leaves(output: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path, leaf) of all leaves; forms, and what is empty, are leaves themselves."""
    if isinstance(output, np.generic):
        output = output.item()
    apart = _apart(output)
    if apart is None:
        yield path, output
        # Of what a float does not hold to the last digit, a column for each 53 bits.
        if isinstance(output, int) and abs(output) > _DIGIT:
            rest, at = abs(output), 0
            while rest:
                rest, digit = divmod(rest, _DIGIT)
                yield (*path, "digit", at), math.copysign(digit, output > 0 or -1)
                at += 1
        return
    form, parts = apart
    yield (*path, _FORM), form
    for place, part in parts:
        yield from _leaves(part, (*path, *place))
    if not parts:
        yield path, f"nothing {getattr(output, 'shape', ())}"


def _exact(leaf: object) -> Hashable:
    if isinstance(leaf, int):
        return int(leaf)
    if isinstance(leaf, float):
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
