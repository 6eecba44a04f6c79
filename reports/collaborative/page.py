"""Values and the chart of the page."""

from __future__ import annotations

import itertools
import pathlib
import statistics
from collections.abc import Iterable
from itertools import starmap
from typing import Any

from privaudit.results import round_up
from reports import pages
from reports.papers.manifest import published
from reports.study import Results

DATA = {
    "glyphs-pca": "Table II (MNIST): glyphs",
    "forest": "Table I (Covertype): forest",
}
CASES = ("convex", "strongly convex")
NOISES = {
    "joint": "epsilon = 1 for all classes together, exact account",
    "paper": "the paper's noise, of one class, as printed for epsilon = 1",
}
NODES = (1, 3, 5, 10, 20)
ROWS = (
    "noiseless",
    "fully collaborative",
    "deep-Q",
    "coin",
    "coin of 0.1",
    "DP-SGD with replacement",
    "local alone",
)
PRINTED = {
    (line["data"], line["case"], line["policy"]): [x or None for x in line["accuracy"]]
    for line in published("deep-q")["tables"]
}


Cell = dict[str, Any] | None


def found(
    known: Results, data: str, nodes: int, case: str, policy: str, noise: str
) -> Cell:
    """A cell of the tables; None if the study has none."""
    last = [noise, 1.0]
    if policy in ("noiseless", "local alone"):
        last = ["none", 0.0]
    return known.get(" | ".join(map(str, (data, nodes, case, policy, *last))))


def _score(cell: Cell) -> str:
    return "" if cell is None else pages.spread(cell["accuracy"])


def rows(known: Results, data: str, case: str, noise: str) -> Iterable[tuple]:
    """Accuracies beside the paper's, and the account of all classes."""
    for policy in ROWS:
        cells = [found(known, data, nodes, case, policy, noise) for nodes in NODES]
        if not any(cells):
            continue
        printed = PRINTED.get((data, case, policy), (None,) * len(NODES))
        texts = [
            _score(cell) + ("" if value is None else f" (*{value:.1f}*)")
            for cell, value in zip(cells, printed, strict=True)
        ]
        worst = {"noiseless": "none", "local alone": "nothing leaves a node"}
        told = worst.get(policy, "")
        if accounts := [
            cell["account"] for cell in cells if cell and "account" in cell
        ]:
            told = f"epsilon ≤ {round_up(max(accounts), 3)}"
            if policy == "deep-Q":
                told += ", *if nobody looks at the choices*"
        yield policy, *texts, told


def sections(known: Results) -> Iterable[tuple[str, list]]:
    """By data set: the tables with what they are of."""
    for data, title in DATA.items():
        yield (
            title,
            [
                (case, told, list(rows(known, data, case, noise)))
                for case in CASES
                for noise, told in NOISES.items()
            ],
        )


def kept(known: Results) -> Iterable[tuple]:
    """Share of the networks' gain that each coin keeps."""
    for data in DATA:
        for case in CASES:
            for noise in NOISES:
                for coin in ("coin", "coin of 0.1"):
                    shares = shares_of(known, data, case, noise, coin)
                    yield data, case, noise, coin, *starmap(_told, shares)


def shares_of(
    known: Results, data: str, case: str, noise: str, coin: str
) -> Iterable[tuple[float, float]]:
    """Gain of deep-Q in points, and how much of it a coin has, by number of nodes."""
    for nodes in NODES[1:]:
        cells = (
            found(known, data, nodes, case, policy, noise)
            for policy in ("fully collaborative", "deep-Q", coin)
        )
        full, deep, own = (pages.mean(cell["accuracy"]) for cell in cells if cell)
        yield deep - full, 100 * (own - full) / (deep - full)


def _told(gain: float, share: float) -> str:
    return (
        f"no gain ({gain:+.1f})" if gain < 1 else f"{share:.0f} (of {gain:.1f} points)"
    )


def said(known: Results) -> dict[str, Any]:
    """Figures of the text that stand in no table."""

    def shares(coin: str, *cases: str) -> str:
        every = (
            share
            for case in cases
            for noise in NOISES
            for _, share in shares_of(known, "glyphs-pca", case, noise, coin)
        )
        return pages.span(every, 0)

    def at_ten(data: str, policy: str, noise: str = "joint") -> dict[str, Any]:
        return found(known, data, 10, "convex", policy, noise) or {}

    def printed(data: str, case: str) -> float:
        cells = (
            found(known, data, nodes, case, policy, "paper")
            for nodes, policy in itertools.product(NODES, ROWS)
        )
        return max(cell.get("account", 0.0) for cell in cells if cell)

    of = "frequency among"
    attacks = [known[f"choices known{less}"] for less in (" 1", " 0.25", "")]
    rivals = "DP-SGD with replacement", "local alone"
    return {
        "coin": shares("coin of 0.1", *CASES),
        "annealed": shares("coin", "convex"),
        "annealed_strongly": shares("coin", "strongly convex"),
        "gains": pages.span(
            gain
            for case, noise in itertools.product(CASES, NOISES)
            for gain, _ in shares_of(known, "forest", case, noise, "coin")
        ),
        "replaced": at_ten("glyphs-pca", rivals[0], "paper")["account"],
        "against": {
            data: " against ".join(
                f"{pages.mean(at_ten(data, rival)['accuracy']):.1f}" for rival in rivals
            )
            for data in DATA
        },
        "differences": [
            pages.at_most([100 * abs(a[f"{of} members"] - a[f"{of} others"])])
            for a in attacks
        ],
        "printed": {(d, c): printed(d, c) for d in DATA for c in CASES},
    }


def points(known: Results, data: str, policy: str) -> dict[float, dict[str, Any]]:
    """By epsilon, ten nodes, convex, all classes accounted together."""
    cells = known.starting(f"{data} | 10 | convex | {policy} | joint | ")
    return {float(e): cells[e] for e in sorted(cells, key=float)}


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    epsilons = sorted({e for data in DATA for e in points(known, data, "coin")})
    sweep = []
    for data in DATA:
        for policy in ROWS:
            if found_ := points(known, data, policy):
                scores = (_score(found_.get(epsilon)) for epsilon in epsilons)
                sweep.append((data, policy, *scores))
    return {
        "said": said(known),
        "nodes": list(map(str, NODES)),
        "sections": sections(known),
        "kept": kept(known),
        "epsilons": [f"{epsilon:g}" for epsilon in epsilons],
        "sweep": sweep,
        "secret": known["choices secret"],
        "public": known["choices known"],
    }


def draw(path: pathlib.Path, known: Results) -> None:
    """Accuracy by epsilon."""
    size = {"figsize": (9, 3.6), "layout": "constrained"}
    with pages.chart(path, 1, 2, **size) as panels:
        for axes, data in zip(panels, DATA, strict=True):
            for policy in ROWS:
                if cells := points(known, data, policy):
                    scores = [
                        [100 * a for a in cell["accuracy"]] for cell in cells.values()
                    ]
                    means = [statistics.mean(score) for score in scores]
                    errors = [statistics.stdev(score) for score in scores]
                    marks = {"label": policy, "marker": "o", "capsize": 2}
                    axes.errorbar(list(cells), means, errors, **marks)
            for policy, style in (("noiseless", "-"), ("local alone", ":")):
                if cell := found(known, data, 10, "convex", policy, "none"):
                    level = pages.mean(cell["accuracy"])
                    axes.axhline(level, color="gray", linestyle=style, label=policy)
            axes.set(xscale="log", xlabel="epsilon", title=data, ylabel="accuracy, %")
        panels[0].legend(fontsize=7)


CHARTS = {"epsilon.svg": draw}
