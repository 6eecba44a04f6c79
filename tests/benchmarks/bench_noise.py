"""Exact noise against torch's doubles: nanoseconds a draw, and whole releases.

Run as ``python tests/benchmarks/bench_noise.py``: one thread, in turns, the processor's
time, medians. Ratios below 1 say that exact noise is cheaper.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

from trainers.numerics.keys import Key
from trainers.numerics.noise import GAUSSIAN, LAPLACE, add_noise_, coins, noisy, subsets

Marks = tuple[tuple[bytes, ...], ...]

CPU = torch.device("cpu")
KEY = Key.study("benchmark")


def in_turns(ways: Mapping[str, Callable[[], object]], seconds: float) -> list[float]:
    """Median seconds of each of ``ways``, called one after the other."""
    times: list[list[float]] = [[] for _ in ways]
    for way in ways.values():
        way()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for kept, way in zip(times, ways.values(), strict=True):
            start = time.process_time()
            way()
            kept.append(time.process_time() - start)
    return [statistics.median(kept) for kept in times]


def tell(title: str, draws: int, ways: Mapping[str, Callable[[], object]]) -> None:
    """Print what each way costs, and its ratio to the first."""
    print(f"{title}, {draws:,} numbers")
    found = in_turns(ways, 3.0)
    for name, each in zip(ways, found, strict=True):
        line = f"  {name:34s} {1e6 * each:10.0f} us {1e9 * each / draws:7.1f} ns"
        print(f"{line}   ratio {each / found[0]:.2f}", flush=True)


def draws(count: int = 1 << 20) -> None:
    """Draws alone: torch's stay in the cache, ours are added to sums that do not."""
    sums, part = torch.zeros(1, 1, count, dtype=torch.int64), torch.empty(1 << 14)
    part, generator = part.double(), torch.Generator().manual_seed(0)
    rows = KEY.rows("noise", nodes=[0], release=0, width=count)

    def doubles() -> None:
        for _ in range(count >> 14):
            part.normal_(generator=generator)

    ways: dict[str, Callable[[], object]] = {"torch.randn in doubles": doubles}
    for power in (10, 20, 27, 28, 30):
        ways[f"exact, 2^{power} steps"] = lambda s=2.0**power: add_noise_(sums, rows, s)
    ways["exact Laplace, 2^20 steps"] = lambda: add_noise_(sums, rows, 2.0**20, LAPLACE)
    tell("draws", count, ways)


def releases(runs: int, nodes: int, dims: int) -> None:
    """What a round of an audit adds to float sums."""
    sums = torch.randn(runs, nodes, dims)
    generators = [torch.Generator().manual_seed(node) for node in range(nodes)]
    marks = KEY.fingerprints(torch.zeros(sums.shape, dtype=torch.int64))

    def floats() -> torch.Tensor:
        noise = torch.empty_like(sums)
        for node, generator in enumerate(generators):
            draw = torch.empty(runs, dims, dtype=torch.float64)
            noise[:, node] = draw.normal_(generator=generator)
        return sums.clone().add_(noise, alpha=3.0)

    def exact(fingerprints: Marks | None = None) -> torch.Tensor:
        rows = KEY.rows(
            "noise", nodes=range(nodes), release=5, width=dims, runs=range(runs),
            fingerprints=fingerprints,
        )  # fmt: skip
        return noisy(sums, 2.0**-19, rows, 3 * 2.0**19, GAUSSIAN)

    ways: dict[str, Callable[[], object]] = {"floats": floats, "exact": exact}
    if runs == 1:
        whole = sums.long()
        ways["exact, a stream for each sum"] = lambda: exact(marks)
        ways["the sums' fingerprints"] = lambda: KEY.fingerprints(whole)
    tell(f"releases, {runs} x {nodes} x {dims}", sums.numel(), ways)


def batches(runs: int, nodes: int, records: int, size: int) -> None:
    """Which records are drawn."""
    generators = [torch.Generator().manual_seed(node) for node in range(nodes)]
    rows = KEY.rows(
        "sampling", nodes=range(nodes), release=5, width=records, runs=range(runs)
    )

    def tossed() -> list[torch.Tensor]:
        shape, kind = (runs, records), torch.float64
        return [torch.rand(shape, generator=one, dtype=kind) for one in generators]

    def chosen() -> torch.Tensor:
        found = torch.zeros(runs, nodes, records, dtype=torch.bool)
        for node, own in enumerate(tossed()):
            places = own.topk(size, dim=1, largest=False).indices
            found[:, node].scatter_(1, places, True)
        return found

    title, rate = f"batches, {runs} x {nodes} x {records}", size / records
    tell(
        title + ", coins",
        runs * nodes * records,
        {
            "floats": lambda: torch.stack([own < rate for own in tossed()], 1),
            "exact": lambda: coins(rows, rate, CPU),
        },
    )
    tell(
        title + ", subsets",
        runs * nodes * records,
        {"floats": chosen, "exact": lambda: subsets(rows, size, CPU)},
    )


def main() -> None:
    torch.set_num_threads(1)
    draws()
    for shape in ((1, 10, 650), (1, 10, 100_000), (50, 3, 650), (2000, 3, 650)):
        releases(*shape)
    for runs, records in ((50, 60), (2000, 60), (1, 20_000)):
        batches(runs, 3, records, 10)


if __name__ == "__main__":
    main()
