"""Tables 1 and 2 of Bayrooti, Gao and Prorok (2023) on glyphs, certified."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from reports import published, told
from reports.papers.running import certified, planned_noise
from reports.study import Cell
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.search import chosen, climb, held_out_accuracy, untried
from trainers.runs.training import Training, training_from

PAPER = published("bayrooti")
STEP_SIZES, TABLE_1 = PAPER["steps"], PAPER["table_1"]
METHODS = {"central": "sgd", "DSGD": "dsgd", "DSGT": "dsgt", "DiNNO": "dinno"}
EPSILONS = (None, 100.0, 10.0, 1.0, 0.5)  # None: not private
GRAPHS = ("complete", "fiedler:0.7", "fiedler:0.39", "fiedler:0.06")
SPLITS = (0.0, 0.25, 0.5, 0.75, 1.0)
DELTA = 1e-5
SEEDS = 3
SETTINGS = told(__file__)
COMMON = SETTINGS["COMMON"]
_PUBLISHED = SETTINGS["PUBLISHED"]
_OURS = SETTINGS["OURS"]
FACTORS = (1 / 3, 3.0)
LATTICE = {"step_size": FACTORS, "rho": FACTORS}
MOST = 24


def starts(method: str, epsilon: float | None) -> list[dict[str, Any]]:
    """Starts of a search: the published settings, and our own.

    ``fall`` is the last step size over the first.
    """
    first, last = STEP_SIZES[method][EPSILONS.index(epsilon)]
    published = {"step_size": first, "fall": last / first, **_PUBLISHED[method]}
    return [published, {"clip_norm": 1.0, "fall": 0.1, **_OURS[method]}]


def settings_of(
    method: str, epsilon: float | None, values: dict[str, Any]
) -> dict[str, Any]:
    """Settings by name, of options as `starts` writes them."""
    name = ("" if epsilon is None else "dp-") + METHODS[method]
    found: dict[str, Any] = {**values, "algorithm": name}
    fall = found.pop("fall", 1.0)
    if "step_size" in found:
        found["final_step_size"] = found["step_size"] * fall
    return found


def training(method: str, epsilon: float | None, values: dict[str, Any]) -> Training:
    """The training of one cell."""
    return training_from(settings_of(method, epsilon, values), where=__name__)


def noise(method: str, epsilon: float | None, values: dict[str, Any]) -> float:
    """The least that is certified for the cell's claim."""
    problem = Problem.of(training(method, epsilon, values))
    return planned_noise(problem, epsilon, DELTA, "certified")


def find(
    method: str,
    epsilon: float | None,
    values: dict[str, Any],
    begin: list[dict[str, Any]],
    found: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Options by a search on a fifth of the training data, a class a node.

    It begins also where the search on the complete graph ended, if that is ``found``.
    """
    z = noise(method, epsilon, values)

    def score(point: dict[str, Any]) -> float:
        one = training(method, epsilon, {**values, **point})
        return held_out_accuracy(one, z)

    begin = [*begin, *(other["chosen"] for other in (found or {}).values())]
    tried = climb(score, begin, LATTICE, most=MOST)
    point, _ = chosen(tried)
    return {
        "noise_multiplier": z,
        "tried": [{**point, "accuracy": right} for point, right in tried],
        "chosen": point,
        "published": begin[0] == point,
        "at_edge": bool(untried(tried, LATTICE)),
    }


def trained(
    method: str,
    epsilon: float | None,
    values: dict[str, Any],
    seeds: int,
    found: dict[str, Any],
) -> dict[str, Any]:
    """Runs of one cell as one block: each its own start, batches and noise."""
    (searched,) = found.values()
    values = {**values, **searched["chosen"]}
    problem = Problem.of(training(method, epsilon, values))
    z = noise(method, epsilon, values)
    starts = torch.cat([problem.start(seed) for seed in range(seeds)])
    models, ledger = problem.train(z, Streams(0), runs=seeds, start=starts)
    right = accuracy(problem.gradients(), models, problem.test)  # (seeds, nodes)
    return {
        "accuracy": right.mean(1).tolist(),
        "worst": right.min(1).values.tolist(),
        "noise_multiplier": z,
        **({} if epsilon is None else certified(ledger, DELTA)),
    }


def places(*first: Any) -> dict[tuple[str, float | None, str, float], None]:
    """Cells of Table 1, by the ``first``, then what Table 2 has besides."""
    places = (
        (method, epsilon, graph, 1.0)
        for epsilon, graph, method in first
        if method != "central" or graph == GRAPHS[0]
    )
    methods = tuple(METHODS)[1:]
    second = itertools.product(methods, (10.0, 0.5), GRAPHS[-1:], SPLITS)
    return dict.fromkeys([*places, *second])


def cells() -> Iterator[Cell]:
    """Table 1, then what Table 2 has besides; searches before they are needed."""
    first = (
        (epsilon, graph, method)
        for graph, method, epsilon in itertools.product(GRAPHS, METHODS, EPSILONS)
    )
    searched = set()
    for method, epsilon, graph, split in places(*first):
        settings = {"method": method, "epsilon": epsilon}
        # At both ends of connectivity; other graphs and splits take the sparsest's.
        at = graph if graph == GRAPHS[0] else GRAPHS[-1]
        search = f"search {method} {epsilon} {at}"
        if search not in searched:
            searched.add(search)
            base = f"search {method} {epsilon} {GRAPHS[0]}"
            values = {**COMMON, "graph": at, "split": 1.0}
            more = {"values": values, "begin": starts(method, epsilon)}
            needs = () if base == search else (base,)
            yield Cell(search, find, {**settings, **more}, needs)
        values = {**COMMON, "graph": graph, "split": split}
        name = f"{method} {epsilon} {graph} {split}"
        yield Cell(
            name, trained, {**settings, "values": values, "seeds": SEEDS}, (search,)
        )
