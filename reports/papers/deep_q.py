"""Paper 002, deep-Q collaboration without replacement: cells, and what they say."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from reports import published, told
from reports.collaborative import cells as collaborative
from reports.papers.programme import Case, Shown, above, per_cent, within
from reports.study import Results

FIGURES = told(__file__)["deep_q"]["FIGURES"]
EPSILONS = (0.25, 0.5, 1.0)
CASES = tuple(collaborative.SETTINGS["CASES"])
TABLES = {"Table I": "forest", "Table II": "glyphs-pca"}  # as collaborative has them


def name_of(data: str, case: str, policy: str, noise: str, epsilon: float) -> str:
    """By what a curve's point of a figure is kept."""
    return " | ".join((f"deep-q {data}", case, noise, policy, f"{epsilon:g}"))


def one_run(**settings: Any) -> dict[str, float]:
    """Processor seconds of a training whose data are at hand."""
    collaborative.trained(**settings)  # data are read, and kept
    began = time.process_time()
    collaborative.trained(**settings)
    return {"cpu": time.process_time() - began}


def _pairs(
    own: Results, other: str, noise: str, policy: str = "deep-Q"
) -> Iterator[tuple[str, Any, Any]]:
    """Results of a policy and of another, by figure and epsilon."""
    for (item, (data, case)), epsilon in itertools.product(FIGURES.items(), EPSILONS):
        one, less = (
            own.get(name_of(data, case, each, noise, epsilon))
            for each in (policy, other)
        )
        if one and less:
            yield f"{item}, epsilon {epsilon:g}", one, less


def _above(own: Results, *which: str) -> Iterator[Case]:
    """Return whether the first of `_pairs` is above in each figure and epsilon."""
    for name, one, less in _pairs(own, *which):
        yield Case(name, *above(one["accuracy"], less["accuracy"]))


def _with_papers_noise(own: Results) -> Iterator[Case]:
    """Against DP-SGD with replacement, whose certified epsilons differ much."""
    for name, one, less in _pairs(own, "DP-SGD with replacement", "paper"):
        holds, told, seeds = above(one["accuracy"], less["accuracy"])
        times = one["account"] / less["account"]
        yield Case(name, holds, f"{told} at {times:.0f} times its epsilon", seeds)


def _single(own: Results, item: str, nodes: int, case: str, policy: str) -> Any:
    """Accuracy of a cell of the tables, of one seed; None if it was not run."""
    return own.get(f"deep-q {item} | {nodes} | {case} | {policy}", {}).get(
        "accuracy", [None]
    )[0]


PLACES = tuple(itertools.product(TABLES, CASES))


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
    name = name_of(data, case, "fully collaborative", "paper", 1.0)
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
        name = f"deep-q Table II | {nodes} | convex | fully collaborative"
        if name in own:
            cases[f"{nodes} nodes"] = (1.0, own[name]["held by all"])
    return within(cases)
