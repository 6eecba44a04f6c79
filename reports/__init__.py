"""Studies of algorithms and claims: what was computed, and pages that say it.

Not a part of what is installed; `reports.study` says how a study is made and run. Here
are the files by hand: settings of studies, and facts of papers.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import itertools
import pathlib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

PAPERS = pathlib.Path(__file__).parent / "papers"
NAMES = ("zhu", "bayrooti", "deep-q", "zhou", "xu")


def told(file: str) -> dict[str, Any]:
    """Return the settings in ``settings.toml`` beside a module's file."""
    return tomllib.loads(pathlib.Path(file).with_name("settings.toml").read_text())


@functools.cache
def published(paper: str) -> dict[str, Any]:
    """All of ``paper.toml``: printed numbers, settings, artefacts, items."""
    return tomllib.loads((PAPERS / f"{paper}.toml").read_text())


@functools.cache
def table(paper: str) -> list[dict[str, Any]]:
    """Lines of ``paper.csv``, by the names in its first one; numbers are numbers."""
    with (PAPERS / f"{paper}.csv").open(newline="") as lines:
        return [{k: read(v) for k, v in line.items()} for line in csv.DictReader(lines)]


def read(text: str) -> int | float | str:
    """Read a number, or else the text itself."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def study_of(name: str) -> dict[str, Any] | None:
    """The paper that a study by this name is of, if any."""
    papers = map(published, NAMES)
    return next((paper for paper in papers if paper["study"] == name), None)


def points(
    over: Mapping[str, Any], told: Mapping[str, Any] = {}, **known: Any
) -> Iterator[dict[str, Any]]:
    """Points of a grid by its axes, or where ``told`` has them; the last runs fastest.

    A value that is a table sets several names.
    """
    axes = {
        name: told[axis] if isinstance(axis, str) else axis
        for name, axis in over.items()
    }
    for point in itertools.product(*axes.values()):
        found = dict(known)
        for axis, value in zip(axes, point, strict=True):
            one = value if isinstance(value, dict) else {axis: value}
            found |= filled(one, found)
        yield found


def filled(value: Any, known: Mapping[str, Any], told: Mapping[str, Any] = {}) -> Any:
    """A part of settings with the values of a point.

    "{axis}" is the value itself ("{none}" is None), and in other text it is written;
    ``use`` of a table lists tables that it begins with, by their places in ``told``.
    """
    if isinstance(value, str):
        known = {"none": None, **known}
        whole = value[1:-1] if value[:1] + value[-1:] == "{}" else ""
        return known[whole] if whole in known else value.format_map(known)
    if isinstance(value, list):
        return [filled(each, known, told) for each in value]
    if not isinstance(value, dict):
        return value
    begin: dict[str, Any] = {}
    for place in value.get("use", ()):
        path = place.format_map(known).split("/")
        part = functools.reduce(lambda part, key: part[key], path, told)
        begin |= filled(part, known, told)
    rest = {name: each for name, each in value.items() if name != "use"}
    return begin | {name: filled(each, known, told) for name, each in rest.items()}
