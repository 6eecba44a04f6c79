"""Lower bounds where epsilon is known, and the runs they need to refute."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from privaudit.accounting import gdp
from privaudit.auditing import selfcheck
from privaudit.auditing.bounds import ESTIMATORS, ONE_RUN, Game, TopHalf
from privaudit.auditing.scores import Scores
from reports.study import Cell

TRUTH = {1e-5: 4.377178, 1e-2: 2.317789}  # of N(0, 1) against N(1, 1)
RUNS = (1000, 5000, 100_000)  # a world
CONFIDENCE = 0.95
REPEATS = {1000: 300, 5000: 40, 100_000: 20}
# Of these repeats: those that are quick get more, those that are slow fewer.
SHARE = {"top-half": 10.0, "clopper-pearson": 4.0, "betting": 0.15}
SHARE |= {"betting-gaussian": 0.15}
ALL = {**ESTIMATORS, **ONE_RUN}


def shifted(random: np.random.Generator, runs: int, mu: float) -> Scores:
    """Coin flips, and scores N(0, 1) or N(mu, 1) by them."""
    member = random.random(runs) < 0.5
    return Scores(member, random.normal(size=runs) + mu * member, "coin-flip")


def ratio(name: str, delta: float, runs: int, repeats: int) -> dict[str, Any]:
    """Median bound over the truth, share of bounds above it, seconds of a call."""
    bounds, seconds = [], []
    for repeat in range(repeats):
        scores = shifted(np.random.default_rng([repeat, runs]), 2 * runs, 1.0)
        began = time.perf_counter()
        bound = ALL[name](scores, delta, CONFIDENCE, threat_model="x", seed=repeat)
        seconds.append(time.perf_counter() - began)
        bounds.append(bound.epsilon)
    ratios = np.array(bounds) / TRUTH[delta]
    return {
        "ratio": float(np.median(ratios)),
        "exceeded": int(np.count_nonzero(ratios > 1)),
        "repeats": len(ratios),
        "seconds": float(np.median(seconds)),
        "least_seconds": min(seconds),
    }


def power_of_top_half(claim: float, repeats: int) -> dict[str, Any]:
    """Least runs a world by which halved noise is refuted in 90 % of audits.

    From there on: 90 % at this number and at each larger one that was tried.
    """
    mu = 2 * float(gdp.mu(claim, 1e-5))
    shares: dict[int, float] = {}
    for runs in (*range(14, 60, 2), *range(340, 440, 10)):
        if (claim > 4) != (runs < 100):
            continue
        refuted = 0
        for repeat in range(repeats):
            scores = shifted(np.random.default_rng([7, repeat, runs]), 2 * runs, mu)
            bound = TopHalf()(scores, 1e-5, CONFIDENCE, threat_model="x", seed=repeat)
            refuted += bound.epsilon > claim
        shares[runs] = refuted / repeats
    enough = [n for n in shares if all(shares[m] >= 0.9 for m in shares if m >= n)]
    return {"runs": min(enough), "shares": shares, "repeats": repeats}


def power_of_betting(claim: float, repeats: int) -> dict[str, Any]:
    """Runs a world when betting refutes halved noise: mean, and of 90 % of audits."""
    mu = 2 * float(gdp.mu(claim, 1e-5))
    game, ends = Game(1e-5, CONFIDENCE, (claim,), "mu-Gaussian DP"), []
    for repeat in range(repeats):
        random, wealth = np.random.default_rng([8, repeat]), game.start()
        while (state := wealth.stop(claim, 20_000)) is None:
            member = random.random(10 if claim < 4 else 2) < 0.5
            score = random.normal(size=len(member)) + mu * member
            wealth = wealth.after(member, score)
        assert state == "refuted"
        ends.append(len(wealth.score) / 2)
    return {
        "mean": float(np.mean(ends)),
        "error": float(np.std(ends) / math.sqrt(repeats)),
        "ninety": float(np.quantile(ends, 0.9)),
        "repeats": repeats,
    }


def check(name: str, mechanism: str, repeats: int) -> list[dict[str, Any]]:
    """Rows of the self-check for one estimator and mechanism."""
    mechanisms = [one for one in selfcheck.MECHANISMS if one.name == mechanism]
    rows = selfcheck.selfcheck(repeats, estimators=[ALL[name]], mechanisms=mechanisms)
    return [dataclasses.asdict(row) for row in rows]


def cells() -> Iterator[Cell]:
    """Bounds over the truth, and the self-check; slow ones last."""
    for name in sorted(ALL, key=lambda name: name.startswith("betting")):
        for runs in RUNS:
            for delta in TRUTH:
                repeats = max(3, round(REPEATS[runs] * SHARE.get(name, 1.0)))
                settings = {"name": name, "delta": delta, "runs": runs}
                settings["repeats"] = repeats
                yield Cell(f"ratio {name} {delta:g} {runs}", ratio, settings)
    slow = ("two-binomial", "rank-walk", "best", "betting-gaussian", "betting")
    for name in sorted(ALL, key=lambda name: slow.index(name) if name in slow else -1):
        for mechanism in selfcheck.MECHANISMS:
            settings = {"name": name, "mechanism": mechanism.name, "repeats": 2000}
            yield Cell(f"check {name} {mechanism.name}", check, settings)
