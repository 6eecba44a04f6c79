"""Nodes in shards: memory of each process, equal bits, and waits for messages.

Run as ``python tests/benchmarks/bench_shards.py``, with ``memory`` or ``hidden`` for a
part of it. The model is a vision transformer of eight blocks, 64 W^2 parameters at
``--features`` W: 1256 makes 1e8.

``memory``: two rounds of dp-sgd on one node, by one process and in ``--shards`` ranks
of torchrun, without final models: MiB of the process that had most, whether all
parameters are the same bits, and seconds that a rank spends in what shards tell each
other. ``hidden``: two nodes of dp-dsgd, a rank each: seconds that a round's messages
take where they are waited for at once, and that are waited where they are read.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import tempfile
import time
from typing import Any
from unittest import mock

import numpy as np
from measuring import Row, answer, measured, peak
from torch import Tensor

from privaudit.files.folder import RunFolder
from trainers.network.over_ranks import RankNetwork
from trainers.network.ranks import gathered, joined, launched
from trainers.network.shards import Shards
from trainers.numerics.randomness import Streams
from trainers.runs.over_shards import OverShards
from trainers.runs.problem import Problem
from trainers.runs.run import Assignment, OneProcess, TrainingRun, train
from trainers.runs.training import training_from

ROUNDS = 2
_AT_ONCE = 1 << 20


def run_of(algorithm: str, features: str, nodes: int) -> TrainingRun:
    values: dict[str, Any] = {
        "model": f"vit:features={features},depth=8,heads=8",
        **{"algorithm": algorithm, "nodes": nodes, "graph": "complete"},
        **{"data": "digits", "train": 200, "batch_size": 8, "rounds": ROUNDS},
    }
    training = training_from(values, where="the benchmark")
    return TrainingRun(training=training, claim=None, noise_multiplier=1.0, seed=3)


def sum_of(models: Tensor, first: int) -> int:
    """Sum modulo 2^64 of mixed bits, each by its coordinate: of parts, that of all."""
    total = 0
    values = models.flatten().numpy().view(np.uint32)
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE].astype(np.uint64)
        at = np.arange(first + start, first + start + len(part), dtype=np.uint64)
        mixed = (part << np.uint64(32)) ^ (at * np.uint64(0x9E3779B97F4A7C15))
        for shift in (30, 27):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(
                0xBF58476D1CE4E5B9
            )
        total += int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))
    return total % 2**64


def clocked(told: Any, spent: list[float]) -> Any:
    """``told``, which adds to ``spent`` the seconds that it takes."""

    def call(*given: Any) -> None:
        began = time.perf_counter()
        told(*given)
        spent.append(time.perf_counter() - began)

    return call


def memory(features: str, shards: str, folder: str) -> Row | None:
    """Most MiB of a process, and the models' bits as one number."""
    run, bits, seconds = run_of("dp-sgd", features, 1), [], time.perf_counter()
    given = Assignment(run=run, problem=run.problem(), delta=1e-3, save_models=False)
    trained, waits = Problem.train, list[float]()

    def seen(problem: Problem, *given: Any, **more: Any) -> Any:
        began = time.perf_counter()
        with (
            mock.patch.object(Shards, "gather", clocked(Shards.gather, waits)),
            mock.patch.object(Shards, "add", clocked(Shards.add, waits)),
        ):
            found = trained(problem, *given, **more)
        took = time.perf_counter() - began
        first = 0 if problem.shards is None else problem.shards.held.start
        own = sum_of(found[0], first)
        most = peak()
        row = own, most, sum(waits), took
        bits.append((gathered(row) if launched() else [row]) or [])
        return found

    runner = OverShards(int(shards)) if launched() else OneProcess()
    with mock.patch.object(Problem, "train", seen):
        train(given, RunFolder.opened(pathlib.Path(folder)), runner)
    (parts,) = bits
    if not parts:
        return None
    own, peaks, waited, took = zip(*parts, strict=True)
    seconds = time.perf_counter() - seconds
    row = {"bits": sum(own) % 2**64, "peak": max(peaks), "wall": seconds}
    return row | {"waited": max(waited) / ROUNDS, "round": max(took) / ROUNDS}


def hidden(features: str) -> Row | None:
    """Seconds a round's messages take, waited for at once and where they are read."""
    spent = {"at once": 0.0, "where read": 0.0}
    begin = RankNetwork.begin_to_carry

    def begun(network: Any, *given: Any, mode: str) -> Any:
        def clocked() -> Any:
            began = time.perf_counter()
            found = end()
            spent[mode] += time.perf_counter() - began
            return found

        began = time.perf_counter()
        end = begin(network, *given)
        spent[mode] += time.perf_counter() - began
        if mode == "at once":
            gone = clocked()
            return lambda: gone
        return clocked

    with joined() as (rank, ranks):
        run = run_of("dp-dsgd", features, ranks)
        for mode in spent:
            problem = run.problem(ranks=(rank, ranks))
            carry = functools.partialmethod(begun, mode=mode)
            with mock.patch.object(RankNetwork, "begin_to_carry", carry):
                problem.train(1.0, Streams(3))
        found = gathered(spent)
    if found is None:
        return None
    return {mode: max(each[mode] for each in found) / ROUNDS for mode in spent}


def show_memory(features: int, shards: list[int]) -> None:
    first: Row | None = None
    for count in shards:
        with tempfile.TemporaryDirectory() as folder:
            call = ("memory", str(features), str(count), folder + "/run")
            row = measured(*call, ranks=count)
        if row is None:
            continue
        first = first or row
        print(
            f"{count} processes: {row['peak']:7.0f} MiB each at most, "
            f"{row['peak'] / first['peak']:5.0%}, {row['wall']:6.1f} s, "
            f"bits {'equal' if row['bits'] == first['bits'] else 'DIFFER'}, "
            f"a round {row['round']:.2f} s, of which shards wait {row['waited']:.2f}",
            flush=True,
        )


def show_hidden(features: int) -> None:
    row = measured("hidden", str(features), ranks=2)
    if row is not None:
        share = 1 - row["where read"] / row["at once"]
        print(
            f"messages, waited for at once {row['at once']:.3f} s a round, where read "
            f"{row['where read']:.3f} s: {share:.0%} hidden"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=["memory", "hidden", []])
    parser.add_argument("--features", type=int, default=400)
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--one", nargs="+")
    given = parser.parse_args()
    if given.one:
        answer({"memory": memory, "hidden": hidden}, given.one)
        return
    if "hidden" not in given.parts:
        show_memory(given.features, given.shards)
    if "memory" not in given.parts:
        show_hidden(given.features)


if __name__ == "__main__":
    main()
