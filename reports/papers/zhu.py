"""Zhu, Huang, Wang, Ji and Xu, Dyn-D2P: cells, and what they say."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from typing import Any

from reports import published, told
from reports.dynamic.cells import (
    CALIBRATIONS,
    EPSILONS,
    GRAPHS,
    GRID,
    METHODS,
    NAMES,
    NODES,
    key_of,
)
from reports.papers.programme import Case, Shown, above, per_cent, results_of, within
from reports.papers.running import searched, trained
from reports.study import Cell, Results, Study

DELTA = 1e-4
SEEDS = 3
TRAINING = told(__file__)["zhu"]["TRAINING"]
# The settings of epsilon 1 end Dyn-D2P's training at 0.3: dead units, 10 per cent.
SEARCHED_AT, SHORT = 0.3, 1000
DATA = "Fashion-MNIST"


def _search(method: str) -> Cell:
    """A tenth as long, at equal J / sqrt(K), where what suits epsilon 1 does not."""
    shorter = {"rounds": SHORT, "train": 20 * round(3000 * (SHORT / 10_000) ** 0.5)}
    settings = {
        "training": {**TRAINING, **shorter, "algorithm": method},
        "grid": GRID[method],
        "epsilon": SEARCHED_AT,
        "delta": DELTA,
        "how": "certified",
    }
    return Cell(f"zhu search {method} epsilon={SEARCHED_AT:g}", searched, settings)


def options_of(how: str, method: str, epsilon: float) -> dict[str, Any]:
    """Options that a search chose: that of reports/dynamic, or one here."""
    if (how, epsilon) == ("certified", SEARCHED_AT):
        own = Study("papers").results().get(_search(method).name)
        if own is not None:
            return own["chosen"]
    return Study("dynamic").results()[key_of(how, method, 1.0)]["options"]


def cell(how: str, method: str, epsilon: float | None, seed: int) -> Cell:
    """One run at the size of the table."""
    options = {} if epsilon is None else options_of(how, method, epsilon)
    settings = {
        "training": {**TRAINING, **options, "algorithm": method},
        "epsilon": epsilon,
        "delta": DELTA,
        "how": how,
        "seed": seed,
    }
    budget = "none" if epsilon is None else f"{epsilon:g}"
    name = f"zhu {how} {method} epsilon={budget} seed={seed}"
    return Cell(name, trained, settings)


def cells() -> Iterator[Cell]:
    """The most telling first: constant against dynamic noise, certified, epsilon 1."""
    order = ("const-d2p", "dyn-d2p", "dyn-c-d2p", "dyn-mu-d2p")
    yield from map(_search, order)
    for seed in range(SEEDS):
        epsilons = sorted(EPSILONS, key=lambda epsilon: epsilon != 1)
        for how, epsilon in itertools.product(reversed(CALIBRATIONS), epsilons):
            yield from (cell(how, method, epsilon, seed) for method in order)
        yield cell("none", "sgp", None, seed)


def at_size(own: Results, how: str, method: str, epsilon: float) -> dict[int, float]:
    """Accuracy by seed, of those that were run."""
    names = {seed: cell(how, method, epsilon, seed).name for seed in range(SEEDS)}
    return {
        seed: own[name]["accuracy"]
        for seed, name in names.items()
        if name in own and own[name]["accuracy"] is not None
    }


def _dynamic_wins(
    own: Results, how: str, method: str = "dyn-d2p", less: str = "const-d2p"
) -> Iterator[Case]:
    known = results_of("dynamic")
    for epsilon in EPSILONS:
        one, other = (at_size(own, how, name, epsilon) for name in (method, less))
        if seeds := sorted(one.keys() & other.keys()):
            pairs = ([each[k] for k in seeds] for each in (one, other))
            name = f"{DATA}, 10 000 rounds, epsilon {epsilon:g}, seeds: {len(seeds)}"
            yield Case(name, *above(*pairs, paired=True), epsilon)
    for epsilon in EPSILONS:
        dynamic, constant = (
            known[key_of(how, name, epsilon)]["accuracy"] for name in (method, less)
        )
        name = f"reports/dynamic, glyphs, epsilon {epsilon:g}"
        yield Case(name, *above(dynamic, constant, paired=True), epsilon)


def _certified(method: str, epsilon: float) -> tuple[float, str]:
    """Epsilon certified for the paper's noise, at its own J and K where stored."""
    known = results_of("dynamic")
    whole = known.get(f"noise paper epsilon={epsilon:g} J=3000 K=10000")
    if method in ("const-d2p", "dyn-c-d2p") and whole:  # budgets are constant
        return whole["certified"], "J = 3 000, K = 10 000"
    return known[key_of("paper", method, epsilon)]["certified"], "J = K = 900"


def shown(own: Results) -> Iterator[Shown]:
    """Table 2: of the paper's data where any seed was run, else of reports/dynamic."""
    known = results_of("dynamic")
    for method, epsilon in itertools.product(METHODS, EPSILONS):
        reduced = known[key_of("certified", method, epsilon)]["accuracy"]
        whole = list(at_size(own, "certified", method, epsilon).values())
        certified, size = _certified(method, epsilon)
        yield Shown(
            f"{NAMES[method]}, {epsilon:g}, {size}"
            + (f" (accuracy: {DATA})" if whole else " (accuracy: glyphs)"),
            epsilon,
            certified,
            published("zhu")["table_2"][method][str(epsilon)],
            per_cent(whole or reduced),
        )


def _epsilons(own: Results) -> list[Case]:
    cases = {}
    for method, epsilon in itertools.product(("const-d2p", "dyn-d2p"), EPSILONS):
        certified, size = _certified(method, epsilon)
        cases[f"{method}, {size}, epsilon {epsilon:g}"] = (epsilon, certified)
    return within(cases)


def _rising(own: Results, what: str) -> Iterator[Case]:
    """Return whether each network is above the one before it, Dyn-D2P at epsilon 1."""
    known = results_of("dynamic")
    for a, b in itertools.pairwise(GRAPHS if what == "graph" else NODES):
        less, more = (
            known[key_of("certified", "dyn-d2p", 1.0, **{what: each})]["accuracy"]
            for each in (a, b)
        )
        yield Case(f"from {a} to {b}", *above(more, less))


def _norms(own: Results) -> Iterator[Case]:
    """Cases of our runs on the paper's data (from round 1 000), then small ones."""
    runs = {"zhu none sgp ": "SGP, no noise"} | {
        f"zhu certified {method} ": f"{NAMES[method]}, noise" for method in METHODS
    }
    for prefix, words in runs.items():
        ends = [
            [statistics.mean(result["norms"][end]) for end in (0, -1)]
            for result in own.starting(prefix).values()
            if result.get("norms")
        ]
        if ends:
            first, last = (statistics.mean(each) for each in zip(*ends, strict=True))
            name = f"{words}, {DATA}, runs: {len(ends)}"
            yield Case(name, last < first, f"{first:.1f} to {last:.1f}")
    for name, key in (
        ("glyphs, no noise", "norms sgp epsilon=0"),
        ("glyphs, constant noise, epsilon 1", "norms const-d2p epsilon=1"),
    ):
        first, *_, last = results_of("dynamic")[key].values()
        yield Case(name, last < first, f"{first:.1f} to {last:.1f}")
