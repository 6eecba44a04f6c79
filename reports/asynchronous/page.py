"""Charts of the page."""

from __future__ import annotations

import pathlib

from reports import pages
from reports.asynchronous.cells import CASES, SIGMAS, STEPS
from reports.study import Results

WORDS = ("equal speeds", "I: a random one slower by 2", "II: one slower by 10")


def draw_time(path: pathlib.Path, known: Results) -> None:
    """Accuracy against virtual time."""
    found = {}
    for case, title in zip(CASES, WORDS, strict=True):
        lines = found[title] = []
        for colour, sigma in enumerate(SIGMAS):
            label = f"sigma {sigma:g}" if sigma else "no noise"
            own = known[f"adp2sgd {sigma:g} {case}"]["curve"]
            sync = known[f"sync {sigma:g}"]["curves"][case]
            for curve, more in ((own, {"label": label}), (sync, {"ls": "--"})):
                style = {"color": f"C{colour}", "marker": "", **more}
                x, y = zip(*curve, strict=True)
                lines.append(pages.Line(x, y, None, style))
    words = {"xlabel": "virtual seconds", "ylabel": "accuracy"}
    titled = "solid: A(DP)2SGD; dashed: SYNC"
    pages.panels(path, found, rows=3, size=(6, 9), titled=titled, xscale="log", **words)


def draw_large(path: pathlib.Path, known: Results) -> None:
    """Accuracy against step size."""
    found = {}
    for factor in (1, 2):
        lines = found[f"batch {256 * factor}"] = []
        for algorithm, what, style in (
            ("dp-sync", "accuracy", {"label": "SYNC", "color": "C0"}),
            ("adp2sgd", "accuracy", {"label": "A(DP)2SGD", "color": "C1"}),
            ("adp2sgd", "of_mean", {"label": "of the mean", "color": "C1", "ls": ":"}),
        ):
            runs = [known[f"large {algorithm} {s:g} {factor}"][what] for s in STEPS]
            steps = [step * factor for step in STEPS]
            lines.append(pages.Line.of_runs(steps, runs, **style))
    words = {"xlabel": "step size", "ylabel": "accuracy, per cent"}
    pages.panels(path, found, xscale="log", **words)


CHARTS = {"time.svg": draw_time, "large.svg": draw_large}
