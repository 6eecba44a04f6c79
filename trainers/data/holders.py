"""Things that code keeps state in: how each is put back, and what it leads to."""

from __future__ import annotations

import array
import collections
import contextlib
import ctypes
import datetime
import decimal
import functools
import io
import operator
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

# What puts a value back, and what it leads to.
Held = tuple[Callable[[], Any] | None, Iterable[Any]]

_OURS = {"privaudit", "trainers"} | sys.stdlib_module_names
# Of Python's own, those whose objects people keep state in.
_HOLDERS = {
    *("_thread", "argparse", "collections", "contextlib", "functools", "queue"),
    *("types", "weakref"),
}
_MAPS = (collections.OrderedDict, dict)
CONTAINERS = (*_MAPS, set, list, collections.deque, bytearray, array.array)
_BLOBS = (io.IOBase, ctypes.Array, ctypes.Structure)  # with more than attributes
# Of C, without anything in them that changes.
_FIXED = (
    *(types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, re.Pattern),
    *(types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType),
    *(np.generic, np.dtype, np.ufunc, torch.dtype, torch.device, torch.layout),
    *(torch.memory_format, decimal.Decimal, datetime.date, datetime.timedelta),
    *(type(threading.Lock()), type(threading.RLock()), type(NotImplemented)),
    *(operator.itemgetter, operator.attrgetter, operator.methodcaller),
    *(tuple, frozenset),
)
_PARTS = (  # of a function, that can be set
    *("__defaults__", "__kwdefaults__", "__code__", "__annotations__"),
    *("__doc__", "__name__", "__qualname__"),
)
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: of C


def is_ours(module: str | None) -> bool:
    """Return whether code is of no user's: of ours, of Python's own, or installed."""
    package = (module or "").partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package in _OURS or "-packages" in file


def leads_to(value: Any) -> Iterable[Any] | None:
    """Values that are reached through one that keeps nothing itself; else None."""
    if isinstance(value, torch.UntypedStorage):
        return (torch.empty(0, dtype=torch.uint8, device=value.device).set_(value),)
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
        return (value.__self__,)  # such as a list's append
    if isinstance(value, staticmethod | classmethod):
        return (value.__func__,)
    if isinstance(value, property):
        return value.fget, value.fset
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.MappingProxyType):
        return value.values()
    if isinstance(value, weakref.ref):
        return (value(),)
    if isinstance(value, tuple | frozenset) and type(value) in (tuple, frozenset):
        return value
    return None


def items(value: Any) -> Held:
    """Hold a container's items, put back by no method of a subclass of somebody's."""
    base: Any = next((kind for kind in CONTAINERS if isinstance(value, kind)), None)
    if base is None:
        return None, value if isinstance(value, tuple | frozenset) else ()
    held = base.copy(value) if hasattr(base, "copy") else value[:]
    clear = getattr(base, "clear", lambda held: base.__delitem__(held, slice(None)))
    put = getattr(base, "update", None) or base.extend

    def fill() -> None:
        clear(value)
        put(value, held)

    return fill, list(held.values() if base in _MAPS else held)


def attributes(value: Any) -> Held:
    """Hold the attributes of an object, a function or a module."""
    held = getattr(value, "__dict__", None)
    if not isinstance(held, dict):
        return None, ()
    found = dict(held)

    def fill() -> None:
        for name in held.keys() - found.keys():
            del held[name]
        held.update(found)

    return fill, list(found.values())


def slots(value: Any) -> Held:
    """Hold what is in an object's slots."""
    names = [
        name
        for kind in type(value).__mro__
        for name, each in vars(kind).items()
        if isinstance(each, types.MemberDescriptorType)
    ]
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}

    def fill() -> None:
        for name in names:
            if name in found:
                object.__setattr__(value, name, found[name])
            elif hasattr(value, name):
                object.__delattr__(value, name)

    try:
        fill()
    except (AttributeError, TypeError):  # of C, to be read only
        return None, list(found.values())
    return fill, list(found.values())


def is_left(value: Any) -> bool:
    """Return whether an object of Python's own is left as it is."""
    where = (type(value).__module__ or "").partition(".")[0]
    has = isinstance(getattr(value, "__dict__", None), dict)
    left = where in sys.stdlib_module_names and where not in _HOLDERS
    return has and left and not isinstance(value, _BLOBS)


def is_opaque(value: Any) -> bool:
    """Return whether more may be in an object than Python shows of it."""
    if isinstance(value, _BLOBS):
        return True
    if isinstance(value, (*CONTAINERS, *_FIXED)) or hasattr(value, "__dict__"):
        return False
    return any("__slots__" not in vars(kind) for kind in type(value).__mro__[:-1])


def memory(value: Any) -> Held | None:
    """Hold the bytes of an object of C, if it shows them."""
    try:
        shown = memoryview(value)
    except TypeError:
        return None
    if shown.readonly:
        return None, ()
    now, kept = shown.cast("B"), bytes(shown)
    return (lambda: now.__setitem__(slice(None), kept)), ()


def function(value: types.FunctionType) -> Held:
    """Hold what a function is made of, and the globals that its code names."""
    found: list[Any] = []
    held, named = value.__globals__, {}
    names = _names(value.__code__)
    if not names.isdisjoint(("globals", "exec", "eval")):
        names |= held.keys()
    for name in names:
        if name in held:
            named[name] = held[name]
        elif name in sys.modules:  # imported within it
            found.append(sys.modules[name])
    parts = {name: getattr(value, name) for name in _PARTS}

    def fill() -> None:
        held.update(named)
        for name, part in parts.items():
            if getattr(value, name) is not part:
                setattr(value, name, part)

    found += [*named.values(), *(value.__closure__ or ()), *parts.values()]
    return fill, found


def _names(code: types.CodeType) -> set[str]:
    """All names in a function's code, and in that of functions within it."""
    found = set(code.co_names)
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            found |= _names(value)
    return found


def cell(value: types.CellType) -> Held:
    """Hold what a function closes over."""
    try:
        content = value.cell_contents
    except ValueError:  # empty
        return None, ()

    def fill() -> None:
        value.cell_contents = content

    return fill, (content,)


def kind(value: type) -> Held:
    """Hold the attributes of a class of somebody's."""
    if value.__flags__ & _IMMUTABLE or is_ours(value.__module__):
        return None, value.__bases__
    held = vars(value)
    kept = dict(held)

    def fill() -> None:
        for name in held.keys() - kept.keys():
            type.__delattr__(value, name)
        for name, each in kept.items():
            if held.get(name) is not each:
                type.__setattr__(value, name, each)

    return fill, [*held.values(), *value.__bases__, type(value)]


def gradient(value: Tensor) -> Held:
    """Hold the gradient of a leaf that requires one."""
    if not (value.is_leaf and value.requires_grad):
        return None, ()
    grad = value.grad

    def forget() -> None:
        value.grad = grad

    return forget, ()


def tensor(value: Tensor, places: dict[int, Tensor], largest: int | None) -> Held:
    """Hold all that a tensor's memory has, which others may see by other views.

    ``places`` are those in memory that are held.
    """
    with contextlib.suppress(Exception), torch._C.DisableTorchFunction():
        whole = value.untyped_storage()
        place = whole.data_ptr()
        fits = largest is None or whole.nbytes() <= largest
        if fits and place not in places:
            now = torch.empty(0, dtype=torch.uint8, device=whole.device)
            kept = now.set_(whole).clone()
            places[place] = now
            return (lambda: now.copy_(kept)), (type(value),)
    return None, (type(value),)


def numbers(value: np.ndarray, largest: int | None) -> Held:
    """Hold an array of numpy's."""
    of_objects = value.ravel().tolist() if value.dtype == object else ()
    found = [value.base, type(value), *of_objects]
    if value.flags.writeable and (largest is None or value.nbytes <= largest):
        kept = value.copy()
        return (lambda: np.copyto(value, kept)), found
    return None, found
