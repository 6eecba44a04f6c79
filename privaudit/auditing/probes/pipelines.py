"""Probes of how a release runs: state, budget, time, sensitivity by search.

As in `privaudit.auditing.probes.pair`, what is random is allowed a chance of 1e-9.
"""

from __future__ import annotations

import functools
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special, stats

from privaudit.auditing.probes import Check, rows
from privaudit.auditing.probes.low_bits import Floats
from privaudit.files.fingerprints import fingerprint

_LAGS = 3  # runs back that a run may remember
_CROSSED = 32  # coordinates of which each is held against each one's past
_ROUNDING = 1e-9
_SPENDS = 3  # runs on each data set whose cost is read

Run = Callable[..., Any]


def stateless(here: Floats, others: Sequence[Floats]) -> Check:
    """The noise of a run depends on no run before, and on none with other seeds.

    Of ranks of independent runs a correlation is nearly normal.  # (runs, coordinates)
    """
    moving = np.flatnonzero(~rows.still(here))
    runs, crossed, findings = len(here), len(moving) <= _CROSSED, []
    looks = 2 * (_LAGS + len(others)) * max(1, len(moving)) ** (2 if crossed else 1)
    limit = -float(special.ndtri(rows.RARE / (2 * looks))) * math.sqrt(runs)
    for what in ("value", "size"):
        ranks, *apart = (
            _ranks(one[:, moving], what == "size") for one in (here, *others)
        )
        past = [(ranks[:-lag], ranks[lag:], lag) for lag in range(1, _LAGS + 1)]
        for one, two, lag in [*past, *((ranks, each, 0) for each in apart)]:
            tied = one.T @ two if crossed else np.diag((one * two).sum(axis=0))
            where = f"{lag} run{'s' * (lag > 1)} before"
            findings += [
                f"the {what} of coordinate {moving[new]} goes with that of coordinate "
                f"{moving[old]} {where if lag else 'on the other data set'}: runs "
                "share noise or a state"
                for old, new in np.argwhere(np.abs(tied) > limit)
            ]
    return Check(
        name="state",
        what="no run depends on another",
        findings=tuple(findings[: rows.NAMED]),
    )


def _ranks(values: Floats, size: bool) -> Floats:
    if size:
        values = np.abs(values - np.median(values, axis=0))
    ranks = stats.rankdata(values, axis=0)
    ranks -= ranks.mean(axis=0)
    return ranks / np.maximum(ranks.std(axis=0), 1e-300)


def seeding(run: Run, data: Any) -> Check:
    """No generator that others draw from is set to a fixed state by a run."""
    generators: dict[str, tuple[Run, Run, Run]] = {
        "numpy.random": (np.random.get_state, np.random.set_state, np.random.random),
        "random": (random.getstate, random.setstate, random.random),
    }
    if "torch" in sys.modules:
        torch = sys.modules["torch"].random
        advance = functools.partial(sys.modules["torch"].rand, 1)
        generators["torch"] = (torch.get_rng_state, torch.set_rng_state, advance)
    kept = {name: get() for name, (get, _, _) in generators.items()}
    ends: list[dict[str, str]] = []
    for _ in range(2):
        for _, _, advance in generators.values():
            advance()  # so that the state before it is another one
        run(data)
        ends.append({name: fingerprint(one[0]()) for name, one in generators.items()})
    for name, (_, put, _) in generators.items():
        put(kept[name])
    return Check(
        name="seeds",
        what="no run sets a generator that others draw from",
        findings=tuple(
            f"a run sets the generator of {name} to a fixed state: whoever draws from "
            "it later draws the same again"
            for name in generators
            if ends[0][name] == ends[1][name]
        ),
    )


def searched(
    moved: Callable[[tuple[Any, Any]], float], pairs: Any, steps: int
) -> tuple[float, tuple[Any, Any] | None]:
    """The largest move of a release, and its pair, of ``steps`` that are tried.

    Pairs are drawn from a strategy of hypothesis, which climbs by those that move more.
    """
    import hypothesis

    best: list[tuple[float, Any]] = [(-1.0, None)]

    @hypothesis.settings(
        max_examples=steps,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.target],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(pairs)
    def climb(pair: tuple[Any, Any]) -> None:
        far = moved(pair)
        hypothesis.target(min(far, sys.float_info.max), label="move")
        if far > best[0][0]:
            best[0] = far, pair

    climb()
    return best[0]


def spending(
    run: Run, pair: tuple[Any, Any], spent: Callable[[], float], budget: float | None
) -> Check:
    """Each run is charged: once, and alike on both data sets where a cost is promised.

    ``spent`` is what was spent so far. How it adds up is its own affair unless
    ``budget`` says what a run costs.
    """
    findings = []
    for world, data in enumerate(pair):
        for _ in range(_SPENDS):
            before = float(spent())
            run(data)
            cost = float(spent()) - before
            where = f"a run on data set {world} "
            slack = _ROUNDING * max(1.0, abs(before))
            if cost <= slack:
                finding = "spent nothing: what it releases is not counted"
            elif budget is None or abs(cost - budget) <= slack + _ROUNDING * budget:
                continue
            else:
                times = cost / budget
                known = ", counted twice" if abs(times - 2) < 1e-6 else ""
                short = ", part of it is not counted" if times < 1 else known
                finding = f"spent {cost:.6g} where {budget:.6g} is promised{short}"
            if where + finding not in findings:
                findings.append(where + finding)
    return Check(
        name="budget", what="each run is charged, and once", findings=tuple(findings)
    )


def timing(run: Run, pair: tuple[Any, Any], runs: int, seed: int) -> Check:
    """The time of a run does not tell the data sets apart, by a sign test of pairs.

    By the clock of this machine: what holds here may not hold elsewhere.
    """
    taken = np.zeros((runs, 2))
    firsts = np.random.default_rng(seed).integers(2, size=runs).tolist()
    for at, first in enumerate(firsts):
        for world in (first, 1 - first):
            began = time.perf_counter_ns()
            run(pair[world])
            taken[at, world] = time.perf_counter_ns() - began
    differ = int((taken[:, 0] != taken[:, 1]).sum())
    slower = int((taken[:, 1] > taken[:, 0]).sum())
    chance = 2 * float(stats.binom.cdf(min(slower, differ - slower), differ, 0.5))
    one, two = np.median(taken, axis=0) / 1e3
    return Check(
        name="timing",
        what="a clock on this machine does not tell the data sets apart",
        findings=(
            f"the second data set took longer in {slower:,} of {differ:,} runs beside "
            f"each other (medians {one:.4g} and {two:.4g} microseconds)",
        )
        if chance < rows.RARE
        else (),
    )
