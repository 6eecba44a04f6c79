"""Public calls that say in one line which argument they cannot take."""

from __future__ import annotations

import ast
import dataclasses
import decimal
import difflib
import functools
import inspect
import itertools
import math
import numbers
import os
import pathlib
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=Any)

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
# What other libraries call it.
_ELSEWHERE = {
    **dict.fromkeys(("lr", "learning_rate"), "step_size"),
    **dict.fromkeys(("max_grad_norm", "l2_norm_clip", "max_norm", "clip"), "clip_norm"),
    **dict.fromkeys(("epochs", "num_epochs", "steps", "iterations"), "rounds"),
    **dict.fromkeys(("sample_rate", "q"), "sampling_rate"),
    **{"target_epsilon": "epsilon", "target_delta": "delta", "data": "shares"},
    **dict.fromkeys(("sigma", "noise_scale"), "noise_multiplier"),
}
_PLAIN: dict[str, Callable[[Any], Any]] = {"int": int, "float": float}


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Have ``function`` refuse arguments by name and type, each in one line.

    An unknown name raises ``TypeError``, and the message has the nearest known one. A
    value that is not of the annotated type raises ``ValueError``; only annotations made
    of numbers, text, paths, mappings, None, some words (``Literal``, by its name),
    torch's modules and classes of privaudit are looked at. A float that is a whole
    number is passed on as an int where one is asked for, and text as a path.

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
        loose = any(one.kind is one.VAR_KEYWORD for one in known.values())
        more = kwargs.keys() - known.keys()
        if more and (not loose or _kinds_of_settings(known, function.__globals__)):
            ways = _ways(known, function.__globals__, loose)
            for name in more:
                if ways.get(name) != name:
                    raise TypeError(
                        f"{of} has no argument {name!r}; {_hint(name, ways)}"
                    )
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


def told_by(other: type) -> Callable[[type[T]], type[T]]:
    """Have a class's fields mean what those of the same name mean in ``other``.

    Their limits are those of ``other``, and their entries in its docstring are its own.
    """

    def told(kind: type[T]) -> type[T]:
        # Of 3.13 on Python itself takes the indentation off.
        head, of = (
            inspect.cleandoc(one.__doc__ or "").rstrip() for one in (kind, other)
        )
        entries = dict(re.findall(r"^(\w+)\n((?: {4}.+\n)+)", f"{of}\n", re.M))
        table = "".join(
            f"{name}\n{entries[name]}" for name in inspect.get_annotations(kind)
        )
        kind.__doc__ = f"{head}\n\nParameters\n----------\n{table}"
        kind._told_by = other  # type: ignore[attr-defined]
        return kind

    return told


@functools.cache
def limits(kind: type) -> dict[str, msgspec.Meta]:
    """Limits of the fields of ``kind``, a dataclass or a struct, by name."""
    told = getattr(kind, "_told_by", None)
    known = {} if told is None else limits(told)
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError:  # of a user's class, a type known to type checkers alone
        hints = dict.fromkeys(inspect.get_annotations(kind))
    own = {name: meta for name, hint in hints.items() if (meta := _meta(hint))}
    return {name: known[name] for name in hints if name in known} | own


def _meta(hint: Any) -> msgspec.Meta | None:
    own = [x for x in getattr(hint, "__metadata__", ()) if isinstance(x, msgspec.Meta)]
    inner = map(_meta, typing.get_args(hint))
    return next(filter(None, itertools.chain(own, inner)), None)


def check_limits(value: Any) -> None:
    """``ValueError`` if a field of ``value`` is not within its `limits`.

    >>> from privaudit.settings import RunSettings
    >>> RunSettings(seed=-1)
    Traceback (most recent call last):
        ...
    ValueError: seed must be >= 0, got -1
    >>> import typing
    >>> class Named(msgspec.Struct):
    ...     name: typing.Annotated[str, msgspec.Meta(max_length=3)]
    >>> check_limits(Named("four"))
    Traceback (most recent call last):
        ...
    ValueError: name must be of length <= 3, got 'four'
    """
    for name, meta in limits(type(value)).items():
        given = getattr(value, name)
        if isinstance(given, numbers.Real | decimal.Decimal):
            fits, got = _is_within(given, meta), given
        else:
            fits = not hasattr(given, "__len__") or _has_form(given, meta)
            got = repr(given)
        if not fits:
            raise ValueError(f"{name} must be {in_words(meta)}, got {got}")


class Checked:
    """Values that check themselves: by the limits of their fields, and by classes."""

    def __post_init__(self) -> None:
        check_limits(self)


def _is_within(value: Any, meta: msgspec.Meta) -> bool:
    return (
        math.isfinite(value)
        and (meta.gt is None or value > meta.gt)
        and (meta.ge is None or value >= meta.ge)
        and (meta.lt is None or value < meta.lt)
        and (meta.le is None or value <= meta.le)
    )


def _has_form(value: Any, meta: msgspec.Meta) -> bool:
    return (
        len(value) >= (meta.min_length or 0)
        and (meta.max_length is None or len(value) <= meta.max_length)
        and (meta.pattern is None or re.search(meta.pattern, value) is not None)
    )


def in_words(meta: msgspec.Meta) -> str:
    """Numbers, texts or lists that ``meta`` allows, in words.

    >>> in_words(msgspec.Meta(gt=0, le=1)), in_words(msgspec.Meta(ge=10, le=1000))
    ('in (0, 1]', '>= 10 and <= 1,000')
    >>> in_words(msgspec.Meta(min_length=2, pattern="^[a-z]"))
    'of length >= 2 and of the form ^[a-z]'
    """
    told = []
    if (meta.min_length, meta.max_length) != (None, None):
        length = msgspec.Meta(ge=meta.min_length, le=meta.max_length)
        told.append(f"of length {in_words(length)}")
    if meta.pattern is not None:
        told.append(f"of the form {meta.pattern}")
    if told:
        return " and ".join(told)
    low, high = _first(meta.gt, meta.ge), _first(meta.lt, meta.le)
    if low is not None and high == 1:
        closed = "[" if meta.gt is None else "(", ")" if meta.le is None else "]"
        return f"in {closed[0]}{low:g}, {high:g}{closed[1]}"
    ends = [] if low is None else [f"{'>=' if meta.gt is None else '>'} {low:,}"]
    if high is not None:
        ends.append(f"{'<' if meta.le is None else '<='} {high:,}")
    return " and ".join(ends)


def _first(strict: float | None, other: float | None) -> float | None:
    return other if strict is None else strict


def take_fields(struct: Any, *fields: str) -> None:
    """Have a frozen ``struct``, as it is made, refuse fields not of their types."""
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
    try:
        return float(_taken(name, value, [_KINDS["float"]]))
    except (OverflowError, TypeError):  # an array of several
        raise ValueError(f"{name} must be a number, got {value!r}") from None


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
    if "Annotated[" in asked:
        asked = ast.unparse(_Bare().visit(ast.parse(asked, mode="eval")))
    while (bare := re.sub(r"\[[^\[\]]*\]", "", asked)) != asked:
        asked = bare
    kinds = []
    for part in asked.split(" | "):
        kind = _KINDS.get(part) or _named(part, names)
        if kind is None:
            return []
        kinds.append(kind)
    return kinds


class _Bare(ast.NodeTransformer):
    """Leaves the type of an ``Annotated[type, limits]``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated":
            assert isinstance(node.slice, ast.Tuple)
            return node.slice.elts[0]
        return node


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
    if not kinds:
        return value
    for one in types:
        if _is(value, one):
            return pathlib.Path(value) if one is _PATH else value
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
    if kind is Iterable and isinstance(value, (str, bytes)):
        return False  # text is no list
    return isinstance(value, kind)


def _kinds_of_settings(
    known: Mapping[str, Any], names: Mapping[str, Any]
) -> list[tuple[str, str, Any]]:
    """Arguments that take settings, each with its class's name and class."""
    return [
        (place, word, kind)
        for place, one in known.items()
        for word, kind in _kinds(one.annotation, names)
        if word.endswith("Settings")
    ]


def _ways(
    known: Mapping[str, Any], names: Mapping[str, Any], loose: bool
) -> dict[str, str]:
    """Arguments of a call by what is meant; ``loose`` takes fields of settings too."""
    ways = {one: one for one in known if one != "self"}
    for place, word, kind in _kinds_of_settings(known, names):
        for field in dataclasses.fields(kind):
            inside = f"{place}=privaudit.{word}({field.name}=...)"
            ways.setdefault(field.name, field.name if loose else inside)
    return ways


def _hint(name: str, ways: Mapping[str, str]) -> str:
    close = _nearest(name, ways)
    own = ", ".join(one for one, way in ways.items() if one == way)
    return f"it has {own}" if close is None else f"did you mean {ways[close]}?"


def near(name: str, known: Iterable[str], other: str = "") -> str:
    """Advice on a ``name`` that is not among the ``known`` ones, or is some ``other``.

    >>> near("grahp", ["graph", "rounds"]), near("epochs", ["graph", "rounds"])
    ('did you mean graph?', 'did you mean rounds?')
    """
    known = list(known)
    close = _nearest(name, known)
    hint = "" if close is None else f"did you mean {close}?"
    if not known or (hint and not other):
        return hint or "leave it out"
    listed = ", ".join([*known, *([f"or {other}"] if other else [])])
    return f"{hint}{' ' * bool(hint)}choose one of {listed}"


def _nearest(name: str, known: Iterable[str]) -> str | None:
    known = list(known)
    if _ELSEWHERE.get(name) in known:
        return _ELSEWHERE[name]
    close = (difflib.get_close_matches(one, known, 1) for one in (name, name.lower()))
    return next((found[0] for found in close if found), None)


def given_fields(settings: Any) -> dict[str, Any]:
    """Fields of ``settings``, a dataclass, that are not at their defaults, by name."""
    values = ((x, getattr(settings, x.name)) for x in dataclasses.fields(settings))
    return {field.name: value for field, value in values if value != field.default}


def with_changes(settings: S, changes: Mapping[str, Any]) -> S:
    """Settings of a call, of which some are given by name beside them.

    >>> from privaudit.settings import RunSettings
    >>> with_changes(RunSettings(seed=1), {"public_seed": 2}).public_seed
    2
    >>> with_changes(RunSettings(seed=1), {"seed": 2})
    Traceback (most recent call last):
        ...
    TypeError: seed is given in settings and by name: give it once
    """
    for name in given_fields(settings):
        if name in changes:
            raise TypeError(f"{name} is given in settings and by name: give it once")
    return dataclasses.replace(settings, **changes)
