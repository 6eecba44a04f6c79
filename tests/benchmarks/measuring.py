"""What the benchmarks measure with: clocks, rows, and a process for each row.

Each row is a process of its own with one thread, so that peaks of memory are its own.
Times are the processor's, which others on the machine disturb least, and the wall
clock's beside them.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from trainers.data import Dataset
from trainers.numerics import noise

Row = dict[str, float]

_RANKS = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def peak() -> float:
    """The most memory that this process had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Clock:
    """Reads the processor's time and the wall's whenever it is called."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self()

    def __call__(self, *_: object) -> None:
        self.cpu.append(time.process_time())
        self.wall.append(time.perf_counter())

    def summary(self) -> Row:
        """Milliseconds between calls, the first apart; and peak memory.

        Medians; ``least`` is the least of the processor's, which others disturb least.
        """
        cpu, wall = (
            [1e3 * (late - early) for early, late in itertools.pairwise(times)]
            for times in (self.cpu, self.wall)
        )
        return {
            "ms": statistics.median(cpu[1:]),
            "least": min(cpu[1:]),
            "wall": statistics.median(wall[1:]),
            "first": wall[0],
            "peak": peak(),
        }


def timed(step: Callable[[], object], seconds: float) -> Row:
    """Medians of all calls but the first, three at least; and peak memory."""
    clock = Clock()
    while len(clock.wall) < 5 or clock.wall[-1] - clock.wall[1] < seconds:
        step()
        clock()
    return clock.summary()


def records(shape: tuple[int, ...], samples: int, seed: int) -> Dataset:
    """Random inputs and classes."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(samples, *shape, generator=generator)
    return Dataset(inputs, torch.randint(0, 10, (samples,), generator=generator))


def measured(*call: str, ranks: int = 1, limit: float = 1800.0) -> Row | None:
    """A row of the program that asks, from new processes; None if they failed.

    ``ranks`` are started by torchrun; the last line of their output is the row.
    """
    launcher = [*_RANKS, str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, sys.argv[0], "--one", *call]
    try:
        result = subprocess.run(
            command,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        print(f"{' '.join(call)}: more than {limit:g} s", flush=True)
        return None
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        print(f"{' '.join(call)}: {lines[-1] if lines else 'killed'}", flush=True)
        return None
    return json.loads(result.stdout.splitlines()[-1])


def answer(ways: Mapping[str, Callable[..., Row | None]], call: list[str]) -> None:
    """Be the process that `measured` asked for."""
    torch.set_num_threads(1)
    noise.LATER = 0  # as where a run is long enough for its loops
    way, *arguments = call
    row = ways[way](*arguments)
    if row is not None:  # another rank speaks
        print(json.dumps(row), flush=True)


def medians(rows: Iterable[Row | None]) -> Row | None:
    """The median of every column; None if no row is there."""
    there = [row for row in rows if row is not None]
    if not there:
        return None
    return {name: statistics.median(row[name] for row in there) for name in there[0]}


def show(name: str, row: Mapping[str, Any] | None, base: float = 0.0) -> None:
    """Print a row, with how many times as fast as ``base`` milliseconds it is."""
    if row is None:
        return
    line = f"{name:28s} {row['ms']:9.1f} ms {1e3 / row['ms']:8.2f} /s"
    line += f" (wall {row['wall']:7.1f} ms)"
    line += f" {row['peak']:7.0f} MiB"
    if base:
        line += f"   {base / row['ms']:6.2f} x"
    if "first" in row:
        line += f"   first {row['first'] / 1e3:.1f} s"
    print(line, flush=True)
