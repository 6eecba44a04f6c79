"""Deep-Q learning based collaborative SGD without replacement: tables and figures.

The paper has no short name of authors here; elsewhere it is called paper 002.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from reports.collaborative import cells as collaborative
from reports.collaborative.page import PRINTED, found
from reports.papers.programme import (
    Claim,
    Row,
    Shown,
    above,
    per_cent,
    results_of,
    verdict,
    within,
)
from reports.papers.size import Size, parameters
from reports.study import Cell, Results

TITLE = "Deep-Q collaboration without replacement"
FIGURES = {  # data and case; Covertype's stand-in is forest
    "Figure 1": ("forest", "convex"),
    "Figure 2": ("forest", "strongly convex"),
    "Figure 3": ("fashion-mnist-pca", "convex"),
    "Figure 4": ("fashion-mnist-pca", "strongly convex"),
}
EPSILONS = (0.25, 0.5, 1.0)
POLICIES = ("noiseless", "fully collaborative", "DP-SGD with replacement", "deep-Q")
NODES, RECORDS, BATCH = 10, 6000, 50  # 60 000 over ten nodes
PRINTED_RECORDS = 60_000  # a node, in the tables
TABLES_RECORDS = 20_000  # as many as forest has for twenty nodes
TABLES = {"Table I": "forest", "Table II": "glyphs-pca"}  # as collaborative has them
SEEDS = 3
PAPERS_DATA = {"forest": "Covertype", "fashion-mnist-pca": "MNIST"}


def _figure(item: str) -> Row:
    data, case = FIGURES[item]
    return Row(
        item,
        f"accuracy by policy and epsilon, {case}, ten nodes",
        Size(
            RECORDS / BATCH,
            NODES,
            BATCH,
            parameters("one-vs-all", data),
            cells=(len(POLICIES) - 1) * len(EPSILONS) + 1,
        ),
        f"{PAPERS_DATA[data]}, 60 000 records",
        differs=f"epsilons are not printed as numbers, {len(EPSILONS)} assumed; "
        + (
            "a drawn stand-in for Covertype"
            if data == "forest"
            else "Fashion-MNIST for MNIST"
        ),
        sources=(("papers", f"deep-q {data} | {case} | joint | *"),),
        pilot=f"deep-q {data}",
    )


def _table(item: str, stand_in: str) -> Row:
    data = TABLES[item]
    return Row(
        item,
        "accuracy by policy and number of nodes, convex and strongly convex, epsilon 1",
        Size(PRINTED_RECORDS / BATCH, 20, BATCH, parameters("one-vs-all", data), 1, 28),
        f"{'Covertype' if data == 'forest' else 'MNIST'}, 60 000 records a node",
        differs=stand_in,
        sources=(
            ("papers", f"deep-q {item} | *"),
            ("collaborative", f"{data} | * | * | * | joint | 1.0"),
        ),
        pilot="deep-q fashion-mnist-pca" if data != "forest" else "deep-q forest",
    )


ROWS = [
    *map(_figure, FIGURES),
    _table(
        "Table I",
        "a drawn stand-in for Covertype; so many disjoint records are not to be had",
    ),
    _table(
        "Table II",
        "Fashion-MNIST for MNIST; each node draws its records of the same 60 000, so "
        "that epsilon 1 is of a record at one node alone",
    ),
]


def cell(data: str, case: str, policy: str, noise: str, epsilon: float) -> Cell:
    """One curve's point of a figure: some runs as one block."""
    step = collaborative.STEPS.get(data, {"convex": 0.1}).get(case, 0.45)
    training: dict[str, Any] = {
        **collaborative.COMMON,
        "data": data,
        "train": NODES * RECORDS,
        "nodes": NODES,
        "rounds": RECORDS // BATCH,
        "step_size": step,
        **collaborative.CASES[case],
        **collaborative.POLICIES[policy],
    }
    if policy == "DP-SGD with replacement":
        training["rounds"] = 5 * RECORDS // BATCH
    settings = {"training": training, "noise": noise, "epsilon": epsilon}
    settings |= {"seeds": SEEDS, "tested": 10_000}
    name = " | ".join((f"deep-q {data}", case, noise, policy, f"{epsilon:g}"))
    return Cell(name, collaborative.trained, settings)


def table(item: str, nodes: int, case: str, policy: str) -> Cell:
    """One number of Table I or II, under the exact account of all classes."""
    data = TABLES[item]
    older = collaborative.cell(data, nodes, case, policy, "joint").settings
    training = {
        **older["training"],
        "train": nodes * TABLES_RECORDS,
        "rounds": TABLES_RECORDS // BATCH,
    }
    settings = {**older, "training": training, "seeds": 1}
    if item == "Table II":
        # There are no more images: a node draws its own of the same ones.
        training |= {"data": "fashion-mnist-pca", "train": PRINTED_RECORDS}
        settings["drawn"] = TABLES_RECORDS
    name = f"deep-q {item} | {nodes} | {case} | {policy}"
    return Cell(name, collaborative.trained, settings)


def pilots() -> Iterator[Cell]:
    """The costliest policy, some turns."""
    for data in ("forest", "fashion-mnist-pca"):
        one = cell(data, "convex", "deep-Q", "joint", 1.0)
        training = {**one.settings["training"], "rounds": 10, "train": 20_000}
        settings = {**one.settings, "training": training, "seeds": 1, "tested": 100}
        yield Cell(f"pilot deep-q {data}", one_run, settings)


def one_run(**settings: Any) -> dict[str, float]:
    """Processor seconds of a training whose data are at hand."""
    collaborative.trained(**settings)  # data are read, and kept
    began = time.process_time()
    collaborative.trained(**settings)
    return {"cpu": time.process_time() - began}


def cells() -> Iterator[Cell]:
    """All points of the four figures, under the exact account and the paper's noise."""
    for noise in ("joint", "paper"):
        for data, case in FIGURES.values():
            for policy in POLICIES:
                for epsilon in EPSILONS if policy != "noiseless" else (0.0,):
                    if policy == "noiseless" and noise == "paper":
                        continue
                    yield cell(data, case, policy, noise, epsilon)
    for item, case, nodes in itertools.product(
        TABLES, collaborative.CASES, collaborative.NODES
    ):
        for policy in ("noiseless", "fully collaborative", "deep-Q"):
            if (nodes, policy) != (1, "deep-Q"):  # as in the paper
                yield table(item, nodes, case, policy)


def _above(own: Results, other: str, noise: str) -> tuple[str, str]:
    """Whether deep-Q is above another policy in each figure and epsilon."""
    cases, words = [], []
    for item, (data, case) in FIGURES.items():
        for epsilon in EPSILONS:
            found = [
                own.get(cell(data, case, policy, noise, epsilon).name)
                for policy in ("deep-Q", other)
            ]
            if all(found):
                wins, points = above(*(one["accuracy"] for one in found if one))
                cases.append(wins)
                words.append(f"{points} ({item}, epsilon {epsilon:g})")
    told = f"points: {', '.join(words)}" if words else "nothing was run"
    return verdict(cases), told


def shown(own: Results) -> Iterator[Shown]:
    """Tables I and II with ten nodes; ours at epsilon 1 for all classes together."""
    known = results_of("collaborative")
    place = collaborative.NODES.index(10)
    for (data, case, policy), printed in PRINTED.items():
        private = policy != "noiseless"
        ours, theirs = (
            found(known, data, 10, case, policy, noise) for noise in ("joint", "paper")
        )
        yield Shown(
            f"{data}, {case}, {policy}",
            1.0 if private else None,
            theirs["account"] if private and theirs else None,
            printed[place],
            per_cent(ours["accuracy"]) if ours else (),
        )


def _by_nodes(own: Results) -> tuple[str, str]:
    known = results_of("collaborative")
    cases, words = [], []
    for data in collaborative.DATA:
        for case in collaborative.CASES:
            few, many = (
                known[f"{data} | {nodes} | {case} | deep-Q | joint | 1.0"]["accuracy"]
                for nodes in (3, 20)
            )
            wins, points = above(many, few)
            cases.append(wins)
            words.append(f"{points} ({data}, {case})")
    return verdict(cases), f"points from 3 to 20 nodes: {', '.join(words)}"


def _epsilons(own: Results) -> tuple[str, str]:
    known = results_of("collaborative")
    cases = {}
    for data in collaborative.DATA:
        for case in collaborative.CASES:
            name = f"{data} | 10 | {case} | fully collaborative | paper | 1.0"
            cases[f"{data}, {case}"] = (1.0, known[name]["account"])
    return within(cases)


def _drawn_by_several(own: Results) -> tuple[str, str]:
    """Of Table II, where each node draws its records by itself from the same ones."""
    cases = {}
    for nodes in collaborative.NODES[1:]:
        name = table("Table II", nodes, "convex", "fully collaborative").name
        if name in own:
            cases[f"{nodes} nodes"] = (1.0, own[name]["held by all"])
    return within(cases) if cases else ("cannot say", "nothing was run")


CLAIMS = [
    Claim(
        "Deep-Q is above full collaboration at the same epsilon (all classes together)",
        lambda own: _above(own, "fully collaborative", "joint"),
    ),
    Claim(
        "Deep-Q is above full collaboration with the paper's noise",
        lambda own: _above(own, "fully collaborative", "paper"),
    ),
    Claim(
        "Deep-Q is above DP-SGD with replacement at the same epsilon",
        lambda own: _above(own, "DP-SGD with replacement", "joint"),
    ),
    Claim(
        "Deep-Q is above DP-SGD with replacement with the paper's noise",
        lambda own: _above(own, "DP-SGD with replacement", "paper"),
    ),
    Claim(
        "The paper's noise for epsilon 1 is certified for all classes' models together",
        _epsilons,
    ),
    Claim(
        "Noise for epsilon 1 of a record at one node is enough for one that all nodes "
        "drew, each by itself from the same data",
        _drawn_by_several,
    ),
    Claim("The more nodes, the higher the accuracy of deep-Q", _by_nodes),
]
