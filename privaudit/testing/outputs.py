"""Outputs of a mechanism as columns of numbers and as events.

Numbers, arrays, sequences and dictionaries are taken apart into leaves. A leaf that is
a number is a column of its own; any other one is a column of codes. The *event* of an
output is all of it that is exact: whole numbers, texts, shapes and keys. Floats are
read as real numbers: that two are equal to the last bit is no event, for then every
Laplace mechanism in floating point would be refuted (Mironov 2012).
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

Floats = NDArray[np.float64]

_MOST = 1e150  # stands for all above; what is not a number lies below all
_LARGEST = 10**150
_MISSING = -1.5e150
_REAL = "a real number"
_NOT_RUN = (Iterator, AsyncIterator, Awaitable)


@dataclasses.dataclass(frozen=True, slots=True)
class Readings:
    """Outputs of some runs: ``columns`` (runs, columns), ``events`` (runs,)."""

    columns: Floats
    events: tuple[Hashable, ...]

    def __len__(self) -> int:
        return len(self.events)

    @classmethod
    def joined(cls, parts: Sequence[Readings]) -> Readings:
        """All runs of ``parts``, in order."""
        return cls(
            np.concatenate([part.columns for part in parts]),
            tuple(event for part in parts for event in part.events),
        )


class Reader:
    """Reads outputs into columns that the first of them define."""

    def __init__(self, outputs: Sequence[object], *, bits: bool) -> None:
        self._bits = bits
        self._codes: dict[tuple[Hashable, ...], dict[Hashable, int]] = {}
        for output in outputs:
            for path, leaf in _leaves(_plain(output)):
                codes = self._codes.setdefault(path, {})
                if not isinstance(leaf, float):
                    codes.setdefault(_exact(leaf), len(codes))
        self.names = [f"the output{_name(path)}" for path in self._codes]
        if bits:
            self.names = [f"the lowest bit of {name}" for name in self.names]

    def read(self, outputs: Sequence[object]) -> Readings:
        """Columns and events of ``outputs``."""
        fast = self._fast(outputs)
        if fast is not None:
            columns, events = fast
        else:
            table, events = [], []
            for output in outputs:
                leaves = dict(_leaves(_plain(output)))
                table.append(
                    [
                        self._number(codes, leaves[path])
                        if path in leaves
                        else math.nan
                        for path, codes in self._codes.items()
                    ]
                )
                events.append(
                    tuple((path, _exact(leaf)) for path, leaf in leaves.items())
                )
            columns = np.array(table, float).reshape(len(outputs), len(self._codes))
        if self._bits:
            columns = lowest_bit(columns)
        columns = np.nan_to_num(np.clip(columns, -_MOST, _MOST), nan=_MISSING)
        return Readings(columns, tuple(events))

    def _fast(
        self, outputs: Sequence[object]
    ) -> tuple[Floats, Sequence[Hashable]] | None:
        """The same, where all outputs are finite floats, or arrays of one shape."""
        first = outputs[0]
        if isinstance(first, float) and all(isinstance(one, float) for one in outputs):
            columns = np.array(outputs, float)[:, None]
        elif isinstance(first, np.ndarray) and all(
            isinstance(one, np.ndarray)
            and one.dtype.kind == "f"
            and one.shape == first.shape
            for one in outputs
        ):
            columns = np.array(outputs, float).reshape(len(outputs), -1)
        else:
            return None
        if columns.shape[1] != len(self._codes) or not np.isfinite(columns).all():
            return None
        return columns, [_REAL] * len(outputs)

    @staticmethod
    def _number(codes: Mapping[Hashable, int], leaf: Any) -> float:
        if isinstance(leaf, int):
            return float(max(-_LARGEST, min(leaf, _LARGEST)))
        if isinstance(leaf, numbers.Real):
            return float(leaf)
        return float(codes.get(_exact(leaf), -1))


def lowest_bit(values: Floats) -> Floats:
    """Exponent of the lowest bit that is set; infinity where there is none.

    >>> lowest_bit(np.array([1.0, 0.75, 6.0])).tolist()
    [0.0, -2.0, 1.0]
    """
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(np.where(np.isfinite(mantissa), mantissa, 0), 53).astype(np.int64)
    with np.errstate(divide="ignore"):
        trailing = np.log2((whole & -whole).astype(float))
    return np.where(whole == 0, np.inf, exponent - 53 + trailing)


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


def _leaves(output: object, path: tuple[Hashable, ...] = ()) -> Iterator[tuple]:
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


def _name(path: Sequence[Hashable]) -> str:
    return "".join(f"[{part!r}]" for part in path)
