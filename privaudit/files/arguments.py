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
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")

_PATH = (str, os.PathLike)
_KINDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "int": ("a whole number", numbers.Integral),
    "float": ("a number", numbers.Real),
    "str": ("text", str),
    "bool": ("True or False", bool),
    "None": ("None", type(None)),
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
    of numbers, text, paths, mappings, None and classes of privaudit are looked at. A
    float that is a whole number is passed on as an int where one is asked for.

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

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
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
            asked = known[name].annotation
            bound.arguments[name] = _taken(name, value, asked, function.__globals__)
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
        kind = next(one for one in type(struct).__mro__ if name in one.__annotations__)
        names = vars(sys.modules[kind.__module__])
        asked, value = kind.__annotations__[name], getattr(struct, name)
        taken = _taken(name, value, asked, names)
        if asked in _PLAIN and type(taken) not in (int, float):
            taken = _PLAIN[asked](taken)  # of another library, which JSON has not
        if taken is not value:
            msgspec.structs.force_setattr(struct, name, taken)


def _kinds(asked: str, names: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What ``asked``, an annotation, consists of; empty if it is not looked at."""
    while (bare := re.sub(r"\[[^\[\]]*\]", "", asked)) != asked:
        asked = bare
    kinds = []
    for part in asked.split(" | "):
        kind = _KINDS.get(part)
        if kind is None:
            one = names.get(part)
            if not isinstance(one, type) or getattr(one, "_is_protocol", False):
                return []
            if not one.__module__.startswith("privaudit"):
                return []
            kind = (part, one)
        kinds.append(kind)
    return kinds


def _taken(name: str, value: Any, asked: Any, names: Mapping[str, Any]) -> Any:
    kinds = _kinds(asked, names) if isinstance(asked, str) else []
    types = [one for _, one in kinds]
    if not kinds or any(_is(value, one) for one in types):
        return value
    if numbers.Integral in types and isinstance(value, float) and value.is_integer():
        return int(value)
    words = " or ".join(dict.fromkeys(word for word, _ in kinds))
    got = repr(value)
    got = got if len(got) < 60 else type(value).__name__
    raise ValueError(f"{name} must be {words}, got {got}")


def _is(value: Any, kind: Any) -> bool:
    if kind is numbers.Real or kind is numbers.Integral:  # arrays of one number too
        has = "__float__" if kind is numbers.Real else "__index__"
        return hasattr(value, has) and not isinstance(value, bool)
    return isinstance(value, kind)


def _hint(name: str, known: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    ways = {one: one for one in known if one != "self"}
    for place, one in known.items():
        for word, kind in _kinds(str(one.annotation), names):
            if word.endswith("Settings"):
                for field in dataclasses.fields(kind):
                    ways.setdefault(
                        field.name, f"{place}=privaudit.{word}({field.name}=...)"
                    )
    near = difflib.get_close_matches(name, ways, 1)
    own = ", ".join(one for one, way in ways.items() if one == way)
    return f"did you mean {ways[near[0]]}?" if near else f"it has {own}"
