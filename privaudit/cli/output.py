"""Results of commands, as sentences or one JSON object, on standard output."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from privaudit.files import json as _json

SCHEMA = 1  # of what is printed as JSON: another number where a key changes its meaning


def emit(value: Mapping[str, Any], sentences: list[str], *, as_json: bool) -> None:
    """Print ``value`` as one JSON object with its schema, or the sentences by lines."""
    if as_json:
        print(_json.encode({"schema": SCHEMA, **value}, indent=0).decode())
    else:
        print("\n".join(sentences))


def speaks() -> bool:
    """Whether this process tells how far it is: of ranks at one screen, the first."""
    import os

    return os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0"


class Seldom:
    """Says when a log may have another line: after 15 seconds, then once a minute."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._next = self.began + 15

    def due(self) -> bool:
        """Whether it is time; the next is a minute later."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + 60
        return True


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, moved by calling it with (done, total).

    Of ranks, the first has one. Where standard error is no terminal, a line now and
    then.
    """
    if not speaks():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = Seldom()

        def tell(done: int, total: int) -> None:
            if lines.due():
                note(f"{label}: {done:,} of {total:,}")

        yield tell
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def note(message: str) -> None:
    """A line about what is going on, on standard error; of ranks, the first speaks."""
    import sys

    if not speaks():
        return
    print(message, file=sys.stderr, flush=True)
