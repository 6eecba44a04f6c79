"""Values and the chart of the page."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from privaudit.results import round_up
from reports import pages
from reports.consensus.cells import SEEDS, cells
from reports.papers.manifest import published
from reports.study import Results

EPSILONS = (None, 100.0, 10.0, 1.0, 0.5)
PAPER = published("bayrooti")
TABLE_1 = PAPER["table_1"]
TABLE_2 = {float(epsilon): rows for epsilon, rows in PAPER["table_2"].items()}
SPLITS = (0.0, 0.25, 0.5, 0.75, 1.0)
FIEDLER = {
    "complete": "1 (complete)",
    "fiedler:0.7": "0.7",
    "fiedler:0.39": "0.39",
    "fiedler:0.06": "0.06",
}
SPARSE = "fiedler:0.06"
METHODS = ("central", "DSGD", "DSGT", "DiNNO")
COMPARED = ("DSGT", "DiNNO", "DSGD")


def name_of(*key: object) -> str:
    """Name of a cell: method, epsilon, graph and split."""
    return " ".join(map(str, key))


def mean(known: Results, *key: object) -> float:
    """Accuracy, per cent."""
    return pages.mean(known[name_of(*key)]["accuracy"])


def _row(known: Results, method: str, keys: Iterable[tuple], printed: list) -> tuple:
    """Accuracies of cells, each beside the paper's mean and deviation."""
    pairs = []
    for key, theirs in zip(keys, printed, strict=True):
        cell = known.get(name_of(method, *key))
        ours = "not yet" if cell is None else pages.spread(cell["accuracy"])
        pairs.append(f"{ours} (*{theirs[0]:.1f} ± {theirs[1]:.1f}*)")
    return method, *pairs


def table_1(known: Results) -> Iterable[tuple[str, list[tuple]]]:
    """By graph: a row for each method."""
    for graph, name in FIEDLER.items():
        keys = [(epsilon, graph, 1.0) for epsilon in EPSILONS]
        yield name, [_row(known, m, keys, p) for m, p in TABLE_1[graph].items()]


def table_2(known: Results) -> Iterable[tuple[str, list[tuple]]]:
    """By epsilon: a row for each method."""
    for epsilon, methods in TABLE_2.items():
        keys = [(epsilon, SPARSE, split) for split in SPLITS]
        yield f"{epsilon:g}", [_row(known, m, keys, p) for m, p in methods.items()]


def accounts(known: Results) -> Iterable[tuple]:
    """Noise and what it is certified for."""
    for method in ("central", "DSGD"):
        for epsilon in EPSILONS[1:]:
            cell = known.get(name_of(method, epsilon, "complete", 1.0))
            if cell is None:
                continue
            certified = map(round_up, (cell["add-or-remove-one"], cell["replace-one"]))
            yield (
                f"{method}, {epsilon:g}",
                f"{cell['noise_multiplier']:.3f}",
                *certified,
            )


def _points(differences: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {points:.1f}".strip() for name, points in differences)


def spreads(known: Results) -> Iterable[tuple[str, str, str]]:
    """Best minus worst graph, ours and the paper's."""
    for method in COMPARED:
        own, printed = [], []
        for place, epsilon in enumerate(EPSILONS):
            ours = [mean(known, method, epsilon, graph, 1.0) for graph in FIEDLER]
            theirs = [TABLE_1[graph][method][place][0] for graph in FIEDLER]
            own.append(("", max(ours) - min(ours)))
            printed.append(("", max(theirs) - min(theirs)))
        yield method, _points(own), _points(printed)


def by_graph(known: Results) -> Iterable[tuple[str, str, str]]:
    """Points lost from the complete graph to the sparsest."""
    for epsilon in (10.0, 0.5):
        place = EPSILONS.index(epsilon)
        own, printed = [], []
        for method in COMPARED:
            ours = [mean(known, method, epsilon, g, 1.0) for g in ("complete", SPARSE)]
            theirs = [TABLE_1[g][method][place][0] for g in ("complete", SPARSE)]
            own.append((method, ours[0] - ours[1]))
            printed.append((method, theirs[0] - theirs[1]))
        yield f"{epsilon:g}", _points(own), _points(printed)


def by_split(known: Results) -> Iterable[tuple[str, str, str]]:
    """Points lost from equal shares to a class a node."""
    for epsilon in (10.0, 0.5):
        own, printed = [], []
        for method in COMPARED:
            ours = [mean(known, method, epsilon, SPARSE, split) for split in (0.0, 1.0)]
            theirs: Sequence = TABLE_2[epsilon][method]
            own.append((method, ours[0] - ours[1]))
            printed.append((method, theirs[0][0] - theirs[-1][0]))
        yield f"{epsilon:g}", _points(own), _points(printed)


def on_top(known: Results) -> int:
    """At how many privacy levels central training is the best."""
    return sum(
        mean(known, "central", epsilon, "complete", 1.0)
        >= max(
            mean(known, m, epsilon, graph, 1.0) for m in COMPARED for graph in FIEDLER
        )
        for epsilon in EPSILONS
    )


def on_top_printed() -> int:
    """The same of the paper's Table 1."""
    central = TABLE_1["complete"]["central"]
    others = [TABLE_1[graph][method] for method in COMPARED for graph in FIEDLER]
    return sum(
        central[place][0] >= max(row[place][0] for row in others)
        for place in range(len(EPSILONS))
    )


def replaced(known: Results) -> str:
    """Epsilon under replace-one over that under add-or-remove-one."""
    return pages.span(
        (
            cell["replace-one"] / cell["add-or-remove-one"]
            for cell in known.values()
            if "replace-one" in cell
        ),
        2,
    )


def _settings(search: dict[str, Any]) -> str:
    """Settings that a search chose, in short; published ones are marked."""
    found = search["chosen"]
    first = found["step_size"]
    words = [f"{first:.2g} to {first * found['fall']:.2g}", f"C {found['clip_norm']:g}"]
    if "rho" in found:
        words.append(f"rho {found['rho']:.2g}, {found['optimiser']}")
    return ", ".join(words) + (" (published)" if search["published"] else "")


def chosen(known: Results, graph: str) -> Iterable[tuple]:
    """Settings that the searches on a graph chose; a class a node."""
    for method in METHODS:
        if name_of("search", method, None, graph) in known:
            yield (
                method,
                *(
                    _settings(known[name])
                    if (name := name_of("search", method, epsilon, graph)) in known
                    else "not yet"
                    for epsilon in EPSILONS
                ),
            )


def searched(known: Results) -> dict[str, Any]:
    """Number of searches and points, and of runs that did not end as they should."""
    searches = known.starting("search ").values()
    tries = [len(search["tried"]) for search in searches]
    return {
        "cells": len(tries),
        "tries": sum(tries),
        "least": min(tries),
        "most": max(tries),
        "published": sum(search["published"] for search in searches),
        "at_edge": sum(search["at_edge"] for search in searches),
    }


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    most = max(
        cell["add-or-remove-one"] / float(name.split()[1])
        for name, cell in known.items()
        if "add-or-remove-one" in cell
    )
    every = [cell.name for cell in cells(quick=False)]
    done = [name for name in every if name in known]
    compared: dict[str, Any] = {}
    if len(done) == len(every):
        compared = {
            "on_top": on_top(known),
            "on_top_printed": on_top_printed(),
            "spreads": spreads(known),
            "by_graph": by_graph(known),
            "by_split": by_split(known),
        }
    return {
        "cells": (len(done), len(every)),
        "seeds": SEEDS,
        "budgets": ["not private", *(f"epsilon {e:g}" for e in EPSILONS[1:])],
        "table_1": table_1(known),
        "table_2": table_2(known),
        "accounts": accounts(known),
        "most": f"{most:.4f}",
        "replaced": replaced(known),
        "compared": compared,
        "searched": searched(known),
        "chosen": {graph: list(chosen(known, graph)) for graph in ("complete", SPARSE)},
    }


def draw(path: pathlib.Path, known: Results) -> None:
    """Accuracy against connectivity."""
    connectivity = [1.0, 0.7, 0.39, 0.06]
    size = {"figsize": (13, 3.4), "sharey": True}
    with pages.chart(path, 1, 4, **size) as axes:
        for place, (axis, epsilon) in enumerate(
            zip(axes, EPSILONS[1:], strict=True), start=1
        ):
            for method, colour in (("DSGD", "C0"), ("DSGT", "C1"), ("DiNNO", "C2")):
                here = [
                    (place, mean(known, method, epsilon, graph, 1.0))
                    for place, graph in zip(connectivity, FIEDLER, strict=True)
                    if name_of(method, epsilon, graph, 1.0) in known
                ]
                printed = [TABLE_1[graph][method][place][0] for graph in FIEDLER]
                if here:
                    x, y = zip(*here, strict=True)
                    axis.plot(x, y, "o-", color=colour, label=method)
                axis.plot(connectivity, printed, ":", color=colour, alpha=0.6)
            axis.set_title(f"epsilon {epsilon:g}")
            axis.set_xlabel("normalised Fiedler value")
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("test accuracy, per cent")
        axes[0].legend(title="solid: here; dotted: paper", fontsize=8, title_fontsize=8)


CHARTS = {"graphs.svg": draw}
