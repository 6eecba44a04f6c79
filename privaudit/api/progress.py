"""Progress on standard error: bars in a terminal or a notebook, lines in a log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from privaudit.files.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


def speaks() -> bool:
    """Return whether this process shows progress: of ranks at one screen, the first."""
    import os

    return os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0"


class Seldom:
    """Says when a log may have another line: after 15 seconds, then once a minute."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._next = self.began + 15

    def due(self) -> bool:
        """Return whether it is time; the next is a minute later."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + 60
        return True


class Pace:
    """Estimate of the time left, at the pace since the first call."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def left(self, done: int, total: int) -> str:
        """The end of a line of progress: ``", about 40 s left"``, or "" if unknown."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        began, before = self._first
        if done <= before:
            return ""
        return f", {duration((total - done) * (now - began) / (done - before))} left"


def duration(seconds: float) -> str:
    """Seconds as one would say them.

    >>> duration(42.4), duration(600), duration(9000)
    ('about 42 s', 'about 10 min', 'about 2.5 h')
    """
    if seconds < 120:
        return f"about {seconds:.0f} s"
    minutes = seconds / 60
    return (
        f"about {minutes:.0f} min" if minutes < 120 else f"about {minutes / 60:.1f} h"
    )


def bars() -> Bars:
    """Bars on standard error, with counts and times; disabled where none are seen."""
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
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (console.is_terminal or console.is_jupyter),
    )


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, or lines, moved by calling it with (done, total)."""
    if not speaks():
        yield lambda done, total: None
        return
    drawn = bars()
    if drawn.disable:
        lines, pace = Seldom(), Pace()

        def tell(done: int, total: int) -> None:
            left = pace.left(done, total)
            if lines.due():
                note(f"{label}: {done:,} of {total:,}{left}")

        yield tell
        return
    with drawn as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def note(message: str) -> None:
    """A line about what is going on, on standard error; of ranks, the first speaks."""
    import sys

    if not speaks():
        return
    print(visible(message), file=sys.stderr, flush=True)
