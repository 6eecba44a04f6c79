"""The way of a budget: files that are given it, and changes from file to file.

``python -m tests.way train dp-dsgd --epsilon 4.03125 --set nodes=2`` runs the command
and prints both, for calls with the number itself among their arguments (in a tuple or a
dictionary too), and for those with settings that have it as their epsilon. A budget
that nothing else equals, such as 4.03125, counts no other number.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
from types import FrameType

from privaudit.cli import main

ROOT = pathlib.Path(__file__).parents[1]
OWN = tuple(f"{ROOT / name}/" for name in ("privaudit", "trainers"))
BUDGET = 4.03125


def holds(value: object, depth: int = 2) -> bool:
    """Return whether the budget is ``value``, or in it."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and len(value) < 60:
        return depth > 0 and any(holds(one, depth - 1) for one in value)
    return type(value) is float and value == BUDGET


class Way:
    """The files of calls with the budget, one after another."""

    def __init__(self) -> None:
        self.plain: list[str] = []
        self.all: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call, as `sys.setprofile` tells it."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(OWN):
            return
        stars = bool(code.co_flags & 4) + bool(code.co_flags & 8)
        count = code.co_argcount + code.co_kwonlyargcount + stars
        given = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
        name = code.co_filename
        if plain := any(map(holds, given)):
            self.plain.append(name)
        if plain or any(is_asked(one) for one in given):
            self.all.append(name)


def is_asked(value: object) -> bool:
    """Return whether ``value`` is settings of the budget."""
    try:
        return holds(getattr(value, "epsilon", None), 0)
    except Exception:  # a property of something half made
        return False


if __name__ == "__main__":
    way = Way()
    sys.setprofile(way)
    status = main(sys.argv[1:])
    sys.setprofile(None)
    for name, files in (("by arguments", way.plain), ("in settings too", way.all)):
        runs = [file for file, _ in itertools.groupby(files)]
        print(f"{name}: {len(set(runs))} files, {len(runs) - 1} changes of file")
    raise SystemExit(status)
