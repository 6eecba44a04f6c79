"""Values and charts of the page."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

from privaudit.results import round_up
from reports import pages
from reports.study import Results

SIGMAS = (0.0, 1.0, 2.0, 4.0)
CASES = {
    "constant": "equal speeds",
    "random-slowdown:2": "I: a random one slower by 2",
    "one-slow:10": "II: one slower by 10",
}
STEPS = (1.0, 2.0, 4.0, 8.0)
CLOCKS = ("virtual", "real")
GOAL = 0.75  # of the test images, for how long it takes


def _percent(values: list[float] | None) -> str:
    return "refused" if values is None else pages.spread(values)


def _epsilon(cell: dict[str, Any]) -> str:
    return round_up(cell["epsilon"]) if "epsilon" in cell else "none"


def _reaches(curve: list[tuple[float, float]]) -> str:
    return next((f"{when:,.0f}" for when, value in curve if value >= GOAL), "never")


def cases(known: Results) -> list[tuple]:
    """Cases I and II: accuracy, time, staleness and epsilon."""
    rows = []
    for case, title in CASES.items():
        for sigma in SIGMAS:
            sync, own = known[f"sync {sigma:g}"], known[f"adp2sgd {sigma:g} {case}"]
            mean, most = own["staleness"]
            for name, cell, ends, curve, stale in (
                ("SYNC", sync, sync["ends"][case], sync["curves"][case], "0, 0"),
                ("A(DP)2SGD", own, own["ends"], own["curve"], f"{mean:.2f}, {most}"),
            ):
                noise = f"{sigma:g}" if sigma else "no noise"
                score = _percent(cell["accuracy"])
                times = f"{ends:,.0f}", _reaches(curve)
                rows.append((title, noise, name, score, *times, stale, _epsilon(cell)))
    return rows


def theorem(known: Results) -> list[tuple]:
    """Certified epsilons beside what Theorem 2 would have said."""
    rows = []
    for steps, what in ((3200, "here"), (58560, "300 epochs, as in the paper")):
        for sigma in SIGMAS[1:]:
            on_sum = known[f"epsilon {steps} sum {sigma:g}"]
            on_mean = known[f"epsilon {steps} mean {sigma:g}"]
            said = on_sum["theorem"]
            silent = "no mu meets them" if said["silent"] else "met"
            figures = said["epsilon"], on_sum["certified"], on_mean["certified"]
            formula, *certified = map(round_up, figures)
            rows.append(
                (f"{steps:,} ({what})", f"{sigma:g}", formula, silent, *certified)
            )
    return rows


def large(known: Results) -> list[tuple]:
    """Case III: does SYNC collapse?"""
    rows = []
    for step in STEPS:
        for factor in (1, 2):
            sync = known[f"large dp-sync {step:g} {factor}"]["accuracy"]
            own = known[f"large adp2sgd {step:g} {factor}"]
            scores = map(_percent, (sync, own["accuracy"], own.get("of_mean")))
            rows.append((f"{step * factor:g}", 256 * factor, *scores))
    return rows


def real(known: Results) -> list[tuple]:
    """The real clock beside the virtual one."""
    rows = []
    for case in ("constant", "one-slow:10"):
        for clock in CLOCKS:
            cell = known[f"{clock} {case}"]
            stale = statistics.mean(cell["mean_stale"]), max(cell["most_stale"])
            steps = ", ".join(map(str, cell["counts"][0]))
            took = f"{statistics.mean(cell['took']):.1f}" if clock == "real" else "-"
            score = _percent(cell["accuracy"])
            told = "{:.2f}, {}".format(*stale)
            rows.append((CASES[case], clock, score, told, steps, _epsilon(cell), took))
    return rows


def said(known: Results) -> dict[str, str]:
    """Figures of the text that stand in no table."""

    def ahead(one: str, other: str) -> float:
        return pages.mean(known[one]["accuracy"]) - pages.mean(known[other]["accuracy"])

    names = {s: [f"sync {s:g}", *(f"adp2sgd {s:g} {c}" for c in CASES)] for s in SIGMAS}
    gaps = {s: [ahead(sync, own) for own in all_] for s, (sync, *all_) in names.items()}
    late = [
        float(_reaches(known[f"adp2sgd {sigma:g} constant"]["curve"]))
        / float(_reaches(known[f"sync {sigma:g}"]["curves"]["constant"]))
        for sigma in SIGMAS
    ]
    doubled = (
        ahead(f"large {name} {step:g} 1", f"large {name} {step:g} 2")
        for name in ("dp-sync", "adp2sgd")
        for step in STEPS[:-1]
    )
    clocks = [f"{clock} {c}" for clock in CLOCKS for c in ("constant", "one-slow:10")]
    return {
        "gap_plain": pages.at_most(gaps[0.0]),
        "gap_noisy": pages.at_most(g for s in SIGMAS[1:] for g in gaps[s]),
        "later": pages.at_most(late),
        "clipped": pages.span(map(ahead, names[0.0], names[1.0])),
        "within": pages.at_most(map(abs, doubled)),
        "sync_above": pages.span(
            ahead(f"large dp-sync {step:g} 1", f"large adp2sgd {step:g} 1")
            for step in STEPS[:-1]
        ),
        "deviation": pages.span(
            statistics.stdev(100 * a for a in known[name]["accuracy"])
            for name in clocks
        ),
        "stale": pages.span((s for n in clocks for s in known[n]["mean_stale"]), 2),
    }


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    return {
        "said": said(known),
        "goal": f"{100 * GOAL:g}",
        "cases": cases(known),
        "slow": known["adp2sgd 2 one-slow:10"],
        "theorem": theorem(known),
        "large": large(known),
        "real": real(known),
    }


def draw_time(path: pathlib.Path, known: Results) -> None:
    """Accuracy against virtual time."""
    size = {"figsize": (11, 3.8), "sharey": True}
    with pages.chart(path, 1, 3, **size) as axes:
        for axis, (case, title) in zip(axes, CASES.items(), strict=True):
            for colour, sigma in enumerate(SIGMAS):
                own = known[f"adp2sgd {sigma:g} {case}"]["curve"]
                sync = known[f"sync {sigma:g}"]["curves"][case]
                label = f"sigma {sigma:g}" if sigma else "no noise"
                axis.plot(*zip(*own, strict=True), f"C{colour}-", label=label)
                axis.plot(*zip(*sync, strict=True), f"C{colour}--")
            axis.set_title(title, fontsize=10)
            axis.set_xlabel("virtual seconds")
            axis.grid(alpha=0.3)
        axes[2].set_xscale("log")
        axes[0].set_ylabel("accuracy")
        axes[0].plot([], [], "k-", label="A(DP)2SGD")
        axes[0].plot([], [], "k--", label="SYNC")
        axes[0].legend(fontsize=8)


def draw_large(path: pathlib.Path, known: Results) -> None:
    """Accuracy against step size."""
    size = {"figsize": (8, 3.6), "sharey": True}
    with pages.chart(path, 1, 2, **size) as axes:
        for axis, factor in zip(axes, (1, 2), strict=True):
            steps = [step * factor for step in STEPS]
            for colour, what, style, algorithm, label in (
                (0, "accuracy", "o-", "dp-sync", "SYNC"),
                (1, "accuracy", "o-", "adp2sgd", "A(DP)2SGD"),
                (1, "of_mean", "x:", "adp2sgd", "A(DP)2SGD, of the mean"),
            ):
                found = [
                    known[f"large {algorithm} {step:g} {factor}"][what]
                    for step in STEPS
                ]
                means, errors = (
                    map(statistics.mean, found),
                    map(statistics.stdev, found),
                )
                marks = {"fmt": f"C{colour}{style}", "label": label}
                axis.errorbar(steps, list(means), list(errors), **marks)
            axis.set_xscale("log", base=2)
            axis.set_xticks(steps, [f"{step:g}" for step in steps])
            axis.set_title(f"batch {256 * factor}", fontsize=10)
            axis.set_xlabel("step size")
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("accuracy")
        axes[0].legend(fontsize=8)


CHARTS = {"time.svg": draw_time, "large.svg": draw_large}
