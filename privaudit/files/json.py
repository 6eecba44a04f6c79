"""JSON that keeps infinity, as "inf" and "-inf", and explains errors in a line."""

from __future__ import annotations

import dataclasses
import math
import re
import threading
import typing
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_CONVERTS = threading.RLock()
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
