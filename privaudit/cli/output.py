"""Results of commands, as sentences or one JSON object, on standard output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privaudit.files import json as _json
from privaudit.files.text import visible

SCHEMA = 1  # of what is printed as JSON: another number where a key changes its meaning


def emit(value: Mapping[str, Any], sentences: list[str], *, as_json: bool) -> None:
    """Print ``value`` as one JSON object with its schema, or the sentences by lines.

    A sentence is a line: what a folder or a file says has no other effect than to be
    read. In JSON such characters are within strings, where they are escaped alike.
    """
    if as_json:
        text = _json.encode({"schema": SCHEMA, **value}, indent=0).decode()
        print(visible(text))
    else:
        print("\n".join(map(visible, sentences)))
