"""Record of the assertions in each test of this process. Imports nothing heavy.

A test is that which pytest is running (each case of a parametrised one by itself), by
the variable ``PYTEST_CURRENT_TEST`` that pytest sets. Without pytest it is the function
that calls the assertion.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from typing import Any

_INSIDE = __name__.partition(".")[0]


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """All that one assertion showed in one test, over all its pairs."""

    test: str
    assertion: str
    what: str
    claim: str
    pairs: int = 0
    runs: int = 0
    seconds: float = 0.0
    # the largest lower bound on epsilon of any pair, None for what has no runs, and
    # lines that make that pair
    bound: float | None = None
    pair: str = ""
    still: bool = False  # whether all outputs were the same, on every pair
    most: float | None = None  # what the runs of any pair could have shown at most
    # whether the runs of a pair stopped at its refutation, where bounds stop as well
    early: bool = False
    # whether no pair had enough runs to refute the claim, whatever the mechanism
    idle: bool = False
    confidence: float | None = None
    seed: int | None = None
    skipped: str = ""  # checks that were not made, with the reasons
    # "holds", "fails", or "stopped" if seconds ran out for some pair
    status: str = "holds"


@dataclasses.dataclass(slots=True)
class Asserted:
    """The state of one test."""

    name: str
    began: float = dataclasses.field(default_factory=time.monotonic)
    pairs: int = 0  # that were tested: the next new one is number ``pairs`` + 1
    seconds: float = 0.0  # that they took
    # by the fingerprint of pair, mechanism and claim
    verdicts: dict[str, Any] = dataclasses.field(default_factory=dict)
    # claims by the fingerprints that mechanisms have after their runs
    same: dict[str, str] = dataclasses.field(default_factory=dict)
    # by claim: the first refuted pair's verdict, how it is told, and the seconds from
    # the start
    evidence: dict[str, tuple[Any, str, float]] = dataclasses.field(
        default_factory=dict
    )
    # whether pairs that came after that are suspected; None where nothing is known
    suspects: dict[str, bool | None] = dataclasses.field(default_factory=dict)
    rows: dict[tuple[str, str, str], Row] = dataclasses.field(default_factory=dict)

    def row(self, assertion: str, what: str, claim: str) -> Row:
        """The row of one assertion, a new one the first time."""
        return self.rows.setdefault(
            (assertion, what, claim),
            Row(test=self.name, assertion=assertion, what=what, claim=claim),
        )


_TESTS: dict[str, Asserted] = {}
_budget = math.inf


def set_budget(seconds: float) -> None:
    """Seconds that the runs of one test may take together."""
    global _budget
    _budget = seconds


def seconds_left(test: Asserted) -> float:
    """Seconds left of the budget of one test."""
    return _budget - test.seconds


def current() -> Asserted:
    """The state of the test that is running."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] or _caller()
    return _TESTS.setdefault(name, Asserted(name))


def forget(name: str) -> None:
    """Start a test anew: it gives the verdicts that it gave the last time."""
    _TESTS.pop(name, None)


def rows_of(name: str) -> list[str]:
    """Assertions of a test, each row as JSON."""
    test = _TESTS.get(name)
    rows = test.rows.values() if test else ()
    return [json.dumps(dataclasses.asdict(row)) for row in rows]


def row_from(text: str) -> Row:
    """The inverse of one row of `rows_of`."""
    return Row(**json.loads(text))


def _caller() -> str:
    """The innermost function outside this package, by file and line."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != _INSIDE:
            break
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename}:{code.co_firstlineno}::{code.co_qualname}"
