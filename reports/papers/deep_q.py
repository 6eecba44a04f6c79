"""Paper 002, deep-Q collaboration without replacement: cells, and what they say."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from reports import told
from reports.collaborative import cells as collaborative
from reports.papers.manifest import published
from reports.papers.programme import Case, Shown, above, per_cent, within
from reports.study import Cell, Results

FIGURES = told(__file__)["deep_q"]["FIGURES"]
EPSILONS = (0.25, 0.5, 1.0)
POLICIES = ("noiseless", "fully collaborative", "DP-SGD with replacement", "deep-Q")
NODES, RECORDS, BATCH = 10, 6000, 50  # 60 000 over ten nodes
PRINTED_RECORDS = 60_000  # a node, in the tables
TABLES_RECORDS = 20_000  # as many as forest has for twenty nodes
TABLES = {"Table I": "forest", "Table II": "glyphs-pca"}  # as collaborative has them
SEEDS = 3


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
    settings = {"training": training, "noise": noise, "epsilon": epsilon}
    settings |= {"seeds": SEEDS, "tested": 10_000}
    if policy == "DP-SGD with replacement":  # steps 1 / sqrt(t)
        training["rounds"], settings["roots"] = 5 * RECORDS // BATCH, True
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


def _pairs(own: Results, other: str, noise: str) -> Iterator[tuple[str, Any, Any]]:
    """Results of deep-Q and of another policy, by figure and epsilon."""
    for (item, (data, case)), epsilon in itertools.product(FIGURES.items(), EPSILONS):
        one, less = (
            own.get(cell(data, case, policy, noise, epsilon).name)
            for policy in ("deep-Q", other)
        )
        if one and less:
            yield f"{item}, epsilon {epsilon:g}", one, less


def _above(own: Results, other: str, noise: str) -> Iterator[Case]:
    """Return whether deep-Q is above another policy in each figure and epsilon."""
    for name, one, less in _pairs(own, other, noise):
        yield Case(name, *above(one["accuracy"], less["accuracy"]))


def _with_papers_noise(own: Results) -> Iterator[Case]:
    """Against DP-SGD with replacement, whose certified epsilons differ much."""
    for name, one, less in _pairs(own, "DP-SGD with replacement", "paper"):
        holds, told, seeds = above(one["accuracy"], less["accuracy"])
        times = one["account"] / less["account"]
        yield Case(name, holds, f"{told} at {times:.0f} times its epsilon", seeds)


def _single(own: Results, item: str, nodes: int, case: str, policy: str) -> Any:
    """Accuracy of a cell of the tables, of one seed; None if it was not run."""
    return own.get(table(item, nodes, case, policy).name, {}).get("accuracy", [None])[0]


PLACES = tuple(itertools.product(TABLES, collaborative.CASES))


def _together(
    apart: Iterable[tuple[str, float | None, float | None]],
) -> Iterator[Case]:
    """Differences that have one seed each: their mean must be above 0, beyond error."""
    gains = {n: a - b for n, a, b in apart if a is not None and b is not None}
    if gains:
        wins, told, _ = above([*gains.values()], [0.0] * len(gains), paired=True)
        yield Case("in the mean of all", wins, told)
        for name, gain in gains.items():
            yield Case(name, None if wins is None else gain > 0, f"{100 * gain:+.1f}")


def _in_tables(own: Results) -> Iterator[Case]:
    """Deep-Q against full collaboration in Tables I and II."""
    return _together(
        (
            f"{item}, {case}, {nodes} nodes",
            _single(own, item, nodes, case, "deep-Q"),
            _single(own, item, nodes, case, "fully collaborative"),
        )
        for (item, case), nodes in itertools.product(PLACES, collaborative.NODES[1:])
    )


def _by_nodes(own: Results) -> Iterator[Case]:
    """Both policies, from three to twenty nodes of Tables I and II."""
    return _together(
        (
            f"{item}, {case}, {policy}",
            _single(own, item, 20, case, policy),
            _single(own, item, 3, case, policy),
        )
        for item, case in PLACES
        for policy in ("deep-Q", "fully collaborative")
    )


def _near(own: Results) -> Iterator[Case]:
    """Deep-Q below the noiseless at twenty nodes; a third of the records, one seed."""
    for item, case in PLACES:
        most = 4 if TABLES[item] == "forest" else 6
        found = [_single(own, item, 20, case, p) for p in ("noiseless", "deep-Q")]
        if None not in found:
            lost = 100 * (found[0] - found[1])
            yield Case(f"{item}, {case}", lost <= most, f"{lost:.1f} of {most}", 1)


def _theirs(own: Results, data: str, case: str) -> float | None:
    """Epsilon certified for the paper's noise for epsilon 1, at a figure's size."""
    name = cell(data, case, "fully collaborative", "paper", 1.0).name
    return own.get(name, {}).get("account")


def shown(own: Results) -> Iterator[Shown]:
    """Tables I and II with ten nodes; ours at epsilon 1 for all classes together."""
    place = collaborative.NODES.index(10)
    items = {data: item for item, data in TABLES.items()}
    for line in published("deep-q")["tables"]:
        data, case, policy = line["data"], line["case"], line["policy"]
        private = policy != "noiseless"
        figures = "forest" if data == "forest" else "fashion-mnist-pca"
        yield Shown(
            f"{items[data]}, {case}, {policy}",
            1.0 if private else None,
            _theirs(own, figures, case) if private else None,
            line["accuracy"][place],
            per_cent(_single(own, items[data], 10, case, policy)),
        )


def _epsilons(own: Results) -> list[Case]:
    """At the figures' size."""
    return within(
        {
            f"{item}, {case}": (1.0, certified)
            for item, (data, case) in FIGURES.items()
            if (certified := _theirs(own, data, case)) is not None
        }
    )


def _drawn_by_several(own: Results) -> list[Case]:
    """Cases of Table II, where each node draws its own records from the same pool."""
    cases = {}
    for nodes in collaborative.NODES[1:]:
        name = table("Table II", nodes, "convex", "fully collaborative").name
        if name in own:
            cases[f"{nodes} nodes"] = (1.0, own[name]["held by all"])
    return within(cases)
