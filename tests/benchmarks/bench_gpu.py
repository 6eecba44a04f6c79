"""Paper 001's MNIST setting and its audit on a GPU, and how far from its roofline.

Run as ``python tests/benchmarks/bench_gpu.py``, or ``make gpu``: with ``noise``,
``equality``, ``rounds``, ``models``, ``audit`` or ``recipe`` for a part of it;
``--count`` only counts, which needs no GPU; ``--rounds N`` takes fewer. What happens is
told on standard error; at the end one JSON object comes.

Noise: bits on the GPU against those of the CPU, time, launches and bytes of a release.
Equality: every algorithm on the CPU and on the GPU from one seed. Rounds: Bayrooti et
al. 2023, ten agents, 2 000 rounds, batches of 256, a CNN of 38 424 parameters; 1.24
hours on four RTX 2080. Models: a gradient of larger ones, beside Opacus where that is
installed. Their audit: 10 000 trainings of three agents, 100 rounds; inputs are random
numbers. Recipe: a training of a paper at its own size.

While they are timed the host may wait for the device only where noise is settled: else
torch raises.

Of rounds and audit: seconds; arithmetic and bytes a second as they were counted, and
the share of the roofline that they reach; the share of the time in which a kernel runs;
and of the largest kernels, time and launches a round.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import bench_today
import torch
from counting import H100, RTX_2080, Work, counted
from measuring import records
from torch.profiler import ProfilerActivity, profile

from privaudit.auditing.experiments.experiment import Audit, attacker, train_block
from privaudit.auditing.experiments.presets import AUDITED
from privaudit.results import Claim
from privaudit.version import __version__
from trainers.algorithms import ALGORITHMS
from trainers.data import PrivateData
from trainers.gradients.choose import differentiator
from trainers.models import cross_entropy, initial_parameters, make_model
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.numerics.keys import Key
from trainers.numerics.noise import GAUSSIAN, LAPLACE, noisy
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle
from trainers.runs.problem import Problem
from trainers.runs.training import Training, training_from

SHAPE, AGENTS, ROUNDS, BATCH, RECORDS = (1, 32, 32), 10, 2000, 256, 6000
RUNS, BLOCK = 10_000, 1000
METHODS = ("dp-dsgd", "dp-dsgt", "dp-dinno")
RECIPE = "zhu-fashion-dyn"
SMALL = {"nodes": 4, "train": 200, "rounds": 3, "batch_size": 6}
SETTINGS = ("weights", "graph", "model")  # that an algorithm brings
Told = dict[str, Any]
tell = functools.partial(print, file=sys.stderr, flush=True)
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

    return run


def seconds(run: Callable[[], object]) -> float:
    """Of the wall clock, from an idle device to an idle device."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def unwaited(run: Callable[[], object]) -> None:
    """Have it done: torch raises if the host waits, but for noise in doubt."""
    torch.cuda.set_sync_debug_mode("error")
    run()
    torch.cuda.set_sync_debug_mode("default")


def said(work: Work) -> Told:
    """What was counted, and what follows from data sheets."""
    return {
        "gflop": work.flops / 1e9,
        "gigabytes": work.bytes / 1e9,
        "operations": work.launches,
        "least_ms_unfused": {
            one.name: 1e3 * work.floor(one) for one in (H100, RTX_2080)
        },
        "least_ms_started_by_the_host": {H100.name: 1e3 * work.eager(H100)},
    }


def kernels(run: Callable[[int], Any], rounds: int) -> Told:
    """The largest kernels, and for how much of the time any runs."""
    took = seconds(lambda: run(rounds))
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run(rounds)
        torch.cuda.synchronize()
    events = profiler.key_averages()
    busy = sum(event.self_device_time_total for event in events) / 1e6
    largest = sorted(events, key=lambda event: -event.self_device_time_total)[:6]
    return {
        "share_of_the_time": busy / took,
        "largest": [
            {
                "kernel": event.key,
                "us_a_round": event.self_device_time_total / rounds,
                "launches_a_round": event.count / rounds,
            }
            for event in largest
        ],
    }


def equality(count_only: bool, device: str = "cuda") -> Told:
    """Each algorithm from one seed, on the CPU and on the device: largest difference.

    Relative to the largest number of the model. Noise has equal bits; sums differ by
    their order, and what follows from that. A graph is held against the same device.
    """
    found = {}
    for name, family in () if count_only else ALGORITHMS.items():
        values: Told = {**SMALL, "algorithm": name, "hidden": 4}
        values |= {k: v for k, v in family.defaults.items() if k in SETTINGS}
        if "model" in values:
            del values["hidden"]
        training = training_from(values, where=name)
        try:
            models = [
                Problem.of(training, compiled=compiled)
                .train(1.0, Streams(0, device=place), runs=2)[0]
                .cpu()
                for place, compiled in (("cpu", False), (device, False), (device, True))
            ]
        except ValueError as error:  # of what is made for the CPU alone
            found[name] = {"refused": str(error)}
        else:
            one, other, graph = models
            size = one.abs().max()
            found[name] = {
                "difference": float((one - other).abs().max() / size),
                "as a graph": float((graph - other).abs().max() / size),
            }
        tell(f"  {name}: {found[name]}")
    return found


def median(run: Callable[[], object], times: int = 20) -> float:
    """Seconds of the device for one of ``times`` calls."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    run()
    for mark in marks:
        mark.record()
        if mark is not marks[-1]:
            run()
    torch.cuda.synchronize()
    return statistics.median(
        one.elapsed_time(other) / 1e3 for one, other in itertools.pairwise(marks)
    )


def noise_of(
    device: str, runs: int, nodes: int, width: int, which: int, kind: torch.dtype
) -> torch.Tensor:
    """A release of noise: of the ``which``-th key, on numbers that depend on it."""
    law = (GAUSSIAN, LAPLACE)[which % 2]
    scale = 2.0 ** (20 + which % 10 + which % 7 / 7)
    rows = Key.study(which).rows(
        "noise", nodes=range(which, which + nodes), release=which << which % 40,
        width=width, runs=range(which, which + runs),
    )  # fmt: skip
    place = torch.arange(runs * nodes * width, dtype=torch.float64).view(rows.shape)
    values = torch.sin(place * 1e-3 * (1 + which)).to(kind).to(device)
    return noisy(values, 2.0 ** -(which % 12), rows, scale, law)


def noise(count_only: bool) -> Told:
    """Exact noise: bits, seconds, launches and bytes of a release."""
    width = 10_000_000
    rows = Key.study("speed").rows("noise", nodes=[0], release=0, width=width)
    found: Told = {}

    def release(device: str) -> Callable[[], object]:
        values = torch.zeros(rows.shape, device=device)
        return lambda: noisy(values, 2.0**-27, rows, 2.0**27)

    release("meta")()  # what is sent once
    work = counted(release("meta"))
    found["launches a release"] = work.launches
    found["bytes a number"] = work.bytes / width
    tell(f"  counted: {found}")
    if count_only:
        return found
    shapes = [(1, 1, 10_000_019), (3, 5, 650), (1, 7, 1), (50, 3, 77), (2, 1, 12_345)]
    same, numbers = True, 0
    for which, shape in enumerate([*shapes, *[(1, 3, 1001)] * 200]):
        kind = (torch.float32, torch.float64)[which // 2 % 2]
        one, other = (noise_of(each, *shape, which, kind) for each in ("cpu", "cuda"))
        same &= torch.equal(one, other.cpu())
        numbers += one.numel()
    found["bits equal"] = {"numbers": numbers, "keys": 205, "equal": same}
    tell(f"  {found['bits equal']}")
    drawn = torch.empty(width, device="cuda")
    copied = torch.empty_like(drawn)
    waits = release("cuda")
    found["ps a number"] = {
        "a release": 1e12 * median(lambda: unwaited(waits)) / width,
        "torch's randn": 1e12 * median(lambda: drawn.normal_()) / width,
        "a copy": 1e12 * median(lambda: copied.copy_(drawn)) / width,
    }
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        waits()
        torch.cuda.synchronize()
    found["launched"] = [
        {"kernel": one.key, "times": one.count, "us": one.self_device_time_total}
        for one in profiler.key_averages()
        if one.self_device_time_total
    ]
    tell(f"  {found['ps a number']}, {found['launched']}")
    return found


def rounds(count_only: bool) -> Told:
    """Ten agents, 2 000 rounds, batches of 256: seconds a method (paper: 4 464)."""
    found: Told = {}
    for name in METHODS:
        run = setting(name, "meta")
        work = counted(lambda run=run: run(1))
        found[name] = {"counted": said(work)}
        tell(f"  {name}, a round: {found[name]['counted']}")
        if count_only:
            continue
        for how in ({}, {"precision": "bf16"}, {"compiled": True}):
            run = setting(name, "cuda", **how)
            run(20)  # kernels are chosen, or compiled
            took = seconds(lambda run=run: unwaited(lambda: run(ROUNDS)))
            rate = ROUNDS / took
            key = "".join(map(str, how)) or "eager"
            found[name][key] = {
                "seconds": took,
                "ms a round": 1e3 / rate,
                "tflop_a_second": work.flops * rate / 1e12,
                "terabytes_a_second": work.bytes * rate / 1e12,
                "share_of_the_unfused_roofline": {
                    H100.name: work.floor(H100) * rate,
                },
                "mib": torch.cuda.max_memory_allocated() >> 20,
                "kernels": kernels(run, 20),
            }
            tell(f"  {key}: {took:.1f} s")
    return found


# Of bench_today: works, and how many times their samples.
MODELS = {
    "transformer-32": 4, "lora-8": 16, "resnet18-4": 64, "gpt2-2": 8, "lstm-64": 4
}  # fmt: skip


def graph(work: str, where: bench_today.Where) -> bench_today.Step:
    """Our clipped sum, of which the host starts all kernels at once."""
    step = bench_today.ours(work, where, compiled=True)
    step()  # recorded, and compared

    def unlooked() -> torch.Tensor:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return step()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return unlooked


def models(count_only: bool) -> Told:
    """A clipped sum of a batch of larger models: milliseconds, MiB, launches.

    As a CUDA graph, also how far from the sum without one, over that, and how far that
    is from itself taken again.
    """
    ways = {**bench_today.WAYS, "as a graph": graph}
    found: Told = {}
    for work, times in MODELS.items():
        found[work] = row = {"samples": times * bench_today.WORKS[work][2]}
        step = bench_today.ours(work, ("meta", times))
        row["counted"] = said(counted(step))
        tell(f"  {work}, {row}")
        for way, make in () if count_only else ways.items():
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            try:
                step = make(work, ("cuda", times))
                step()
                row[way] = {"ms": 1e3 * median(step, 10)}
                peak = torch.cuda.max_memory_allocated() - held
                total = step()
                row[way] |= {"mib": peak >> 20, "norm": float(total.norm())}
                if way == "ours":
                    first, again = total, step()
                    row[way]["apart"] = float((again - first).norm() / first.norm())
                elif way == "as a graph":
                    row[way]["apart"] = float((total - first).norm() / first.norm())
            except Exception as error:  # of peers: out of memory, layers, tied weights
                row[way] = f"{type(error).__name__}: {error}"[:300]
            step = None
            tell(f"    {way}: {row[way]}")
    return found


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


def audit(count_only: bool) -> Told:
    """10 000 trainings of three agents, 100 rounds: seconds."""
    problem = Problem.of(planned("cpu", False).training)
    streams = Streams(0, device="meta")
    fast = problem.gradients()  # is tried with numbers
    object.__setattr__(problem, "gradients", lambda: fast)
    work = counted(lambda: problem.train(3.5, streams, runs=BLOCK, memory_limit=MEMORY))
    count = problem.training.rounds
    each = Work(work.flops / count, work.bytes / count, work.launches // count)
    found: Told = {"runs": RUNS, "block": BLOCK, "counted a round": said(each)}
    tell(f"  a round of {BLOCK} runs: {found['counted a round']}")
    for compiled in () if count_only else (False, True):
        plan = planned("cuda", compiled)
        adversary = attacker(plan, Problem.of(plan.training, compiled=compiled))

        def block(number: int, plan: Audit = plan, by: Any = adversary) -> object:
            return train_block(plan, [by], number, memory_limit=MEMORY)[0]

        block(RUNS // BLOCK)  # kernels are chosen, or compiled
        took = seconds(lambda block=block: [block(n) for n in range(RUNS // BLOCK)])
        key = "compiled" if compiled else "eager"
        found[key] = {"seconds": took, "runs_a_second": RUNS / took}
        tell(f"  {key}: {took:.1f} s")
    return found


def recipe(count_only: bool) -> Told:
    """A paper's training at its own size, by the command that a user would call."""
    command = ["train", RECIPE, "--seed", "0", "--json", "--device", "cuda"]
    found: Told = {"command": ["privaudit", *command]}
    if count_only:
        return found
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "privaudit", *command, "--out", f"{folder}/run"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        found["seconds"] = time.perf_counter() - began
    found["result" if done.returncode == 0 else "failed"] = (
        json.loads(done.stdout) if done.returncode == 0 else done.stdout[-2000:]
    )
    return found


PARTS = {
    each.__name__: each for each in (noise, equality, rounds, models, audit, recipe)
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    globals()["ROUNDS"] = given.rounds
    if not given.count and not torch.cuda.is_available():
        sys.exit("there is no GPU here; --count says what one would have to do")
    found: Told = {
        "schema": 1,
        "device": None if given.count else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "privaudit": __version__,
    }
    for part in given.parts or PARTS:
        tell(PARTS[part].__doc__)
        found[part] = PARTS[part](given.count)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
