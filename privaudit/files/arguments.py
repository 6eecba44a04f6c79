"""Public calls that say in one line which argument they cannot take."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import numbers
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")

_PATH = (str, os.PathLike)
Kinds = list[tuple[str, Any]]  # what an annotation allows, and that in words
_KINDS: dict[str, tuple[str, Any]] = {
    "int": ("a whole number", numbers.Integral),
    "float": ("a number", numbers.Real),
    "str": ("text", str),
    "bool": ("True or False", bool),
    "bytes": ("bytes", bytes),
    "None": ("None", type(None)),
    "tuple": ("a tuple", (tuple, list)),
    "UnsetType": ("left out", msgspec.UnsetType),
    "Path": ("a path", _PATH),
    "pathlib.Path": ("a path", _PATH),
    "os.PathLike": ("a path", os.PathLike),
    "Mapping": ("a mapping", Mapping),
    "Iterable": ("a list", Iterable),
    "Sequence": ("a list", Iterable),  # an array is one too
}
_PLAIN: dict[str, Callable[[Any], Any]] = {"int": int, "float": float}


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Have ``function`` refuse arguments by name and type, each in one line.

    An unknown name raises ``TypeError``, and the message has the nearest known one. A
    value that is not of the annotated type raises ``ValueError``; only annotations made
    of numbers, text, paths, mappings, None, some words (``Literal``, by its name),
    torch's modules and classes of privaudit are looked at. A float that is a whole
    number is passed on as an int where one is asked for.

    >>> @public
    ... def spent(*, steps: int) -> int:
    ...     return steps
    >>> spent(steps=1e3)
    1000
    >>> spent(stps=3)
    Traceback (most recent call last):
        ...
    TypeError: spent has no argument 'stps'; did you mean steps?
    """
    signature = inspect.signature(function)
    of = function.__qualname__.removesuffix(".__init__")
    allowed: dict[str, Kinds] = {}  # of each argument, as it is first given

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True  # pytest shows where a test calls, not this
        known = signature.parameters
        if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
            for name in kwargs.keys() - known.keys():
                hint = _hint(name, known, function.__globals__)
                raise TypeError(f"{of} has no argument {name!r}; {hint}")
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python says what is missing
        for name, value in bound.arguments.items():
            if name not in allowed:
                asked = known[name].annotation
                allowed[name] = _kinds(asked, function.__globals__)
            bound.arguments[name] = _taken(name, value, allowed[name])
        return function(*bound.args, **bound.kwargs)

    return called


def public_class(kind: type[T]) -> type[T]:
    """The class ``kind``, which checks what it is made of as by `public`."""
    kind.__init__ = public(kind.__init__)  # type: ignore[method-assign]
    return kind


def take_fields(struct: Any, *fields: str) -> None:
    """Have a frozen ``struct`` refuse fields that are not of their types, as `public`.

    To be called as it is made.
    """
    for name in fields:
        asked, kinds = _field(type(struct), name)
        value = getattr(struct, name)
        taken = _taken(name, value, kinds)
        if asked in _PLAIN and type(taken) not in (int, float):
            taken = _PLAIN[asked](taken)  # of another library, which JSON has not
        if taken is not value:
            msgspec.structs.force_setattr(struct, name, taken)


def number(name: str, value: Any) -> float:
    """The argument ``name`` as a float; refused as by `public`, where that is slow."""
    if type(value) is float:
        return value
    return float(_taken(name, value, [_KINDS["float"]]))


@functools.cache
def _field(struct: type, name: str) -> tuple[str, Kinds]:
    """The annotation of a field, and what it allows."""
    kind = next(one for one in struct.__mro__ if name in one.__annotations__)
    asked = kind.__annotations__[name]
    return asked, _kinds(asked, vars(sys.modules[kind.__module__]))


def _kinds(asked: Any, names: Mapping[str, Any]) -> Kinds:
    """Kinds that ``asked``, an annotation, consists of; empty if not looked at."""
    if not isinstance(asked, str):
        return []
    while (bare := re.sub(r"\[[^\[\]]*\]", "", asked)) != asked:
        asked = bare
    kinds = []
    for part in asked.split(" | "):
        kind = _KINDS.get(part) or _named(part, names)
        if kind is None:
            return []
        kinds.append(kind)
    return kinds


def _named(part: str, names: Mapping[str, Any]) -> tuple[str, Any] | None:
    first, *rest = part.split(".")
    one = names.get(first)
    for attribute in rest:
        one = getattr(one, attribute, None)
    if typing.get_origin(one) is Literal:
        words = typing.get_args(one)
        return " or ".join(words), frozenset(words)
    if not isinstance(one, type) or getattr(one, "_is_protocol", False):
        return None
    return (part, one) if one.__module__.startswith(("privaudit", "torch.nn")) else None


def _taken(name: str, value: Any, kinds: Kinds) -> Any:
    types = [one for _, one in kinds]
    if not kinds or any(_is(value, one) for one in types):
        return value
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    near = float(value) if real and numbers.Integral in types else 0.5
    if near.is_integer() and near == value:
        return int(near)
    words = [*dict.fromkeys(one for word, _ in kinds for one in word.split(" or "))]
    allowed = " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
    got = repr(value)
    got = got if len(got) < 60 else type(value).__name__
    raise ValueError(f"{name} must be {allowed}, got {got}")


def _is(value: Any, kind: Any) -> bool:
    if kind is numbers.Real or kind is numbers.Integral:  # arrays of one number too
        has = "__float__" if kind is numbers.Real else "__index__"
        return hasattr(value, has) and not isinstance(value, bool)
    if isinstance(kind, frozenset):
        return isinstance(value, str) and value in kind
    return isinstance(value, kind)


def _hint(name: str, known: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    ways = {one: one for one in known if one != "self"}
    for place, one in known.items():
        for word, kind in _kinds(one.annotation, names):
            if word.endswith("Settings"):
                for field in dataclasses.fields(kind):
                    ways.setdefault(
                        field.name, f"{place}=privaudit.{word}({field.name}=...)"
                    )
    near = difflib.get_close_matches(name, ways, 1)
    own = ", ".join(one for one, way in ways.items() if one == way)
    return f"did you mean {ways[near[0]]}?" if near else f"it has {own}"
