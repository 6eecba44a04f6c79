"""Dyn-D2P's Table 2 twice: by the paper's account, and at equal certified epsilon."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from privaudit.accounting import account
from reports import told
from reports.papers.running import gradient_norms, planned_noise
from reports.study import Cell
from trainers.data import Dataset
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import training_from

Grid = Sequence[dict[str, float]]
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
SEEDS, TESTED = 5, 2000
SETTINGS = told(__file__)
GRID, RECORDS = SETTINGS["GRID"], SETTINGS["RECORDS"]
ROUNDS = SETTINGS["TRAINING"]["rounds"]


def training(method: str, **more: Any) -> dict[str, Any]:
    """As the paper's Table 2, but for the size, the data and the model."""
    values = {**SETTINGS["TRAINING"], "algorithm": method, **more}
    return {**values, "train": values["nodes"] * RECORDS}


def problem_of(values: dict[str, Any]) -> Problem:
    """Its data and model."""
    return Problem.of(training_from(values, where=__name__))


def noise(training: dict[str, Any], epsilon: float, how: str) -> dict[str, float]:
    """Noise multiplier for a claim, and the certified epsilon of the run."""
    problem = problem_of(training)
    z = planned_noise(problem, epsilon, DELTA, how)
    return {"multiplier": z, "certified": account(problem.ledger(z), DELTA).epsilon}


def noise_cell(how: str, epsilon: float, growth: float) -> Cell:
    """It depends neither on clip norms nor on the other nodes."""
    values = training("const-d2p", nodes=1)
    if growth != 1:
        values |= {"algorithm": "dyn-mu-d2p", "rho_mu": growth}
    name = f"noise {how} epsilon={epsilon:g} 1/rho_mu={1 / growth:.1f}"
    return Cell(name, noise, {"training": values, "epsilon": epsilon, "how": how})


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


def planned(
    how: str, epsilon: float, grid: Grid, tuned: Sequence[str], found: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """Point of the grid that is best at epsilon 1, and its noise; none of no grid.

    Noise is a cell, unless the point's budgets grow fast.
    """
    if not tuned:
        return {}, {"multiplier": 0.0}
    scores = [found[name][0] for name in tuned]
    options = grid[scores.index(max(scores))]
    cell = noise_cell(how, epsilon, options.get("rho_mu", 1.0))
    return options, found.get(cell.name) or noise(**cell.settings)


def trained(
    training: dict[str, Any],
    seeds: list[int],
    tested: int,
    how: str = "none",
    epsilon: float = 0.0,
    grid: Grid = (),
    tuned: Sequence[str] = (),
    found: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Accuracies of all seeds, with the noise and what it is certified for."""
    options, with_noise = planned(how, epsilon, grid, tuned, found)
    right = runs({**training, **options}, with_noise["multiplier"], seeds, tested)
    return {"accuracy": right, "options": options, **with_noise}


def norms(
    training: dict[str, Any],
    grid: Grid = (),
    tuned: Sequence[str] = (),
    found: Mapping[str, Any] = {},
) -> dict[str, float]:
    """Median norm of a record's gradient as training goes on, at node 0.

    The premise of a shrinking clip norm is that it falls.
    """
    options, with_noise = planned("certified", TUNED_AT, grid, tuned, found)
    problem = problem_of({**training, **options})
    rounds = problem.training.rounds
    seen: dict[str, float] = {}

    def after(done: int, models: torch.Tensor, ledger: Any) -> None:
        if done == 1 or done % (rounds // 3) == 0:
            seen[str(done)] = gradient_norms(problem, models, 100)[0]

    watch = Observers(after_round=after)
    problem.train(with_noise["multiplier"], Streams(1000), observers=watch)
    return seen


def slow(method: str, epsilon: float) -> list[float]:
    """Growths of the method's grid whose noise is a cell.

    At other epsilons than that of tuning nothing best grows faster.
    """
    every = dict.fromkeys(point.get("rho_mu", 1.0) for point in GRID[method])
    return [growth for growth in every if epsilon == TUNED_AT or growth <= 1.25]


def tuned(how: str, method: str) -> dict[str, Any]:
    """Settings by which a cell finds what the grid chose."""
    names = []
    for options in GRID[method]:
        words = " ".join(f"{name}={value:.3g}" for name, value in options.items())
        names.append(f"tuning {how} {method} {words}")
    return {"grid": GRID[method], "tuned": names}


def key_of(how: str, method: str, epsilon: float, **network: Any) -> str:
    """By what a cell is kept; what is as in the tables is not said again."""
    usual = SETTINGS["TRAINING"]
    said = {name: value for name, value in network.items() if usual[name] != value}
    where = "".join(f" {name}={value}" for name, value in said.items())
    return f"cell {how} {method} epsilon={epsilon:g}{where}"


def cell(how: str, method: str, epsilon: float, **network: Any) -> Cell:
    """Five seeds of one method, on the tables' network or another."""
    search = tuned(how, method)
    settings = {"training": training(method, **network), "how": how, "epsilon": epsilon}
    settings |= {"seeds": list(range(SEEDS)), "tested": TESTED, **search}
    noises = [noise_cell(how, epsilon, each).name for each in slow(method, epsilon)]
    name = key_of(how, method, epsilon, **network)
    return Cell(name, trained, settings, needs=(*search["tuned"], *noises))


def cells() -> Iterator[Cell]:
    """Noise, tuning, and five seeds of every method, epsilon and network."""
    for how in CALIBRATIONS:
        for epsilon in EPSILONS:
            every = {each: None for method in METHODS for each in slow(method, epsilon)}
            for growth in every:
                yield noise_cell(how, epsilon, growth)
        for method in METHODS:
            search = tuned(how, method)
            for options, name in zip(*search.values(), strict=True):
                settings = {"training": training(method), "options": options}
                needs = noise_cell(how, TUNED_AT, options.get("rho_mu", 1.0)).name
                yield Cell(name, tuning, {**settings, "tested": TESTED}, (needs,))
        for epsilon, method in itertools.product(EPSILONS, METHODS):
            yield cell(how, method, epsilon)
    search = tuned("certified", "const-d2p")
    needs = (*search["tuned"], noise_cell("certified", TUNED_AT, 1.0).name)
    settings = {"training": training("const-d2p"), **search}
    yield Cell("norms const-d2p epsilon=1", norms, settings, needs)
    sgp = {"training": training("sgp")}
    yield Cell("norms sgp epsilon=0", norms, sgp)
    several = {**sgp, "seeds": list(range(SEEDS)), "tested": TESTED}
    yield Cell(key_of("none", "sgp", 0.0), trained, several)
    for graph in GRAPHS[::2]:
        yield cell("certified", "dyn-d2p", TUNED_AT, graph=graph)
    for nodes in (5, 10, 40):
        yield cell("certified", "dyn-d2p", TUNED_AT, nodes=nodes)
