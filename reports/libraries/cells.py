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
import pathlib
import time
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from privaudit.testing import judge
from reports.study import Cell, small

RUNS = 10_000
ALARM = 0.001  # chance of a false alarm anywhere in the study
Rng = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Case:
    """One documented promise: a function of the data, on a pair of neighbours."""

    library: str
    run: Callable[[Any, Rng], Any]
    pair: tuple[Any, Any]
    epsilon: float
    delta: float
    floats: bool  # low bits are looked at as well


def _diffprivlib(call: str, given: dict[str, Any]) -> Callable[[Any, Rng], Any]:
    """``randomise`` of a mechanism, or a tool, with a seed of its own in each run."""
    folder, _, name = call.partition(".")

    def run(data: Any, rng: Rng) -> Any:
        called = getattr(importlib.import_module(f"diffprivlib.{folder}"), name)
        seed = int(rng.integers(2**31))
        if folder == "tools":
            found = called(np.array(data), random_state=seed, **given)
            return found[0] if name == "histogram" else found
        return called(random_state=seed, **given).randomise(data)

    return run


def _opendp(kind: str, given: dict[str, Any]) -> Callable[[Any, Rng], Any]:
    """A measurement for inputs at distance 1, epsilon-DP by its own map."""

    @functools.cache
    def made() -> Callable[[Any], Any]:
        dp, epsilon = importlib.import_module("opendp.prelude"), given["epsilon"]
        dp.enable_features("contrib")
        if kind == "make_randomized_response_bool":
            return dp.m.make_randomized_response_bool(prob=1 / (1 + math.exp(-epsilon)))
        whole = kind == "make_geometric"
        domain = dp.atom_domain(T=int) if whole else dp.atom_domain(T=float, nan=False)
        space = domain, dp.absolute_distance(T=int if whole else float)
        return getattr(dp.m, kind)(*space, scale=1 / epsilon)

    return lambda data, rng: made()(data)


def _pydp(call: str, given: dict[str, Any]) -> Callable[[Any, Rng], Any]:
    def run(data: Any, rng: Rng) -> Any:
        module = importlib.import_module("pydp.algorithms.laplacian")
        return getattr(module, call)(**given).quick_result(list(data))

    return run


LIBRARIES = {"diffprivlib": _diffprivlib, "opendp": _opendp, "pydp": _pydp}
TOLD = tomllib.loads(pathlib.Path(__file__).with_name("promises.toml").read_text())


def _case(name: str, call: str, pair: Any, floats: bool, given: dict[str, Any]) -> Case:
    """Case of an entry of ``promises.toml``, where a pair may have a name."""
    library = name.partition(":")[0]
    of = {key: tuple(x) if isinstance(x, list) else x for key, x in given.items()}
    both = tuple(TOLD["pairs"][pair] if isinstance(pair, str) else pair)
    epsilon, delta = (float(given.get(name, 0.0)) for name in ("epsilon", "delta"))
    return Case(library, LIBRARIES[library](call, of), both, epsilon, delta, floats)


BY_NAME = {name: _case(name, **told) for name, told in TOLD["promises"].items()}


VERDICTS = sum(1 + case.floats for case in BY_NAME.values())
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
