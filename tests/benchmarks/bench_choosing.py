"""Defaults of `privaudit.train`, on small public tasks: how well they do.

Run as ``python tests/benchmarks/bench_choosing.py WHAT --epsilon 2 --runs 4``:

- ``search``: total length of steps and schedules, on the tasks of the search;
- ``held-out``: the same for what the search chose and for the defaults before plans;
- ``uneven``: the defaults on shares that differ, beside a central training and the
  defaults before plans, with the same budget, and a central one as loud as all nodes;
- ``correlated``: dp-mf beside dp-sgd, with steps planned for it, up to four times as
  long, at several sizes of batches; ``one-epoch``: the same where a record comes once,
  also with secret parts; ``networks``: dp-mf-butterfly, dp-butterfly,
  dp-decor and dp-dsgt, each with its budget for any one other node;
- ``algorithms``: each private algorithm that is planned, at eight nodes, as it is.

What is found is kept in ``choosing.json`` beside this file, with the command, and
``page`` writes the tables and the picture of docs/choosing.md from there.

Scores are accuracies, and R^2 of regressions, means over nodes and runs; in percent.
Seconds are the processor's.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import pathlib
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tasks import (
    HELD_OUT,
    SEARCH,
    UNEVEN,
    Task,
    digits_apart,
    digits_at_eight,
    fashion,
)

import privaudit as pa
from privaudit.accounting.calibration import noise_multiplier
from privaudit.accounting.factorization import toeplitz
from privaudit.accounting.views import Observer, observed_by, of_observer
from privaudit.accounting.views.butterfly import exchanges
from privaudit.api.training_plan import training_of
from privaudit.auditing.attacks.protocols import protocol_of
from trainers.runs import planning
from trainers.runs.material import Material
from trainers.runs.problem import Problem

# Length of all steps over signal to noise, times that of the defaults.
REACHES = (0.25, 0.5, 1.0, 2.0, 4.0)
FIGURES = ("score", "averaged", "late")
KEPT = pathlib.Path(__file__).with_name("choosing.json")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "choosing.md"

Row = dict[str, float]
Make = Callable[[int], Task]
Way = Callable[..., Row]
Found = dict[str, dict[str, Row]]


def parameters(task: Task) -> int:
    """Number of trained parameters."""
    return sum(value.numel() for value in task.model().parameters())


def planned(task: Task, epsilon: float, **given: Any) -> tuple[dict, Any]:
    """Settings and noise of a plan."""
    plan = pa.plan(parameters(task), list(task.sizes), epsilon, **given)
    alike = len(set(plan.noise_multiplier)) == 1
    noise = plan.noise_multiplier[0] if alike else plan.noise_multiplier
    return plan.settings, noise


def planned_way(
    task: Task, seed: int, *, epsilon: float, reach: float, schedule: str, runs: int
) -> Row:
    """Train by a plan whose steps are ``reach`` times as long in all."""
    settings, noise = planned(task, epsilon, schedule=schedule)
    settings = {**settings, "step_size": settings["step_size"] * reach}
    return task.trained(settings, noise, runs=runs, seed=seed)


def before(task: Task, seed: int, *, epsilon: float, runs: int) -> Row:
    """Train with the defaults before there were plans."""
    plain = {**planning.PLAIN, "schedule": "constant"}
    plain["batch_size"] = min(32.0, float(min(task.sizes)))
    return task.trained(*planned(task, epsilon, **plain), runs=runs, seed=seed)


def central(task: Task, seed: int, *, epsilon: float, runs: int) -> Row:
    """Train with all records at one place."""
    whole = task.pooled()
    settings, noise = planned(whole, epsilon, algorithm="dp-sgd")
    return whole.trained(settings, noise, runs=runs, seed=seed)


def as_loud(task: Task, seed: int, *, epsilon: float, runs: int) -> Row:
    """Train with all records at one place, and as much noise as all nodes add."""
    settings, noise = planned(task, epsilon)
    network = {"algorithm": "dp-sgd", "graph": "complete", "nodes": 1}
    loud = noise * len(task.sizes) ** 0.5
    return task.pooled().trained({**settings, **network}, loud, runs=runs, seed=seed)


def compare(tasks: Mapping[str, Make], ways: Mapping[str, Way], seeds: int) -> Found:
    """Results of each way at each task, means over deals of the data."""
    found: Found = {name: {} for name in ways}
    for named, make in tasks.items():
        made = [make(seed) for seed in range(seeds)]
        for name, train in ways.items():
            rows = [train(task, seed) for seed, task in enumerate(made)]
            found[name][named] = {
                figure: sum(row[figure] for row in rows) / seeds for figure in FIGURES
            }
            if seeds > 1:  # standard error of the mean over deals
                spread = statistics.stdev(row["score"] for row in rows)
                found[name][named]["error"] = spread / seeds**0.5
            print(f"{named}: {name}: {found[name][named]}", file=sys.stderr, flush=True)
    return found


def show(found: Found) -> None:
    """Print percents of each figure, a row a way."""
    width = max(map(len, found))
    for figure in FIGURES:
        names = [name[:12] for name in next(iter(found.values()))]
        head = " ".join(f"{name:>12}" for name in [*names, "mean"])
        print(f"\n{figure:<{width}} {head}")
        for name, by_task in found.items():
            values = [row[figure] for row in by_task.values()]
            values.append(sum(values) / len(values))
            line = " ".join(f"{100 * value:12.1f}" for value in values)
            print(f"{name:<{width}} {line}")


def searched() -> dict[str, Way]:
    """Lengths of steps and schedules around those of the defaults."""
    return {
        f"{schedule}, reach {reach * planning.REACH:g}": functools.partial(
            planned_way, reach=reach, schedule=schedule
        )
        for schedule in ("cosine", "constant")
        for reach in REACHES
    }


# Of each algorithm, what it needs beside a plan; without a graph, it runs on any.
ALGORITHMS: dict[str, dict[str, Any]] = {
    "dp-sgd": {"central": True},
    "dp-dsgt": {},
    "dp-dsgd": {},
    "dp-dinno": {},
    "dp-muffliato": {},
    "dp-decor": {},
    "dp-sync": {},
    "adp2sgd": {},
    "dyn-d2p": {"graph": "exponential"},
    "dyn-c-d2p": {"graph": "exponential"},
    "const-d2p": {"graph": "exponential"},
    "dp-butterfly": {"graph": "butterfly"},
    "dp-chain": {"graph": "chain"},
}


def algorithm_way(
    task: Task, seed: int, *, name: str, epsilon: float, runs: int
) -> Row:
    """Train by one algorithm, as it is planned."""
    how = ALGORITHMS[name]
    task = task.pooled() if "central" in how else task
    graph = how.get("graph", "complete")
    settings, noise = planned(task, epsilon, algorithm=name, graph=graph)
    return task.trained(settings, noise, runs=runs, seed=seed)


# Sizes of batches, over the records; steps; bands.
CORRELATED = ((0.05, 200, (1, 4, 16)), (0.25, 200, (1,)), (0.01, 1000, (1, 16)))
# Of one epoch of small batches: band, and whether parts are secret.
ONE_EPOCH = ((1, False), (8, False), (8, True))
NETWORKS = (
    ("dp-butterfly", 1),
    ("dp-mf-butterfly", 4),
    ("dp-mf-butterfly", 16),
    ("dp-decor", 1),
    ("dp-dsgt", 1),
)
NOISES: dict[tuple[Any, ...], float] = {}  # found before


def correlated_way(
    task: Task,
    seed: int,
    *,
    rate: float,
    rounds: int,
    band: int,
    reach: float,
    epsilon: float,
    runs: int,
    secret: bool = False,
) -> Row:
    """Train centrally with noise that ``band`` releases share.

    ``secret``: each record in one of as many parts as batches, not by coins.
    """
    whole, some = task.pooled(), {"sampling_rate": rate, "rounds": rounds}
    settings, noise = planned(whole, epsilon, algorithm="dp-sgd", **some)
    settings = {**settings, "step_size": settings["step_size"] * reach}
    if band > 1:
        settings = {**settings, "algorithm": "dp-mf", "band": band}
        turns = {"sampling_rate": min(1.0, rate * band), "steps": -(-rounds // band)}
        noise = pa.noise_multiplier(epsilon=epsilon, delta=1e-5, **turns)
    if secret:
        settings["parts"] = round(1 / rate)
        noise = noise_of_parts(settings["parts"], band, rounds, epsilon)
    return whole.trained(settings, noise, runs=runs, seed=seed)


@functools.cache
def noise_of_parts(parts: int, band: int, rounds: int, epsilon: float) -> float:
    """Least noise multiplier of records in so many secret parts."""
    shares = toeplitz(rounds, band)[1:]
    how = pa.PoissonSampling(1.0, parts, shares, secret=True)

    def ledger(noise: float) -> pa.Ledger:
        norm = math.hypot(1.0, *shares)
        turn = pa.Release.of_sum(norm_bound=norm, noise_multiplier=noise, sampling=how)
        return pa.Ledger.of(turn, -(-rounds // parts))

    return noise_multiplier(ledger, epsilon, 1e-5, tolerance=1e-3)[0]


def network_way(
    task: Task,
    seed: int,
    *,
    name: str,
    band: int,
    reach: float,
    epsilon: float,
    runs: int,
) -> Row:
    """Train for 200 steps, with the noise that any one other node's view asks for."""
    sums = "butterfly" in name
    rounds = 200 * (exchanges(len(task.sizes)) if sums else 1)
    some = {"graph": "butterfly" if sums else "complete", "sampling_rate": 0.05}
    base = "dp-butterfly" if sums else name
    settings, _ = planned(task, epsilon, algorithm=base, rounds=rounds, **some)
    settings = {**settings, "step_size": settings["step_size"] * reach}
    if band > 1:
        settings = {**settings, "algorithm": name, "band": band}
    key = (name, band, epsilon, tuple(task.sizes))  # is of no deal and no step size
    if key not in NOISES:
        NOISES[key] = noise_for_any_node(task, settings, epsilon)
    noise = NOISES[key]
    return task.trained(settings, noise, runs=runs, seed=seed)


def noise_for_any_node(task: Task, settings: dict[str, Any], epsilon: float) -> float:
    """Least noise that is certified against any one other node, to a hundredth.

    Of gossip on a complete graph, as if of every release a node were told as much as in
    a view of eight rounds of the one that it is told most of.
    """
    material = Material.own(task.model, task.shares, loss=task.loss, test=task.test)

    def problem(values: dict[str, Any]) -> Problem:
        return Problem.of(training_of(values, task.sizes), material=material)

    whole, hides = problem(settings), 1.0
    name = whole.training.algorithm
    if "butterfly" not in name:
        short = problem({**settings, "rounds": 8})
        protocol = protocol_of(short, short.ledger(1.0))
        hides = of_observer(protocol, Observer.of(1), 0).certified.min()

    def told(noise: float) -> float:
        ledger = whole.ledger(noise * hides)
        if "butterfly" in name:
            ledger = observed_by(name, ledger, "any-node", "add-or-remove-one")
        return pa.Certificate.of(ledger).epsilon(1e-5).upper

    low, high = 0.1, 20.0
    while high > 1.01 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if told(middle) <= epsilon else (middle, high)
    return high


def keep(what: str, found: Found, seconds: float) -> None:
    """Keep what was found, with the command that finds it."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known[what] = {
        "command": shlex.join(
            ["python", "tests/benchmarks/bench_choosing.py", *sys.argv[1:]]
        ),
        "version": pa.__version__,
        "seconds": round(seconds),
        "found": {
            way: {
                task: {x: round(own, 4) for x, own in row.items()}
                for task, row in by.items()
            }
            for way, by in found.items()
        },
    }
    KEPT.write_text(json.dumps(known, indent=1) + "\n")


def table(found: Found, head: str) -> list[str]:
    """Table of percents, a row a task and a column a way."""
    tasks = next(iter(found.values()))
    lines = [f"| {' | '.join([head, *found])} |", f"| --- |{' ---: |' * len(found)}"]
    for task in tasks:
        scores = (f"{100 * found[way][task]['score']:.1f}" for way in found)
        lines.append(f"| {task} | {' | '.join(scores)} |")
    return lines


def searched_table(known: dict[str, Any]) -> list[str]:
    """Table of what the search found, a row a way and a column an epsilon."""
    by_epsilon = {
        name.rpartition(" ")[2]: own["found"]
        for name, own in known.items()
        if name.startswith("search, ")
    }
    epsilons = sorted(by_epsilon, key=float)

    def mean(way: str, epsilon: str, figure: str) -> str:
        rows = by_epsilon[epsilon][way].values()
        return f"{100 * sum(row[figure] for row in rows) / len(rows):.1f}"

    named = " | ".join(f"epsilon {own}" for own in epsilons)
    lines = [f"| steps, length over signal to noise | {named} |"]
    lines.append(f"| --- |{' ---: |' * len(epsilons)}")
    for way in by_epsilon[epsilons[0]]:
        name, each = way.replace("reach ", ""), [(way, own) for own in epsilons]
        bold = "**" * (name == f"cosine, {planning.REACH:g}")
        cells = (f"{mean(*own, 'score')} ({mean(*own, 'late')})" for own in each)
        lines.append(f"| {bold}{name}{bold} | {' | '.join(cells)} |")
        if name == f"constant, {2 * planning.REACH:g}":
            cells = (mean(*own, "averaged") for own in each)
            lines.append(
                f"| ... mean of the last half's models | {' | '.join(cells)} |"
            )
    return lines


def page(text: str, known: dict[str, Any]) -> str:
    """``text`` of docs/choosing.md with the tables of what is ``known``."""
    for what in ("search", "held-out", "uneven"):
        if what == "search":
            if not any(name.startswith("search, ") for name in known):
                continue
            lines = searched_table(known)
        else:
            lines = table(known[what]["found"], "")
        text = re.sub(
            f"<!-- {what} -->.*?<!-- end -->",
            "\n".join([f"<!-- {what} -->", *lines, "<!-- end -->"]),
            text,
            flags=re.DOTALL,
        )
    # Of algorithms what to choose them for is written by hand, figures are not.
    scored = known["algorithms"]["found"]

    def row(match: re.Match[str]) -> str:
        names = [name for name in re.findall("`(.+?)`", match[1]) if name in scored]
        if not names:
            return match[0]
        columns = zip(*(scored[name].values() for name in names), strict=True)
        cells = (
            ", ".join(f"{100 * each['score']:.1f}" for each in column)
            for column in columns
        )
        return f"{match[1]} | {' | '.join(cells)} |"

    text = re.sub(r"^(\| `.+?) ?\| [\d., ;]+ \| [\d., ;]+ \|", row, text, flags=re.M)
    return text


def draw(found: Found, path: str) -> None:
    """Draw the scores, a line an algorithm, as an SVG file."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "privaudit", "svg.fonttype": "none"}
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    names = [*found][::-1]
    for mark, where in zip("os", next(iter(found.values())), strict=True):
        scores = [100 * found[name][where]["score"] for name in names]
        axis.plot(scores, names, mark, label=where, markersize=6, alpha=0.8)
    axis.set_xlabel("accuracy of the nodes' models, percent")
    axis.grid(alpha=0.3)
    axis.legend(loc="lower left", fontsize="small")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = ["search", "held-out", "uneven", "algorithms", "correlated", "one-epoch"]
    kinds += ["networks", "page"]
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    if asked.what == "page":
        known = json.loads(KEPT.read_text())
        PAGE.write_text(page(PAGE.read_text(), known))
        draw(known["algorithms"]["found"], str(PAGE.with_suffix(".svg")))
        return
    torch.set_num_threads(1)
    began = time.process_time()
    defaults: dict[str, Way] = {
        "defaults": functools.partial(planned_way, reach=1.0, schedule="cosine"),
        "before plans": before,
    }
    tasks, ways = {
        "search": (SEARCH, searched()),
        "held-out": (HELD_OUT, defaults),
        "uneven": (UNEVEN, {**defaults, "central": central, "as loud": as_loud}),
        "correlated": (
            {"digits": digits_at_eight, "fashion": fashion},
            {
                f"{rate:g} x {rounds}, band {band}, steps {reach:g}": functools.partial(
                    correlated_way, rate=rate, rounds=rounds, band=band, reach=reach
                )
                for rate, rounds, bands in CORRELATED
                for band in bands
                for reach in (1.0, 2.0, 4.0)
            },
        ),
        "one-epoch": (
            {"digits": digits_at_eight, "fashion": fashion},
            {
                f"band {band}, {'parts' if secret else 'coins'}, steps {reach:g}": (
                    functools.partial(
                        correlated_way,
                        rate=0.01,
                        rounds=100,
                        band=band,
                        reach=reach,
                        secret=secret,
                    )
                )
                for band, secret in ONE_EPOCH
                for reach in (0.5, 1.0, 2.0, 4.0)
            },
        ),
        "networks": (
            {"digits": digits_at_eight, "fashion": fashion},
            {
                f"{name}, band {band}, steps {reach:g}": functools.partial(
                    network_way, name=name, band=band, reach=reach
                )
                for name, band in NETWORKS
                for reach in (1.0, 2.0, 4.0)
            },
        ),
        "algorithms": (
            {"even": digits_at_eight, "by class": digits_apart},
            {name: functools.partial(algorithm_way, name=name) for name in ALGORITHMS},
        ),
    }[asked.what]
    ways = {
        name: functools.partial(train, epsilon=asked.epsilon, runs=asked.runs)
        for name, train in ways.items()
    }
    found = compare(tasks, ways, asked.seeds)
    show(found)
    seconds = time.process_time() - began
    by_budget = asked.what in ("search", "correlated", "one-epoch", "networks")
    name = f"{asked.what}, epsilon {asked.epsilon:g}" if by_budget else asked.what
    keep(name, found, seconds)
    print(f"\n{seconds:.0f} s of the processor")


if __name__ == "__main__":
    main()
