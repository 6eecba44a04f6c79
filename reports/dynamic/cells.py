"""Dyn-D2P's Table 2 twice: by the paper's account, and at equal certified epsilon."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import torch

from privaudit.accounting import account, noise_multiplier
from reports import told
from reports.study import Cell
from trainers.algorithms.family import HasPaperNoise
from trainers.data import Dataset
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import training_from

EPSILONS = (0.3, 0.7, 1.0, 3.0)
METHODS = ("const-d2p", "dyn-mu-d2p", "dyn-c-d2p", "dyn-d2p")
CALIBRATIONS = ("paper", "certified")
NAMES = {
    "const-d2p": "Const-D2P",
    "dyn-mu-d2p": "Dyn[mu]-D2P",
    "dyn-c-d2p": "Dyn[C]-D2P",
    "dyn-d2p": "Dyn-D2P",
}
GRAPHS = ("directed-ring", "exponential", "complete")
NODES = (5, 10, 20, 40)
DELTA = 1e-4
TUNED_AT = 1.0
RECORDS, ROUNDS = 900, 900  # J / sqrt(K) = 30, as with the following
PAPER_RECORDS, PAPER_ROUNDS = 3000, 10_000
SEEDS, TESTED = 5, 2000

GRID = told(__file__)["GRID"]


def training(method: str, **more: Any) -> dict[str, Any]:
    """As the paper's Table 2, but for the size, the data and the model."""
    return {
        "algorithm": method,
        "data": "glyphs",
        "partition": "even",
        "model": "reports.dynamic.model:halved_cnn",
        "gain": 2.0,
        "graph": "exponential",
        "weights": "column-stochastic",
        "rounds": ROUNDS,
        "batch_size": 1.0,
        "step_size": 0.05,
        "nodes": 20,
        "train": more.get("nodes", 20) * RECORDS,
        **more,
    }


@functools.cache
def _problem(text: str) -> Problem:
    return Problem.of(training_from(json.loads(text), where=__name__))


def problem_of(values: dict[str, Any]) -> Problem:
    """Its data and model; the last ones are not made again."""
    return _problem(json.dumps(values))


def noise(training: dict[str, Any], epsilon: float, how: str) -> dict[str, float]:
    """Noise multiplier for a claim, and the certified epsilon of the run."""
    problem = problem_of(training)
    if how == "paper":
        family = problem.training.family
        assert isinstance(family, HasPaperNoise)
        z = family.paper_noise(problem.setting, epsilon, DELTA)
        bound = account(problem.ledger(z), DELTA)
    else:
        z, bound = noise_multiplier(problem.ledger, epsilon, DELTA)
    return {"multiplier": z, "certified": bound.epsilon}


def noise_cell(how: str, epsilon: float, growth: float) -> Cell:
    """It depends neither on clip norms nor on the other nodes."""
    values = training("const-d2p", nodes=1)
    if growth != 1:
        values |= {"algorithm": "dyn-mu-d2p", "rho_mu": growth}
    name = f"noise {how} epsilon={epsilon:g} 1/rho_mu={1 / growth:.1f}"
    return Cell(name, noise, {"training": values, "epsilon": epsilon, "how": how})


def noise_at_length(epsilon: float) -> Cell:
    """The paper's noise with as many records and rounds as the paper may have."""
    size = {"train": PAPER_RECORDS, "rounds": PAPER_ROUNDS}
    values = training("const-d2p", nodes=1) | size
    name = f"noise paper epsilon={epsilon:g} J={PAPER_RECORDS} K={PAPER_ROUNDS}"
    return Cell(name, noise, {"training": values, "epsilon": epsilon, "how": "paper"})


def runs(
    training: dict[str, Any], multiplier: float, seeds: list[int], tested: int
) -> list[float]:
    """Accuracy on test data of each seed's run, mean of nodes; one block of runs.

    Starts, batches and noise differ from run to run; the deal of the data does not.
    """
    problem = problem_of(training)
    start = torch.cat([problem.start(seed) for seed in seeds])
    try:
        models, _ = problem.train(
            multiplier, Streams(seeds[0]), runs=len(seeds), start=start
        )
    except ValueError:  # it diverged
        return [0.1] * len(seeds)
    test = Dataset(problem.test.inputs[:tested], problem.test.targets[:tested])
    right = accuracy(problem.gradients(), models, test)
    return [round(value, 4) for value in right.mean(1).tolist()]


def tuning(
    training: dict[str, Any],
    options: dict[str, float],
    tested: int,
    found: dict[str, Any],
) -> list[float]:
    """One point of the grid, with a seed that nothing else has."""
    (chosen,) = found.values()
    return runs({**training, **options}, chosen["multiplier"], [1000], tested)


def chosen(
    grid: list[dict[str, float]], tuned: list[str], found: dict[str, Any]
) -> dict[str, float]:
    """Point of the grid that is best at epsilon 1."""
    scores = [found[name][0] for name in tuned]
    return grid[scores.index(max(scores))]


def planned_noise(
    how: str, epsilon: float, options: dict[str, float], found: dict[str, Any]
) -> dict[str, float]:
    """Noise for the chosen options; a cell, unless their budgets grow fast."""
    cell = noise_cell(how, epsilon, options.get("rho_mu", 1.0))
    return found.get(cell.name) or noise(**cell.settings)


def trained(
    training: dict[str, Any],
    how: str,
    epsilon: float,
    seeds: list[int],
    tested: int,
    grid: list[dict[str, float]],
    tuned: list[str],
    found: dict[str, Any],
) -> dict[str, Any]:
    """Accuracies of all seeds, with the noise and what it is certified for."""
    options = chosen(grid, tuned, found)
    planned = planned_noise(how, epsilon, options, found)
    right = runs({**training, **options}, planned["multiplier"], seeds, tested)
    return {"accuracy": right, "options": options, **planned}


def not_private(training: dict[str, Any], seeds: list[int], tested: int) -> dict:
    """Accuracies without noise."""
    right = runs(training, 0.0, seeds, tested)
    return {"accuracy": right, "options": {}, "multiplier": 0.0}


def norms(
    training: dict[str, Any],
    grid: list[dict[str, float]],
    tuned: list[str],
    found: dict[str, Any],
) -> dict[str, float]:
    """Median norm of a record's gradient as training goes on, at node 0.

    The premise of a shrinking clip norm is that it falls.
    """
    options, multiplier = {}, 0.0
    if tuned:
        options = chosen(grid, tuned, found)
        multiplier = planned_noise("certified", TUNED_AT, options, found)["multiplier"]
    problem = problem_of({**training, **options})
    rounds = problem.training.rounds
    per_sample = PerSample(problem.module, cross_entropy)
    data = problem.shares[0].select(torch.arange(min(100, len(problem.shares[0]))))
    seen: dict[str, float] = {}

    def after(done: int, models: torch.Tensor, ledger: Any) -> None:
        if done == 1 or done % (rounds // 3) == 0:
            gradients = per_sample.gradients(
                models[:, 0], data.inputs[None], data.targets[None]
            )
            seen[str(done)] = round(float(gradients.norm(dim=2).median()), 3)

    problem.train(multiplier, Streams(1000), observers=Observers(after_round=after))
    return seen


def plain_norms(training: dict[str, Any]) -> dict[str, float]:
    """The same without noise."""
    return norms(training, [], [], {})


def slow(epsilon: float) -> tuple[float, ...]:
    """Growths whose noise is a cell; at other epsilons nothing best grows faster."""
    return (1.0, 1.25, 2.0, 5.0) if epsilon == TUNED_AT else (1.0, 1.25)


def growths(method: str) -> dict[float, None]:
    """Growth factors of the budget in the method's grid."""
    return dict.fromkeys(point.get("rho_mu", 1.0) for point in GRID[method])


def of_one(how: str) -> Iterator[Cell]:
    """All cells of one calibration; the studies of networks with the certified."""
    every = dict.fromkeys(growth for method in METHODS for growth in growths(method))
    for epsilon in EPSILONS:
        for growth in every:
            if growth in slow(epsilon):
                yield noise_cell(how, epsilon, growth)
    for method in METHODS:
        for options in GRID[method]:
            words = " ".join(f"{name}={value:.3g}" for name, value in options.items())
            settings = {"training": training(method), "options": options}
            needs = noise_cell(how, TUNED_AT, options.get("rho_mu", 1.0)).name
            name = f"tuning {how} {method} {words}"
            yield Cell(name, tuning, {**settings, "tested": TESTED}, needs=(needs,))
    for epsilon in EPSILONS:
        for method in METHODS:
            yield cell(how, method, epsilon)


def tuned(how: str, method: str) -> dict[str, Any]:
    """Settings by which a cell finds what the grid chose."""
    names = []
    for options in GRID[method]:
        words = " ".join(f"{name}={value:.3g}" for name, value in options.items())
        names.append(f"tuning {how} {method} {words}")
    return {"grid": GRID[method], "tuned": names}


def key_of(how: str, method: str, epsilon: float, **network: Any) -> str:
    """By what a cell is kept; what is as in the tables is not said again."""
    usual = {"graph": "exponential", "nodes": 20}
    said = {name: value for name, value in network.items() if usual[name] != value}
    where = "".join(f" {name}={value}" for name, value in said.items())
    return f"cell {how} {method} epsilon={epsilon:g}{where}"


def cell(how: str, method: str, epsilon: float, **network: Any) -> Cell:
    """Five seeds of one method, on the tables' network or another."""
    search = tuned(how, method)
    settings = {
        "training": training(method, **network),
        "how": how,
        "epsilon": epsilon,
        "seeds": list(range(SEEDS)),
        "tested": TESTED,
        **search,
    }
    planned = [
        noise_cell(how, epsilon, growth).name
        for growth in growths(method)
        if growth in slow(epsilon)
    ]
    name = key_of(how, method, epsilon, **network)
    return Cell(name, trained, settings, needs=(*search["tuned"], *planned))


def cells() -> Iterator[Cell]:
    """Noise, tuning, and five seeds of every method, epsilon and network."""
    for how in CALIBRATIONS:
        yield from of_one(how)
    yield from map(noise_at_length, EPSILONS)
    sgp = {"training": training("sgp")}
    settings = {**sgp, "seeds": list(range(SEEDS)), "tested": TESTED}
    yield Cell(key_of("none", "sgp", 0.0), not_private, settings)
    yield Cell("norms sgp epsilon=0", plain_norms, sgp)
    search = tuned("certified", "const-d2p")
    yield Cell(
        "norms const-d2p epsilon=1",
        norms,
        {"training": training("const-d2p"), **search},
        needs=(*search["tuned"], noise_cell("certified", TUNED_AT, 1.0).name),
    )
    for graph in GRAPHS:
        if graph != "exponential":
            yield cell("certified", "dyn-d2p", TUNED_AT, graph=graph)
    for nodes in NODES:
        if nodes != 20:
            yield cell("certified", "dyn-d2p", TUNED_AT, nodes=nodes)
