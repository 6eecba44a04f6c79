"""Budgets for random menus, played as an exact game by a slow twin.

Run as ``python tests/benchmarks/bench_menus.py --seed N --menus 100``: what share of
delta an adversary reaches who picks each release by all outcomes so far, where the menu
is `typical`, or with ``--first`` only its first kind; beside it what numbers that are
fixed beforehand reach. Kinds of which less than two fit by themselves are drawn again.
The twin's grid adds some thousandths.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from sys import path

import numpy as np

path.insert(0, str(Path(__file__).parents[2]))

import privaudit as pa
from tests.accounting.menus import Game, draw, release_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=20261127)
    parser.add_argument("--menus", type=int, default=100)
    parser.add_argument("--first", action="store_true")
    told = parser.parse_args()
    rng, shares = np.random.default_rng(told.seed), []
    while len(shares) < told.menus:
        kinds, epsilon, delta = draw(rng)
        ledgers = [pa.Ledger.of(release_of(one), 2) for one in kinds]
        if any(
            pa.Certificate.of(one).delta(epsilon, 0.05).upper > delta for one in ledgers
        ):
            continue
        typical = [release_of(one) for one in kinds]
        start = time.process_time()
        budget = pa.Budget(
            epsilon=epsilon, delta=delta, typical=typical[0] if told.first else typical
        )
        seconds = time.process_time() - start
        game = Game(kinds, epsilon, epsilon / 400, 3 * epsilon + 1)
        ways = "remove", "add"
        reached = max(game.reached(budget, way) for way in ways) / delta
        fixed = max(game.fixed(way, delta) for way in ways) / delta
        shares.append(reached)
        name = budget._filter.name if budget._filter else ""
        print(
            f"{len(shares)} {reached:.4f}, fixed {fixed:.4f}, {seconds:.1f} s, {name}: "
            f"{kinds} at {epsilon}, {delta}",
            flush=True,
        )
    found = np.array(shares)
    print(
        f"of {found.size} menus {(found >= 0.9).sum()} reach .9 of delta, median "
        f"{np.median(found):.3f}, least {found.min():.3f}, most {found.max():.4f}"
    )


if __name__ == "__main__":
    main()
