"""Mechanisms of diffprivlib, OpenDP and PyDP as they are documented: verdicts on each.

The libraries are not installed with privaudit: `pip install -r requirements.txt`, of
this folder, in an environment of its own. Where one is missing, its cells say so.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from privaudit.testing import judge
from reports.study import Cell, small

RUNS = 10_000
ALARM = 0.001  # chance of a false alarm anywhere in the study
EPSILON = 1.0
Rng = np.random.Generator

TEN = ([0.0] * 10, [0.0] * 9 + [1.0])
MISSING = ([math.nan] * 9 + [0.0], [math.nan] * 9 + [1.0])
GONE = ([0.0] * 9 + [1.0], [0.0] * 9 + [math.nan])
COUNTS = ([0] * 10, [0] * 9 + [1])
MORE = ([0.0] * 9, [0.0] * 9 + [1.0])


@dataclasses.dataclass(frozen=True)
class Case:
    """One documented promise: a function of the data, on a pair of neighbours."""

    library: str
    name: str
    run: Callable[[Any, Rng], Any]
    pair: tuple[Any, Any]
    epsilon: float = EPSILON
    delta: float = 0.0
    floats: bool = True  # low bits are looked at as well


def _diffprivlib(folder: str, name: str, **given: Any) -> Callable[[Any, Rng], Any]:
    """``randomise`` of a mechanism, or a tool, with a seed of its own in each run."""

    def run(data: Any, rng: Rng) -> Any:
        called = getattr(importlib.import_module(f"diffprivlib.{folder}"), name)
        seed = int(rng.integers(2**31))
        if folder == "tools":
            found = called(np.array(data), random_state=seed, **given)
            return found[0] if name == "histogram" else found
        return called(random_state=seed, **given).randomise(data)

    return run


def _mechanism(name: str, pair: Any, *, floats: bool = True, **given: Any) -> Case:
    given = {"epsilon": EPSILON, "sensitivity": 1, **given}
    given = {key: value for key, value in given.items() if value is not None}
    claim = {"epsilon": given.get("epsilon", 0.0), "delta": given.get("delta", 0.0)}
    run = _diffprivlib("mechanisms", name, **given)
    return Case("diffprivlib", name, run, pair, floats=floats, **claim)


def _tool(name: str, pair: Any, what: str = "", **given: Any) -> Case:
    run = _diffprivlib("tools", name, epsilon=EPSILON, **given)
    told = f"tools.{name}{f', {what}' if what else ''}"
    floats = name not in ("histogram", "count_nonzero")
    return Case("diffprivlib", told, run, pair, floats=floats)


@functools.cache
def _opendp(kind: str) -> Callable[[Any], Any]:
    """A measurement for inputs at distance 1, 1-DP by its own map."""
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    if kind == "make_randomized_response_bool":
        return dp.m.make_randomized_response_bool(prob=1 / (1 + math.exp(-EPSILON)))
    whole = kind == "make_geometric"
    domain = dp.atom_domain(T=int) if whole else dp.atom_domain(T=float, nan=False)
    space = domain, dp.absolute_distance(T=int if whole else float)
    return getattr(dp.m, kind)(*space, scale=1 / EPSILON)


def _of_opendp(kind: str, pair: tuple[Any, Any], *, floats: bool = False) -> Case:
    return Case(
        "opendp", kind, lambda data, rng: _opendp(kind)(data), pair, floats=floats
    )


def _of_pydp(name: str, kind: str, pair: tuple[Any, Any]) -> Case:
    def run(data: Any, rng: Rng) -> Any:
        module = importlib.import_module("pydp.algorithms.laplacian")
        given = {"epsilon": EPSILON, "dtype": kind}
        if name != "Count":
            given |= {"lower_bound": 0, "upper_bound": 1}
        return getattr(module, name)(**given).quick_result(list(data))

    return Case("pydp", f"{name}, {kind}", run, pair, floats=kind == "float")


CASES = (
    _mechanism("Laplace", (0.0, 1.0)),
    _mechanism("LaplaceTruncated", (0.0, 1.0), lower=0, upper=1),
    _mechanism("LaplaceFolded", (0.0, 1.0), lower=0, upper=1),
    _mechanism("LaplaceBoundedDomain", (0.0, 1.0), lower=0, upper=1),
    _mechanism("LaplaceBoundedNoise", (0.0, 1.0), delta=0.1),
    _mechanism("Gaussian", (0.0, 1.0), epsilon=0.9, delta=1e-3),
    _mechanism("GaussianAnalytic", (0.0, 1.0), delta=1e-3),
    _mechanism("GaussianDiscrete", (0, 1), delta=1e-3, floats=False),
    _mechanism("Geometric", (0, 1), floats=False),
    _mechanism("GeometricTruncated", (0, 1), lower=0, upper=3, floats=False),
    _mechanism("GeometricFolded", (0, 1), lower=0, upper=3, floats=False),
    _mechanism("Staircase", (0.0, 1.0), gamma=0.5),
    _mechanism("Snapping", (0.0, 1.0), lower=0, upper=10),
    _mechanism("Uniform", (0.0, 1.0), epsilon=None, delta=0.1),
    _mechanism(
        "Binary", ("a", "b"), sensitivity=None, value0="a", value1="b", floats=False
    ),
    *(
        _tool(name, pair, what, bounds=(0, 1))
        for name, pairs in {
            "mean": {"": TEN},
            "var": {"": TEN},
            "std": {"": TEN},
            "sum": {"": TEN},
            "median": {"": TEN},
            "nanmean": {"a missing value replaced": GONE, "nine missing": MISSING},
            "nanvar": {
                "a missing value replaced": GONE,
                "eight missing": (
                    [math.nan] * 8 + [0.0, 0.0],
                    [math.nan] * 8 + [0.0, 1.0],
                ),
            },
            "nanstd": {"a missing value replaced": GONE},
            "nansum": {"a missing value replaced": GONE},
        }.items()
        for what, pair in pairs.items()
    ),
    _tool("count_nonzero", COUNTS),
    _tool("histogram", ([0.5], [0.5, 0.5]), range=(0, 1), bins=3),
    _of_opendp("make_laplace", (0.0, 1.0), floats=True),
    _of_opendp("make_geometric", (0, 1)),
    _of_opendp("make_randomized_response_bool", (False, True)),
    *(
        _of_pydp(name, kind, MORE if kind == "float" else ([0] * 9, [0] * 9 + [1]))
        for name in ("BoundedSum", "BoundedMean", "BoundedVariance", "Count")
        for kind in ("float", "int")
    ),
)
BY_NAME = {f"{case.library}: {case.name}": case for case in CASES}


VERDICTS = sum(1 + case.floats for case in CASES)
# `judge` tests the first pair of a test at half of alpha.
CONFIDENCE = 1 - 2 * ALARM / VERDICTS


def verdict(case: str, runs: int) -> dict[str, Any]:
    """The verdict on real numbers, and on low bits where outputs are floats."""
    asked = BY_NAME[case]
    if not importlib.util.find_spec(asked.library):
        return {"missing": asked.library}
    began, found = time.process_time(), {}
    for score in (None, "bits") if asked.floats else (None,):
        one = judge(
            asked.run,
            asked.pair,
            epsilon=asked.epsilon,
            delta=asked.delta,
            runs=runs,
            score=score,
            confidence=CONFIDENCE,
        )
        found[score or "values"] = {
            "refuted": one.refuted,
            "bound": one.bound,
            "runs": one.runs,
        }
    return found | {
        "claim": f"({asked.epsilon:g}, {asked.delta:g})",
        "pair": repr(asked.pair),
        "seconds": round(time.process_time() - began, 2),
    }


def cells(quick: bool) -> Iterator[Cell]:
    """One for each promise."""
    found = [Cell(name, verdict, {"case": name, "runs": RUNS}) for name in BY_NAME]
    yield from small(found, runs=200) if quick else found
