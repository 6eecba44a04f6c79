"""What training and auditing take beside a plain loop over torch models and Opacus.

Run as ``python tests/benchmarks/bench_speed.py``; ``--json`` keeps the rows and
``--repeats`` says how often each is measured, in turns with its peers. Each is a
process of its own with one thread, and times are the processor's: the median round, or
what is said.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from bench_training import ours
from measuring import Row, answer, measured, medians, records, timed
from peers import opacus, plain
from torch import nn
from torch.nn import functional

from privaudit.api.trainings import run_training
from privaudit.auditing.experiments.plan import chosen_block
from privaudit.auditing.experiments.presets import AUDITED
from privaudit.settings import TrainingSettings
from trainers.algorithms import ALGORITHMS
from trainers.data import PrivateData
from trainers.gradients.choose import differentiator
from trainers.models import cross_entropy, initial_parameters, make_model
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.numerics import noise
from trainers.numerics.noise import LATER
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle
from trainers.runs.measures import CurveRecorder
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import training_from

STEPS = 40
MANY: dict[str, Any] = {
    "algorithm": "dp-dsgd",
    "nodes": 1000,
    "graph": "exponential",
    "model": "softmax",
    "batch_size": 1.0,
}


def median_round(times: list[float]) -> Row:
    """Of processor's times after each round, the first two apart."""
    each = [1e3 * (late - early) for early, late in itertools.pairwise(times[2:])]
    return {"ms": statistics.median(each)}


def many() -> Row:
    """A thousand nodes, a record of each, softmax on 8x8 images."""
    problem = Problem.of(training_from({**MANY, "rounds": 20}, where="bench"))
    times: list[float] = []
    look = Observers(after_round=lambda *_: times.append(time.process_time()))
    problem.train(1.0, Streams(0), observers=look)
    return median_round(times)


def pushed() -> Row:
    """Push-sum of 20 nodes, one sample a step."""
    nodes, shape = 20, (1, 28, 28)
    module = make_model("shallow-cnn", shape, 10)
    oracle = Oracle(
        PrivateData.of([records(shape, 100, node) for node in range(nodes)]),
        differentiator(module, cross_entropy, torch.zeros(shape)),
        Mechanism(1.0, 1.0, 1.0, sampling="without-replacement"),
        Streams(0),
    )
    family = ALGORITHMS["sgp"]
    on = mixing("exponential", "column-stochastic", nodes)
    network = Network(family.make(lambda k: 0.01), on, family.needs)
    start = initial_parameters(module, torch.Generator().manual_seed(0))
    times: list[float] = []
    network.run(
        start.repeat(1, nodes, 1),
        *(oracle, STEPS),
        after_round=lambda *_: times.append(time.process_time()),
    )
    return median_round(times)


def looped() -> Row:
    """The same by 20 torch models: clip, noise, step and push, in floating point."""
    nodes, shape = 20, (1, 28, 28)
    models = [make_model("shallow-cnn", shape, 10) for _ in range(nodes)]
    data = [records(shape, 100, node) for node in range(nodes)]
    on = mixing("exponential", "column-stochastic", nodes)
    vectors = torch.stack(
        [nn.utils.parameters_to_vector(model.parameters()).detach() for model in models]
    )
    state: dict[str, Any] = {"x": vectors, "w": torch.ones(nodes, 1), "k": 0}

    def round_() -> None:
        stepped = state["x"].clone()
        for node, model in enumerate(models):
            vector = state["x"][node] / state["w"][node]
            nn.utils.vector_to_parameters(vector, model.parameters())
            model.zero_grad()
            row = torch.randint(100, (1,))
            loss = functional.cross_entropy(
                model(data[node].inputs[row]), data[node].targets[row]
            )
            loss.backward()
            down = torch.cat([p.grad.flatten() for p in model.parameters()])
            down = down / down.norm().clamp_min(1.0) + torch.randn(len(down))
            stepped[node] -= 0.01 * down
        matrix = torch.tensor(on.at(state["k"]), dtype=torch.float32)
        state.update(x=matrix @ stepped, w=matrix @ state["w"], k=state["k"] + 1)

    return timed(round_, 4)


SOFTMAX: dict[str, Any] = {**AUDITED, "hidden": None, "model": "softmax", "rounds": 10}


def audited(runs: int) -> Row:
    """A run of an audit of ten steps and so many ``runs``, in blocks by default."""
    problem = Problem.of(training_from({"algorithm": "dp-dsgd", **SOFTMAX}, where=""))
    block = chosen_block(problem, runs)
    row = timed(lambda: problem.train(3.0, Streams(0), runs=block), 4)
    return {"ms": row["ms"] / block}


def audited_by_opacus() -> Row:
    """The same ten steps of three models, one after the other, by Opacus."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    training = training_from({"algorithm": "dp-dsgd", **SOFTMAX}, where="")
    problem = Problem.of(training)
    share = [(one.inputs, one.targets) for one in problem.shares]

    def run() -> None:
        models: list[Any] = [
            GradSampleModule(make_model("softmax", share[0][0].shape[1:], 3))
            for _ in share
        ]
        optimisers = [
            DPOptimizer(
                torch.optim.SGD(model.parameters(), lr=training.step_size),
                noise_multiplier=3.0,
                max_grad_norm=training.clip_norm,
                expected_batch_size=int(training.batch_size),
            )
            for model in models
        ]
        for _ in range(10):
            for model, optimiser, (x, y) in zip(models, optimisers, share, strict=True):
                chosen = torch.rand(len(x)) < training.batch_size / len(x)
                optimiser.zero_grad()
                functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
                optimiser.step()
            with torch.no_grad():
                for same in zip(*(m.parameters() for m in models), strict=True):
                    mean = torch.stack([each.data for each in same]).mean(0)
                    for each in same:
                        each.copy_(mean)

    return timed(run, 4)


def measuring() -> Row:
    """`train` of 40 rounds with the small CNN: the share that measuring takes."""
    spent = [0.0]
    noise.LATER = LATER  # as a command finds it

    def clocked(work: Callable[..., Any]) -> Callable[..., Any]:
        def timed_work(*given: Any, **more: Any) -> Any:
            began = time.process_time()
            try:
                return work(*given, **more)
            finally:
                spent[0] += time.process_time() - began

        return timed_work

    for name in ("__call__", "final"):
        setattr(CurveRecorder, name, clocked(getattr(CurveRecorder, name)))
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        run_training(
            "dp-dsgd",
            TrainingSettings(noise_multiplier=1.0, seed=0),
            changes={"rounds": 40, "model": "small-cnn"},
            out=folder,
        )
        whole = time.process_time() - began
    return {"ms": 1e3 * whole, "share": spent[0] / whole}


WAYS: dict[str, Callable[..., Row]] = {
    "ours": lambda name: ours(name),
    "opacus": opacus,
    "plain": plain,
    "pushed": pushed,
    "looped": looped,
    "audited": lambda runs: audited(int(runs)),
    "audited_by_opacus": audited_by_opacus,
    "measuring": measuring,
    "many": many,
}
# Work, and by whom it is done how.
TABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "10 agents, batches of 256, small CNN, a round": {
        "privaudit": ("ours", "dp-dsgd"),
        "Opacus, ghost clipping": ("opacus", "ghost"),
        "no privacy, one by one": ("plain",),
    },
    "20 nodes, push-sum, one sample, 26 010 parameters, a round": {
        "privaudit": ("pushed",),
        "loop of torch models": ("looped",),
    },
    "audit, softmax, 10 steps, a run": {
        "privaudit, of 500": ("audited", "500"),
        "privaudit, of 10 000": ("audited", "10000"),
        "Opacus": ("audited_by_opacus",),
    },
    "train, 40 rounds, small CNN": {"privaudit": ("measuring",)},
    "1 000 nodes, exponential graph, softmax, a round": {"privaudit": ("many",)},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--one", nargs="+")
    given = parser.parse_args()
    if given.one:
        answer(WAYS, given.one)
        return
    found: dict[str, dict[str, Row | None]] = {}
    for work, ways in TABLE.items():
        rows = [
            {who: measured(*call) for who, call in ways.items()}
            for _ in range(given.repeats)
        ]
        found[work] = {who: medians(row[who] for row in rows) for who in ways}
        for who, row in found[work].items():
            print(f"{work}: {who}: {row}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
