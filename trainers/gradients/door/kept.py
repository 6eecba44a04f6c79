"""State that code can keep outside its module: globals, closures, defaults, classes."""

from __future__ import annotations

import contextlib
import copy
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn

_CODE = (types.ModuleType, types.BuiltinFunctionType, type)
_OURS = {"privaudit", "trainers"} | sys.stdlib_module_names


class Kept:
    """Values that the code of some objects names and that calls could change.

    Of its functions, and those that they call: globals, variables that are closed over,
    default arguments, attributes, and those of its classes; not of code that is
    installed. What cannot be copied or set is left as it is.

    Parameters
    ----------
    roots
        Modules and functions whose code is run.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self._seen: dict[int, Any] = {}  # by identity, which nothing else gets
        self._places: list[tuple[Callable[[Any], None], Any]] = []
        for root in roots:
            self._of(root)

    @contextlib.contextmanager
    def put_back(self) -> Iterator[None]:
        """Be at the first values within and after it."""
        self._restore()
        try:
            yield
        finally:
            self._restore()

    def _restore(self) -> None:
        memo: dict[int, Any] = {}
        for put, value in self._places:
            put(copy.deepcopy(value, memo))

    def _of(self, value: Any) -> None:
        if isinstance(value, type):
            self._class(value)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, nn.Module):
            for one in value.modules():
                self._class(type(one))
                for each in vars(one).values():
                    if isinstance(each, types.FunctionType | types.MethodType):
                        self._of(each)
                for hooks in (one._forward_hooks, one._forward_pre_hooks):
                    for hook in hooks.values():
                        self._of(hook)
        elif isinstance(value, types.MethodType):
            self._of(value.__func__)
            if not isinstance(value.__self__, nn.Module):
                self._class(type(value.__self__))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif callable(value):
            self._class(type(value))
            wrapped = getattr(value, "func", getattr(value, "__wrapped__", None))
            if wrapped is not None:
                self._of(wrapped)

    def _function(self, function: types.FunctionType) -> None:
        if _is_ours(function.__module__):
            return
        for name in _names(function.__code__):
            if name in function.__globals__:
                held = function.__globals__

                def put(value: Any, held: Any = held, name: str = name) -> None:
                    held[name] = value

                self._place(put, held[name])
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # empty

                def fill(value: Any, cell: Any = cell) -> None:
                    cell.cell_contents = value

                self._place(fill, cell.cell_contents)
        for name in ("__defaults__", "__kwdefaults__"):

            def default(value: Any, name: str = name) -> None:
                setattr(function, name, value)

            self._place(default, getattr(function, name))
        for name, value in list(vars(function).items()):

            def attribute(value: Any, name: str = name) -> None:
                setattr(function, name, value)

            self._place(attribute, value)

    def _class(self, kind: type) -> None:
        for one in kind.__mro__:
            fixed = one.__flags__ & _IMMUTABLE
            if fixed or id(one) in self._seen or _is_ours(one.__module__):
                continue
            self._seen[id(one)] = one
            for name, value in list(vars(one).items()):
                if isinstance(value, types.FunctionType):
                    self._of(value)
                elif isinstance(value, staticmethod | classmethod):
                    self._of(value.__func__)
                elif isinstance(value, property):
                    self._of(value.fget)
                elif not name.startswith("__"):

                    def put(value: Any, one: type = one, name: str = name) -> None:
                        setattr(one, name, value)

                    self._place(put, value)

    def _place(self, put: Callable[[Any], None], value: Any) -> None:
        if isinstance(value, types.FunctionType | types.MethodType | type):
            self._of(value)
            return
        if value is None or isinstance(value, _CODE):
            return
        if callable(value):
            self._of(value)
        try:
            kept = copy.deepcopy(value)
            put(value)
        except Exception:
            return
        self._places.append((put, kept))


_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: of C


def _is_ours(module: str | None) -> bool:
    """Return whether code is of no user's: of ours, of Python's own, or installed."""
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return (module or "").partition(".")[0] in _OURS or "-packages" in file


def _names(code: types.CodeType) -> set[str]:
    """All names in a function's code, and in that of functions within it."""
    found = set(code.co_names)
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            found |= _names(value)
    return found
