"""Fingerprints of data and functions: equal for what hypothesis makes a second time.

A function is what it computes: its code, the values that it closes over and its
defaults. So a lambda that a test makes anew each time it is executed stays the same.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pickle
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

from privaudit.files import tables

_HELD: list[object] = []  # what is known by its address must not be freed


def fingerprint(value: object) -> str:
    """Return a text that is equal for equal values, and hardly ever for others.

    What cannot be pickled is known by its address.

    >>> [fingerprint(lambda x: x + n) for n in (1, 1)][0] == fingerprint(1)
    False
    """
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def check_differ(pair: tuple[Any, Any]) -> None:
    """Raise ``ValueError`` unless these are two data sets that differ."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError("pair must be a tuple of two data sets")
    if fingerprint(pair[0]) == fingerprint(pair[1]):
        raise ValueError(
            "the two data sets of the pair are equal, so that nothing tells them apart"
        )


def _parts(value: Any) -> Iterator[bytes]:
    yield type(value).__qualname__.encode()
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        yield repr(value).encode()
    elif hasattr(value, "detach"):  # a tensor of torch
        yield from _parts(value.detach().cpu().numpy())
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield f"{value.dtype} {value.shape}".encode()
        yield value.tobytes()
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _parts(key)
            yield from _parts(part)
        yield b"end"
    elif (kind := tables.kind_of(value)) is not None:
        yield from _parts(kind.content(value))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _parts(part)
        yield b"end"
    elif isinstance(value, Set):
        yield from sorted(fingerprint(part).encode() for part in value)
    elif isinstance(value, type):
        yield f"{value.__module__} {value.__qualname__}".encode()
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name))
    elif hasattr(value, "is_directed") and hasattr(value, "adj"):  # of networkx
        yield from _parts((list(value.nodes(data=True)), list(value.edges(data=True))))
    elif isinstance(value, types.FunctionType):
        yield from _parts((value.__module__, value.__qualname__))
        yield from _parts(value.__code__)
        yield from _parts((value.__defaults__, value.__kwdefaults__))
        for cell in value.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            # A function that calls itself would go round.
            yield from _parts(None if content is value else content)
    elif isinstance(value, types.CodeType):
        yield value.co_code
        yield from _parts((value.co_names, value.co_consts))
    elif isinstance(value, types.MethodType):
        yield from _parts((value.__self__, value.__func__))
    elif isinstance(value, functools.partial):
        yield from _parts((value.func, value.args, value.keywords))
    else:
        try:
            yield pickle.dumps(value, protocol=5)
        except Exception:  # whatever an object's own pickling raises
            _HELD.append(value)
            yield str(id(value)).encode()
