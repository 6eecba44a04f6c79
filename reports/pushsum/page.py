"""Values and the chart of the page."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Iterable
from typing import Any

from reports import pages
from reports.papers.manifest import published
from reports.study import Results

SIDES = ("exponential", "d-out:8")
TABLE_2 = {
    (line["method"], b): [line[g]["none" if b is None else str(b)] for g in SIDES]
    for line in published("zhou")["table_2"]
    for b in (1.0, 3.0, None)
}
GRAPHS = {"d-out:2": "2-Out", "exponential": "EXP"}
NAMES = {
    "published": "the paper's, as its code has it",
    "paper": "the paper's, equation 22",
    "certified": "certified, from all norms",
    "data-independent": "data-independent",
}


def number(value: float) -> str:
    """Three significant digits; separators for the large."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def figure_2(known: Results) -> list[tuple]:
    """Estimates against the real sensitivity."""
    rows = []
    for graph, said in GRAPHS.items():
        for where, estimate, name in (
            *(
                (f"{said}, {layers}", estimate, f"figure 2 {graph} {layers} {estimate}")
                for layers in (1, 2)
                for estimate in NAMES
            ),
            (
                f"{said}, 1, one class a node",
                "published",
                f"one class a node {graph} 1",
            ),
        ):
            cell = known[name]
            ratio, least = number(cell["ratio"]), f"{cell['least_ratio']:.3f}"
            below = f"{cell['below']} of {cell['rounds']}"
            runs = f"{cell['runs_below']} of {cell['runs']}"
            rows.append((where, NAMES[estimate], ratio, least, below, runs))
    return rows


def constants(known: Results) -> Iterable[tuple]:
    """Values of C' that would be enough."""
    for decay in (0.53, 0.55, 0.62, 0.7):
        names = [f"constant {g} {k} {decay}" for g in GRAPHS for k in (4, 5, 20)]
        yield (decay, *(number(known[name]["constant"]) for name in names))


def figures_3_4(known: Results) -> Iterable[tuple]:
    """Real average sensitivity by degree, layers and size."""
    graphs = ("exponential", "d-out:2", "d-out:4", "d-out:6", "d-out:8")
    shapes = [(3, layers, 10) for layers in (1, 2, 3)] + [(4, 1, 20), (4, 1, 30)]
    for figure, layers, nodes in shapes:
        last = layers if figure == 3 else nodes
        cells = [known.get(f"figure {figure} {graph} {last}") for graph in graphs]
        yield (layers, nodes, *(number(c["ras"]) if c else "-" for c in cells))


def table_2(known: Results) -> Iterable[tuple]:
    """Accuracies, ours and the paper's."""
    for b in (1.0, 3.0, None):
        noise = ("no noise", "-") if b is None else (f"{b:g}", f"{1000 * b:,.0f}")
        for method in ("PartPSP-1", "PartPSP-2", "SGPDP", "PEDFL"):
            own = [
                accuracy(known[f"table 2 {method} {graph} {b}"])
                for graph in ("exponential", "d-out:8")
            ]
            pairs = zip(own, TABLE_2[method, b], strict=True)
            yield (
                method,
                *noise,
                *(f"{ours}, *{theirs:.1f}*" for ours, theirs in pairs),
            )


def table_3(known: Results) -> Iterable[tuple]:
    """By the real sensitivity and by the estimate."""
    for method in ("PartPSP-1", "PartPSP-2"):
        yield (
            method,
            *(
                accuracy(known[f"table 3 {method} {graph} {how}"])
                for graph in GRAPHS
                for how in ("real", "published")
            ),
        )


def accuracy(cell: dict[str, Any]) -> str:
    """Mean of its runs."""
    if cell["accuracy"] is None:
        return "refused: noise feeds itself"
    return f"{statistics.mean(cell['accuracy']):.1f}"


def epsilons(known: Results) -> Iterable[tuple]:
    """By round and in total."""
    for b, gamma_n in ((1.0, 0.001), (5.0, 0.001), (5.0, 0.01), (1.0, 1.0)):
        for rounds in (25, 720):
            cell = known[f"epsilon {b:g} {gamma_n:g} {rounds}"]
            round_, node, record = (
                number(cell[k]) for k in ("round", "node", "record")
            )
            yield f"{b:g}", f"{gamma_n:g}", round_, rounds, node, record


def best(known: Results, method: str, epsilon: float) -> str:
    """Accuracy at a real budget, with the better clip norm."""
    found = known.starting(f"certified {method} {epsilon:g} ").values()
    return f"{max(statistics.mean(cell['accuracy']) for cell in found):.1f}"


def said(known: Results) -> dict[str, Any]:
    """Figures of the text that stand in no table."""
    rows = known.starting("figure 2")
    even = [cell for name, cell in rows.items() if name.endswith("published")]
    ratios = {
        name: pages.span(c["ratio"] for n, c in rows.items() if n.endswith(f" {name}"))
        for name in ("certified", "data-independent")
    }
    holds = [c for n, c in rows.items() if n.rsplit(maxsplit=1)[1] in ratios]
    one, two = (
        known[f"table 2 {method} exponential 1.0"]["accuracy"][0]
        for method in ("PartPSP-1", "PartPSP-2")
    )
    pedfl = [
        known[f"table 2 PEDFL {graph} {b}"]["accuracy"]
        for graph in ("exponential", "d-out:8")
        for b in (1.0, 3.0)
    ]
    theirs = [value for b in (1.0, 3.0) for value in TABLE_2["PEDFL", b]]
    enough = known.starting("constant ")
    return {
        "even": f"{sum(c['below'] for c in even)} of {sum(c['rounds'] for c in even)}",
        "margin": f"{100 * (min(c['least_ratio'] for c in even) - 1):.1f}",
        "constants": pages.span(
            cell["constant"] for n, cell in enough.items() if n.split()[1] == "5"
        ),
        "certified": ratios["certified"],
        "independent": ratios["data-independent"],
        "below": sum(cell["below"] for cell in holds),
        "ahead": f"{one - two:.1f}",
        "refused": f"{pedfl.count(None)} cells of {len(pedfl)}",
        "left": ", ".join(f"{value[0]:.1f}" for value in pedfl if value),
        "theirs": pages.span(theirs, 0),
        "start": f"{known['untrained']['accuracy'][0]:.1f}",
    }


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    methods = ("nothing", "a bias of 10", "PartPSP-1", "PartPSP-2", "SGPDP")
    figures = {**known.starting("figure 3"), **known.starting("figure 4")}
    return {
        "said": said(known),
        "figure_2": figure_2(known),
        "constants": constants(known),
        "figures_3_4": figures_3_4(known),
        "below": sum(cell["below"] for cell in figures.values()),
        "table_2": table_2(known),
        "table_3": table_3(known),
        "epsilons": epsilons(known),
        "certified": [
            (method, *(best(known, method, epsilon) for epsilon in (1.0, 10.0, 100.0)))
            for method in (*methods, "SGPDP, by sample")
        ],
    }


def draw(path: pathlib.Path, known: Results) -> None:
    """One run of each estimate, with the real sensitivity of that run."""
    size = {"figsize": (9, 6.5), "sharex": True}
    with pages.chart(path, 2, 2, **size) as axes:
        for row, graph in enumerate(GRAPHS):
            for column, layers in enumerate((1, 2)):
                axis = axes[row][column]
                for colour, name in enumerate(
                    ("published", "certified", "data-independent")
                ):
                    cell = known[f"figure 2 {graph} {layers} {name}"]
                    axis.semilogy(cell["used"], f"C{colour}-", label=NAMES[name])
                    axis.semilogy(
                        cell["real"], f"C{colour}:", label="real, in that run"
                    )
                axis.set_title(f"{GRAPHS[graph]}, {layers} shared")
                axis.grid(alpha=0.3)
        axes[0][0].legend(fontsize=7)
        for axis in axes[1]:
            axis.set_xlabel("round")


CHARTS = {"sensitivity.svg": draw}
