"""Messages of msgspec's errors, with what would be right."""

from __future__ import annotations

import re
import types
import typing

import msgspec


def explained(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> str:
    """The error in words; where one of some words was needed in a ``kind``, with them.

    Structs within a ``kind`` are looked into.
    """
    found = re.search(r"Invalid enum value.*`\$.*?\.?(\w+)`$", str(error))
    words = _words(kind, found.group(1)) if found else ()
    return f"{error}; choose one of {', '.join(words)}" if words else str(error)


def _words(kind: type[msgspec.Struct], name: str) -> tuple[str, ...]:
    """Words for the field that files call ``name``, in ``kind`` or a struct within."""
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        if field.encode_name == name and (words := tuple(_literals(hint))):
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
