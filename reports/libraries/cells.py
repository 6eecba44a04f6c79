"""Mechanisms of the field's libraries as they are documented: verdicts on each.

The libraries are not installed with privaudit: see ``requirements.txt`` of this folder.
Where one is missing, its cells say so.
"""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import time
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

from privaudit.testing import assert_private, judge, neighbours, record
from reports.study import Cell

RUNS = 10_000
ALARM = 0.001  # chance of a false alarm on any promise of the study
TOLD = tomllib.loads(pathlib.Path(__file__).with_name("promises.toml").read_text())
LIBRARIES, PROMISES, PLANTED = TOLD["libraries"], TOLD["promises"], TOLD["planted"]
VERDICTS = sum(1 + one.get("floats", False) for one in PROMISES.values())
# `judge` tests the first pair of a test at half of alpha.
CONFIDENCE = 1 - 2 * ALARM / VERDICTS
RECORDS = "st.lists(st.floats(0, 1), max_size=8)"


def library(case: str) -> dict[str, str]:
    """The library that a case is of, by the first word of both names."""
    of = case.partition(":")[0]
    return next(one for one in LIBRARIES.values() if one["name"].startswith(of))


def source(case: str) -> str:
    """The text of a case's run; each draws by a seed of its own where it takes one."""
    run = (PROMISES | PLANTED)[case]["run"]
    before = library(case)["before"].strip()
    return f"{before}\n\n\ndef run(data, seed):\n    return {run}"


def _run(case: str) -> Callable[[Any, int], Any] | None:
    """The run of a case; None where its library is not installed."""
    try:
        found = importlib.util.find_spec(library(case)["module"])
    except ModuleNotFoundError:
        found = None
    if found is None:
        return None
    names: dict[str, Any] = {}
    exec(source(case), names)
    return names["run"]


def claim(case: str) -> tuple[float, float]:
    """Claimed epsilon and delta of a case."""
    told = (PROMISES | PLANTED)[case]
    return float(told.get("epsilon", 1.0)), float(told.get("delta", 0.0))


def verdict(case: str, runs: int) -> dict[str, Any]:
    """The verdict on real numbers, and on low bits where outputs are floats."""
    run, (epsilon, delta) = _run(case), claim(case)
    if run is None:
        return {"missing": library(case)["module"]}
    found: dict[str, Any] = {}
    began = time.process_time()
    for score in (None, "bits") if PROMISES[case].get("floats") else (None,):
        one = judge(
            run,
            eval(PROMISES[case]["pair"]),
            epsilon=epsilon,
            delta=delta,
            runs=PROMISES[case].get("runs", runs),
            score=score,
            confidence=CONFIDENCE,
        )
        found[score or "values"] = {
            "refuted": one.refuted,
            "bound": one.bound,
            "runs": one.runs,
        }
    return found | {"seconds": round(time.process_time() - began, 2)}


def planted(case: str, runs: int) -> dict[str, Any]:
    """Search for a pair that refutes a planted fault, and shrinking of what it finds.

    Seconds are the processor's, with those that hypothesis takes.
    """
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    run, (epsilon, delta), told = _run(case), claim(case), PLANTED[case]
    if run is None:
        return {"missing": library(case)["module"]}
    pairs = neighbours(
        eval(told.get("data", RECORDS), {"st": st}),
        relation=told.get("relation", "add-or-remove-one"),
        unit=told.get("unit", "record"),
        rows_per_user=told.get("rows_per_user"),
    )
    # Once a process hypothesis reads all modules: that is no part of a search.
    settings(database=None)(given(st.integers())(lambda whole: None))()
    failed: list[tuple[float, Any]] = []
    state = record.Asserted(case)

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(pairs)
    def test(pair: Any) -> None:
        nonlocal state
        state = record.current()
        try:
            assert_private(run, pair, epsilon=epsilon, delta=delta, runs=runs)
        except AssertionError:
            failed.append((time.process_time(), pair))
            raise

    began = time.process_time()
    with contextlib.suppress(AssertionError):
        test()
    record.forget(state.name)  # the next case begins anew
    if not failed:
        return {"refuted": False}
    ((first, _, _),) = state.evidence.values()
    return {
        "refuted": True,
        "bound": first.bound,
        "pairs": first.k,
        "search": round(failed[0][0] - began, 2),
        "shrinking": round(time.process_time() - failed[0][0], 2),
        "smallest": repr(failed[-1][1])[1:-1],
    }


def cells() -> Iterator[Cell]:
    """One for each promise and each planted fault."""
    for name in PROMISES:
        yield Cell(name, verdict, {"case": name, "runs": RUNS})
    for name in PLANTED:
        yield Cell(f"planted, {name}", planted, {"case": name, "runs": RUNS})
