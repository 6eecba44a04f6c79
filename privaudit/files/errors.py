"""Messages of msgspec's errors, with what would be right."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from privaudit.files.arguments import in_words, limits


def explained(
    error: msgspec.ValidationError, kind: type, values: Mapping[str, Any] | None = None
) -> str:
    """The error in words, with those of a ``kind``, and limits of ``values``."""
    number = re.fullmatch(r"Expected .* [<>]=? \S+ - at `\$\.(\w+)`", str(error))
    if values is not None and number and (meta := limits(kind).get(number.group(1))):
        name = number.group(1)
        return f"{name} must be {in_words(meta)}, got {values[name]}"
    found = re.search(r"Invalid enum value.*`\$.*?\.?(\w+)`$", str(error))
    words = _words(kind, found.group(1)) if found else ()
    return f"{error}; choose one of {', '.join(words)}" if words else str(error)


def _words(kind: type, name: str) -> tuple[str, ...]:
    """Words for the field that files call ``name``, in ``kind`` or a struct within."""
    hints = typing.get_type_hints(kind)
    called = {own: own for own in hints}
    if issubclass(kind, msgspec.Struct):
        called = {x.name: x.encode_name for x in msgspec.structs.fields(kind)}
    for own, encoded in called.items():
        hint = hints[own]
        if encoded == name and (words := tuple(_literals(hint))):
            return words
        for inner in _structs(hint):
            if words := _words(inner, name):
                return words
    return ()


def _literals(hint: object) -> typing.Iterator[str]:
    if typing.get_origin(hint) is typing.Literal:
        yield from map(str, typing.get_args(hint))
    elif typing.get_origin(hint) in (typing.Union, types.UnionType, tuple):
        for part in typing.get_args(hint):
            yield from _literals(part)


def _structs(hint: object) -> typing.Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in typing.get_args(hint):
        yield from _structs(part)
