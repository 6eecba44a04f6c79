"""What commands print: sentences for people, or one JSON object, on standard output."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from privaudit import _json
from privaudit.results import UpperBound


def emit(value: dict[str, Any], sentences: list[str], *, as_json: bool) -> None:
    """Print ``value`` as one JSON object, or the sentences, one a line."""
    if as_json:
        print(_json.encode(value, indent=0).decode())
    else:
        print("\n".join(sentences))


def upper_json(bound: UpperBound) -> dict[str, Any]:
    """An upper bound as the commands print it."""
    return {
        "upper": bound.epsilon,
        "delta": bound.delta,
        "relation": bound.relation,
        "unit": bound.unit,
        "sampling": bound.sampling,
        "method": bound.method,
        "standing": bound.standing,
        **({"assumes": bound.assumes} if bound.assumes else {}),
    }


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, moved by calling it with (done, total).

    Of ranks, the first has one.
    """
    import os

    if os.environ.get("RANK", "0") != "0":
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

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def note(message: str) -> None:
    """A line about what is going on, on standard error; of ranks, the first speaks."""
    import os
    import sys

    if os.environ.get("RANK", "0") != "0":
        return
    print(message, file=sys.stderr, flush=True)
