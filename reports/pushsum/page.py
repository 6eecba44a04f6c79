"""README.md and sensitivity.svg from results.json."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

Known = dict[str, Any]

# Zhou, Xue and Chen, Table 2, MLP on MNIST: EXP and 8-Out, per cent.
TABLE_2 = {
    ("PartPSP-1", 1.0): (41.57, 43.19),
    ("PartPSP-1", 3.0): (48.08, 88.87),
    ("PartPSP-1", None): (89.66, 89.75),
    ("PartPSP-2", 1.0): (21.66, 22.03),
    ("PartPSP-2", 3.0): (18.84, 67.26),
    ("PartPSP-2", None): (88.85, 88.99),
    ("SGPDP", 1.0): (29.23, 22.38),
    ("SGPDP", 3.0): (29.78, 45.63),
    ("SGPDP", None): (81.55, 81.62),
    ("PEDFL", 1.0): (38.47, 44.37),
    ("PEDFL", 3.0): (44.17, 44.22),
    ("PEDFL", None): (84.36, 84.25),
}
GRAPHS = {"d-out:2": "2-Out", "exponential": "EXP"}
NAMES = {
    "published": "the paper's, as its code has it",
    "paper": "the paper's, equation 22",
    "certified": "certified, from all norms",
    "data-independent": "data-independent",
}
HEAD = """# DPPS and PartPSP: what sensitivity is, and what its noise costs

    OMP_NUM_THREADS=1 PYTHONPATH=. python reports/pushsum/make.py

Zhou, Xue and Chen, "Differentially private perturbed push-sum protocol and its
application in non-convex optimization", section 5 and appendix 8, on glyphs (a generated
stand-in for MNIST): its MLP (24 324 parameters), ten nodes, step 0.1, C = 100, and
gamma_n = 0.001, b = 5 of its published code. Fewer rounds and runs than there; each
number says how many. `results.json` has all of them.
"""


def number(value: float) -> str:
    """Three significant digits; separators for the large."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def figure_2(known: Known) -> list[str]:
    """Table of estimates against the real sensitivity."""
    lines = [
        "## Real against estimated sensitivity (Figure 2)",
        "",
        "b = 5, synchronisation every 5 rounds, 25 rounds a run; C' = 0.78, lambda = "
        "0.55 (one layer shared) and 0.62 (two). Each row is its own runs, whose noise "
        "is scaled by that row's estimate. *Ratio*: estimate over real, mean and least. "
        "Rows have different numbers of runs because they were cut for time on the way: "
        "make.py now has 5 of the paper's code and 2 of each other.",
        "",
        "| graph, layers | estimate | ratio | least | rounds below the real one | runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for graph, said in GRAPHS.items():
        for layers in (1, 2):
            for name, words in NAMES.items():
                cell = known.get(f"figure 2 {graph} {layers} {name}")
                if cell is None:
                    continue
                lines.append(
                    f"| {said}, {layers} | {words} | {number(cell['ratio'])} | "
                    f"{cell['least_ratio']:.3f} | {cell['below']} of {cell['rounds']} "
                    f"| {cell['runs_below']} of {cell['runs']} |"
                )
        cell = known.get(f"one class a node {graph} 1")
        if cell is not None:
            lines.append(
                f"| {said}, 1, one class a node | {NAMES['published']} | "
                f"{number(cell['ratio'])} | {cell['least_ratio']:.3f} | "
                f"{cell['below']} of {cell['rounds']} | {cell['runs_below']} of "
                f"{cell['runs']} |"
            )
    return [*lines, "", "![One run of each](sensitivity.svg)", ""]


def constants(known: Known) -> list[str]:
    """What C' would be enough."""
    lines = [
        "### The C' that is enough",
        "",
        "The least C' for which equation 11 holds for all perturbations, ten nodes, by "
        "rounds between synchronisations (`privaudit.accounting.papers.push_sum_sensitivity`). The "
        "paper has 0.78 and 0.95; below 1 never suffices.",
        "",
        "| lambda | 2-Out, 4 | 2-Out, 5 | 2-Out, 20 | EXP, 4 | EXP, 5 | EXP, 20 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for decay in (0.53, 0.55, 0.62, 0.7):
        row = [
            number(known[f"constant {graph} {interval} {decay}"]["constant"])
            for graph in GRAPHS
            for interval in (4, 5, 20)
        ]
        lines.append(f"| {decay} | {' | '.join(row)} |")
    return [*lines, ""]


def figures_3_4(known: Known) -> list[str]:
    """Real average sensitivity by degree, layers and size."""
    lines = [
        "## Real average sensitivity by degree, layers and size (Figures 3 and 4)",
        "",
        "C' = 0.95, lambda = 0.55, synchronisation every 4 rounds; 16 rounds, one run, "
        "lots of 50. Noise is scaled by the estimate of the paper's code.",
        "",
        "| shared | nodes | EXP | 2-Out | 4-Out | 6-Out | 8-Out |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    graphs = ("exponential", "d-out:2", "d-out:4", "d-out:6", "d-out:8")
    for layers in (1, 2, 3):
        row = [known.get(f"figure 3 {graph} {layers}") for graph in graphs]
        lines.append(_row(f"| {layers} | 10 ", row, "ras"))
    for nodes in (20, 30):
        row = [known.get(f"figure 4 {graph} {nodes}") for graph in graphs]
        lines.append(_row(f"| 1 | {nodes} ", row, "ras"))
    below = sum(
        cell["below"]
        for key, cell in known.items()
        if key.startswith(("figure 3", "figure 4"))
    )
    return [*lines, "", f"Rounds in which the estimate was too low: {below}.", ""]


def _row(head: str, cells: list[Any], name: str) -> str:
    return head + "".join(f"| {number(c[name]) if c else '-'} " for c in cells) + "|"


def tables_2_3(known: Known) -> list[str]:
    """Accuracies, ours and the paper's."""
    lines = [
        "## Accuracy (Tables 2 and 3)",
        "",
        "Noise by the *real* sensitivity, which no node knows, as in the paper's Table "
        "2. Per cent of 10 000 test glyphs, mean of ten nodes, one run of 60 rounds "
        "(paper: 720), lots of 50; in italics the paper's figures on MNIST. For PEDFL, "
        "of which no code is published: one step between messages, no synchronisation.",
        "",
        "| method | b | b / gamma_n a round | EXP | 8-Out |",
        "| --- | --- | --- | --- | --- |",
    ]
    for b in (1.0, 3.0, None):
        for method in ("PartPSP-1", "PartPSP-2", "SGPDP", "PEDFL"):
            row = []
            for graph, theirs in zip(
                ("exponential", "d-out:8"), TABLE_2[method, b], strict=True
            ):
                cell = known.get(f"table 2 {method} {graph} {b}")
                row.append(f"{_accuracy(cell)}, *{theirs:.1f}*")
            noise = "no noise | -" if b is None else f"{b:g} | {1000 * b:,.0f}"
            lines.append(f"| {method} | {noise} | {' | '.join(row)} |")
    lines += [
        "",
        "By the real sensitivity and by the published estimate (C' = 0.95), b = 5:",
        "",
        "| method | 2-Out, real | 2-Out, estimated | EXP, real | EXP, estimated |",
        "| --- | --- | --- | --- | --- |",
    ]
    for method in ("PartPSP-1", "PartPSP-2"):
        row = [
            _accuracy(known.get(f"table 3 {method} {graph} {how}"))
            for graph in GRAPHS
            for how in ("real", "published")
        ]
        lines.append(f"| {method} | {' | '.join(row)} |")
    return [*lines, ""]


def _accuracy(cell: Known | None) -> str:
    if cell is None:
        return "-"
    if cell["accuracy"] is None:
        return "refused: noise feeds itself"
    return f"{statistics.mean(cell['accuracy']):.1f}"


def costs(known: Known) -> list[str]:
    """Epsilon, per round and in total, and what is left at a real budget."""
    lines = [
        "## What it costs",
        "",
        "Theorem 1 is b / gamma_n a round, for which node was asked. In all rounds, at "
        "delta 1e-5, one layer shared, 2-Out, synchronisation every 5 rounds, with "
        "**data-independent** sensitivities, the only ones with a guarantee (by Renyi "
        "accounts; replacing one record moves a message by at most 2 gamma_s C, "
        "whatever other records of the node change too):",
        "",
        "| b | gamma_n | claimed, a round | rounds | which node was asked | one record |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for b, gamma_n in ((1.0, 0.001), (5.0, 0.001), (5.0, 0.01), (1.0, 1.0)):
        for rounds in (25, 720):
            cell = known[f"epsilon {b:g} {gamma_n:g} {rounds}"]
            lines.append(
                f"| {b:g} | {gamma_n:g} | {number(cell['round'])} | {rounds} | "
                f"{number(cell['node'])} | {number(cell['record'])} |"
            )
    lines += [
        "",
        "With real or estimated sensitivities both are infinite: what scales the noise "
        "is a function of the data, known to all.",
        "",
        "At a **certified record-level** epsilon (delta 1e-5), digits, MLP of 2 004 "
        "parameters, ten nodes, 200 rounds, synchronisation in every round; one run; "
        "the better of C = 1e-4 and 1e-2, chosen on the test data, so that these are "
        "too good; C = 1 was not tried for want of time. *Nothing*: C = 1e-12, each "
        "node alone; *a bias*: C = 1e-4. The start has 20.7. *By sample*: clipped by sample (C = 1e-2), where lots amplify; local "
        "parameters carry a record from round to round, so that only SGPDP can have it.",
        "",
        "| method | epsilon 1 | 10 | 100 |",
        "| --- | --- | --- | --- |",
    ]
    for method in (
        "nothing",
        "a bias of 10",
        "PartPSP-1",
        "PartPSP-2",
        "SGPDP",
        "SGPDP, by sample",
    ):
        row = []
        for epsilon in (1.0, 10.0, 100.0):
            found = [
                statistics.mean(cell["accuracy"])
                for key, cell in known.items()
                if key.startswith(f"certified {method} {epsilon:g} ")
            ]
            row.append(f"{max(found):.1f}" if found else "-")
        lines.append(f"| {method} | {' | '.join(row)} |")
    return [*lines, ""]


def draw(here: pathlib.Path, known: Known) -> None:
    """One run of each estimate, with the real sensitivity of that run."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pushsum"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.5), sharex=True)
    names = ("published", "certified", "data-independent")
    for row, graph in enumerate(GRAPHS):
        for column, layers in enumerate((1, 2)):
            axis = axes[row][column]
            for colour, name in enumerate(names):
                cell = known.get(f"figure 2 {graph} {layers} {name}")
                if cell is None:
                    continue
                axis.semilogy(cell["used"], f"C{colour}-", label=NAMES[name])
                axis.semilogy(cell["real"], f"C{colour}:", label="real, in that run")
            axis.set_title(f"{GRAPHS[graph]}, {layers} shared")
            axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    for axis in axes[1]:
        axis.set_xlabel("round")
    figure.tight_layout()
    figure.savefig(here / "sensitivity.svg", metadata={"Date": None})
    pyplot.close(figure)


def write(here: pathlib.Path, known: Known) -> None:
    """Write both from ``known`` results."""
    parts = (figure_2, constants, figures_3_4, tables_2_3, costs)
    lines = [HEAD, *(line for part in parts for line in part(known))]
    findings = here / "findings.md"
    if findings.exists():
        lines.insert(1, findings.read_text())
    cpu = sum(cell["seconds"] for cell in known.values())
    lines.append(f"{len(known)} cells, {cpu:,.0f} seconds of one core.")
    (here / "README.md").write_text("\n".join(lines) + "\n")
    draw(here, known)
