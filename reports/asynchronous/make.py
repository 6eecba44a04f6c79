"""SYNC against A(DP)2SGD in virtual and in real time, and what each run gives away.

    OMP_NUM_THREADS=1 PYTHONPATH=. python reports/asynchronous/make.py

Writes results.json beside itself after every cell, so that it goes on where it was
stopped, then README.md, time.svg and large.svg.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from privaudit.accounting import account, account_nodes
from privaudit.accounting.papers.xu_theorem_2 import TheoremTwo
from privaudit.ledger import Ledger
from privaudit.release import Release, SamplingWithoutReplacement
from trainers.algorithms.asynchronous.clock import Clock, Speed, bipartite_ring
from trainers.algorithms.asynchronous.family import staleness
from trainers.algorithms.asynchronous.virtual_time import Asynchronous
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy, consensus_distance
from trainers.runs.problem import Problem
from trainers.runs.real_clock import run as real_run
from trainers.runs.run import TrainingRun
from trainers.runs.training import training_from

HERE = pathlib.Path(__file__).parent
DELTA = 1e-5
SIGMAS = (0.0, 1.0, 2.0, 4.0)
CASES = ("constant", "random-slowdown:2", "one-slow:10")
NODES, RECORDS, BATCH = 16, 3125, 256  # the paper's: 50 000 records over 16 learners
PAPER_STEPS = 58_560  # 300 epochs
ROUNDS, SEEDS, POINTS, LOOK = 200, 3, 25, 1000
STEPS = (1.0, 2.0, 4.0, 8.0)  # of the large batches
LARGE_ROUNDS = 60
COMMON = {
    "data": "glyphs",
    "train": NODES * RECORDS,
    "partition": "even",
    "nodes": NODES,
    "lot_size": BATCH,
    "clip_norm": 1.0,
}
SOFTMAX = {**COMMON, "model": "softmax", "step_size": 4.0, "final_step_size": 0.4}


def problem_of(algorithm: str, sigma: float, **values: Any) -> Problem:
    """The problem of the algorithm's private form, or of the plain one."""
    plain = {"adp2sgd": "adpsgd", "dp-sync": "sync"}
    values["algorithm"] = algorithm if sigma else plain[algorithm]
    return Problem.of(training_from(values, where="make.py"))


def trained(
    problem: Problem, sigma: float, points: int = 0
) -> tuple[torch.Tensor, Ledger, dict[str, Any]]:
    """Final models (seeds, nodes, dims), their ledger, and what a page wants of them.

    Accuracies on the way are on the first test images only.
    """
    few = torch.arange(LOOK)
    look = problem.test.select(few)
    gradients = problem.gradients()
    rounds = problem.training.rounds
    every = max(1, rounds // points) if points else rounds + 1
    curve: list[tuple[int, float]] = []
    seen = 0

    def after(done: int, models: torch.Tensor, ledger: Callable[[], Ledger]) -> None:
        nonlocal seen
        if done // every > seen // every:
            right = accuracy(gradients, models, look)
            curve.append((done, float(right.mean())))
        seen = done

    starts = torch.cat([problem.start(seed) for seed in range(SEEDS)])
    models, ledger = problem.train(
        sigma,
        Streams(0),
        runs=SEEDS,
        start=starts,
        after_round=after if points else None,
    )
    right = accuracy(gradients, models, problem.test)
    mean = accuracy(gradients, models.mean(1, keepdim=True), problem.test)
    told = {
        "accuracy": right.mean(1).tolist(),
        "worst": right.min(1).values.tolist(),
        "of_mean": mean[:, 0].tolist(),
        "consensus": consensus_distance(models).tolist(),
        "curve": curve,
    }
    if sigma:
        epsilons = [b.epsilon for b in account_nodes(ledger, DELTA, "replace-one")]
        told |= {"epsilon": max(epsilons), "least_epsilon": min(epsilons)}
    told["counts"] = [sum(e.count for e in entries) for entries in ledger.nodes]
    return models, ledger, told


def asynchronous(case: str, sigma: float) -> dict[str, Any]:
    """A(DP)2SGD by one clock: accuracy in virtual time, staleness, epsilon."""
    problem = problem_of("adp2sgd", sigma, **SOFTMAX, rounds=NODES * ROUNDS, speed=case)
    _, _, told = trained(problem, sigma, POINTS)
    runner = problem.network
    assert isinstance(runner, Asynchronous)
    clock, steps = runner.algorithm.clock, problem.training.rounds
    when = [step.time for step in clock.steps(steps)]
    told["curve"] = [(when[done - 1], value) for done, value in told["curve"]]
    told["ends"] = when[-1]
    told["staleness"] = staleness(clock, steps)
    return told


def synchronous(sigma: float) -> dict[str, Any]:
    """SYNC, which trains alike whoever is slow; only its time differs."""
    problem = problem_of("dp-sync", sigma, **SOFTMAX, rounds=ROUNDS)
    _, _, told = trained(problem, sigma, POINTS)
    told["curves"] = {}
    told["ends"] = {}
    for case in CASES:
        clock = Clock(bipartite_ring(NODES), Speed(case, NODES))
        when = clock.barriers(ROUNDS)
        told["curves"][case] = [
            (float(when[done - 1]), value) for done, value in told["curve"]
        ]
        told["ends"][case] = float(when[-1])
    return told


def large(algorithm: str, step: float, factor: int) -> dict[str, Any]:
    """Case III: batch and step size times ``factor``, as many epochs; sigma 1."""
    rounds = LARGE_ROUNDS // factor * (NODES if algorithm == "adp2sgd" else 1)
    values = {
        **COMMON,
        "model": "tanh-mlp",
        "rounds": rounds,
        "lot_size": BATCH * factor,
        "step_size": step * factor,
        "final_step_size": step * factor / 10,
    }
    try:
        return trained(problem_of(algorithm, 1.0, **values), 1.0)[2]
    except ValueError as error:
        return {"accuracy": None, "why": str(error)}


REAL = {
    **SOFTMAX,
    "algorithm": "adp2sgd",
    "nodes": 4,
    "train": 4 * RECORDS,
    "rounds": 4 * ROUNDS,
}
REAL_SIGMA, REAL_RUNS = 2.0, 5


def real(case: str) -> dict[str, Any]:
    """Four workers as processes, five runs; noise fresh in each."""
    values = {**REAL, "clock": "real", "most_steps": REAL["rounds"], "speed": case}
    if case != "constant":
        values["step_time"] = 0.02
    training = training_from(values, where="make.py")
    problem = Problem.of(training)
    gradients = problem.gradients()
    found: dict[str, list[Any]] = {
        name: []
        for name in ("accuracy", "worst", "counts", "mean_stale", "most_stale", "took")
    }
    epsilons = []
    for seed in range(REAL_RUNS):
        run = TrainingRun(
            training=training, claim=None, noise_multiplier=REAL_SIGMA, seed=seed
        )
        with tempfile.TemporaryDirectory() as folder:
            journal = pathlib.Path(folder) / "steps.bin"
            crew = real_run.crew_of(run, problem, journal)
            outcome = crew.run()
        models = torch.stack([outcome.models[k] for k in sorted(outcome.models)])[None]
        right = accuracy(gradients, models, problem.test)
        ledger = Ledger.joined(outcome.ledgers[k] for k in sorted(outcome.ledgers))
        bounds = account_nodes(ledger, DELTA, "replace-one")
        epsilons.append(max(bound.epsilon for bound in bounds))
        found["accuracy"].append(float(right.mean()))
        found["worst"].append(float(right.min()))
        found["counts"].append(list(outcome.counts))
        found["mean_stale"].append(float(np.mean(outcome.staleness)))
        found["most_stale"].append(max(outcome.staleness))
        found["took"].append(outcome.seconds)
    return {**found, "epsilon": max(epsilons)}


def virtual(case: str) -> dict[str, Any]:
    """The same four workers in virtual time, five seeds."""
    training = training_from({**REAL, "speed": case}, where="make.py")
    problem = Problem.of(training)
    gradients = problem.gradients()
    starts = torch.cat([problem.start(seed) for seed in range(REAL_RUNS)])
    models, ledger = problem.train(REAL_SIGMA, Streams(0), runs=REAL_RUNS, start=starts)
    right = accuracy(gradients, models, problem.test)
    runner = problem.network
    assert isinstance(runner, Asynchronous)
    mean, most = staleness(runner.algorithm.clock, training.rounds)
    bounds = account_nodes(ledger, DELTA, "replace-one")
    return {
        "accuracy": right.mean(1).tolist(),
        "worst": right.min(1).values.tolist(),
        "counts": [[sum(e.count for e in entries) for entries in ledger.nodes]],
        "mean_stale": [mean],
        "most_stale": [most],
        "epsilon": max(bound.epsilon for bound in bounds),
    }


def formula(sigma: float, steps: int) -> dict[str, Any]:
    """The least epsilon at which Theorem 2 asks for at most ``sigma``.

    ``silent``: no mu is admissible there, so that the theorem has no such epsilon.
    """

    def theorem(epsilon: float) -> TheoremTwo:
        return TheoremTwo(steps, NODES, RECORDS, BATCH, epsilon, DELTA)

    def least(epsilon: float) -> float:
        one = theorem(epsilon)
        return min(one.sigma(mu) for mu in np.linspace(1e-4, 1 - 1e-4, 5000))

    low, high = 1e-6, 1e6
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if least(middle) > sigma else (low, middle)
    try:
        theorem(high).least_sigma()
    except ValueError as error:
        return {"epsilon": high, "silent": str(error)}
    return {"epsilon": high, "silent": None}


def accounts(sigma: float, steps: int, on: str) -> dict[str, Any]:
    """Certified, of a worker with an equal share of ``steps``, beside Theorem 2."""
    multiplier = sigma * (BATCH if on == "mean" else 1)
    release = Release.of_sum(
        norm_bound=1.0,
        noise_multiplier=multiplier,
        sampling=SamplingWithoutReplacement(BATCH, RECORDS),
    )
    share = Ledger.of(release, steps // NODES)
    bound = account(share, DELTA, "replace-one")
    return {"certified": bound.epsilon, "theorem": formula(sigma, steps)}


def cells() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """All of them, by name."""
    for steps in (NODES * ROUNDS, PAPER_STEPS):
        for on in ("sum", "mean"):
            for sigma in SIGMAS[1:]:
                key = f"epsilon {steps} {on} {sigma:g}"
                yield key, functools.partial(accounts, sigma, steps, on)
    for sigma in SIGMAS:
        yield f"sync {sigma:g}", functools.partial(synchronous, sigma)
        for case in CASES:
            key = f"adp2sgd {sigma:g} {case}"
            yield key, functools.partial(asynchronous, case, sigma)
    for step in STEPS:
        for factor in (1, 2):
            for algorithm in ("dp-sync", "adp2sgd"):
                key = f"large {algorithm} {step:g} {factor}"
                yield key, functools.partial(large, algorithm, step, factor)
    for case in ("constant", "one-slow:10"):
        yield f"virtual {case}", functools.partial(virtual, case)
        yield f"real {case}", functools.partial(real, case)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only-page", action="store_true")
    given = parser.parse_args()
    path = HERE / "results.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for key, cell in cells() if not given.only_page else ():
        if key in known:
            continue
        began, cpu = time.monotonic(), time.process_time()
        known[key] = cell()
        known[key]["seconds"] = round(time.monotonic() - began, 1)
        known[key]["cpu"] = round(time.process_time() - cpu, 1)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(known, indent=1) + "\n")
        part.replace(path)
        print(f"{len(known)}: {key}: {known[key]['seconds']:.0f} s", flush=True)
    from page import write

    write(HERE, known)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
