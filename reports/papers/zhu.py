"""Zhu, Huang, Wang, Ji and Xu, Dyn-D2P: every table and figure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from reports import unsettled
from reports.dynamic.cells import GRID
from reports.dynamic.names import (
    CALIBRATIONS,
    EPSILONS,
    GRAPHS,
    METHODS,
    NODES,
    key_of,
)
from reports.dynamic.page import NAMES, PAPER
from reports.papers.programme import (
    Claim,
    Judged,
    Row,
    Shown,
    above,
    compared,
    per_cent,
    results_of,
    unknown,
    within,
)
from reports.papers.running import pilot, searched, trained
from reports.papers.size import Size, parameters
from reports.study import Cell, Results, Study

TITLE = "Dyn-D2P: dynamic noise by push-sum"
LABELS = ("claimed", "certified for the paper's noise (J, K as the labels have)")
DELTA = 1e-4
SEEDS = 3
TRAINING: dict[str, Any] = {
    "data": "fashion-mnist",
    "train": 60_000,
    "partition": "even",
    "model": "shallow-cnn",
    "graph": "exponential",
    "weights": "column-stochastic",
    "nodes": 20,
    "rounds": 10_000,
    "batch_size": 1.0,
    "step_size": 0.03,
}
# The settings of epsilon 1 end Dyn-D2P's training at 0.3: dead units, 10 per cent.
SEARCHED_AT, SHORT = 0.3, 1000
DATA = "Fashion-MNIST"
ROUNDS = f"{TRAINING['rounds']:,}".replace(",", " ")
K = "K is not printed; 10 000 rounds assumed"
NO_CIFAR = (
    "CIFAR-10 cannot be had without a network, nor ResNet-18 trained so long here"
)


ASSUMED = "rounds; parameters are of our CNN"


def _small(cells: float, **more: float) -> Size:
    settings = {"rounds": 10_000, "nodes": 20, "batch": 1, "runs": 5, "cells": cells}
    settings["parameters"] = parameters("shallow-cnn", "fashion-mnist")
    return Size(**(settings | more))


def _large(cells: float, **more: float) -> Size:
    return _small(cells, parameters=parameters("resnet18", "cifar-10"), **more)


def _curves(epsilon: float) -> tuple[tuple[str, ...], ...]:
    # The curve without noise alone, which all of them share, would be no result of it.
    return (("papers", f"zhu certified * epsilon={epsilon:g} *"),)


def _fashion(item: str, epsilon: float) -> Row:
    return Row(
        item,
        f"loss and accuracy by round at epsilon {epsilon:g}, shallow CNN",
        _small(5),
        "Fashion-MNIST",
        assumed=ASSUMED,
        differs=f"{K}; accuracy alone",
        sources=_curves(epsilon),
        pilot="zhu shallow-cnn",
    )


def _photos(item: str, epsilon: float) -> Row:
    return Row(
        item,
        f"loss and accuracy by round at epsilon {epsilon:g}, ResNet-18",
        _large(5),
        "CIFAR-10",
        assumed="rounds",
        differs=NO_CIFAR,
        pilot="zhu resnet18",
    )


ROWS = [
    Row(
        "Figure 1",
        "norms of gradients by round, four nodes, ResNet-18",
        _large(1, nodes=4, runs=1),
        "CIFAR-10",
        assumed="rounds",
        differs=f"{NO_CIFAR}; a CNN's norms instead, of the data told beside",
        sources=(("papers", "zhu none *"), ("dynamic", "norms sgp *")),
        pilot="zhu resnet18",
    ),
    Row(
        "Table 1",
        "accuracy by method and epsilon, ResNet-18",
        _large(17),
        "CIFAR-10",
        assumed="rounds",
        differs=NO_CIFAR,
        pilot="zhu resnet18",
    ),
    _photos("Figure 2", 1),
    Row(
        "Table 2",
        "accuracy by method and epsilon, shallow CNN",
        _small(17),
        "Fashion-MNIST",
        assumed=ASSUMED,
        differs=f"{K}; at equal certified epsilon; schedules as reports/dynamic chose",
        sources=(
            ("papers", "zhu certified *", "zhu none *"),
            ("dynamic", *(f"cell certified * epsilon={e:g}" for e in EPSILONS)),
        ),
        pilot="zhu shallow-cnn",
    ),
    _fashion("Figure 3", 3),
    Row(
        "Figure 4",
        "accuracy of Dyn-D2P by rho_c and rho_mu (8 x 8), ResNet-18 or CNN not said",
        _small(64, runs=5),
        "not said",
        assumed=f"the network; {ASSUMED}",
        differs=f"{K}; a part of the grid, at certified epsilon 1",
        sources=(("dynamic", "tuning certified dyn-d2p *"),),
        pilot="zhu shallow-cnn",
    ),
    Row(
        "Figure 5",
        "accuracy of Dyn-D2P by graph and by number of nodes, epsilon 1, ResNet-18",
        _large(7, nodes=40),
        "CIFAR-10",
        assumed="rounds",
        differs=f"{NO_CIFAR}; a CNN on a stand-in",
        sources=(("dynamic", "cell certified dyn-d2p epsilon=1 *"),),
        pilot="zhu resnet18",
    ),
    _photos("Figure 6", 3),
    _photos("Figure 7", 1),
    _photos("Figure 8", 0.3),
    _fashion("Figure 9", 3),
    _fashion("Figure 10", 1),
    _fashion("Figure 11", 0.3),
]


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


def _options(how: str, method: str, epsilon: float) -> dict[str, Any]:
    """What a search chose: that of reports/dynamic, but where there is one here."""
    if (how, epsilon) == ("certified", SEARCHED_AT):
        own = Study("papers").results().get(_search(method).name)
        if own is not None:
            return own["chosen"]
    return Study("dynamic").results()[key_of(how, method, 1.0)]["options"]


def cell(how: str, method: str, epsilon: float | None, seed: int) -> Cell:
    """One run at the size of the table."""
    options = {} if epsilon is None else _options(how, method, epsilon)
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


def pilots() -> Iterator[Cell]:
    """The CNN, and ResNet-18 of two nodes."""
    common = {"algorithm": "const-d2p", "graph": "exponential", "batch_size": 1.0}
    common |= {"weights": "column-stochastic"}
    small = {**common, "nodes": 20, "model": "shallow-cnn", "rounds": 50}
    large = {**common, "nodes": 2, "model": "resnet18", "rounds": 2}
    for name, training, shape in (
        ("zhu shallow-cnn", small, [1, 28, 28]),
        ("zhu resnet18", large, [3, 32, 32]),
    ):
        settings = {"training": training, "shape": shape, "classes": 10}
        yield Cell(f"pilot {name}", pilot, settings)


def cells() -> Iterator[Cell]:
    """The most telling first: constant against dynamic noise, certified, epsilon 1."""
    order = ("const-d2p", "dyn-d2p", "dyn-c-d2p", "dyn-mu-d2p")
    assert set(order) == set(METHODS)
    yield from map(_search, order)
    for seed in range(SEEDS):
        for how in reversed(CALIBRATIONS):
            for epsilon in sorted(EPSILONS, key=lambda epsilon: epsilon != 1):
                for method in order:
                    yield cell(how, method, epsilon, seed)
        yield cell("none", "sgp", None, seed)


def at_size(own: Results, how: str, method: str, epsilon: float) -> dict[int, float]:
    """Accuracy by seed, of those that were run."""
    names = {seed: cell(how, method, epsilon, seed).name for seed in range(SEEDS)}
    return {
        seed: own[name]["accuracy"]
        for seed, name in names.items()
        if name in own and own[name]["accuracy"] is not None
    }


def _ends(method: str, chosen: dict[str, Any]) -> str:
    """Which of the chosen options are the least or the most of those tried."""
    found = []
    for name, value in chosen.items():
        tried = {point[name] for point in GRID[method]}
        if value in (min(tried), max(tried)):
            least = "least" if value == min(tried) else "most"
            found.append(f"{name} {value:g} ({least} tried)")
    return ", ".join(found) or "none"


def _at_edge(chosen: Callable[[str], dict[str, Any]]) -> str:
    return "; of ".join(
        f"{NAMES[method]} {_ends(method, chosen(method))}"
        for method in ("const-d2p", "dyn-d2p")
    )


def _searched(how: str, own: Results) -> str:
    """How settings were chosen, which is no equal search."""
    known = results_of("dynamic")
    tries = {m: len(known.starting(f"tuning {how} {m} ")) for m in METHODS}
    told = (
        f"clip norm of {NAMES['const-d2p']} from the paper's grid of "
        f"{tries['const-d2p']}, {NAMES['dyn-d2p']} from {tries['dyn-d2p']} points, "
        "both chosen once, at epsilon 1 on glyphs; at the edge of what was tried: of "
        + _at_edge(lambda method: _options(how, method, 1.0))
    )
    if how == "certified" and own.starting("zhu search "):
        told += (
            f"; on {DATA} at epsilon {SEARCHED_AT:g} anew from the same, by {SHORT} "
            "rounds; there at the edge: of "
            + _at_edge(lambda method: _options(how, method, SEARCHED_AT))
        )
    return told


def _at_size(how: str, own: Results) -> dict[str, Any]:
    found = {}
    for epsilon in EPSILONS:
        one, other = (
            at_size(own, how, method, epsilon) for method in ("dyn-d2p", "const-d2p")
        )
        if seeds := sorted(one.keys() & other.keys()):
            pairs = ([each[k] for k in seeds] for each in (one, other))
            name = f"{DATA}, {ROUNDS} rounds, epsilon {epsilon:g}"
            name += f", seeds: {len(seeds)}"
            found[name] = above(*pairs, paired=True)
    return found


def _dynamic_wins(how: str, own: Results) -> Judged:
    known = results_of("dynamic")
    whole = _at_size(how, own)
    found = dict(whole)
    for epsilon in EPSILONS:
        dynamic, constant = (
            known[key_of(how, method, epsilon)]["accuracy"]
            for method in ("dyn-d2p", "const-d2p")
        )
        name = f"reports/dynamic, glyphs, epsilon {epsilon:g}"
        found[name] = above(dynamic, constant, paired=True)
    judged = compared(found)
    brief = judged.brief if whole else f"{judged.brief}; reduced, on glyphs alone"
    return judged._replace(told=f"{judged.told}; {_searched(how, own)}", brief=brief)


def _certified(method: str, epsilon: float) -> tuple[float, str]:
    """What the paper's noise is certified for, at its own J and K where stored."""
    known = results_of("dynamic")
    whole = known.get(f"noise paper epsilon={epsilon:g} J=3000 K=10000")
    if method in ("const-d2p", "dyn-c-d2p") and whole:  # budgets are constant
        return whole["certified"], "J = 3 000, K = 10 000"
    return known[key_of("paper", method, epsilon)]["certified"], "J = K = 900"


def shown(own: Results) -> Iterator[Shown]:
    """Table 2: of the paper's data where any seed was run, else of reports/dynamic."""
    known = results_of("dynamic")
    for method in METHODS:
        for epsilon in EPSILONS:
            reduced = known[key_of("certified", method, epsilon)]["accuracy"]
            whole = list(at_size(own, "certified", method, epsilon).values())
            certified, size = _certified(method, epsilon)
            yield Shown(
                f"{NAMES[method]}, {epsilon:g}, {size}"
                + (f" (accuracy: {DATA})" if whole else " (accuracy: glyphs)"),
                epsilon,
                certified,
                PAPER[method][epsilon],
                per_cent(whole or reduced),
            )


def _epsilons(own: Results) -> Judged:
    cases = {}
    for method in ("const-d2p", "dyn-d2p"):
        for epsilon in EPSILONS:
            certified, size = _certified(method, epsilon)
            cases[f"{method}, {size}, epsilon {epsilon:g}"] = (epsilon, certified)
    return within(cases)


def _printed_gains() -> str:
    gains = (PAPER["dyn-d2p"][e] - PAPER["const-d2p"][e] for e in EPSILONS)
    told = (f"{g:+.1f} at epsilon {e:g}" for g, e in zip(gains, EPSILONS, strict=True))
    return ", ".join(told)


def _rising(networks: list[dict[str, Any]]) -> Judged:
    """Whether each network is above the one before it, Dyn-D2P at epsilon 1."""
    known = results_of("dynamic")
    found = {
        str(next(iter(network.values()))): known[
            key_of("certified", "dyn-d2p", 1.0, **network)
        ]["accuracy"]
        for network in networks
    }
    return compared(
        {
            f"from {a} to {b}": above(found[b], found[a])
            for a, b in itertools.pairwise(found)
        }
    )


def _norms(own: Results) -> Judged:
    """Of our runs on the paper's data, without noise first, then of the small ones."""
    cases = {}
    runs = {"zhu none sgp ": f"SGP, {DATA}, no noise, seeds: "} | {
        f"zhu certified {method} ": (
            f"{NAMES[method]}, {DATA}, noise, seeds and epsilons: "
        )
        for method in METHODS
    }
    for prefix, words in runs.items():
        ends = [
            [statistics.mean(result["norms"][end]) for end in (0, -1)]
            for result in own.starting(prefix).values()
            if result.get("norms")
        ]
        if ends:
            name = f"{words}{len(ends)}"
            cases[name] = [statistics.mean(each) for each in zip(*ends, strict=True)]
    known = results_of("dynamic")
    for name, key in (
        ("glyphs, no noise", "norms sgp epsilon=0"),
        ("glyphs, constant noise, epsilon 1", "norms const-d2p epsilon=1"),
    ):
        first, *_, last = known[key].values()
        cases[name] = [first, last]
    told = [f"{a:.1f} to {b:.1f} ({name})" for name, (a, b) in cases.items()]
    falls = [last < first for first, last in cases.values()]
    brief = f"falls in {sum(falls)} of {len(falls)}"
    return Judged.of(
        falls,
        f"{brief}, on {DATA} from round 1 000 on: {', '.join(told)}",
        brief,
    )


CLAIMS = [
    Claim(
        "At equal epsilon (certified), dynamic clip norms and budgets together beat "
        "constant ones",
        lambda own: _dynamic_wins("certified", own),
        _printed_gains(),
        unsettled=unsettled.DYN_D2P,
    ),
    Claim(
        "By the paper's own noise, they do",
        lambda own: _dynamic_wins("paper", own),
        _printed_gains(),
        unsettled=unsettled.DYN_D2P,
    ),
    Claim("Noise for a stated epsilon is certified for it", _epsilons),
    Claim("Norms of gradients fall as training goes on", _norms),
    Claim(
        "The better connected the graph, the higher the accuracy",
        lambda own: _rising([{"graph": graph} for graph in GRAPHS]),
    ),
    Claim(
        "The more nodes, the higher the accuracy",
        lambda own: _rising([{"nodes": nodes} for nodes in NODES]),
    ),
    Claim(
        "On CIFAR-10 with ResNet-18 the order of methods is the same",
        unknown("nothing was run on CIFAR-10"),
    ),
]


def answer(own: Results) -> str:
    """In a sentence."""
    whole = ", ".join(
        f"{points} points ({name})"
        for name, (_, points) in _at_size("certified", own).items()
    )
    gains = sorted(PAPER["dyn-d2p"][e] - PAPER["const-d2p"][e] for e in EPSILONS)
    return (
        "At equal certified epsilon dynamic noise against constant noise: "
        f"{whole or 'nothing of its size'}; {_dynamic_wins('certified', own).brief}, "
        f"against a printed {gains[0]:+.1f} to {gains[-1]:+.1f} (not settled: "
        f"{unsettled.DYN_D2P}); the paper's noise is {_epsilons(own).brief}."
    )
