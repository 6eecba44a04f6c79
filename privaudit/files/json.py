"""JSON that keeps infinity, and says what is wrong with a file in one line.

JSON has no infinity and msgspec writes it as null; a legal epsilon must survive, so
the three values are written as the strings "inf", "-inf" and "nan" is refused.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import typing
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_CONVERTS = threading.RLock()
_FROM_TEXT = {"inf": math.inf, "-inf": -math.inf}


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
    """``value`` (structs, dicts, lists, numbers) as UTF-8 JSON.

    ``indent=0`` gives one line. Keys come in the order of the fields, so equal
    values have equal bytes. Raises ``ValueError`` for nan.
    """
    text = msgspec.json.encode(_write(msgspec.to_builtins(value)))
    return msgspec.json.format(text, indent=indent) if indent else text


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """``msgspec.convert``, by one thread at a time.

    msgspec (0.22) gathers what it knows of a type when it first meets it, and a process
    where two threads do so at once ends in a segmentation fault.
    """
    with _CONVERTS:
        return msgspec.convert(value, kind, strict=strict)


def decode(text: bytes | str, kind: type[T]) -> T:
    """The value of type ``kind`` that ``encode`` wrote."""
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
