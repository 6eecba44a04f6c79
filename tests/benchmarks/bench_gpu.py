"""Paper 001's MNIST setting and its audit on a GPU, and how far from its roofline.

Run as ``python tests/benchmarks/bench_gpu.py``: with ``rounds`` or ``audit`` for a part
of it; ``--count`` only counts, which needs no GPU. Bayrooti et al. 2023: ten agents,
2 000 rounds, batches of 256, a CNN of 38 424 parameters; 1.24 hours on four RTX 2080.
Its audit: 10 000 trainings of three agents, 100 rounds. Inputs are random numbers of
the same shape.

Of each: seconds; arithmetic and bytes a second as they were counted, and the share of
the roofline that they reach; the share of the time in which a kernel runs; and of the
largest kernels, time and launches a round.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from counting import H200, RTX_2080, Work, counted
from measuring import records
from torch.profiler import ProfilerActivity, profile

from privaudit.auditing.experiments.experiment import Audit, attacker, train_block
from privaudit.auditing.experiments.presets import AUDITED
from privaudit.results import Claim
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

SHAPE, AGENTS, ROUNDS, BATCH, RECORDS = (1, 32, 32), 10, 2000, 256, 6000
RUNS, BLOCK = 10_000, 1000
METHODS = ("dp-dsgd", "dp-dsgt", "dp-dinno")
MEMORY = 8 << 30  # bytes that one call of the oracle may keep alive


def setting(name: str, device: str, **how: Any) -> Callable[[int], Any]:
    """What runs so many rounds of a method."""
    module = make_model("small-cnn", SHAPE, 10)
    data = PrivateData.of([records(SHAPE, RECORDS, node) for node in range(AGENTS)])
    oracle = Oracle(
        data.to(device),
        differentiator(module, cross_entropy, torch.zeros(SHAPE), **how),
        Mechanism(BATCH, 10.0, 1.0),
        Streams(0, device=device),
        memory_limit=MEMORY,
    )
    family = ALGORITHMS[name]
    on = mixing("complete", "uniform", AGENTS)
    network = Network(family.make(lambda k: 0.01), on, family.needs)
    start = initial_parameters(module, torch.Generator().manual_seed(0))
    start = start.repeat(1, AGENTS, 1).to(device)

    def run(rounds: int) -> None:
        network.run(start, oracle, rounds)
        oracle.settle()

    return run


def seconds(run: Callable[[], object]) -> float:
    """Of the wall clock, from an idle device to an idle device."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def said(work: Work) -> str:
    """What was counted, and what follows from data sheets."""
    return (
        f"{work.flops / 1e9:.2f} GFLOP, {work.bytes / 1e9:.2f} GB, {work.launches} "
        f"operations; {H200.name}: at least {1e3 * work.floor(H200):.2f} ms unfused, "
        f"{1e3 * work.eager(H200):.1f} ms if each is started by the host; "
        f"{RTX_2080.name}: at least {1e3 * work.floor(RTX_2080):.2f} ms"
    )


def kernels(run: Callable[[int], Any], rounds: int) -> None:
    """The largest kernels, and for how much of the time any runs."""
    took = seconds(lambda: run(rounds))
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run(rounds)
        torch.cuda.synchronize()
    events = profiler.key_averages()
    busy = sum(event.self_device_time_total for event in events) / 1e6
    print(f"    a kernel runs for {busy / took:.0%} of the time")
    largest = sorted(events, key=lambda event: -event.self_device_time_total)[:6]
    for event in largest:
        print(
            f"    {event.key[:52]:52s} {event.self_device_time_total / rounds:9.1f} us "
            f"{event.count / rounds:7.1f} launches a round"
        )


def rounds(count_only: bool) -> None:
    """Ten agents, 2 000 rounds, batches of 256: seconds a method (paper: 4 464)."""
    for name in METHODS:
        run = setting(name, "meta")
        work = counted(lambda run=run: run(1))
        print(f"{name}, a round: {said(work)}", flush=True)
        if count_only:
            continue
        for how in ({}, {"precision": "bf16"}, {"compiled": True}):
            run = setting(name, "cuda", **how)
            run(20)  # kernels are chosen, or compiled
            took = seconds(lambda run=run: run(ROUNDS))
            rate = ROUNDS / took
            print(
                f"  {how or 'eager'}: {took:.1f} s, {1e3 / rate:.2f} ms a round, "
                f"{work.flops * rate / 1e12:.2f} TFLOP/s, "
                f"{work.bytes * rate / 1e12:.2f} TB/s, "
                f"{work.floor(H200) * rate:.0%} of the unfused roofline of "
                f"{H200.name}, {torch.cuda.max_memory_allocated() >> 20} MiB",
                flush=True,
            )
            kernels(run, 20)


def planned(device: str, compiled: bool) -> Audit:
    """The audit of the paper's appendix D, on digits."""
    return Audit(
        claim=Claim(
            epsilon=1.0, delta=1e-2, relation="add-or-remove-one", source="bench_gpu"
        ),
        training=Training(algorithm="dp-dsgd", **AUDITED),
        noise_multiplier=3.5,
        runs=RUNS,
        block=BLOCK,
        device=device,
        compiled=compiled,
    )


def audit(count_only: bool) -> None:
    """10 000 trainings of three agents, 100 rounds: seconds."""
    problem = Problem.of(planned("cpu", False).training)
    streams = Streams(0, device="meta")
    fast = problem.gradients()  # is tried with numbers
    object.__setattr__(problem, "gradients", lambda: fast)
    work = counted(lambda: problem.train(3.5, streams, runs=BLOCK, memory_limit=MEMORY))
    count = problem.training.rounds
    each = Work(work.flops / count, work.bytes / count, work.launches // count)
    print(f"a round of {BLOCK} runs: {said(each)}", flush=True)
    if count_only:
        return
    for compiled in (False, True):
        plan = planned("cuda", compiled)
        adversary = attacker(plan, Problem.of(plan.training, compiled=compiled))

        def block(number: int, plan: Audit = plan, by: Any = adversary) -> object:
            return train_block(plan, by, number, memory_limit=MEMORY)

        block(RUNS // BLOCK)  # kernels are chosen, or compiled
        took = seconds(lambda block=block: [block(n) for n in range(RUNS // BLOCK)])
        print(
            f"  {'compiled' if compiled else 'eager'}: {took:.1f} s, "
            f"{RUNS / took:.0f} runs a second",
            flush=True,
        )


PARTS = {"rounds": rounds, "audit": audit}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--count", action="store_true")
    given = parser.parse_args()
    if not given.count and not torch.cuda.is_available():
        sys.exit("there is no GPU here; --count says what one would have to do")
    for part in given.parts or PARTS:
        print(PARTS[part].__doc__)
        PARTS[part](given.count)


if __name__ == "__main__":
    main()
