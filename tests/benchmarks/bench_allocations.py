"""Random allocations drawn at random: widths and times, and a simulation beside them.

Run as ``python tests/benchmarks/bench_allocations.py --seed N``: 1 to 5 of 2 to 1 000
batches, noise .3 to 5, a third of different noises, a fifth under replace-one,
delta 1e-12 to 1e-3. Epsilon at a delta that 50 000 draws can show is held against the
simulated one's five deviations, whatever the delta asked. A case that is not done after
``--limit`` processor seconds ends. With PLD_accounting, its bracket is beside those of
equal noise, and ours must not be wider; that of k > 1 is of blocks of one batch each,
which cost more, so that a narrow one may lie above ours as a whole.
"""

from __future__ import annotations

import argparse
import math
import signal
import time

import numpy as np

from privaudit.accounting import Certificate
from privaudit.ledger import Entry, Ledger
from privaudit.release import RandomAllocation, Release
from privaudit.results import Relation

_DRAWS = 50_000


def draw(r: np.random.Generator) -> tuple[list[float], int, float, Relation]:
    """Noise of each batch, how many of them, delta and relation."""
    taken = int(r.choice([1, 1, 2, 2, 3, 5]))
    batches = max(round(10 ** r.uniform(0.31, 3)), taken + 1)
    noise = [float(np.exp(r.uniform(math.log(0.3), math.log(5))))] * batches
    if r.random() < 1 / 3 and batches <= 100:
        noise = (noise[0] * np.exp(r.uniform(0, 1, batches))).clip(0.3, 5).tolist()
    relation: Relation = "replace-one" if r.random() < 0.2 else "add-or-remove-one"
    return noise, taken, 10 ** r.uniform(-12, -3), relation


def simulated(
    noise: list[float], taken: int, relation: Relation, epsilon: float
) -> tuple[float, float]:
    """delta at epsilon of the worse direction, and its deviation; drawn under P."""
    r = np.random.default_rng(1)
    s = 1 / np.array(noise)
    many = max(1000, 2_000_000 // len(noise))
    gains: list[list[np.ndarray]] = [[], []]
    for _ in range(-(-_DRAWS // many)):
        x = r.standard_normal((many, len(noise)))
        chosen = np.argpartition(r.random(x.shape), taken - 1)[:, :taken]
        with_it = x.copy()
        np.put_along_axis(
            with_it, chosen, np.take_along_axis(x, chosen, 1) + s[chosen], 1
        )
        opposed = relation == "replace-one"
        for k, at in enumerate((with_it, x)):
            one = _mean(np.exp(s * at - s * s / 2), taken)
            other = _mean(np.exp(-s * at - s * s / 2), taken) if opposed else 1.0
            loss = np.log(one / other) if opposed or not k else -np.log(one)
            gains[k].append(
                np.maximum(0, -np.expm1(epsilon - loss)) * (not (opposed and k))
            )
    means = [np.concatenate(each) for each in gains]
    worst = max(means, key=lambda each: float(each.mean()))
    return float(worst.mean()), float(worst.std() / math.sqrt(worst.size))


def _mean(ratios: np.ndarray, taken: int) -> np.ndarray:
    """e_k of each row over the number of choices."""
    sums = [np.ones(len(ratios))] + [np.zeros(len(ratios))] * taken
    for column in ratios.T:
        for j in range(taken, 0, -1):
            sums[j] = sums[j] + column * sums[j - 1]
    return sums[taken] / math.comb(ratios.shape[1], taken)


def peers(noise: list[float], taken: int, delta: float) -> tuple[float, float] | None:
    """The bracket of PLD_accounting, if it is installed and knows such epochs."""
    try:
        from PLD_accounting import gaussian_allocation_epsilon_range as range_of
    except ImportError:
        return None
    if len(set(noise)) > 1:
        return None
    low, high = range_of(
        delta=delta, sigma=noise[0], num_steps=len(noise), num_selected=taken
    )
    return min(low, high), max(low, high)


def end(*_: object) -> None:
    """Raise what ends a case."""
    raise TimeoutError


def main() -> None:
    """Draw, account, simulate, and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--first", type=int, default=0, help="cases to leave out")
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--limit", type=float, default=60.0)
    asked = options.parse_args()
    signal.signal(signal.SIGPROF, end)
    r = np.random.default_rng(asked.seed)
    opened, times, wrong, wider = [], [], 0, 0
    for index in range(asked.first + asked.count):
        noise, taken, delta, relation = draw(r)
        if index < asked.first:
            continue
        how = RandomAllocation(len(noise), taken)
        entries = tuple(
            Entry(
                Release.of_sum(norm_bound=1.0, noise_multiplier=z, sampling=how),
                noise.count(z),
            )
            for z in dict.fromkeys(noise)
        )
        one = Certificate.of(Ledger(nodes=(entries,)), relation)
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, asked.limit)
        try:
            found = one.epsilon(delta)
        except TimeoutError:
            opened.append(math.inf)
            times.append(asked.limit)
            print(f"{index:3d} {taken} of {len(noise)} {relation}: not done")
            continue
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        times.append(time.process_time() - start)
        gap = found.upper - found.lower
        opened.append(gap / max(found.lower, 1e-300) if gap > 1e-4 else 0.0)
        at = one.epsilon(0.01).lower  # a delta that draws can show
        bracket = one.delta(at)
        value, off = simulated(noise, taken, relation, at)
        bad = not bracket.lower - 5 * off <= value <= bracket.upper + 5 * off
        wrong += bad
        print(
            f"{index:3d} {taken} of {len(noise):4d} noise {min(noise):.3g} to "
            f"{max(noise):.3g} {relation[:7]} delta {delta:.1e}: [{found.lower:.5g}, "
            f"{found.upper:.5g}] {opened[-1]:.2%} {times[-1]:.1f} s; at {at:.3g} "
            f"[{bracket.lower:.4g}, {bracket.upper:.4g}], drawn {value:.4g}"
            + " WRONG"
            * bad,
            flush=True,
        )
        peer = peers(noise, taken, delta) if relation != "replace-one" else None
        if peer is not None:
            worse = gap > (peer[1] - peer[0]) * (1 + 1e-6) + 1e-4
            worse = worse and found.upper >= peer[0]
            wider += worse
            print(f"    PLD_accounting [{peer[0]:.5g}, {peer[1]:.5g}]" + " W" * worse)
    for name, values in (("open", opened), ("seconds", times)):
        print(name, np.quantile(values, [0.5, 0.9, 1.0]).round(4).tolist())
    within = sum(part <= 0.01 for part in opened)
    print(
        f"within 1 %: {within} of {asked.count}; wrong by simulation: {wrong}; "
        f"wider than the peer: {wider}"
    )


if __name__ == "__main__":
    main()
