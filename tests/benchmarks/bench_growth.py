"""How time and memory grow: with nodes, edges, parameters, batches and runs of an
audit.

Run as ``python tests/benchmarks/bench_growth.py``: with ``nodes``, ``parameters`` or
``runs`` for a part of it. ``--json FILE`` keeps the rows, each of the ``--repeats``.
One thread; times are the processor's.

Of a round: all of it; its mixing; its noise. The rest is batches and gradients. The
peer of the last part is one run at a time, in the same process.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from measuring import Clock, Row, answer, measured, medians, peak, records
from torch import nn

from trainers.algorithms import ALGORITHMS
from trainers.data import PrivateData
from trainers.gradients.choose import differentiator
from trainers.models import cross_entropy, initial_parameters, make_model
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle
from trainers.runs.problem import Problem
from trainers.runs.training import Training

SHAPE, RECORDS = (1, 28, 28), 150


def module_of(model: str) -> nn.Module:
    """The small CNN, or dense layers: mlp:WIDTH."""
    kind, _, width = model.partition(":")
    if kind != "mlp":
        return make_model(kind, SHAPE, 10)
    wide = int(width)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, wide),
        nn.ReLU(),
        nn.Linear(wide, wide),
        nn.ReLU(),
        nn.Linear(wide, 10),
    )


def processor_ms(step: Callable[[], object]) -> float:
    """Median of five calls, after one."""
    step()
    times = []
    for _ in range(5):
        began = time.process_time()
        step()
        times.append(time.process_time() - began)
    return 1e3 * statistics.median(times)


def network(graph: str, nodes: str, model: str, batch: str, rounds: str) -> Row:
    """Rounds of DP-DSGD, and what of them are mixing and noise."""
    count = int(nodes)
    module = module_of(model)
    private = Oracle(
        PrivateData.of([records(SHAPE, RECORDS, node) for node in range(count)]),
        differentiator(module, cross_entropy, torch.zeros(SHAPE)),
        Mechanism(float(batch), 1.0, 1.0),
        Streams(0),
    )
    on = mixing(graph, "metropolis", count)
    family = ALGORITHMS["dp-dsgd"]
    net = Network(family.make(lambda k: 0.01), on, family.needs)
    start = initial_parameters(module, torch.Generator().manual_seed(0))
    start = start.repeat(1, count, 1)
    before = peak()
    clock = Clock()
    net.run(start, private, int(rounds), after_round=clock)
    row = clock.summary()
    streams, sums = Streams(1), torch.zeros_like(start, dtype=torch.float64)
    return row | {
        "before": before,
        "nodes": count,
        "edges": sum(map(len, on.heard(0))) - count,
        "dims": start.shape[2],
        "batch": float(batch),
        "mixing": processor_ms(lambda: on(start, 0)),
        "noise": processor_ms(lambda: streams.noisy(sums, range(count), 0, 1.0)),
    }


def audit(block: str, nodes: str, hidden: str) -> Row:
    """Blocks of runs on 8x8 digits: processor seconds for a run of 100 rounds."""
    rounds = 10
    training = Training(
        algorithm="dp-dsgd",
        nodes=int(nodes),
        digits=(0, 1, 2),
        train=480,
        hidden=int(hidden),
        rounds=rounds,
        batch_size=32.0,
        clip_norm=10.0,
        step_size=0.05,
    )
    problem = Problem.of(training)
    fast = problem.gradients()
    object.__setattr__(problem, "gradients", lambda: fast)
    runs = int(block)
    clock = Clock()
    for seed in range(2 + 200 // runs):
        problem.train(3.0, Streams(seed), runs=runs)
        clock()
    row = clock.summary()
    seconds = row["ms"] / 1e3 / runs * (100 / rounds)
    dims = problem.start(0).shape[2]
    return {
        "block": runs,
        "nodes": int(nodes),
        "dims": dims,
        "seconds": seconds,
        "per_second": 1 / seconds,
        "peak": row["peak"],
    }


Call = tuple[str, ...]


def nodes() -> Iterator[Call]:
    """4 to 256 nodes on a ring, 4 to 64 that all hear each other; the small CNN."""
    for count in (4, 8, 16, 32, 64, 128, 256):
        yield ("network", "ring", str(count), "small-cnn", "16", "12")
    for count in (4, 16, 64):
        yield ("network", "complete", str(count), "small-cnn", "16", "12")


def parameters() -> Iterator[Call]:
    """Dense layers of 1e4 to 2e7 parameters, at 4 nodes; batches of 4, 64."""
    for width in (12, 64, 256, 1024, 2048, 4096):
        for batch in (4, 64):
            yield ("network", "complete", "4", f"mlp:{width}", str(batch), "6")


def runs() -> Iterator[Call]:
    """Audits: runs of 100 rounds a processor second, by runs in a block."""
    for block in (1, 10, 50, 200, 1000):
        yield ("audit", str(block), "3", "16")
    for count, hidden in ((6, 16), (12, 16), (3, 128), (3, 1024)):
        yield ("audit", "50", str(count), str(hidden))


PARTS = {"nodes": nodes, "parameters": parameters, "runs": runs}


def show(row: Row, first: Row) -> str:
    """A row of a table, with what a unit of it costs against the first row's."""
    if "block" in row:
        return (
            f"{row['block']:6.0f} runs {row['nodes']:4.0f} nodes {row['dims']:8,.0f} "
            f"parameters {row['per_second']:9.2f} runs/s {row['peak']:7.0f} MiB "
            f"{row['per_second'] / first['per_second']:6.2f} x"
        )
    return (
        f"{row['nodes']:4.0f} nodes {row['edges']:5.0f} edges {row['dims']:11,.0f} "
        f"parameters, batches of {row['batch']:3.0f} {row['ms']:10.1f} ms, mixing "
        f"{row['mixing']:8.2f}, noise {row['noise']:8.1f} {row['peak']:7.0f} MiB "
        f"{row['ms'] / row['nodes'] / (first['ms'] / first['nodes']):7.2f} x a node"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--one", nargs="+")
    given = parser.parse_args()
    if given.one:
        answer({"network": network, "audit": audit}, given.one)
        return
    kept: dict[str, list[Row]] = {}
    for part in given.parts or PARTS:
        print(PARTS[part].__doc__, flush=True)
        calls = list(PARTS[part]())
        rows: dict[Call, list[Row]] = {call: [] for call in calls}
        for _ in range(given.repeats):
            for call in calls:
                row = measured(*call)
                if row is not None:
                    rows[call].append(row)
        found = {call: row for call in calls if (row := medians(rows[call]))}
        for row in found.values():
            print(show(row, next(iter(found.values()))), flush=True)
        kept[part] = [row for call in calls for row in rows[call]]
        if given.json:
            given.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
