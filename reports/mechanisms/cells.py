"""Mechanisms that others wrote, right and wrong, and verdicts on them.

Mechanisms are in tests/testing/mechanisms.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from privaudit.testing import judge
from reports.study import Cell
from tests.testing.mechanisms import CASES, OTHERS, Case

BY_NAME = {case.name: case for case in CASES} | {
    name: Case(name, mechanism, pair, False, epsilon, delta, runs=4_000_000)
    for name, (mechanism, pair, epsilon, delta) in OTHERS.items()
}


def judged(case: str, runs: int) -> dict[str, Any]:
    """The verdict of `privaudit.testing.judge` at 99.9 %; ``runs`` at most."""
    asked = BY_NAME[case]
    began = time.process_time()
    found = judge(
        asked.mechanism,
        asked.pair,
        epsilon=asked.epsilon,
        delta=asked.delta,
        runs=runs,
        score=asked.score,
        vectorised=case in OTHERS,
    )
    return {
        "refuted": found.refuted,
        "bound": found.bound,
        "runs": found.runs,
        "seconds": round(time.process_time() - began, 2),
        "right": asked.right,
        "claim": f"({asked.epsilon:g}, {asked.delta:g})",
    }


def suites(first: int, suites: int, runs: int, confidence: float) -> dict[str, Any]:
    """Number of tests of right mechanisms that fail, and of suites with one of each.

    All of alpha is spent on one pair: `assert_private` spends half of it on the first.
    """
    right = [case for case in CASES if case.right and "c 3" not in case.name]
    alarms = failed = 0
    for suite in range(first, first + suites):
        tests = [
            judge(
                case.mechanism,
                case.pair,
                epsilon=case.epsilon,
                delta=case.delta,
                confidence=2 * confidence - 1,  # k = 1 is tested at half
                runs=runs,
                seed=1000 + suite,
            ).refuted
            for case in right
        ]
        alarms += sum(tests)
        failed += any(tests)
    tests = suites * len(right)
    return {"suites": suites, "tests": tests, "alarms": alarms, "failed": failed}


def cells() -> Iterator[Cell]:
    """Every mechanism, those that come with a tool last."""
    for name, case in BY_NAME.items():
        of = "theirs" if name in OTHERS else "ours"
        yield Cell(f"{of}: {name}", judged, {"case": name, "runs": case.runs})
