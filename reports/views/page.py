"""Values and the chart of the page."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Iterable

from privaudit.results import round_down, round_up
from reports import pages
from reports.study import Results
from reports.views import accuracy, seen
from reports.views.cells import (
    DELTA,
    GOSSIP,
    HEARS,
    NODES,
    NOISE,
    ORDINARY,
    STEPS,
    SUMS,
)


def rows(known: Results, what: str) -> Iterable[tuple]:
    """By graph: each figure's mean over all pairs, and the worst pair's certified."""
    for graph in (*GOSSIP, *SUMS):
        cell = known.get(f"{what} {graph}")
        if cell is None:
            continue
        means = (round_up(cell[name]["mean"], 3) for name in cell)
        saved = 1 - cell["certified"]["mean"] / cell["everything_seen"]["mean"]
        most = round_up(cell["certified"]["most"], 3)
        yield graph, *means, most, f"{100 * saved:.0f} %"


def values(results: Results) -> dict:
    """Values of the template."""
    return {
        "averaging": rows(results, "averaging"),
        "training": rows(results, "training"),
        "ordinary": (
            (
                f"{step:g}",
                by,
                *(
                    round_up(cell[name], 3)
                    for name in ("nobody_reacts", "certified", "everything_seen")
                ),
                f"{cell['mu_nobody_reacts']:.2f}",
                f"{cell['mu_attack']:.2f}",
                round_down(cell["shown"], 3),
            )
            for step in ORDINARY
            for by in HEARS
            if (cell := results.get(f"ordinary {step:g} by {by}")) is not None
        ),
        "accuracies": accuracies(results),
        "tries": tries(results),
        "edge": edges(results),
        "gained": {e: gained(results, e) for e in accuracy.EPSILONS},
        "beside": {e: beside(results, e) for e in accuracy.EPSILONS},
        "settings": accuracy,
        "images": images(results),
        "rounds": seen.ROUNDS,
        "spoilt": f"{seen.NOISE:g}",
        "nodes": NODES,
        "noise": f"{NOISE:g}",
        "delta": f"{DELTA:g}",
        "steps": STEPS,
    }


def draw(path: pathlib.Path, known: Results) -> None:
    """Share of everything seen that a node learns of another, in the mean."""
    with pages.chart(
        path, rows=2, figsize=(6, 7), sharex=True, layout="constrained"
    ) as axes:
        for axis, what in zip(axes, ("averaging", "training"), strict=True):
            names = [
                g for g in (*GOSSIP, *SUMS) if known.get(f"{what} {g}") is not None
            ]
            for place, graph in enumerate(names):
                cell = known[f"{what} {graph}"]
                every = cell["everything_seen"]["mean"]
                for name, colour, width in (
                    ("certified", "#b9c4d6", 0.8),
                    ("nobody_reacts", "#31507a", 0.35),
                ):
                    axis.barh(-place, cell[name]["mean"] / every, width, color=colour)
            axis.set_yticks([-place for place in range(len(names))], names)
            axis.set(xlim=(0, 1), xlabel="of everything seen")
        axes[0].set_title("one vector each, averaged")
        axes[1].set_title("training: wide is proved, narrow is not")


WORDS = {
    "butterfly": "dp-butterfly, for any one node",
    "all-reduce": "the same sums, for whoever sees everything",
    "tracking": "dp-dsgt, for whoever sees everything",
    "gossip": "dp-dsgd, for whoever sees everything",
    "central": "all data at one place, dp-sgd",
    "butterfly, bytes": "dp-butterfly by halving",
    "tracking, bytes": "dp-dsgt",
    "gossip, bytes": "dp-dsgd",
}


GOSSIPS = ("tracking", "gossip")


def accuracies(known: Results) -> dict[str, list[tuple]]:
    """By what is equal, steps or bytes: a row for each method, nodes and epsilon."""
    found: dict[str, list[tuple]] = {"steps": [], "bytes": []}
    for method, words in WORDS.items():
        for nodes in accuracy.NODES if method != "central" else ("any",):
            texts: list[str] = []
            sent, steps = set(), set()
            for epsilon in accuracy.EPSILONS:
                cell = _of(known, method, nodes, epsilon)
                if cell is None:
                    texts += ["not yet", ""]
                    continue
                texts += [
                    pages.spread(cell["accuracy"]),
                    f"{cell['noise_multiplier']:.2f}",
                ]
                steps.add(_steps(method, nodes, cell))
                if cell["bytes"]:
                    sent.add(round(cell["bytes"] / 1e6))
            within = method.endswith(", bytes")
            row = (words, nodes, _either(steps), _either(sent), *texts)
            found["bytes" if within else "steps"].append(row)
    return found


def _either(found: set[int]) -> str:
    return " or ".join(map(str, sorted(found)))


def _of(known: Results, method: str, nodes: int | str, epsilon: float) -> dict | None:
    where = nodes if isinstance(nodes, int) else accuracy.NODES[0]
    return known.get(accuracy.name_of(method, where, epsilon))


def _steps(method: str, nodes: int | str, cell: dict) -> int:
    """Gradients of each node."""
    rounds = cell["chosen"]["rounds"]
    if accuracy.METHODS[method] != "dp-butterfly" or not isinstance(nodes, int):
        return rounds
    each = accuracy.exchanges(nodes)
    return rounds // (2 * each if method.endswith(", bytes") else each)


def _more(one: dict, other: dict) -> str:
    """Points of accuracy that one has above another, ± the standard error."""
    groups = [one["accuracy"], other["accuracy"]]
    first, second = map(pages.mean, groups)
    squared = sum(statistics.variance(each) / len(each) for each in groups)
    return f"{first - second:+.1f} ± {100 * squared**0.5:.1f}"


def gained(known: Results, epsilon: float) -> str:
    """Gain of figures by observer, in points of accuracy."""
    parts = []
    for nodes in accuracy.NODES:
        one = _of(known, "butterfly", nodes, epsilon)
        other = _of(known, "all-reduce", nodes, epsilon)
        if one and other:
            more = _more(one, other)
            parts.append(f"{more} with {nodes} nodes")
    return ", ".join(parts)


def beside(known: Results, epsilon: float) -> str:
    """Gain of dp-butterfly over the better gossip within its bytes, in points."""
    parts = []
    for nodes in accuracy.NODES:
        ours = _of(known, "butterfly, bytes", nodes, epsilon)
        found = (_of(known, f"{one}, bytes", nodes, epsilon) for one in GOSSIPS)
        theirs = [cell for cell in found if cell]
        if ours and theirs:
            best = max(theirs, key=lambda cell: pages.mean(cell["accuracy"]))
            parts.append(f"{_more(ours, best)} with {nodes} nodes")
    return ", ".join(parts)


def tries(known: Results) -> str:
    """Number of settings each search tried."""
    return pages.span(
        (len(cell["tried"]) for cell in known.starting("accuracy ").values()), 0
    )


def edges(known: Results) -> int:
    """Searches whose best is at the edge of what was tried."""
    return sum(cell["at_edge"] for cell in known.starting("accuracy ").values())


def images(known: Results) -> Iterable[tuple]:
    """By graph and noise: what is solved, and how far off the guesses are."""
    for name, cell in known.starting("images ").items():
        yield (
            name.replace(" noise=", ", noise "),
            *(
                f"{'' if one['solved'] else 'not '}solved, off by {one['off']:.2f}"
                for one in cell["guesses"]
            ),
        )


def draw_accuracy(path: pathlib.Path, known: Results) -> None:
    """Accuracy by number of nodes."""
    with pages.chart(
        path, rows=2, figsize=(6, 9), sharex=True, layout="constrained"
    ) as axes:
        for axis, epsilon in zip(axes, accuracy.EPSILONS, strict=True):
            for (method, words), colour in zip(
                WORDS.items(),
                ["C0", "C1", "C2", "C3", "0.4", "C0", "C2", "C3"],
                strict=True,
            ):
                pairs = [
                    (place, pages.mean(cell["accuracy"]))
                    for place, nodes in enumerate(accuracy.NODES)
                    if (cell := _of(known, method, nodes, epsilon)) is not None
                ]
                within = method.endswith(", bytes")
                axis.plot(
                    *zip(*pairs, strict=True) if pairs else ([], []),
                    "--" if within else "-",
                    marker="o",
                    color=colour,
                    label=words + (", equal bytes" if within else ""),
                )
            axis.set_xticks(range(len(accuracy.NODES)), accuracy.NODES)
            axis.set(
                xlabel="nodes",
                ylabel="accuracy on test data, per cent",
                title=f"epsilon {epsilon:g}",
            )
            axis.grid(axis="y", alpha=0.3)
        axes[0].figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center"
        )


def draw_images(path: pathlib.Path, known: Results) -> None:
    """Draw what each node holds, and what node 0 makes of what it hears."""
    found = known.starting("images ")
    rows = len(found) + 1
    with pages.chart(
        path,
        rows,
        len(seen.DISTANCES),
        figsize=(5, 1.35 * rows),
        layout="constrained",
        squeeze=False,
    ) as axes:
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
        for (row, (name, cell)), marks in zip(
            enumerate(found.items(), 1), axes[1:], strict=True
        ):
            graph, noise = name.split(" noise=")
            words = "no noise" if noise == "0" else f"noise {noise}"
            marks[0].set_ylabel(
                f"{graph}\n{words}", rotation=0, ha="right", va="center"
            )
            for column, one in enumerate(cell["guesses"]):
                for at, what in ((0, "true"), (row, "image")):
                    axes[at, column].imshow(
                        seen.unpacked(one[what]), cmap="gray_r", vmin=0, vmax=255
                    )
        axes[0, 0].set_ylabel("what they hold", rotation=0, ha="right", va="center")
        for axis, far in zip(axes[0], seen.DISTANCES, strict=True):
            axis.set_title(f"{far} hop{'s' * (far > 1)} away", fontsize="medium")


CHARTS = {"graphs.svg": draw, "accuracy.svg": draw_accuracy, "images.svg": draw_images}
