"""What every estimator gives on N(0, 1) against N(1, 1), and how long it takes.

Prints the median bound over the true epsilon, the share of audits above it, and the
median time of a call, for each number of runs a world.

    python tests/benchmarks/bench_bounds.py [--repeats 200] [--runs 1000 5000 100000]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from privaudit.auditing.bounds import ESTIMATORS, ONE_RUN
from privaudit.auditing.scores import Scores

TRUTH = {1e-5: 4.377178, 1e-2: 2.317789}


def measure(name, runs, delta, repeats):
    """Ratio, exceed rate and seconds of one estimator."""
    estimator = {**ESTIMATORS, **ONE_RUN}[name]
    bounds, seconds = [], []
    for repeat in range(repeats):
        random = np.random.default_rng([repeat, runs])
        member = random.random(2 * runs) < 0.5
        score = random.normal(size=2 * runs) + member
        scores = Scores(member, score, "coin-flip")
        start = time.perf_counter()
        bound = estimator(scores, delta, 0.95, threat_model="scores", seed=repeat)
        seconds.append(time.perf_counter() - start)
        bounds.append(bound.epsilon)
    ratios = np.array(bounds) / TRUTH[delta]
    return np.median(ratios), np.mean(ratios > 1), np.median(seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 5000, 100_000])
    parser.add_argument("--estimator", nargs="+", default=[*ESTIMATORS, *ONE_RUN])
    given = parser.parse_args()
    print("estimator         delta    runs  ratio exceed      ms")
    for name in given.estimator:
        for delta in TRUTH:
            for runs in given.runs:
                repeats = max(10, given.repeats * 5000 // max(runs, 5000))
                ratio, exceed, seconds = measure(name, runs, delta, repeats)
                print(
                    f"{name:17} {delta:6.0e} {runs:7} {ratio:6.3f} {exceed:6.3f} "
                    f"{1000 * seconds:7.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
