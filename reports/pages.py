"""Parts of pages: Markdown tables, means with their spread, charts."""

from __future__ import annotations

import contextlib
import itertools
import math
import pathlib
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jinja2

from privaudit.report.svg import write
from privaudit.results import round_down, round_up
from reports import filled, points

WIDTH = 4.6  # inches of a picture: read on a phone without turning it


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
        extensions=["jinja2.ext.do"],
    )
    found.filters |= {"up": round_up, "down": round_down}
    found.filters |= {"mean": mean, "spread": spread, "span": span, "at_most": at_most}
    common: dict[str, Any] = {"table": table, "mean": mean, "spread": spread}
    common |= {"gain": gain, "itertools": itertools, "zip": zip, "any": any}
    found.globals.update(common)
    return found


def gain(
    one: Sequence[float], other: Sequence[float], *, paired: bool = False
) -> tuple[float, float]:
    """Points by which the mean of accuracies is higher, and their standard error.

    ``paired``: equal places had equal seeds.
    """
    groups = [one, other]
    if paired:
        groups = [[a - b for a, b in zip(one, other, strict=True)]]
    squared = math.fsum(statistics.variance(each) / len(each) for each in groups)
    return mean(one) - mean(other), 100 * squared**0.5


def lines(
    path: pathlib.Path,
    known: Mapping[str, Any],
    facts: Mapping[str, Any] | None,
    *,
    lines: Sequence[Mapping[str, Any]],
    rows: int = 1,
    size: tuple[float, float] = (9, 3.6),
    titled: str = "",
    **axes: Any,
) -> None:
    """Draw lines of results into ``path``, ``rows`` of panels by their titles.

    Each of ``lines`` is one for all `reports.points` of ``over``, in its ``panel``,
    with a ``style`` of ``errorbar``. Its points are a curve that a cell has by the path
    ``key``, or one ``along`` each of a list, where ``key`` has a number or several (of
    which they are the mean, with ``errors`` its deviation), in per cent or times
    ``scale``; ``x`` is there, or a key. Without ``cell`` it is the paper's. What a
    point of ``over`` sets comes before what its line has. ``axes`` are those of
    ``Axes.set``; the first panel's legend is below, under ``titled``.
    """
    found: dict[str, list[tuple[Any, ...]]] = {}
    for entry, point in ((e, p) for e in lines for p in points(e.get("over", {}))):
        one: dict[str, Any] = {**entry, **point}
        drawn: list[tuple[Any, ...]] = []
        for place, at in enumerate(one.get("along", [{}])):
            each = {"x": place, **point, **at}
            cell, keys = (filled(one.get(of, ""), each) for of in ("cell", "key"))
            if cell and cell not in known:
                continue
            value: Any = known[cell] if cell else facts
            whole = value
            for key in keys.split("/"):
                value = value[int(key) if isinstance(value, list) else key]
            if "along" not in one:
                pairs = isinstance(value[0], list)
                drawn = [(*p, 0) for p in (value if pairs else enumerate(value))]
                continue
            runs = value if isinstance(value, list) else [value]
            scaled = [one.get("scale", 100.0) * run for run in runs]
            error = statistics.stdev(scaled) if "errors" in one else 0
            x = whole[one["x"]] if "x" in entry else each["x"]
            drawn.append((x, statistics.mean(scaled), error))
        if drawn:
            x, y, errors = zip(*drawn, strict=True)
            style = {"marker": "o", "ms": 4, "capsize": 2}
            style |= filled(one.get("style", {}), point)
            panel = found.setdefault(filled(one.get("panel", ""), point), [])
            panel.append((x, y, errors if "errors" in one else None, style))
    columns = -(-len(found) // rows)
    options = {"sharey": rows == 1, "squeeze": False, "layout": "constrained"}
    with chart(path, rows, columns, figsize=size, **options) as grid:
        for axis, (title, panel) in zip(grid.flat, found.items(), strict=False):
            for x, y, errors, style in panel:
                axis.errorbar(x, y, errors, **style)
            axis.set(title=title, **axes)
            axis.grid(alpha=0.3)
        legend = grid.flat[0].get_legend_handles_labels()
        style = {"title": titled, "fontsize": 8, "title_fontsize": 8, "ncols": 2}
        grid.flat[0].figure.legend(*legend, loc="outside lower center", **style)
        for axis in grid[:, 1:].flat:
            axis.set_ylabel("")


def dots(
    path: pathlib.Path,
    page: str,
    *,
    head: str,
    label: Sequence[str],
    values: Mapping[str, str],
    only: str = "",
    **axes: Any,
) -> None:
    """Draw columns of a page's table, a line for each of its rows, into ``path``.

    The table is the one whose first column is ``head``; ``values`` are legends by
    column, of which the first number counts, or that after "to". Rows that have none,
    or in none of them ``only``, are left out.
    """
    rows = iter(page.split("\n"))
    names = next(_columns(line) for line in rows if line.startswith(f"| {head} |"))
    found: list[tuple[str, dict[str, float]]] = []
    for line in itertools.takewhile(lambda line: line.startswith("|"), rows):
        row = dict(zip(names, _columns(line), strict=True))
        parts = {name: row[name].split(" to ")[-1] for name in values}
        numbers = {name: re.search(r"\d[\d,]*(\.\d+)?", parts[name]) for name in parts}
        known = {n: float(m[0].replace(",", "")) for n, m in numbers.items() if m}
        if known and any(only in row[name] for name in values):
            found.append((", ".join(row[name] for name in label), known))
    size = (WIDTH, 1.2 + 0.27 * len(found))
    with chart(path, figsize=size, layout="constrained") as drawn:
        labelled(drawn, [name for name, _ in found])
        for column, legend in values.items():
            at = [
                (one[column], -i) for i, (_, one) in enumerate(found) if column in one
            ]
            drawn.plot(*zip(*at, strict=True), "o", ms=4, label=legend)
        drawn.set(**axes)
        drawn.figure.legend(loc="outside lower center", fontsize=8)


def labelled(axes: Any, names: Sequence[str]) -> None:
    """Write names above the lines at 0, -1, ..., where they need no margin."""
    for place, name in enumerate(names):
        where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
        axes.annotate(name, (0, -place), (2, 5), fontsize=8, **where)
    axes.set_ylim(0.5 - len(names), 0.9)
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", color="0.9")


def _columns(line: str) -> list[str]:
    return [part.strip() for part in line.split("|")[1:-1]]


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
