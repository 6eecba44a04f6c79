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


CHARTS = {"graphs.svg": draw, "images.svg": draw_images}
