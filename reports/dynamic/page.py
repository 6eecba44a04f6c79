"""README.md and accuracy.svg from results.json."""

from __future__ import annotations

import math
import pathlib
import statistics
from typing import Any

from privaudit.results import round_up
from reports.dynamic.study import CALIBRATIONS, GRAPHS, METHODS, NODES, Study

NAMES = {
    "const-d2p": "Const-D2P",
    "dyn-mu-d2p": "Dyn[mu]-D2P",
    "dyn-c-d2p": "Dyn[C]-D2P",
    "dyn-d2p": "Dyn-D2P",
}
# Table 2 of the paper: shallow CNN, FashionMNIST.
PAPER = {
    "const-d2p": {0.3: 45.37, 0.7: 58.63, 1.0: 74.65, 3.0: 80.81},
    "dyn-mu-d2p": {0.3: 81.12, 0.7: 82.98, 1.0: 82.23, 3.0: 84.36},
    "dyn-c-d2p": {0.3: 82.93, 0.7: 83.65, 1.0: 84.06, 3.0: 84.98},
    "dyn-d2p": {0.3: 84.88, 0.7: 85.36, 1.0: 86.21, 3.0: 87.89},
}
PAPER_NOT_PRIVATE = 89.98

HEAD = """# Do dynamic schedules win? Dyn-D2P's Table 2, twice

Table 2 of Zhu, Huang, Wang, Ji and Xu, *Dyn-D2P* (five methods, four epsilons, delta
1e-4, twenty nodes, time-varying directed exponential graph, five seeds): once with noise
by the paper's own account (eqs. 4, 8 and 9, a central limit), with the epsilon that this
really is; once with every method's noise calibrated to the same **certified** epsilon.

    OMP_NUM_THREADS=1 python -m reports.dynamic.make --workers 2
"""

SETTING = """## Setting, and what differs from the paper

| | here | paper |
| --- | --- | --- |
| data | glyphs, a drawn stand-in for MNIST at 28x28 | FashionMNIST |
| model | two convolutions, two linear layers, {dims} parameters d, on images halved to 14x14 | two convolutions, two linear layers, widths not given |
| records a node J, rounds K | {records}, {rounds} | 3 000, not given (10 000 assumed below) |
| J / sqrt(K) | {ratio:.0f} | 30 |
| n K / d | {signal:.1f} | 7.7 with 26 010 parameters |
| step size | 0.05 | 0.03 |

Each node takes each of its records with probability 1/J in a round, one on average. With
mu_tot the same, J / sqrt(K) is all that the budgets mu_k of eqs. 8 and 9 depend on, and
n K / d, at equal budgets, is how far the signal stands above the noise: the regime is the
paper's, at a size that two cores can do. A cell is one program of five runs with starts,
lots and noise of their own, on one deal of the data.

Clip norms and rho are, as in the paper, those of a grid that did best on test data, here
at epsilon 1, with a seed that the tables do not have, once for each method and
calibration. The grid is a part of the paper's, five or six points a method: C in {{2.5, 2,
1.5, 1, 0.5}} (Const), C in {{1, 0.5}} and 1/rho_mu in {{0.8, 0.5, 0.2}} (Dyn[mu]), C0 in
{{4, 2}} (the paper: 4) and 1/rho_c in {{0.5, 0.2, 0.1}} (Dyn[C]), C0 in {{4, 2}} and
(1/rho_c, 1/rho_mu) in {{(0.2, 0.8), (0.1, 0.8), (0.2, 0.5)}} (Dyn). Choosing by test data
flatters all four alike, and is in no ledger. Relation: add-or-remove-one.
"""


def write(out: pathlib.Path, study: Study) -> None:
    """Write both files from what was computed."""
    cells = study.results.cells
    epsilons = study.scale.epsilons
    dims = study.problem(study.settings("sgp")).start(0).shape[2]
    scale = study.scale
    lines = [
        HEAD,
        *headline(cells, epsilons),
        "",
        "![Accuracy by method and epsilon](accuracy.svg)",
        "",
        "Accuracy in per cent on test data, mean of nodes, mean and standard deviation of "
        f"{scale.seeds} seeds. Without privacy: **{_score(cells, _key('none', 'sgp', 0.0))}** "
        f"here, {PAPER_NOT_PRIVATE} in the paper.",
        "",
        "## At equal certified epsilon",
        "",
        *_table(cells, "certified", epsilons),
        "## Calibrated as the paper does",
        "",
        "In brackets the certified epsilon of these very runs, rounded up.",
        "",
        *_table(cells, "paper", epsilons),
        "## The paper's figures",
        "",
        *_paper_table(epsilons),
        *_chosen(cells),
        *_networks(cells),
        SETTING.format(
            dims=f"{dims:,}",
            records=scale.records,
            rounds=scale.rounds,
            ratio=scale.records / math.sqrt(scale.rounds),
            signal=20 * scale.rounds / dims,
        ),
        f"All cells took {cells['seconds'] / 60:.0f} minutes of processor time.",
        "",
    ]
    (out / "README.md").write_text("\n".join(lines))
    _plot(cells, epsilons, out / "accuracy.svg")


def headline(cells: dict[str, Any], epsilons: tuple[float, ...]) -> list[str]:
    """What the certified table says, in a sentence an epsilon."""
    lines = ["## Does the dynamic schedule still win?", ""]
    for how, words in (
        ("certified", "At equal certified epsilon"),
        ("paper", "With the paper's calibration"),
    ):
        gains = []
        for epsilon in epsilons:
            dyn, const = (
                cells.get(_key(how, method, epsilon))
                for method in ("dyn-d2p", "const-d2p")
            )
            if not dyn or not const:
                continue
            gain, error = _difference(dyn["accuracy"], const["accuracy"])
            gains.append(f"{gain:+.1f} ± {error:.1f} at {epsilon:g}")
        lines.append(
            f"- {words}, Dyn-D2P minus Const-D2P in points, by epsilon (± one standard "
            f"error): {', '.join(gains)}."
        )
    printed = [
        f"{PAPER['dyn-d2p'][e] - PAPER['const-d2p'][e]:+.1f} at {e:g}" for e in epsilons
    ]
    lines.append(f"- The paper's table: {', '.join(printed)}.")
    return lines


def order(cells: dict[str, Any], how: str, epsilon: float) -> list[str]:
    """Methods from the best to the worst."""
    means = {
        method: statistics.mean(cells[key]["accuracy"])
        for method in METHODS
        if (key := _key(how, method, epsilon)) in cells
    }
    return sorted(means, key=lambda method: -means[method])


def _difference(one: list[float], other: list[float]) -> tuple[float, float]:
    gain = 100 * (statistics.mean(one) - statistics.mean(other))
    spread = sum(statistics.variance(a) / len(a) for a in (one, other))
    return gain, 100 * math.sqrt(spread)


def _key(how: str, method: str, epsilon: float) -> str:
    return f"cell {how} {method} epsilon={epsilon:g}"


def _score(cells: dict[str, Any], key: str) -> str:
    if key not in cells:
        return "-"
    values = [100 * value for value in cells[key]["accuracy"]]
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def _table(cells: dict[str, Any], how: str, epsilons: tuple[float, ...]) -> list[str]:
    rows = [
        "| method | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "| --- " * (1 + len(epsilons)) + "|",
    ]
    for method in METHODS:
        scores = []
        for epsilon in epsilons:
            key = _key(how, method, epsilon)
            text = _score(cells, key)
            if how == "paper" and key in cells:
                text += f" ({round_up(cells[key]['certified'], 2)})"
            scores.append(text)
        rows.append(f"| {NAMES[method]} | " + " | ".join(scores) + " |")
    ranks = " | ".join(
        " > ".join(_short(method) for method in order(cells, how, e)) for e in epsilons
    )
    return [*rows, f"| order | {ranks} |", ""]


def _short(method: str) -> str:
    return NAMES[method].removesuffix("-D2P")


def _paper_table(epsilons: tuple[float, ...]) -> list[str]:
    rows = [
        "| method | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "| --- " * (1 + len(epsilons)) + "|",
    ]
    for method in METHODS:
        printed = " | ".join(f"*{PAPER[method][e]:.2f}*" for e in epsilons)
        rows.append(f"| {NAMES[method]} | {printed} |")
    return [*rows, ""]


def _chosen(cells: dict[str, Any]) -> list[str]:
    rows = ["## What the grid chose", ""]
    for how in CALIBRATIONS:
        found = []
        for method in METHODS:
            cell = cells.get(_key(how, method, 1.0))
            if cell:
                options = ", ".join(
                    f"{name} {value:.3g}" for name, value in cell["options"].items()
                )
                z = cell["multiplier"]
                found.append(
                    f"{NAMES[method]}: {options} (first noise multiplier {z:.3g})"
                )
        rows.append(f"- {how} noise: {'; '.join(found)}.")
    return [*rows, ""]


def _networks(cells: dict[str, Any]) -> list[str]:
    base = _key("certified", "dyn-d2p", 1.0)
    rows = [
        "## Graphs and numbers of nodes",
        "",
        "Dyn-D2P at certified epsilon 1; J the same for every number of nodes.",
        "",
        "| graph, 20 nodes | accuracy | | nodes, exponential graph | accuracy |",
        "| --- | --- | --- | --- | --- |",
    ]
    left = [(g, _score(cells, f"{base} graph={g}")) for g in GRAPHS]
    right = [(str(n), _score(cells, f"{base} nodes={n}")) for n in NODES]
    for place in range(max(len(left), len(right))):
        one = left[place] if place < len(left) else ("", "")
        other = right[place] if place < len(right) else ("", "")
        rows.append(f"| {one[0]} | {one[1]} | | {other[0]} | {other[1]} |")
    return [
        *rows,
        "",
        "The paper's order: directed ring, exponential, complete, each better than the one "
        "before; and the more nodes the better.",
        "",
    ]


def _plot(
    cells: dict[str, Any], epsilons: tuple[float, ...], path: pathlib.Path
) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dynamic"  # equal results, equal files
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.2), sharey=True)
    titles = ("equal certified epsilon", "as the paper calibrates", "the paper's table")
    for axis, how, title in zip(axes, ("certified", "paper", ""), titles, strict=True):
        for method in METHODS:
            x, y, bars = [], [], []
            for epsilon in epsilons:
                if not how:
                    x.append(epsilon)
                    y.append(PAPER[method][epsilon])
                    bars.append(0.0)
                    continue
                cell = cells.get(_key(how, method, epsilon))
                if cell:
                    x.append(cell["certified"])  # what these runs really are
                    values = [100 * value for value in cell["accuracy"]]
                    y.append(statistics.mean(values))
                    bars.append(statistics.stdev(values))
            axis.errorbar(x, y, bars, marker="o", ms=4, capsize=2, label=NAMES[method])
        axis.set_xscale("log")
        axis.set_xlabel("certified epsilon" if how else "claimed epsilon")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy, per cent")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
