"""Networks over ranks against one process: overhead, strong and weak scaling.

Run as ``python tests/benchmarks/bench_ranks.py``: with ``overhead``, ``strong`` or
``weak`` for a part of it; ``--repeats`` says how often each row is measured, in turns
with those that it is compared with. Processes are torchrun's, of one thread each, on
this machine, over gloo. The model is a small CNN (28 440 parameters, 28x28 images),
batches are of 64.

Of each row: milliseconds of processor time a round, of all processes together, median
and least; of the wall clock; how much more that is than one process takes, processor
second for processor second ("CPU +", "least +"), and as wall time times processes,
which counts cores that others have taken ("wall +"); and the bytes that left the ranks
in a round, which must be the graph's.
"silent" is the same split without messages: what remains of its overhead is not the
network's, but the smaller products and the shared cache and memory of two processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib

import torch
from measuring import Clock, Row, answer, measured, medians, records

from trainers.algorithms import ALGORITHMS
from trainers.data import PrivateData
from trainers.gradients.choose import differentiator
from trainers.models import cross_entropy, initial_parameters, make_model
from trainers.network.engine import Network
from trainers.network.mixing import Mixing
from trainers.network.named_graphs import mixing
from trainers.network.over_ranks import RankNetwork
from trainers.network.ranks import Ranks, gathered, joined, launched
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle

SHAPE, BATCH, RECORDS, ROUNDS = (1, 28, 28), 64, 600, 25


def crossing(on: Mixing, ranks: Ranks) -> float:
    """Messages a round that the graph has between ranks, once a rank that hears."""
    pairs = 0
    for k in range(ROUNDS):
        for sender in range(ranks.nodes):
            hearing = {ranks.holder(int(i)) for i in on.at(k)[:, sender].nonzero()[0]}
            pairs += len(hearing - {ranks.holder(sender)})
    return pairs / ROUNDS


def network(algorithm: str, graph: str, nodes: str, silent: str) -> Row | None:
    """Rounds of ``nodes`` dealt to the ranks that are here; None but at rank 0.

    Ranks that are ``silent`` have networks of their own.
    """
    together = joined() if launched() else contextlib.nullcontext((0, 1))
    with together as (rank, size):
        ranks = Ranks(rank, size, int(nodes))
        held = ranks.held
        module = make_model("small-cnn", SHAPE, 10)
        oracle = Oracle(
            PrivateData.of([records(SHAPE, RECORDS, node) for node in held]),
            differentiator(module, cross_entropy, torch.zeros(SHAPE)),
            Mechanism(BATCH, 1.0, 1.0),
            Streams(0).of(held),
        )
        family = ALGORITHMS[algorithm]
        one = family.make(lambda k: 0.01)
        apart = size == 1 or silent == "silent"
        on = mixing(graph, "uniform", len(held) if apart else int(nodes))
        net = (
            Network(one, on, family.needs)
            if apart
            else RankNetwork(one, on, family.needs, ranks=ranks)
        )
        start = initial_parameters(module, torch.Generator().manual_seed(0))
        clock = Clock()
        net.run(start.repeat(1, len(held), 1), oracle, ROUNDS, after_round=clock)
        row = clock.summary()
        row["bytes"] = net.traffic.bytes / ROUNDS if isinstance(net, RankNetwork) else 0
        rows = [row] if size == 1 else gathered(row)
    if rows is None:
        return None
    dims = len(start) * start.element_size() * len(one.messages(one.init(start), 0))
    return {
        "ms": sum(row["ms"] for row in rows),
        "least": sum(row["least"] for row in rows),
        "wall": max(row["wall"] for row in rows),
        "peak": max(row["peak"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "graph": 0 if apart else crossing(on, ranks) * dims,
    }


Setting = tuple[str, str, int, int, str]  # algorithm, graph, nodes, ranks, silent


def table(settings: list[Setting], repeats: int, *, per: bool = False) -> list[Row]:
    """Rows, measured in turns; overheads against the first of them.

    With ``per``, a row is held against as many times the first as it has more nodes.
    """
    rows: dict[Setting, list[Row | None]] = {setting: [] for setting in settings}
    for _ in range(repeats):
        for setting in settings:
            algorithm, graph, nodes, ranks, silent = setting
            call = ("network", algorithm, graph, str(nodes), silent)
            rows[setting].append(measured(*call, ranks=ranks))
    found = {setting: medians(rows[setting]) for setting in settings}
    first = found[settings[0]]
    heads = ("CPU ms", "least", "wall ms", "CPU +", "least +", "wall +")
    print(f"{'':43s}" + "".join(f"{head:>9s}" for head in heads), end="")
    print(f"{'bytes':>12s}{'of graph':>12s}{'MiB':>6s}")
    kept: list[Row] = []
    for setting in settings:
        algorithm, graph, nodes, ranks, silent = setting
        name = f"{algorithm}, {graph}, {nodes} nodes, {ranks} ranks {silent}"
        row = found[setting]
        if row is None or first is None:
            print(f"{name:42s} failed")
            continue
        kept.append({"nodes": nodes, "ranks": ranks, **row})
        times = nodes / settings[0][2] if per else 1
        cpu = row["ms"] / first["ms"] / times - 1
        least = row["least"] / first["least"] / times - 1
        wall = row["wall"] * ranks / first["wall"] / times - 1
        print(
            f"{name:43s}{row['ms']:9.1f}{row['least']:9.1f}{row['wall']:9.1f}"
            f"{cpu:9.0%}{least:9.0%}{wall:9.0%}"
            f"{row['bytes']:12,.0f}{row['graph']:12,.0f}{row['peak']:6.0f}",
            flush=True,
        )
    return kept


def overhead(repeats: int) -> None:
    """16 nodes over two ranks against one process, and against two that are silent."""
    for algorithm, graph in (
        ("dp-dsgd", "ring"),
        ("dp-dsgd", "complete"),
        ("dp-dsgt", "complete"),
        ("dp-dinno", "ring"),
    ):
        same = (algorithm, graph, 16)
        table([(*same, 1, ""), (*same, 2, ""), (*same, 2, "silent")], repeats)


def strong(repeats: int) -> None:
    """16 nodes over 1, 2 and 4 ranks."""
    for graph in ("ring", "complete"):
        table([("dp-dsgd", graph, 16, ranks, "") for ranks in (1, 2, 4)], repeats)


def weak(repeats: int) -> None:
    """8 nodes a rank, over 1, 2 and 4 ranks; overheads are those a node."""
    for graph in ("ring", "exponential"):
        settings = [("dp-dsgd", graph, 8 * ranks, ranks, "") for ranks in (1, 2, 4)]
        table(settings, repeats, per=True)


def sized(repeats: int) -> list[Row]:
    """16 and 64 nodes over 1, 2 and 4 ranks, on the exponential graph."""
    return [
        row
        for nodes in (16, 64)
        for row in table(
            [("dp-dsgd", "exponential", nodes, ranks, "") for ranks in (1, 2, 4)],
            repeats,
        )
    ]


PARTS = {"overhead": overhead, "strong": strong, "weak": weak, "sized": sized}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="keeps the rows of sized")
    parser.add_argument("--one", nargs="+")
    given = parser.parse_args()
    if given.one:
        answer({"network": network}, given.one)
        return
    for part in given.parts or PARTS:
        print(PARTS[part].__doc__)
        rows = PARTS[part](given.repeats)
        if rows and given.json:
            given.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
