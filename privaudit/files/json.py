"""JSON that keeps infinity, as "inf" and "-inf", and explains errors in a line."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import re
import threading
import typing
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_CONVERTS = threading.RLock()
_MOST = int(1e308)  # doubles hold no more
_FROM_TEXT = {"inf": math.inf, "-inf": -math.inf}
_NUMBER = re.compile(r"([+-]?)(?=\.?\d)(\d*)(\.?)(\d*)((?:[eE][+-]?\d+)?)")


def _write(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise ValueError("nan is not a result and is never written")
        return "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _write(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_write(item) for item in value]
    return value


def _read(value: Any) -> Any:
    if isinstance(value, str):
        return _FROM_TEXT.get(value, value)
    if isinstance(value, int) and abs(value) > _MOST:
        raise msgspec.ValidationError(f"a number of more than {_MOST:.0e}")
    if isinstance(value, dict):
        return {key: _read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_read(item) for item in value]
    return value


def encode(value: Any, *, indent: int = 2) -> bytes:
    """``value`` as UTF-8 JSON, in the order of fields; ``ValueError`` for nan."""
    text = msgspec.json.encode(_write(msgspec.to_builtins(value)))
    return msgspec.json.format(text, indent=indent) if indent else text


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """``msgspec.convert``, by one thread at a time: two at once end in a crash."""
    with _CONVERTS:
        return msgspec.convert(value, kind, strict=strict)


def decode(text: bytes | str, kind: type[T]) -> T:
    """The value of type ``kind`` that ``encode`` wrote, or ``ValueError``."""
    if not isinstance(text, (str, bytes)):
        raise ValueError(f"JSON is text or bytes, got {text!r}")
    try:
        value = _read(msgspec.json.decode(text))
        plain: Any = typing.get_origin(kind) or kind
        if dataclasses.is_dataclass(plain):  # msgspec drops what these do not know
            known = {field.name for field in dataclasses.fields(plain)}
            for name in value if isinstance(value, dict) else ():
                if name not in known:
                    raise msgspec.ValidationError(
                        f"Object contains unknown field `{name}`"
                    )
        return convert(value, kind)
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
        AssertionError,  # figures that contradict each other: not what was written
    ) as error:
        raise ValueError(f"cannot read {kind.__name__}: {error}") from error


def spelled(value: Any) -> Any:
    """``value``, where it or an item of its list is a number as text, as JSON has it.

    >>> spelled([".3", "-.5", "3.", "+2", ".5e1", "ring"])
    ['0.3', '-0.5', '3.0', '2', '0.5e1', 'ring']
    """
    if isinstance(value, list | tuple):
        return [spelled(item) for item in value]
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    sign, whole, point, part, power = found.groups()
    fraction = f".{part or 0}" if point else ""
    return f"{sign.strip('+')}{whole or 0}{fraction}{power}"


class Summary:
    """Declares the JSON object of a result: a method that returns it as a dictionary.

    ``keys`` are the object's keys in order, each with the attribute that it has:
    ``"claimed=claim.epsilon"``, or ``"seconds"`` where both have one name. What a
    method returns is taken, of items of a list one each, and null where anything on the
    way is None or unset. ``"runs=#scores"`` is a length,
    ``"runs.member=members"`` a key of an object within, ``"left?"`` left out where
    empty; ``"*rates"`` puts in all keys of that result.

    >>> @dataclasses.dataclass
    ... class Found:
    ...     lower: complex | None
    ...     runs: list[int]
    ...     party: int = 0
    ...     note: str = ""
    ...     summary = Summary("epsilon=lower.real runs.all=#runs party? note?")
    >>> Found(1j, [3, 4]).summary(), Found(None, []).summary()["epsilon"]
    ({'epsilon': 0.0, 'runs': {'all': 2}, 'party': 0}, None)
    """

    def __init__(self, keys: str) -> None:
        self._keys = keys

    def __add__(self, keys: str) -> Summary:
        return Summary(f"{self._keys} {keys}")

    @overload
    def __get__(self, held: None, kind: type) -> Summary: ...
    @overload
    def __get__(self, held: object, kind: type) -> Callable[[], dict[str, Any]]: ...
    def __get__(self, held: object, kind: type) -> Any:
        return self if held is None else functools.partial(self._of, held)

    def _of(self, held: object) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for item in self._keys.split():
            if item.startswith("*"):
                found |= _at(held, item[1:]) or {}
                continue
            key, _, path = item.partition("=")
            name, may_lack = key.removesuffix("?"), key.endswith("?")
            value = _at(held, path or name)
            if may_lack and value in (None, [], ""):
                continue
            where, _, within = name.rpartition(".")
            (found.setdefault(where, {}) if where else found)[within] = value
        return found


def _at(value: Any, path: str) -> Any:
    """Attribute of ``value`` that a path of names leads to, as plain values."""
    if path.startswith("#"):
        return len(_at(value, path[1:]))
    name, _, rest = path.partition(".")
    value = getattr(value, name)
    value = value() if callable(value) else value
    if value is None or value is msgspec.UNSET:
        return None
    if not rest:
        return _plain(value)
    many = isinstance(value, list | tuple)
    return [_at(one, rest) for one in value] if many else _at(value, rest)


def _plain(value: Any) -> Any:
    if hasattr(value, "summary"):
        return value.summary()
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, pathlib.Path):
        return str(value)
    return msgspec.to_builtins(value)
