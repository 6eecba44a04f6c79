"""Results of commands: sentences or one JSON object, and their exit status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from privaudit.cli import FINE, REFUTED
from privaudit.files import json as _json
from privaudit.files.text import visible


def status_of(verdicts: Iterable[str | None], require: str | None = None) -> int:
    """Exit status: 1 if a claim is refuted or disproved, or not as ``require`` says.

    With ``require`` what has no claim, None, is not consistent either; a paper's "no
    theorem" promises nothing.
    """
    for verdict in verdicts:
        required = require is None or verdict in (require, "no theorem")
        if verdict in ("refuted", "disproved") or not required:
            return REFUTED
    return FINE


SCHEMA = 1  # of what is printed as JSON: another number where a key changes its meaning


def emit(value: Mapping[str, Any], sentences: list[str], *, as_json: bool) -> None:
    """Print ``value`` as one JSON object with its schema, or the sentences by lines.

    A sentence is a line: what a folder or a file says has no other effect than to be
    read. In JSON such characters are within strings, where they are escaped alike.
    """
    if as_json:
        print(visible(_json.encode({"schema": SCHEMA, **value}, indent=0).decode()))
    else:
        print("\n".join(map(visible, sentences)))


def tell(found: Any, *more: str, as_json: bool) -> None:
    """Print a result: its ``summary`` as JSON, or its ``lines`` and ``more``."""
    emit(found.summary(), [*found.lines(), *more], as_json=as_json)
