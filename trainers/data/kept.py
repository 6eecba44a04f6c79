"""State that somebody's code can keep from one call to the next, put back."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import functools
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.data.generators import generator_of

_OURS = {"privaudit", "trainers"} | sys.stdlib_module_names
# Of Python's own, those whose objects people keep state in.
_HOLDERS = {"_thread", "collections", "functools", "types", "weakref", "argparse"}
_LARGE = 1 << 20  # bytes; beyond, a data set's arrays are left
_FLAT = (bool, int, float, complex, str, bytes, range, slice, type(None), type(...))
_LISTS = (list, collections.deque, bytearray, array.array)
_SETS = (set, dict, *_LISTS)


class Kept:
    """The mutable values that some objects reach, as they are now.

    These are attributes, containers, tensors, arrays and random generators; of
    functions also closures, defaults and the globals that their code names, with what
    they call; classes and modules, unless installed. Objects of C, files among them,
    and what installed code keeps elsewhere are left as they are.

    Parameters
    ----------
    roots
        Modules, functions and data sets whose code is run.
    largest
        Bytes of the largest tensor or array that is put back; None: of any.

    Attributes
    ----------
    lost
        The type of an iterator that they reach, whose place nothing can put back.
    """

    lost: str | None = None

    def __init__(self, roots: Iterable[Any], largest: int | None = None) -> None:
        self._seen: dict[int, Any] = {}  # by identity, which nothing else gets
        self._back: list[Callable[[], Any]] = []
        self._generators: list[tuple[Any, Any, Any, Any]] = []
        self._caches: list[Any] = []
        self._places: dict[int, Tensor] = {}  # in memory
        self._largest = largest
        waiting = list(roots)
        while waiting:  # not by recursion: lists of lists may be deep
            value = waiting.pop()
            if id(value) not in self._seen and not isinstance(value, _FLAT):
                self._seen[id(value)] = value
                waiting += self._of(value)

    @classmethod
    def checked(cls, *roots: Any, data: bool = False) -> Kept:
        """All that ``roots`` reach, but for arrays as large as ``data`` are.

        Raises ``ValueError`` where something is `lost`.
        """
        found = cls(roots, _LARGE if data else None)
        if found.lost is not None:
            raise ValueError(
                f"code keeps a {found.lost}, which nothing can put back where it was, "
                "so that what one record does to it reaches the next; keep a list or a "
                "number"
            )
        return found

    @contextlib.contextmanager
    def put_back(self, seed: int | None = None) -> Iterator[None]:
        """Be at the first values within and after it.

        Generators that are reached begin at ``seed``; None: where they were.
        """
        self.restore()
        if seed is not None:
            for *_, begin in self._generators:
                begin(seed)
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Be at the first values."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for back in self._back:
                back()
        for kept, _, put, _ in self._generators:
            put(kept)
        for cached in self._caches:
            cached.cache_clear()

    def drew(self) -> bool:
        """Return whether a generator that they reach is not where it was."""
        return any(
            pickle.dumps(kept) != pickle.dumps(state())
            for kept, state, *_ in self._generators
        )

    def _of(self, value: Any) -> Iterable[Any]:
        """Keep ``value`` itself; return what it leads to."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.ModuleType):
            return () if _is_ours(value.__name__) else self._attributes(value)
        if isinstance(value, types.FunctionType):
            return () if _is_ours(value.__module__) else self._function(value)
        if isinstance(value, types.MethodType):
            return value.__func__, value.__self__
        if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
            return (value.__self__,)  # such as a list's append
        if isinstance(value, staticmethod | classmethod):
            return (value.__func__,)
        if isinstance(value, property):
            return value.fget, value.fset
        if isinstance(value, types.CellType):
            return self._cell(value)
        if isinstance(value, functools.partial):
            return value.func, value.args, value.keywords
        generator = generator_of(value)
        if generator is not None:
            self._generators.append((generator[0](), *generator))
            return ()
        if isinstance(value, torch.jit.ScriptModule | contextvars.ContextVar) or (
            hasattr(type(value), "__next__")
            and type(value).__module__ in ("builtins", "itertools")
        ):
            self.lost = type(value).__name__
            return ()
        if hasattr(value, "cache_clear"):
            self._caches.append(value)
            return (getattr(value, "__wrapped__", None),)
        return [*self._items(value), *self._object(value)]

    def _items(self, value: Any) -> Iterable[Any]:
        if isinstance(value, dict):
            kept = dict(value)

            base: Any = next(
                kind
                for kind in (collections.OrderedDict, dict)
                if isinstance(value, kind)
            )

            def fill() -> None:
                base.clear(value)
                base.update(value, kept)

            self._back.append(fill)
            return list(value.values())
        if isinstance(value, _LISTS):
            items = list(value)
            held: Any = value  # an array has no clear
            clear = getattr(value, "clear", lambda: held.__delitem__(slice(None)))

            def extend() -> None:
                clear()
                value.extend(items)

            self._back.append(extend)
            return items
        if isinstance(value, set):
            members = frozenset(value)

            def update() -> None:
                value.clear()
                value.update(members)

            self._back.append(update)
            return members
        if isinstance(value, (tuple, frozenset)):
            return value
        return ()

    def _object(self, value: Any) -> Iterable[Any]:
        kind = type(value)
        where = (kind.__module__ or "").partition(".")[0]
        if where in sys.stdlib_module_names and where not in _HOLDERS:
            return []
        return [kind, *self._attributes(value), *self._slots(value)]

    def _attributes(self, value: Any) -> Iterable[Any]:
        held = getattr(value, "__dict__", None)
        if not isinstance(held, dict):
            return ()
        if isinstance(value, types.ModuleType):
            found = {name: one for name, one in held.items() if name[:2] != "__"}
        else:
            found = dict(held)

        def fill() -> None:
            for name in held.keys() - found.keys():
                if name[:2] != "__":
                    del held[name]
            held.update(found)

        self._back.append(fill)
        return list(found.values())

    def _slots(self, value: Any) -> Iterable[Any]:
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

        with contextlib.suppress(AttributeError, TypeError):  # of C, to be read only
            fill()
            self._back.append(fill)
        return list(found.values())

    def _function(self, function: types.FunctionType) -> Iterable[Any]:
        found: list[Any] = []
        held, named = function.__globals__, {}
        names = _names(function.__code__)
        if not names.isdisjoint(("globals", "exec", "eval")):
            names |= held.keys()
        for name in names:
            if name in held:
                named[name] = held[name]
            elif name in sys.modules:  # imported within it
                found.append(sys.modules[name])
        defaults = function.__defaults__, function.__kwdefaults__

        def fill() -> None:
            held.update(named)
            function.__defaults__, function.__kwdefaults__ = defaults

        self._back.append(fill)
        found += [*named.values(), *(function.__closure__ or ()), *defaults]
        return [*found, *self._attributes(function)]

    def _cell(self, cell: types.CellType) -> Iterable[Any]:
        try:
            value = cell.cell_contents
        except ValueError:  # empty
            return ()

        def fill() -> None:
            cell.cell_contents = value

        self._back.append(fill)
        return (value,)

    def _class(self, kind: type) -> Iterable[Any]:
        if kind.__flags__ & _IMMUTABLE or _is_ours(kind.__module__):
            return kind.__bases__
        held = vars(kind)
        kept = {name: each for name, each in held.items() if name[:2] != "__"}

        def fill() -> None:
            for name in held.keys() - kept.keys():
                if name[:2] != "__":
                    type.__delattr__(kind, name)
            for name, each in kept.items():
                if held.get(name) is not each:
                    type.__setattr__(kind, name, each)

        self._back.append(fill)
        return [*held.values(), *kind.__bases__, type(kind)]

    def _tensor(self, value: Tensor) -> Iterable[Any]:
        with contextlib.suppress(Exception), torch._C.DisableTorchFunction():
            # All that its memory holds, which others may see by other views.
            memory = value.untyped_storage()
            place = memory.data_ptr()
            fits = self._largest is None or memory.nbytes() <= self._largest
            if fits and place not in self._places:
                whole = torch.empty(0, dtype=torch.uint8, device=memory.device)
                whole.set_(memory)
                kept = whole.clone()
                self._places[place] = whole
                self._back.append(lambda: whole.copy_(kept))
        grad = value.grad if value.is_leaf else None

        def forget() -> None:
            value.grad = grad

        if value.is_leaf and value.requires_grad:
            self._back.append(forget)
        return [type(value), *self._attributes(value)]

    def _array(self, value: np.ndarray) -> Iterable[Any]:
        small = self._largest is None or value.nbytes <= self._largest
        if small and value.flags.writeable:
            kept = value.copy()
            self._back.append(lambda: np.copyto(value, kept))
        of_objects = value.dtype == object
        return [value.base, *(value.ravel().tolist() if of_objects else ())]


_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: of C


def _is_ours(module: str | None) -> bool:
    """Return whether code is of no user's: of ours, of Python's own, or installed."""
    package = (module or "").partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package in _OURS or "-packages" in file


def _names(code: types.CodeType) -> set[str]:
    """All names in a function's code, and in that of functions within it."""
    found = set(code.co_names)
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            found |= _names(value)
    return found
