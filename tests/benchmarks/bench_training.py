"""Training rounds: ours, Opacus, `torch.func` and no privacy, in one table.

Run as ``python tests/benchmarks/bench_training.py``: with ``rounds``, ``models``,
``audit`` or ``large`` for a part of it, and with ``--compiled`` for the compiled rows
too. Each row is a process of its own with one thread, so that peaks of memory are its
own. Times are the processor's, which others on the machine disturb least, and the wall
clock's beside them. Opacus is measured where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from measuring import Clock, Row, answer, measured, peak, records, show, timed
from peers import BATCH, CLIP, NODES, NOISE, RECORDS, SIZE, STEP, opacus, plain

from trainers.algorithms import ALGORITHMS
from trainers.data import PrivateData
from trainers.gradients.choose import differentiator
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy, initial_parameters, make_model
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle
from trainers.runs.problem import Problem
from trainers.runs.training import Training

# Of each model of the registry: input's shape, samples of a batch, options.
MODELS: dict[str, tuple[tuple[int, ...], int, dict[str, int]]] = {
    "softmax": ((1, 28, 28), 256, {}),
    "small-cnn": ((1, 28, 28), 256, {}),
    "shallow-cnn": ((1, 28, 28), 64, {}),
    "tanh-mlp": ((1, 28, 28), 256, {}),
    "lstm": ((1, 28, 28), 64, {}),
    "vit": ((3, 32, 32), 16, {}),
    "resnet9": ((3, 32, 32), 4, {}),
    "resnet18": ((3, 32, 32), 2, {}),
}


def ours(algorithm: str, compiled: bool = False) -> Row:
    """Whole rounds of an algorithm on the complete graph."""
    shape = (1, SIZE, SIZE)
    module = make_model("small-cnn", shape, 10, hidden=64)
    data = PrivateData.of([records(shape, RECORDS, seed) for seed in range(NODES)])
    family = ALGORITHMS[algorithm]
    private = family.private
    oracle = Oracle(
        data,
        differentiator(module, cross_entropy, torch.zeros(shape), compiled=compiled),
        Mechanism(BATCH, CLIP, NOISE) if private else Mechanism(BATCH),
        Streams(0),
    )
    network = Network(
        family.make(lambda k: STEP), mixing("complete", "uniform", NODES), family.needs
    )
    start = initial_parameters(module, torch.Generator().manual_seed(0))
    clock = Clock()
    network.run(start.repeat(1, NODES, 1), oracle, 40, after_round=clock)
    return clock.summary()


def gradients(model: str, way: str) -> Row:
    """Clipped sums of one model's batch at two nodes, in parts as the oracle takes
    them.

    `torch.func` in parts of the size that its memory allows.
    """
    shape, samples, options = MODELS[model]
    module = make_model(model, shape, 10, **options)
    nodes = 2
    data = PrivateData.of([records(shape, samples, seed) for seed in range(nodes)])
    if way == "torch.func":
        fast: Any = PerSample(module, cross_entropy)
    else:
        compiled = way == "compiled"
        fast = differentiator(
            module, cross_entropy, torch.zeros(shape), compiled=compiled
        )
        assert not isinstance(fast, PerSample), model
    private = Oracle(data, fast, Mechanism(samples, 1.0), Streams(0))
    start = initial_parameters(module, torch.Generator().manual_seed(0))
    at = start.repeat(1, nodes, 1)
    result = timed(lambda: private.gradient(at), 3)
    vector = private.gradient(at)[0, 0].double()
    direction = torch.linspace(-1, 1, len(vector), dtype=torch.float64).cos()
    # Two numbers that two ways agree in only if the vectors are the same, all but.
    return result | {
        "dims": len(vector),
        "norm": vector.norm().item(),
        "along": (vector @ direction / direction.norm()).item(),
    }


def audit(way: str, block: str, batch: str) -> Row:
    """A block of an audit: 3 nodes, 8x8 images; CPU seconds for 500 runs x 100."""
    runs, rounds = int(block), 20
    training = Training(
        algorithm="dp-dsgd",
        nodes=3,
        digits=(0, 1, 2),
        train=300,
        hidden=16,
        rounds=rounds,
        batch_size=float(batch),
        clip_norm=10.0,
        step_size=0.05,
    )
    problem = Problem.of(training)
    fast = differentiator(
        problem.module,
        cross_entropy,
        problem.test.inputs[0],
        compiled=way == "compiled",
    )
    object.__setattr__(problem, "gradients", lambda: fast)
    problem.train(3.0, Streams(0), runs=runs)  # compiles
    clock = Clock()
    problem.train(3.0, Streams(1), runs=runs)
    clock()
    # From training alone: an audit also scores each run once.
    used = clock.cpu[1] - clock.cpu[0]
    return {"peak": peak(), "cpu": used * (500 / runs) * (100 / rounds)}


def resnets(algorithm: str, batch: str) -> Row:
    """Rounds of ten ResNet-9 agents, CIFAR-shaped, as many samples at once as asked."""
    shape, nodes, physical = (3, 32, 32), 10, 50
    module = make_model("resnet9", shape, 100)
    data = PrivateData.of([records(shape, 2 * int(batch), i) for i in range(nodes)])
    fast = differentiator(module, cross_entropy, torch.zeros(shape))
    family = ALGORITHMS[algorithm]
    oracle = Oracle(
        data,
        fast,
        Mechanism(float(batch), CLIP, NOISE),
        Streams(0),
        memory_limit=4 * physical * (fast.values_per_sample + data.values_per_record),
    )
    network = Network(
        family.make(lambda k: STEP), mixing("complete", "uniform", nodes), family.needs
    )
    start = initial_parameters(module, torch.Generator().manual_seed(0))
    clock = Clock()
    network.run(start.repeat(1, nodes, 1), oracle, 2, after_round=clock)
    return clock.summary()


WAYS: dict[str, Callable[..., Row]] = {
    "ours": lambda name: ours(name),
    "compiled": lambda name: ours(name, compiled=True),
    "plain": plain,
    "opacus": opacus,
    "gradients": gradients,
    "audit": audit,
    "resnets": resnets,
}


def rounds(compiled: bool) -> None:
    """Ten agents, batches of 256, 28x28, the CNN of Bayrooti et al. (2023)."""
    ghost = None
    if importlib.util.find_spec("opacus"):
        ghost = measured("opacus", "ghost")
        show("Opacus, ghost clipping", ghost)
        show("Opacus, hooks", measured("opacus", "hooks"))
    else:
        print("Opacus is not installed")
    base = 0.0 if ghost is None else ghost["ms"]
    show("no privacy, one by one", measured("plain"), base)
    for way in ("ours", "compiled")[: 1 + compiled]:
        for name in ("dp-dsgd", "dp-dsgt", "dp-dinno", "dsgd"):
            show(f"{name}, {way}", measured(way, name), base)
    print("x: times as fast as ghost clipping in this run")


def models(compiled: bool) -> None:
    """Clipped sums at two nodes, for each model of the registry."""
    for name, (shape, samples, _) in MODELS.items():
        reference = measured("gradients", name, "torch.func")
        print(f"{name}, 2 x {samples} samples of {shape}")
        base = 0.0 if reference is None else reference["ms"]
        show("  torch.func", reference)
        for way in ("book-keeping", "compiled")[: 1 + compiled]:
            row = measured("gradients", name, way)
            show(f"  {way}", row, base)
            if row and reference:
                worst = max(
                    abs(row[each] - reference[each]) / reference["norm"]
                    for each in ("norm", "along")
                )
                print(f"    differs by {worst:.1e}", flush=True)


def audits(compiled: bool) -> None:
    """500 runs x 3 nodes x 100 rounds on 8x8 images, from one block of 20 rounds."""
    for way in ("book-keeping", "compiled")[: 1 + compiled]:
        for block, batch in (("50", "32"), ("500", "4")):
            row = measured("audit", way, block, batch)
            if row:
                print(
                    f"audit, {way}, blocks of {block} runs, batches of {batch}: "
                    f"{row['cpu']:.1f} CPU s, {row['peak']:.0f} MiB"
                )


def large(compiled: bool) -> None:
    """Ten ResNet-9 agents, 7.8 million parameters each, at most 50 samples at once."""
    for algorithm, batch in (("dp-dsgd", "50"), ("dp-dsgt", "50"), ("dp-dsgd", "250")):
        show(f"{algorithm}, batches of {batch}", measured("resnets", algorithm, batch))


PARTS = {"rounds": rounds, "models": models, "audit": audits, "large": large}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--one", nargs="+")
    given = parser.parse_args()
    if given.one:
        answer(WAYS, given.one)
        return
    for part in given.parts or PARTS:
        print(PARTS[part].__doc__)
        PARTS[part](given.compiled)


if __name__ == "__main__":
    main()
