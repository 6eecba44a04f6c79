"""Mechanisms that others wrote, right and wrong: verdicts by us and by others' tools.

Mechanisms are in tests/testing/mechanisms.py. StatDP and dp-auditorium are no packages
that can be installed: `python -m reports mechanisms` finds them where a checkout of
each is on the path, and says so where it is not.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import itertools
import pathlib
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from privaudit.testing import judge
from reports.study import Cell
from tests.testing.mechanisms import CASES, OTHERS, Case

NEEDED = {"privaudit": 4_000_000, "statdp": 64_000, "dp_auditorium": 4_096_000}
Rng = np.random.Generator


def opacus_step(records: list[float], rng: Rng, noise: float = 3.7307) -> np.ndarray:
    """A step of Opacus' optimizer: one weight, a gradient a record, clipped to 1."""
    weight, optimizer = _optimizer(noise)
    weight.grad_sample = _column(records)
    optimizer.generator.manual_seed(int(rng.integers(2**62)))
    optimizer.pre_step()
    found = weight.grad.numpy().copy()
    optimizer.zero_grad()
    return found


@functools.cache
def _optimizer(noise: float) -> tuple[Any, Any]:
    import torch

    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = importlib.import_module("opacus.optimizers").DPOptimizer(
        torch.optim.SGD([weight], lr=1.0),
        noise_multiplier=noise,
        max_grad_norm=1.0,
        expected_batch_size=None,
        loss_reduction="sum",
        generator=torch.Generator(),
    )
    return weight, optimizer


def _column(records: list[float]) -> Any:
    import torch

    return torch.tensor(records).float()[:, None]


_STEP = {"pair": ([1.0] * 9, [1.0] * 10), "delta": 1e-5}
STEPS = (
    Case("Opacus step", opacus_step, right=True, **_STEP),
    Case(
        "Opacus step, a third of the noise",
        functools.partial(opacus_step, noise=3.7307 / 3),
        right=False,
        **_STEP,
    ),
)
BY_NAME = {case.name: case for case in (*CASES, *STEPS)}


def has(package: str) -> bool:
    """Return whether there is such a package."""
    return importlib.util.find_spec(package) is not None


def ours(case: str, runs: int) -> dict[str, Any]:
    """The verdict of `privaudit.testing.judge` at 99.9 %; ``runs`` at most."""
    asked = BY_NAME[case]
    if asked in STEPS and not has("opacus"):
        return {"missing": "opacus"}
    began = time.process_time()
    found = judge(
        asked.mechanism,
        asked.pair,
        epsilon=asked.epsilon,
        delta=asked.delta,
        runs=runs,
        score=asked.score,
    )
    return {
        "refuted": found.refuted,
        "bound": found.bound,
        "runs": found.runs,
        "seconds": round(time.process_time() - began, 2),
        "right": asked.right,
        "claim": f"({asked.epsilon:g}, {asked.delta:g})",
    }


def as_number(case: Case) -> Callable[[Any], float]:
    """Number of an output for tools that read one, as StatDP's authors choose it.

    Of answers yes or no, how many are no (of one that stops) or as expected (else); of
    an array, the coordinate that moves most.
    """
    first, second = case.pair
    if case.score not in (None, "bits"):
        return case.score
    if case.name.startswith(("sparse vector 5", "sparse vector 6")):
        half = len(first) // 2
        return lambda output: float(
            sum(one != (at < half) for at, one in enumerate(output))
        )
    if case.name.startswith("sparse vector"):
        return lambda output: float(sum(one is False for one in output))
    if case.name == "histogram, shared noise":
        return lambda output: float(output[1] - output[0])
    if case.name.startswith(("noisy histogram", "randomised")):
        moved = int(np.argmax(np.abs(np.subtract(first, second))))
        return lambda output: float(output[moved])
    if case.name.startswith("subsampled"):
        return lambda output: float(np.sum(output))
    return lambda output: float(np.ravel(output)[0])


def statdp(case: str, runs: int) -> dict[str, Any]:
    """StatDP's p-value at the claim; half the runs choose the event, half test it."""
    asked = BY_NAME[case]
    if has("statdp") and (asked.delta or asked.score == "bits"):
        return {"refused": "pure epsilon of numbers only"}
    number = as_number(asked)

    def algorithm(rng: Rng, data: Any) -> np.float64:
        return np.float64(number(asked.mechanism(data, rng)))

    return _by_statdp(algorithm, asked.pair, asked.epsilon, runs)


def _by_statdp(
    algorithm: Callable[[Rng, Any], np.float64], pair: Any, epsilon: float, runs: int
) -> dict[str, Any]:
    if not has("statdp"):
        return {"missing": "statdp"}
    if not hasattr(np, "bool"):
        np.bool = np.bool_  # type: ignore[misc]
    hypotest = importlib.import_module("statdp.hypotest")
    select = importlib.import_module("statdp.selectors").select_event
    began = time.process_time()
    pool = _Alone()
    *_, event = select(
        algorithm, ((*pair, {}),), epsilon, runs // 4, quiet=True, process_pool=pool
    )
    given = {"process_pool": pool, "report_p2": False}
    p = hypotest.hypothesis_test(
        algorithm, *pair, {}, event, epsilon, runs // 4, **given
    )
    return {
        "p": float(p),
        "refuted": bool(p < 1e-3),
        "runs": runs,
        "seconds": round(time.process_time() - began, 2),
    }


class _Alone:
    """A pool of this process: what is tested is no function of a module."""

    _processes = 1

    def imap_unordered(self, function: Callable, values: Any, **_: Any) -> Iterator:
        yield from map(function, values)

    imap = imap_unordered


def dp_auditorium(case: str, runs: int) -> dict[str, Any]:
    """The histogram tester of dp-auditorium at 99.9 %; its others need TensorFlow."""
    asked = BY_NAME[case]
    if asked.score == "bits":
        return {"refused": "numbers only"}
    if asked in STEPS and not has("opacus"):
        return {"missing": "opacus"}
    number = as_number(asked)

    def draw(data: Any, size: int, rng: Rng) -> np.ndarray:
        return np.array([number(asked.mechanism(data, rng)) for _ in range(size)])

    return _by_auditorium(draw, asked.pair, asked.epsilon, asked.delta, runs)


def _by_auditorium(
    draw: Callable[..., np.ndarray], pair: Any, epsilon: float, delta: float, runs: int
) -> dict[str, Any]:
    tester = _histogram_tester()
    if tester is None:
        return {"missing": "dp_auditorium"}
    began = time.process_time()
    rng = np.random.default_rng(0)
    one, two = (draw(data, runs // 2, rng) for data in pair)
    config, privacy = (
        importlib.import_module(f"dp_auditorium.configs.{name}")
        for name in ("property_tester_config", "privacy_property")
    )
    refuted, most = False, 0.0
    for first, second in ((one, two), (two, one)):
        judged = tester(
            config.HistogramPropertyTesterConfig(
                approximate_dp=privacy.ApproximateDp(epsilon, delta),
                test_discrete_mechanism=False,
                histogram_size=10,
                min_value=float(np.quantile([one, two], 0.01)),
                max_value=float(np.quantile([one, two], 0.99)) + 1e-9,
            )
        )
        lower = judged.estimate_lower_bound(first, second, 0.0005)
        refuted |= bool(judged.reject_property(lower) and lower > delta)
        most = max(most, float(lower))
    return {
        "delta": most,
        "refuted": refuted,
        "runs": runs,
        "seconds": round(time.process_time() - began, 2),
    }


def needed(case: str, tool: str, runs: int) -> dict[str, Any]:
    """The fewest runs, of 1 000, 4 000, ..., with which a tool refutes; or ``runs``.

    The tools read one number of an output, as their authors choose it: what there is
    one of, the count that moves, how many answers are not as without noise, or of
    sparse vector 3 the last number.
    """
    mechanism, pair, epsilon, delta = OTHERS[case]

    def draw(data: Any, size: int, rng: Rng) -> np.ndarray:
        found = mechanism(data, size, rng)
        if "sparse vector 3" in case:
            return np.nanmax(np.nan_to_num(found, nan=-1000.0), axis=1)
        if "sparse vector" in case:
            return (found != (np.array(pair[1]) > 0)).sum(axis=1).astype(float)
        return found[:, 0] if found.ndim == 2 else found

    if tool == "privaudit":
        began = time.process_time()
        told = judge(
            mechanism, pair, epsilon=epsilon, delta=delta, runs=runs, vectorised=True
        )
        seconds = round(time.process_time() - began, 2)
        return {"refuted": told.refuted, "runs": told.runs, "seconds": seconds}
    if tool == "statdp" and delta:
        return {"refused": "pure epsilon of numbers only"}
    tried, result = 1000, {}
    while tried <= runs and not result.get("refuted"):
        if tool == "statdp":
            result = {"refuted": False, "runs": tried}
            with contextlib.suppress(ValueError):  # its test fails on some small counts
                result = _by_statdp(_one_by_one(draw), pair, epsilon, tried)
        else:
            result = _by_auditorium(draw, pair, epsilon, delta, tried)
        tried *= 4
        if "missing" in result:
            break
    return result


def _one_by_one(draw: Callable[..., np.ndarray]) -> Callable[[Rng, Any], np.float64]:
    """A mechanism of single runs, of many that are drawn at once."""
    kept: dict[tuple[float, ...], list[np.float64]] = {}

    def algorithm(rng: Rng, data: list[float]) -> np.float64:
        left = kept.setdefault(tuple(data), [])
        if not left:
            left.extend(draw(data, 10_000, rng))
        return left.pop()

    return algorithm


def _histogram_tester() -> Any:
    """Its class, without the packages' own imports of TensorFlow and Vizier."""
    places = [pathlib.Path(path, "dp_auditorium") for path in sys.path]
    place = next((one for one in places if (one / "testers").is_dir()), None)
    if place is None:
        return None
    for name in ("", "testers", "configs"):
        module = types.ModuleType(f"dp_auditorium.{name}".rstrip("."))
        module.__path__ = [str(place / name)]
        sys.modules.setdefault(module.__name__, module)
    return importlib.import_module(
        "dp_auditorium.testers.histogram_tester"
    ).HistogramTester


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
    """Every mechanism by every tool, and suites of right ones."""
    for tool, (name, case) in itertools.product(
        (ours, statdp, dp_auditorium), BY_NAME.items()
    ):
        settings = {"case": name, "runs": case.runs}
        yield Cell(f"{tool.__name__}: {name}", tool, settings)
    for tool, most in NEEDED.items():
        for name in OTHERS:
            settings = {"case": name, "tool": tool, "runs": most}
            yield Cell(f"needed by {tool}: {name}", needed, settings)
