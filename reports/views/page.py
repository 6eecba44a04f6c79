"""Charts of the page, and what one way gains over others."""

from __future__ import annotations

import pathlib
import statistics

from reports import pages, told
from reports.study import Results
from reports.views import accuracy, seen
from reports.views.cells import GOSSIP, SUMS


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


WORDS = told(__file__)["page"]["WORDS"]


def more(
    known: Results, nodes: int, epsilon: float, one: str, others: list[str]
) -> str:
    """Points of accuracy above the best of the others, ± the standard error."""
    runs: list[list[float]] = [
        known[accuracy.name_of(name, nodes, epsilon)]["accuracy"]
        for name in (one, *others)
    ]
    ours, best = runs[0], max(runs[1:], key=pages.mean)
    squared = sum(statistics.variance(each) / len(each) for each in (ours, best))
    return f"{pages.mean(ours) - pages.mean(best):+.1f} ± {100 * squared**0.5:.1f}"


def draw_accuracy(path: pathlib.Path, known: Results) -> None:
    """Accuracy by number of nodes."""
    found = {}
    colours = ["C0", "C1", "C2", "C3", "0.4", "C0", "C2", "C3"]
    for epsilon in accuracy.EPSILONS:
        lines = found[f"epsilon {epsilon:g}"] = []
        for (method, words), colour in zip(WORDS.items(), colours, strict=True):
            places = [accuracy.name_of(method, n, epsilon) for n in accuracy.NODES]
            y = [pages.mean(known[p]["accuracy"]) for p in places if p in known]
            ls, more = ("--", ", equal bytes") if "bytes" in method else ("-", "")
            style = {"color": colour, "ls": ls, "label": words + more}
            lines.append(pages.Line(range(len(y)), y, None, style))
    ticks = {"xticks": range(3), "xticklabels": accuracy.NODES, "xlabel": "nodes"}
    words = {"ylabel": "accuracy, per cent", **ticks}
    pages.panels(path, found, rows=2, size=(6, 9), **words)


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
