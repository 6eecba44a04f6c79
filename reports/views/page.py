"""Charts of the page."""

from __future__ import annotations

import pathlib

from reports import pages
from reports.study import Results
from reports.views import seen
from reports.views.cells import GOSSIP, SUMS


def draw(path: pathlib.Path, known: Results) -> None:
    """Share of everything seen that a node learns of another, in the mean."""
    with pages.chart(
        path, rows=2, figsize=(6, 7), sharex=True, layout="constrained"
    ) as axes:
        for axis, what in zip(axes, ("averaging", "training"), strict=True):
            names = [g for g in (*GOSSIP, *SUMS) if f"{what} {g}" in known]
            for place, graph in enumerate(names):
                cell = known[f"{what} {graph}"]
                every = cell["everything_seen"]["mean"]
                bars = ("certified", "#b9c4d6", 0.8), ("nobody_reacts", "#31507a", 0.35)
                for name, colour, width in bars:
                    axis.barh(-place, cell[name]["mean"] / every, width, color=colour)
            axis.set_yticks([-place for place in range(len(names))], names)
            axis.set(xlim=(0, 1), xlabel="of everything seen")
        axes[0].set_title("one vector each, averaged")
        axes[1].set_title("training: wide is proved, narrow is not")


def draw_images(path: pathlib.Path, known: Results) -> None:
    """Draw what each node holds, and what node 0 makes of what it hears."""
    found = known.starting("images ")
    rows = [("what they hold", "true", next(iter(found.values())))]
    for name, cell in found.items():
        graph, noise = name.split(" noise=")
        words = "no noise" if noise == "0" else f"noise {noise}"
        rows.append((f"{graph}\n{words}", "image", cell))
    size = (5, 1.35 * len(rows))
    options = {"figsize": size, "layout": "constrained", "squeeze": False}
    with pages.chart(path, len(rows), len(seen.DISTANCES), **options) as axes:
        for line, (words, what, cell) in zip(axes, rows, strict=True):
            line[0].set_ylabel(words, rotation=0, ha="right", va="center")
            for axis, one in zip(line, cell["guesses"], strict=True):
                image = seen.unpacked(one[what])
                axis.imshow(image, cmap="gray_r", vmin=0, vmax=255)
                axis.set(xticks=[], yticks=[])
        for axis, far in zip(axes[0], seen.DISTANCES, strict=True):
            axis.set_title(f"{far} hop{'s' * (far > 1)} away", fontsize="medium")


CHARTS = {"graphs.svg": draw, "images.svg": draw_images}
