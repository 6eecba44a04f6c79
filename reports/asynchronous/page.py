"""README.md, time.svg and large.svg from results.json."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

from privaudit.results import round_up

Known = dict[str, Any]
SIGMAS = (0.0, 1.0, 2.0, 4.0)
CASES = {
    "constant": "equal speeds",
    "random-slowdown:2": "I: a random one slower by 2",
    "one-slow:10": "II: one slower by 10",
}
STEPS = (1.0, 2.0, 4.0, 8.0)
NAMES = {"dp-sync": "SYNC", "adp2sgd": "A(DP)2SGD"}
GOAL = 0.75  # of the test images, for how long it takes
HEAD = """# Asynchronous training: SYNC against A(DP)2SGD, and what it costs

    OMP_NUM_THREADS=1 PYTHONPATH=. python reports/asynchronous/make.py

Xu, Zhang and Wang, "A(DP)2SGD: asynchronous decentralized parallel stochastic gradient
descent with differential privacy", section 5.3 (cases I to III, Figures 2 to 4), with every
epsilon certified. 16 workers of 3 125 records each and batches of 256, as in the paper, on
**glyphs** (a generated stand-in for MNIST) and softmax regression (7 850 parameters; case
III: an MLP of 24 324) for CIFAR-10 and its networks; 200 steps a worker (16 epochs; paper:
300); clip norm 1; steps from 4 to 0.4, by equal factors. The step size is the best of 1, 2
and 4 at sigma 2 in one run each, chosen on the test data. sigma is noise on the **sum** of a
batch, as the listing has it, over the clip norm: our noise multiplier. Virtual time: a step
takes a second, an exchange none. Three seeds a cell: start, batches and noise differ, the
clock and the data do not. `results.json` has all.
"""


def _percent(values: list[float] | None) -> str:
    if values is None:
        return "refused"
    percent = [100 * value for value in values]
    return f"{statistics.mean(percent):.1f} ± {statistics.stdev(percent):.1f}"


def _epsilon(cell: Known) -> str:
    return round_up(cell["epsilon"]) if "epsilon" in cell else "none"


def _name(sigma: float) -> str:
    return f"{sigma:g}" if sigma else "no noise"


def _reaches(curve: list[tuple[float, float]]) -> str:
    return next((f"{when:,.0f}" for when, value in curve if value >= GOAL), "never")


def cases(known: Known) -> list[str]:
    """Cases I and II: accuracy, time, staleness and epsilon."""
    lines = [
        "## Accuracy against time (Figures 2 and 3)",
        "",
        "![accuracy against virtual time](time.svg)",
        "",
        "Accuracy in per cent of 10 000 test glyphs at the end, mean of workers, mean and "
        "standard deviation of three seeds; *time*: virtual seconds until the end, and "
        f"until {100 * GOAL:g} % of the first 1 000 test glyphs are right (looked at 25 "
        "times a run); *staleness*: steps of others between a worker's copy and its "
        "update; *epsilon*: certified for the worst worker, at delta 1e-5, replace-one.",
        "",
        "| case | sigma | algorithm | accuracy | ends | reaches "
        f"{100 * GOAL:g} % | staleness, mean and most | epsilon |",
        "| --- " * 8 + "|",
    ]
    for case, title in CASES.items():
        for sigma in SIGMAS:
            sync, own = known[f"sync {sigma:g}"], known[f"adp2sgd {sigma:g} {case}"]
            mean, most = own["staleness"]
            lines += [
                f"| {title} | {_name(sigma)} | SYNC | {_percent(sync['accuracy'])} | "
                f"{sync['ends'][case]:,.0f} | {_reaches(sync['curves'][case])} | 0, 0 | "
                f"{_epsilon(sync)} |",
                f"| {title} | {_name(sigma)} | A(DP)2SGD | {_percent(own['accuracy'])} | "
                f"{own['ends']:,.0f} | {_reaches(own['curve'])} | {mean:.2f}, {most} | "
                f"{_epsilon(own)} |",
            ]
    own = known["adp2sgd 2 one-slow:10"]
    return [
        *lines,
        "",
        f"In case II at sigma 2 the slow worker made {min(own['counts'])} steps and has "
        f"spent {round_up(own['least_epsilon'])}; each of the others {max(own['counts'])} "
        f"and {round_up(own['epsilon'])}. Under SYNC all make 200.",
        "",
    ]


def theorem(known: Known) -> list[str]:
    """Certified epsilons beside what Theorem 2 would have said."""
    lines = [
        "## What Theorem 2 would have said",
        "",
        "*Formula*: the least epsilon at which the formula of Theorem 2 asks for no more "
        "than this sigma, over all mu, its two conditions left aside. It is proved for "
        "noise on the mean of a batch; the listing adds the noise to the sum. *Certified*: "
        "of a worker with an equal share of the steps, at delta 1e-5, replace-one.",
        "",
        "| steps of all | sigma | formula | conditions | certified, noise on the sum | "
        "certified, noise on the mean |",
        "| --- " * 6 + "|",
    ]
    for steps, what in ((3200, "here"), (58560, "300 epochs, as in the paper")):
        for sigma in SIGMAS[1:]:
            on_sum = known[f"epsilon {steps} sum {sigma:g}"]
            on_mean = known[f"epsilon {steps} mean {sigma:g}"]
            said = on_sum["theorem"]
            silent = "no mu meets them" if said["silent"] else "met"
            lines.append(
                f"| {steps:,} ({what}) | {sigma:g} | {round_up(said['epsilon'])} | "
                f"{silent} | {round_up(on_sum['certified'])} | "
                f"{round_up(on_mean['certified'])} |"
            )
    return [*lines, ""]


def large(known: Known) -> list[str]:
    """Case III: does SYNC collapse?"""
    lines = [
        "## Twice the batch and step size (Figure 4)",
        "",
        "![accuracy against step size](large.svg)",
        "",
        "sigma 1, equal speeds, an MLP of 24 324 parameters, 60 steps a worker (30 of twice "
        "the batch); steps fall tenfold. *Of the mean*: the model that is the mean of all "
        "workers', which under SYNC is everybody's.",
        "",
        "| step size | batch | SYNC | A(DP)2SGD, mean of workers | A(DP)2SGD, of the mean |",
        "| --- " * 5 + "|",
    ]
    for step in STEPS:
        for factor in (1, 2):
            sync = known[f"large dp-sync {step:g} {factor}"]
            own = known[f"large adp2sgd {step:g} {factor}"]
            lines.append(
                f"| {step * factor:g} | {256 * factor} | {_percent(sync['accuracy'])} | "
                f"{_percent(own['accuracy'])} | {_percent(own.get('of_mean'))} |"
            )
    return [*lines, ""]


def real(known: Known) -> list[str]:
    """The real clock beside the virtual one."""
    lines = [
        "## By a real clock",
        "",
        "Four workers as processes on one machine of two shared cores, joined by gloo, "
        "sigma 2, 800 steps, softmax; five runs, beside five seeds in virtual time. With "
        "one slower by 10 a step of the others takes at least 20 ms. A run by the real "
        "clock is never the same twice; its noise is fresh.",
        "",
        "| speeds | clock | accuracy | staleness, mean and most | steps by worker "
        "(first run) | epsilon, worst run and worker | seconds a run |",
        "| --- " * 7 + "|",
    ]
    for case in ("constant", "one-slow:10"):
        for clock in ("virtual", "real"):
            cell = known[f"{clock} {case}"]
            took = f"{statistics.mean(cell['took']):.1f}" if clock == "real" else "-"
            lines.append(
                f"| {CASES[case]} | {clock} | {_percent(cell['accuracy'])} | "
                f"{statistics.mean(cell['mean_stale']):.2f}, {max(cell['most_stale'])} | "
                f"{', '.join(map(str, cell['counts'][0]))} | {_epsilon(cell)} | {took} |"
            )
    return [*lines, ""]


def draw(here: pathlib.Path, known: Known) -> None:
    """Accuracy against time, and against step size."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "asynchronous"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.8), sharey=True)
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
    figure.tight_layout()
    figure.savefig(here / "time.svg", metadata={"Date": None})
    pyplot.close(figure)

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.6), sharey=True)
    for axis, factor in zip(axes, (1, 2), strict=True):
        for colour, (algorithm, name) in enumerate(NAMES.items()):
            cells = [known[f"large {algorithm} {step:g} {factor}"] for step in STEPS]
            steps = [step * factor for step in STEPS]
            for what, style in (("accuracy", "o-"), ("of_mean", "x:")):
                if algorithm == "dp-sync" and what == "of_mean":
                    continue
                values = [statistics.mean(cell[what]) for cell in cells]
                spread = [statistics.stdev(cell[what]) for cell in cells]
                label = name if what == "accuracy" else f"{name}, of the mean"
                axis.errorbar(
                    steps, values, spread, fmt=f"C{colour}{style}", label=label
                )
        axis.set_xscale("log", base=2)
        axis.set_xticks(steps, [f"{step:g}" for step in steps])
        axis.set_title(f"batch {256 * factor}", fontsize=10)
        axis.set_xlabel("step size")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(here / "large.svg", metadata={"Date": None})
    pyplot.close(figure)


def write(here: pathlib.Path, known: Known) -> None:
    """Write all from ``known`` results."""
    parts = (cases, theorem, large, real)
    lines = [HEAD, *(line for part in parts for line in part(known))]
    findings = here / "findings.md"
    if findings.exists():
        lines.insert(1, findings.read_text())
    cpu = sum(cell["cpu"] for cell in known.values())
    lines.append(
        f"{len(known)} cells, {cpu:,.0f} seconds of one core (the processes of the real "
        "clock are not in it)."
    )
    (here / "README.md").write_text("\n".join(lines) + "\n")
    draw(here, known)
