"""Parts of pages: Markdown tables, means with their spread, charts."""

from __future__ import annotations

import contextlib
import math
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jinja2

from privaudit.report.svg import write
from privaudit.results import round_down, round_up


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table, without a line end at its end."""
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines)


def mean(values: Iterable[float], scale: float = 100.0) -> float:
    """Mean, in per cent."""
    return statistics.mean(scale * value for value in values)


def span(values: Iterable[float], digits: int = 1) -> str:
    """The least and the largest, or one figure where both are printed alike."""
    known = list(values)
    low, high = (f"{value:.{digits}f}" for value in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def at_most(values: Iterable[float]) -> str:
    """The largest, rounded up to tenths."""
    return f"{math.ceil(round(10 * max(values), 6)) / 10:.1f}"


def spread(values: Iterable[float], scale: float = 100.0) -> str:
    """Mean ± standard deviation, in per cent."""
    scaled = [scale * value for value in values]
    return f"{statistics.mean(scaled):.1f} ± {statistics.stdev(scaled):.1f}"


def environment(*folders: pathlib.Path) -> jinja2.Environment:
    """Templates of some folders, with what all of them may use."""
    found = jinja2.Environment(
        autoescape=lambda name: name is not None and ".html" in name,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FileSystemLoader(folders),
    )
    found.filters |= {"up": round_up, "down": round_down}
    common: dict[str, Any] = {"table": table, "mean": mean, "spread": spread}
    found.globals.update(common)
    return found


@contextlib.contextmanager
def chart(
    path: pathlib.Path, rows: int = 1, columns: int = 1, **options: Any
) -> Iterator[Any]:
    """Axes of a figure, which is written to ``path`` at the end.

    ``options`` are those of ``pyplot.subplots``.
    """
    from matplotlib import pyplot

    pyplot.switch_backend("svg")
    figure, axes = pyplot.subplots(rows, columns, **options)
    yield axes
    if "layout" not in options:
        figure.tight_layout()
    write(figure, path)
    pyplot.close(figure)
