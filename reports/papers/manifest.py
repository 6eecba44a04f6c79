"""Facts of the papers from their files: printed numbers, settings, artefacts, items."""

from __future__ import annotations

import csv
import functools
import pathlib
import tomllib
from typing import Any

HERE = pathlib.Path(__file__).parent
NAMES = ("zhu", "bayrooti", "deep-q", "zhou", "xu")


@functools.cache
def published(paper: str) -> dict[str, Any]:
    """All of ``paper.toml``."""
    return tomllib.loads((HERE / f"{paper}.toml").read_text())


@functools.cache
def table(paper: str) -> list[dict[str, str]]:
    """Lines of ``paper.csv``, by the names in its first one."""
    with (HERE / f"{paper}.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def study_of(name: str) -> dict[str, Any] | None:
    """The paper that a study by this name is of, if any."""
    papers = map(published, NAMES)
    return next((paper for paper in papers if paper["study"] == name), None)
