"""Values and the chart of the page."""

from __future__ import annotations

import itertools
import math
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any

from privaudit.results import round_up
from reports import pages
from reports.dynamic.model import halved_cnn
from reports.dynamic.names import (
    CALIBRATIONS,
    EPSILONS,
    GRAPHS,
    METHODS,
    NAMES,
    NODES,
    key_of,
)
from reports.papers.manifest import published
from reports.study import Results

PAPER = {
    method: {float(epsilon): value for epsilon, value in line.items()}
    for method, line in published("zhu")["table_2"].items()
}
PAPER_NOT_PRIVATE = published("zhu")["not_private"]["accuracy"]


def gains(known: Results) -> Iterable[tuple]:
    """Over Const-D2P, seed by seed: equal seeds have equal starts and draws."""
    for method in METHODS[1:]:
        yield (
            NAMES[method],
            "equal certified epsilon",
            *(_gain(known, "certified", method, epsilon) for epsilon in EPSILONS),
        )
        printed = [PAPER[method][e] - PAPER["const-d2p"][e] for e in EPSILONS]
        own = [_gain(known, "paper", method, epsilon) for epsilon in EPSILONS]
        pairs = zip(own, printed, strict=True)
        yield NAMES[method], "the paper's", *(f"{o} (*{p:+.1f}*)" for o, p in pairs)


def gain(known: Results, how: str, method: str, epsilon: float) -> tuple[float, float]:
    """Over Const-D2P in points, and its standard error."""
    one, other = (
        known[key_of(how, name, epsilon)]["accuracy"] for name in (method, "const-d2p")
    )
    points = [100 * (a - b) for a, b in zip(one, other, strict=True)]
    error = statistics.stdev(points) / math.sqrt(len(points))
    return statistics.mean(points), error


def _gain(known: Results, how: str, method: str, epsilon: float) -> str:
    return "{:+.1f} ± {:.1f}".format(*gain(known, how, method, epsilon))


def first(known: Results, how: str, method: str) -> str:
    """At how many epsilons it is above all others, in words."""
    count = sum(
        method
        == max(
            METHODS, key=lambda m: statistics.mean(known[key_of(how, m, e)]["accuracy"])
        )
        for e in EPSILONS
    )
    return {0: "never first", len(EPSILONS): f"first at all {count} epsilons"}.get(
        count, f"first at {count} of {len(EPSILONS)} epsilons"
    )


def said(known: Results) -> dict[str, Any]:
    """Figures of the text that stand in no table."""
    dynamic, shrinking, growing = "dyn-d2p", "dyn-c-d2p", "dyn-mu-d2p"
    won = {
        (how, method): [gain(known, how, method, e) for e in EPSILONS]
        for how in CALIBRATIONS
        for method in METHODS[1:]
    }
    real = {
        e: [known[key_of("paper", m, e)]["certified"] for m in METHODS]
        for e in EPSILONS
    }
    printed = [PAPER[m][0.3] - PAPER["const-d2p"][0.3] for m in METHODS[1:]]
    norms = [
        known[f"norms {name}"] for name in ("sgp epsilon=0", "const-d2p epsilon=1")
    ]
    plain, private = (100 * (seen["900"] / seen["1"] - 1) for seen in norms)
    longer = [known[f"noise paper epsilon={e:g} J=3000 K=10000"] for e in EPSILONS]
    return {
        "behind": pages.span(-points for points, _ in won["certified", dynamic]),
        "behind_errors": pages.at_most(-a / b for a, b in won["certified", dynamic]),
        "shrinking_first": first(known, "certified", shrinking),
        "shrinking": pages.at_most(a for a, _ in won["certified", shrinking]),
        "shrinking_errors": pages.at_most(
            a / b for a, b in won["certified", shrinking]
        ),
        "dynamic_first": first(known, "paper", dynamic),
        "low": pages.span(won["paper", method][0][0] for method in METHODS[1:]),
        "low_printed": pages.span(printed, 0),
        "growing": pages.at_most(abs(a) for a, _ in won["certified", growing]),
        "clip": {
            f"{how} {m}": f"{known[key_of(how, m, 1.0)]['options']['clip_norm']:g}"
            for how in CALIBRATIONS
            for m in ("const-d2p", growing)
        },
        "times": pages.span(spent / e for e in EPSILONS for spent in real[e]),
        "really": [
            " to ".join(dict.fromkeys(round_up(x, 2) for x in (min(r), max(r))))
            for r in real.values()
        ],
        "longer": [round_up(cell["certified"], 2) for cell in longer],
        "norm_plain": f"{plain:+.0f}",
        "norm_private": f"{private:+.0f}",
    }


def scores(known: Results, how: str) -> Iterable[tuple]:
    """Accuracies, and the order of the methods."""
    for method in METHODS:
        cells = [known[key_of(how, method, epsilon)] for epsilon in EPSILONS]
        texts = [pages.spread(cell["accuracy"]) for cell in cells]
        if how == "paper":
            certified = [round_up(cell["certified"], 2) for cell in cells]
            texts = [f"{t} ({c})" for t, c in zip(texts, certified, strict=True)]
        yield NAMES[method], *texts
    orders = []
    for epsilon in EPSILONS:
        means = {
            NAMES[method].removesuffix("-D2P"): pages.mean(
                known[key_of(how, method, epsilon)]["accuracy"]
            )
            for method in METHODS
        }
        orders.append(" > ".join(sorted(means, key=lambda name: -means[name])))
    yield "order", *orders


def chosen(known: Results) -> Iterable[str]:
    """Options that the grid chose, and the noise that goes with them."""
    for how in CALIBRATIONS:
        texts = []
        for method in METHODS:
            cell = known[key_of(how, method, 1.0)]
            options = ", ".join(f"{k} {v:.3g}" for k, v in cell["options"].items())
            z = cell["multiplier"]
            texts.append(f"{NAMES[method]}: {options} (first noise multiplier {z:.3g})")
        yield f"{how} noise: {'; '.join(texts)}."


def networks(known: Results) -> Iterable[tuple]:
    """By graph, and by number of nodes."""

    def score(**network: Any) -> str:
        cell = known[key_of("certified", "dyn-d2p", 1.0, **network)]
        return pages.spread(cell["accuracy"])

    left = [(graph, score(graph=graph)) for graph in GRAPHS]
    right = [(nodes, score(nodes=nodes)) for nodes in NODES]
    for one, other in itertools.zip_longest(left, right, fillvalue=("", "")):
        yield *one, "", *other


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    dims = sum(each.numel() for each in halved_cnn((1, 28, 28), 10).parameters())
    norms = {
        "SGP, not private": known["norms sgp epsilon=0"],
        "Const-D2P, certified epsilon 1": known["norms const-d2p epsilon=1"],
    }
    rounds = sorted(norms["SGP, not private"], key=int)
    return {
        "said": said(known),
        "budgets": [f"epsilon {epsilon:g}" for epsilon in EPSILONS],
        "gains": gains(known),
        "not_private": pages.spread(known[key_of("none", "sgp", 0.0)]["accuracy"]),
        "paper_not_private": PAPER_NOT_PRIVATE,
        "certified": scores(known, "certified"),
        "as_paper": scores(known, "paper"),
        "printed": [
            (NAMES[method], *(f"*{PAPER[method][e]:.2f}*" for e in EPSILONS))
            for method in METHODS
        ],
        "chosen": chosen(known),
        "rounds": rounds,
        "norms": [
            (k, *(f"{v[done]:.1f}" for done in rounds)) for k, v in norms.items()
        ],
        "networks": networks(known),
        "dims": f"{dims:,}",
        "signal": f"{20 * 900 / dims:.1f}",
    }


def draw(path: pathlib.Path, known: Results) -> None:
    """Accuracy by method and epsilon."""
    size = {"figsize": (10, 3.2), "sharey": True}
    with pages.chart(path, 1, 3, **size) as axes:
        titles = (
            "equal certified epsilon",
            "as the paper calibrates",
            "the paper's table",
        )
        for axis, how, title in zip(
            axes, ("certified", "paper", ""), titles, strict=True
        ):
            for method in METHODS:
                x, y, bars = [], [], []
                for epsilon in EPSILONS:
                    if not how:
                        x.append(epsilon)
                        y.append(PAPER[method][epsilon])
                        bars.append(0.0)
                        continue
                    cell = known[key_of(how, method, epsilon)]
                    scores = [100 * value for value in cell["accuracy"]]
                    x.append(cell["certified"])  # what these runs really are
                    y.append(statistics.mean(scores))
                    bars.append(statistics.stdev(scores))
                axis.errorbar(
                    x, y, bars, marker="o", ms=4, capsize=2, label=NAMES[method]
                )
            axis.set_xscale("log")
            axis.set_xticks([0.3, 1, 3], ["0.3", "1", "3"])
            axis.set_xticks([], minor=True)
            axis.set_xlim(0.25, 7)
            axis.set_xlabel("certified epsilon" if how else "claimed epsilon")
            axis.set_title(title, fontsize=10)
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("accuracy, per cent")
        axes[0].legend(fontsize=8)


CHARTS = {"accuracy.svg": draw}
