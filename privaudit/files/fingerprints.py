"""Fingerprints of data and functions: equal for what hypothesis makes a second time.

A function is what it computes: its code, the values that it closes over, its defaults,
and what it reads: global variables, the functions that it calls, classes with their
attributes, all but those of libraries, which are known by their names. So a lambda that
a test makes anew each time it is executed stays the same, and none is taken for what it
was before a name was patched.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import dataclasses
import hashlib
import os
import pickle
import random
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np

from privaudit.files import tables

_LIBRARIES = sys.stdlib_module_names | {
    *("privaudit", "trainers", "dp_accounting", "opendp"),
    *("numpy", "scipy", "pandas", "polars", "pyarrow", "pyspark", "networkx"),
    *("torch", "jax", "jaxlib", "sklearn", "hypothesis", "pytest", "_pytest"),
}
_DRAWING = (
    np.random.Generator,
    np.random.BitGenerator,
    np.random.RandomState,
    random.Random,
)
_DRAWS = ("<class 'torch._C.Generator'>",)
_SLOTS = types.MemberDescriptorType, types.GetSetDescriptorType
_OF_CLASSES = {  # that say nothing of what a class does, or repeat it
    *("__annotations__", "__dataclass_fields__", "__dataclass_params__", "__doc__"),
    *("__dict__", "__module__", "__slotnames__", "__weakref__", "_abc_impl"),
}
_HELD: list[object] = []  # what is known by its address must not be freed


def fingerprint(value: object) -> str:
    """Return a text that is equal for equal values, and hardly ever for others.

    What cannot be pickled is known by its address.

    >>> [fingerprint(lambda x: x + n) for n in (1, 1)][0] == fingerprint(1)
    False
    """
    try:
        return _Walk().digest(value)
    except RecursionError:
        raise ValueError(
            f"a {type(value).__name__} is nested too deeply to be compared"
        ) from None


def check_differ(pair: tuple[Any, Any]) -> None:
    """Raise ``ValueError`` unless these are two data sets that differ."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError("pair must be a tuple of two data sets")
    if fingerprint(pair[0]) == fingerprint(pair[1]):
        raise ValueError(
            "the two data sets of the pair are equal, so that nothing tells them apart"
        )


@dataclasses.dataclass(slots=True)
class _Walk:
    """A walk through all that a value is made of, or that a function reads."""

    # code and instances by address, each with its number: once is enough
    seen: dict[int, tuple[int, object]] = dataclasses.field(default_factory=dict)
    inside: list[int] = dataclasses.field(default_factory=list)  # containers, modules
    todo: collections.deque[Any] = dataclasses.field(default_factory=collections.deque)

    def digest(self, value: Any) -> str:
        """Digest of a value and of all that it comes by."""
        found = hashlib.sha256()
        for part in self._whole(value):
            found.update(len(part).to_bytes(8, "little"))
            found.update(part)
        return found.hexdigest()

    def _apart(self, value: Any) -> str:
        return _Walk(dict(self.seen), [*self.inside]).digest(value)

    def _whole(self, value: Any) -> Iterator[bytes]:
        yield from self.parts(value)
        while self.todo:  # not within each other, which might be too deep
            yield from self._code(self.todo.popleft())

    def parts(self, value: Any) -> Iterator[bytes]:
        """Bytes that are alike for what is alike."""
        kind = type(value)
        yield kind.__qualname__.encode()
        own = not _is_known(kind.__module__)
        if own:
            yield from self.parts(kind)
        if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
            yield repr(value).encode()
        elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
            yield f"{value.dtype} {value.shape}".encode()
            yield value.tobytes()
        elif isinstance(value, _DRAWING) or f"{kind}" in _DRAWS:
            return  # whose state changes with each run
        elif (content := _content(value)) is not None:
            if id(value) in self.inside:  # it contains itself
                yield str(self.inside.index(id(value))).encode()
                return
            self.inside.append(id(value))
            for part in content:
                yield from self.parts(part)
            if own:
                yield from self.parts(getattr(value, "__dict__", {}))
            self.inside.pop()
            yield b"end"
        elif isinstance(value, Set):
            for found in sorted(map(self._apart, value)):
                yield found.encode()
        elif own or hasattr(value, "__dict__"):
            if id(value) not in self.seen:
                self.seen[id(value)] = len(self.seen), value
                self.todo.append(value)
            yield str(self.seen[id(value)][0]).encode()
        else:
            yield from self._code(value)

    def _code(self, value: Any) -> Iterator[bytes]:
        """Code, with what it reads, and instances, with the code of their class."""
        if isinstance(value, types.CodeType):
            yield value.co_code
            yield from self.parts((value.co_names, value.co_consts))
        elif isinstance(value, (type, types.FunctionType)):
            yield f"{value.__module__} {value.__qualname__}".encode()
            # Of a function that wraps another one __module__ is the other's.
            of = value.__module__
            if isinstance(value, types.FunctionType):
                of = value.__globals__.get("__name__")
            if not _is_known(of):
                yield from self._read(value)
        elif isinstance(value, types.ModuleType):
            yield from self._module(value, None)
        elif isinstance(value, types.BuiltinFunctionType):
            yield value.__qualname__.encode()
            if not isinstance(value.__self__, types.ModuleType):
                yield from self.parts(value.__self__)
        elif isinstance(value, types.MethodType):
            yield from self.parts((value.__self__, value.__func__))
        elif isinstance(value, (staticmethod, classmethod)):
            yield from self.parts(value.__func__)
        elif isinstance(value, property):
            yield from self.parts((value.fget, value.fset, value.fdel))
        else:
            yield from self._instance(value)

    def _read(self, value: Any) -> Iterator[bytes]:
        """Attributes of a class; of a function all that it is given or reads."""
        if isinstance(value, type):
            yield from self.parts(value.__mro__[1:])
            held = {k: v for k, v in vars(value).items() if k not in _OF_CLASSES}
            for name in sorted(held):
                if not isinstance(held[name], _SLOTS):
                    yield from self.parts((name, held[name]))
            return
        yield from self.parts(
            (value.__code__, value.__defaults__, value.__kwdefaults__)
        )
        yield from self.parts(vars(value))
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # not bound yet
                yield from self.parts(cell.cell_contents)
        names, package = _names(value.__code__), value.__globals__.get("__package__")
        for name in sorted(names):
            places = (
                *((value.__globals__, name), (vars(builtins), name)),
                *((sys.modules, name), (sys.modules, f"{package}.{name}")),
            )
            for found in (held[key] for held, key in places if key in held):
                yield name.encode()
                if isinstance(found, types.ModuleType):
                    yield from self._module(found, names)
                else:
                    yield from self.parts(found)
                break
        if names & {"environ", "getenv"}:
            yield from self.parts(dict(os.environ))

    def _module(
        self, module: types.ModuleType, names: frozenset[str] | None
    ) -> Iterator[bytes]:
        """The module's name, and what it has by these names, or any."""
        yield module.__name__.encode()
        if _is_known(module.__name__) or id(module) in self.inside:
            return
        self.inside.append(id(module))
        held = vars(module)
        for name in sorted(held.keys() & names if names is not None else held):
            if name.startswith("__"):
                continue
            yield name.encode()
            if isinstance(held[name], types.ModuleType) and names is not None:
                yield from self._module(held[name], names)
            else:
                yield from self.parts(held[name])
        self.inside.pop()

    def _instance(self, value: Any) -> Iterator[bytes]:
        """Parts of its pickle, and its attributes: a pickle names functions only."""
        state = getattr(value, "__dict__", None)
        try:
            pickled = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        except Exception:  # whatever an object's own pickling raises
            pickled = ()
            if not state:
                _HELD.append(value)
                yield str(id(value)).encode()
        for part in [pickled] if isinstance(pickled, str) else pickled:
            yield from self.parts([*part] if isinstance(part, Iterator) else part)
        yield from self.parts(dict(state or {}))


def _content(value: Any) -> Iterable[Any] | None:
    """Content of a container; None for what is none."""
    torch, networkx = (sys.modules.get(name) for name in ("torch", "networkx"))
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_meta:
            return str(value.dtype), tuple(value.shape)
        half = value.dtype == torch.bfloat16  # which numpy has not
        found = (value.float() if half else value).detach().cpu()
        return str(value.dtype), found.numpy()
    if isinstance(value, np.ndarray):
        return value.shape, value.tolist()
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if (kind := tables.kind_of(value)) is not None:
        return kind.content(value)
    if isinstance(value, (list, tuple)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in dataclasses.fields(value)]
        return [getattr(value, name, None) for name in names]
    if networkx is not None and isinstance(value, networkx.Graph):
        return list(value.nodes(data=True)), list(value.edges(data=True))
    return None


def _names(code: types.CodeType) -> frozenset[str]:
    """Names that code may read: its own, and words of its texts, as for getattr."""
    found = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, str):
            found |= set(re.findall(r"\w+", const))
        elif isinstance(const, types.CodeType):
            found |= _names(const)
    return frozenset(found)


def _is_known(module: Any) -> bool:
    """Return whether a module's code is known by its name."""
    named = isinstance(module, str | None)  # else of a class in C
    return not named or (module or "").partition(".")[0] in _LIBRARIES
