"""What the lower bounds give where epsilon is known, and how soon they refute.

    OMP_NUM_THREADS=1 python reports/bounds/make.py [--check 2000]

Every figure is put into results.json as soon as it is there, so that a stopped one goes
on where it was; then README.md is written.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
import time
from typing import Any

import numpy as np
from page import page

from privaudit.auditing import selfcheck
from privaudit.auditing.bounds import ESTIMATORS, ONE_RUN, Game, TopHalf
from privaudit.auditing.bounds._gaussian import mu_up
from privaudit.auditing.scores import Scores

HERE = pathlib.Path(__file__).parent
PATH = HERE / "results.json"
TRUTH = {1e-5: 4.377178, 1e-2: 2.317789}  # of N(0, 1) against N(1, 1)
RUNS = (1000, 5000, 100_000)  # a world
CONFIDENCE = 0.95
CLAIMS = (1.0, 8.0)
REPEATS = {1000: 300, 5000: 40, 100_000: 20}
# Of these repeats: those that are quick get more, those that are slow fewer.
SHARE = {"top-half": 10.0, "clopper-pearson": 4.0, "betting": 0.15}
SHARE |= {"betting-gaussian": 0.15}
ALL = {**ESTIMATORS, **ONE_RUN}


def kept() -> dict[str, dict[str, Any]]:
    """All figures so far."""
    if PATH.exists():
        return json.loads(PATH.read_text())
    return {"ratio": {}, "power": {}, "check": {}}


def keep(kind: str, key: str, value: Any) -> None:
    """Put a figure into results.json."""
    results = kept()
    results[kind][key] = value
    part = PATH.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(PATH)


def shifted(random: np.random.Generator, runs: int, mu: float) -> Scores:
    """Coin flips, and scores N(0, 1) or N(mu, 1) by them."""
    member = random.random(runs) < 0.5
    return Scores(member, random.normal(size=runs) + mu * member, "coin-flip")


def ratio(name: str, delta: float, runs: int) -> dict[str, Any]:
    """Median bound over the truth, share of bounds above it, seconds of a call."""
    bounds, seconds = [], []
    for repeat in range(max(3, round(REPEATS[runs] * SHARE.get(name, 1.0)))):
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


def power_of_top_half(claim: float, repeats: int = 1000) -> dict[str, Any]:
    """Least runs a world by which halved noise is refuted in 90 % of audits.

    From there on: 90 % at this number and at each larger one that was tried.
    """
    mu = 2 * mu_up(claim, 1e-5)
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


def power_of_betting(claim: float, repeats: int = 400) -> dict[str, Any]:
    """Runs a world when betting refutes halved noise: mean, and of 90 % of audits."""
    mu = 2 * mu_up(claim, 1e-5)
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


def check(repeats: int) -> None:
    """The self-check, an estimator and a mechanism at a time; slow ones last."""
    slow = ("two-binomial", "rank-walk", "best", "betting-gaussian", "betting")
    for name in sorted(ALL, key=lambda name: slow.index(name) if name in slow else -1):
        for mechanism in selfcheck.MECHANISMS:
            key = f"{name} {mechanism.name}"
            if key in kept()["check"]:
                continue
            began = time.monotonic()
            rows = selfcheck.selfcheck(
                repeats, estimators=[ALL[name]], mechanisms=[mechanism]
            )
            seconds = round(time.monotonic() - began, 1)
            found = [dataclasses.asdict(row) for row in rows]
            keep("check", key, {"rows": found, "seconds": seconds})
            print(key, f"{seconds:.0f} s", flush=True)
            write()


def write() -> None:
    """README.md, from what there is."""
    (HERE / "README.md").write_text(page(kept(), list(ALL), RUNS, CLAIMS))


def main() -> None:
    """Make what is missing, and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=int, default=2000, help="repeats of selfcheck")
    given = parser.parse_args()
    for claim in CLAIMS:
        for kind, make in (("top-half", power_of_top_half), ("b", power_of_betting)):
            name = {"b": "betting-gaussian"}.get(kind, kind)
            if f"{name} {claim:g}" not in kept()["power"]:
                keep("power", f"{name} {claim:g}", make(claim))
    write()
    slow_last = sorted(ALL, key=lambda name: name.startswith("betting"))
    for name in slow_last:
        for runs in RUNS:
            for delta in TRUTH:
                key = f"{name} {delta:g} {runs}"
                if key not in kept()["ratio"]:
                    keep("ratio", key, ratio(name, delta, runs))
                    print(key, kept()["ratio"][key], flush=True)
        write()
    check(given.check)


if __name__ == "__main__":
    main()
