"""README.md and accuracy.svg from results.json."""

from __future__ import annotations

import math
import pathlib
import statistics
from typing import Any

from privaudit.results import round_up
from reports.dynamic.study import (
    CALIBRATIONS,
    GRAPHS,
    METHODS,
    NODES,
    Study,
    key_of,
)
from reports.dynamic.words import (
    HEAD,
    NAMES,
    PAPER,
    PAPER_NOT_PRIVATE,
    SETTING,
    VERDICT,
)


def write(out: pathlib.Path, study: Study) -> None:
    """Write both files from what was computed."""
    cells = study.results.cells
    epsilons = study.scale.epsilons
    dims = study.problem(study.settings("sgp")).start(0).shape[2]
    scale = study.scale
    lines = [
        HEAD,
        VERDICT,
        *headline(cells, epsilons),
        "",
        "![Accuracy by method and epsilon](accuracy.svg)",
        "",
        "Accuracy in per cent on test data, mean of nodes, mean and standard deviation of "
        f"{scale.seeds} seeds. Without privacy: **{_score(cells, key_of('none', 'sgp', 0.0))}** "
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
        *_premise(cells),
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
    """Gains over Const-D2P, seed by seed: equal seeds have equal starts and draws."""
    lines = [
        "Gain over Const-D2P in points, mean of the seeds' differences and its standard",
        "error (the same start, coins and normal draws in both), *in italics the paper's*:",
        "",
        "| method | noise | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "| --- " * (2 + len(epsilons)) + "|",
    ]
    for method in METHODS[1:]:
        for how in ("certified", "paper"):
            gains = []
            for epsilon in epsilons:
                text = f"{_gain(cells, how, method, epsilon)}"
                if how == "paper":
                    printed = PAPER[method][epsilon] - PAPER["const-d2p"][epsilon]
                    text += f" (*{printed:+.1f}*)"
                gains.append(text)
            words = "equal certified epsilon" if how == "certified" else "the paper's"
            lines.append(f"| {NAMES[method]} | {words} | " + " | ".join(gains) + " |")
    return lines


def _gain(cells: dict[str, Any], how: str, method: str, epsilon: float) -> str:
    pair = [cells.get(key_of(how, one, epsilon)) for one in (method, "const-d2p")]
    if pair[0] is None or pair[1] is None:
        return "-"
    gains = [
        100 * (one - other)
        for one, other in zip(pair[0]["accuracy"], pair[1]["accuracy"], strict=True)
    ]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return f"{statistics.mean(gains):+.1f} ± {error:.1f}"


def order(cells: dict[str, Any], how: str, epsilon: float) -> list[str]:
    """Methods from the best to the worst."""
    means = {
        method: statistics.mean(cells[key]["accuracy"])
        for method in METHODS
        if (key := key_of(how, method, epsilon)) in cells
    }
    return sorted(means, key=lambda method: -means[method])


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
            key = key_of(how, method, epsilon)
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
            cell = cells.get(key_of(how, method, 1.0))
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


def _premise(cells: dict[str, Any]) -> list[str]:
    rows = [
        "## The premise: do gradients shrink?",
        "",
        "Median norm of a record's gradient at node 0, one seed.",
        "",
    ]
    found = [
        ("SGP, not private", cells.get("norms sgp epsilon=0")),
        ("Const-D2P, certified epsilon 1", cells.get("norms const-d2p epsilon=1")),
    ]
    known = [(name, norms) for name, norms in found if norms]
    if not known:
        return []
    rounds = sorted(known[0][1], key=int)
    rows.append("| after rounds | " + " | ".join(rounds) + " |")
    rows.append("| --- " * (1 + len(rounds)) + "|")
    for name, norms in known:
        rows.append(
            f"| {name} | " + " | ".join(f"{norms[k]:.1f}" for k in rounds) + " |"
        )
    return [*rows, ""]


def _networks(cells: dict[str, Any]) -> list[str]:
    what = ("certified", "dyn-d2p", 1.0)
    rows = [
        "## Graphs and numbers of nodes",
        "",
        "Dyn-D2P at certified epsilon 1; J the same for every number of nodes.",
        "",
        "| graph, 20 nodes | accuracy | | nodes, exponential graph | accuracy |",
        "| --- | --- | --- | --- | --- |",
    ]
    left = [(g, _score(cells, key_of(*what, graph=g))) for g in GRAPHS]
    right = [(str(n), _score(cells, key_of(*what, nodes=n))) for n in NODES]
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
                cell = cells.get(key_of(how, method, epsilon))
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
