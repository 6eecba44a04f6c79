"""README.md and graphs.svg from results.json."""

from __future__ import annotations

import json
import pathlib
import statistics

from paper import TABLE_1, TABLE_2

from privaudit.results import round_up

EPSILONS = (None, 100.0, 10.0, 1.0, 0.5)
SPLITS = (0.0, 0.25, 0.5, 0.75, 1.0)
FIEDLER = {
    "complete": "1 (complete)",
    "fiedler:0.7": "0.7",
    "fiedler:0.39": "0.39",
    "fiedler:0.06": "0.06",
}
HEAD = """# Consensus algorithms: graphs and data splits, with certified accounts

Tables 1 and 2 of Bayrooti, Gao and Prorok (2023) again, every epsilon certified.

{wrong}

## How it was made

    OMP_NUM_THREADS=1 python reports/consensus/make.py

What differs from the paper: **data** are glyphs, a generated stand-in for MNIST (60 000
and 10 000 drawn digits, 28x28; see `trainers/data/glyphs.py`), as no network was at hand;
the **model** is softmax regression (7 850 parameters) and there are **300 rounds** with
lots of 128, so that all five seeds of a cell are one program of seconds on one core
(paper: a small convolutional network, 2 000 rounds, lots of 256). Clip norm 1; weights
are Metropolis, as uniform ones are not doubly stochastic on irregular graphs; one graph
a Fiedler value. Step sizes fall tenfold over the rounds; their start (and DiNNO's rho)
was found by a search on a fifth of the training data on the complete graph with one
class a node, one for each method and epsilon, and used everywhere, as in the paper. The
search is in no ledger: it would have to be counted, or done on public data.

Accuracy in per cent on 10 000 test images, mean of ten nodes, mean and standard
deviation of five seeds; *in italics* the paper's figures, on MNIST.
"""

WRONG = """## What is wrong with this report

**Do not read DiNNO's figures below as the paper's algorithm. All of this is to be measured
again.** An earlier version of this page said that DiNNO depends strongly on the graph. It
does not: the paper's near invariance to the graph holds. What we did wrong:

- The searches left out the settings that were published with the paper. For DiNNO these
  are rho .5, growing by 1.0003 a round, and an Adam that is rebuilt every round.
- The searches ran on the complete graph only, and what they found there was used on all
  graphs.
- The searches ended at the edge of their grids, so that better settings may lie beyond.
  Of the 5 privacy levels: {edges}.

Measured since then on the same data, accuracy in per cent:

| DiNNO | complete graph | Fiedler value .06 |
| --- | --- | --- |
| not private, the published settings | 83.9 | 85.6 |
| epsilon 1, plain inner steps, rho .03, step 3 | 82.4 | 82.4 |
| epsilon 1, as this report had it | {complete:.1f} | {sparse:.1f} |

The tables mark DiNNO's rows as "wrong settings"; the figure and the comparison with the
paper leave them out. The figures of the other three methods may change too: that DSGD loses
far more between graphs here than in the paper may come of the same searches."""
WRONGLY_SET = {"DiNNO": "DiNNO, wrong settings"}


def _head(known: dict) -> str:
    edges = ", ".join(
        f"{whose} at {_at_edge(known, method, name)}"
        for whose, method, name in (
            ("DSGT's step", "DSGT", "step_size"),
            ("DiNNO's rho", "DiNNO", "rho"),
            ("DSGD's step", "DSGD", "step_size"),
            ("central training's step", "central", "step_size"),
        )
    )
    wrong = WRONG.format(
        edges=edges,
        complete=_mean(known, "DiNNO", 1.0, "complete", 1.0),
        sparse=_mean(known, "DiNNO", 1.0, "fiedler:0.06", 1.0),
    )
    return HEAD.format(wrong=wrong)


def _at_edge(known: dict, method: str, name: str) -> int:
    """At how many privacy levels the search chose the first or last value it tried."""
    searches = [known[f"search {method} {epsilon}"] for epsilon in EPSILONS]
    tried = [[one[name] for one in search["tried"]] for search in searches]
    return sum(
        search["chosen"][name] in (min(values), max(values))
        for search, values in zip(searches, tried, strict=True)
    )


def _own(known: dict, *key: object) -> str:
    values = [100 * a for a in known[" ".join(map(str, key))]["accuracy"]]
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def _paper(pair: tuple[float, float]) -> str:
    return f"*{pair[0]:.1f} ± {pair[1]:.1f}*"


def _mean(known: dict, *key: object) -> float:
    return 100 * statistics.mean(known[" ".join(map(str, key))]["accuracy"])


def write(here: pathlib.Path, known: dict) -> None:
    """Write the page from ``known`` results."""
    lines = [_head(known), "## Table 1: graphs, privacy budgets (one class a node)", ""]
    heads = ["not private", *(f"epsilon {e:g}" for e in EPSILONS[1:])]
    for graph, name in FIEDLER.items():
        lines += [
            f"### Normalised Fiedler value {name}",
            "",
            "| method | " + " | ".join(heads) + " |",
            "| --- " * 6 + "|",
        ]
        for method, printed in TABLE_1[graph].items():
            own = [_own(known, method, e, graph, 1.0) for e in EPSILONS]
            cells = [f"{o} ({_paper(p)})" for o, p in zip(own, printed, strict=True)]
            name = WRONGLY_SET.get(method, method)
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["## Table 2: data splits, Fiedler value 0.06", ""]
    for epsilon, rows in TABLE_2.items():
        lines += [
            f"### epsilon {epsilon:g}",
            "",
            "| method | " + " | ".join(f"t = {t:g}" for t in SPLITS) + " |",
            "| --- " * 6 + "|",
        ]
        for method, printed in rows.items():
            own = [_own(known, method, epsilon, "fiedler:0.06", t) for t in SPLITS]
            cells = [f"{o} ({_paper(p)})" for o, p in zip(own, printed, strict=True)]
            name = WRONGLY_SET.get(method, method)
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += _accounts(known) + _agreement(known) + _steps(known)
    (here / "README.md").write_text("\n".join(lines) + "\n")
    _figure(here, known)


def _accounts(known: dict) -> list[str]:
    lines = [
        "## Accounts",
        "",
        "The noise is the least that certifies the claim under add-or-remove-one at delta "
        "1e-5, the unit one record. Under replace-one, which is the paper's own "
        "definition (4.1), the same noise gives about twice as much. The worst node of "
        "every private cell:",
        "",
        "| claim | noise multiplier | certified, add-or-remove-one | certified, replace-one |",
        "| --- | --- | --- | --- |",
    ]
    for method in ("central", "DSGD"):
        for epsilon in EPSILONS[1:]:
            cell = known[f"{method} {epsilon} complete 1.0"]
            lines.append(
                f"| {method}, {epsilon:g} | {cell['noise_multiplier']:.3f} | "
                f"{round_up(cell['add-or-remove-one'])} | "
                f"{round_up(cell['replace-one'])} |"
            )
    most = max(
        cell["add-or-remove-one"] / float(key.split()[1])
        for key, cell in known.items()
        if "add-or-remove-one" in cell
    )
    lines += [
        "",
        "DSGT and DiNNO (one inner step) release as often as DSGD and are accounted "
        f"alike. The largest certified epsilon over its claim, of all cells: {most:.4f}.",
        "",
    ]
    return lines


def _agreement(known: dict) -> list[str]:
    def spread(method: str, epsilon: float | None) -> float:
        means = [_mean(known, method, epsilon, graph, 1.0) for graph in FIEDLER]
        return max(means) - min(means)

    def drop(method: str, epsilon: float) -> float:
        return _mean(known, method, epsilon, "complete", 1.0) - _mean(
            known, method, epsilon, "fiedler:0.06", 1.0
        )

    on_top = sum(
        _mean(known, "central", e, "complete", 1.0)
        >= max(
            _mean(known, m, e, graph, 1.0)
            for m in ("DSGD", "DSGT")
            for graph in FIEDLER
        )
        for e in EPSILONS
    )
    lines = [
        "## Where the order agrees with the paper, and where not",
        "",
        f"- *Central training is on top* at {on_top} of 5 privacy levels, over all graphs "
        "and the two methods (paper: at 4 of 5; there DSGT passes it at epsilon 10).",
    ]
    for method in ("DSGT", "DSGD"):
        own = ", ".join(f"{spread(method, e):.1f}" for e in EPSILONS)
        printed = ", ".join(
            f"{max(r) - min(r):.1f}"
            for r in (
                [TABLE_1[graph][method][i][0] for graph in FIEDLER] for i in range(5)
            )
        )
        lines.append(
            f"- *{method}*: best minus worst graph, in points of accuracy, from not "
            f"private to epsilon .5: {own} (paper: {printed})."
        )
    for epsilon in (10.0, 0.5):
        own = ", ".join(f"{m} {drop(m, epsilon):.1f}" for m in ("DSGD", "DSGT"))
        printed = ", ".join(
            f"{m} {TABLE_1['complete'][m][i][0] - TABLE_1['fiedler:0.06'][m][i][0]:.1f}"
            for m in ("DSGD", "DSGT")
            for i in [EPSILONS.index(epsilon)]
        )
        lines.append(
            f"- From the complete graph to Fiedler value .06 at epsilon {epsilon:g}, "
            f"points lost: {own} (paper: {printed})."
        )
    for epsilon in (10.0, 0.5):
        own = ", ".join(
            f"{m} "
            + f"{_mean(known, m, epsilon, 'fiedler:0.06', 0.0) - _mean(known, m, epsilon, 'fiedler:0.06', 1.0):.1f}"
            for m in ("DSGD", "DSGT")
        )
        printed = ", ".join(
            f"{m} {TABLE_2[epsilon][m][0][0] - TABLE_2[epsilon][m][4][0]:.1f}"
            for m in ("DSGD", "DSGT")
        )
        lines.append(
            f"- From equal shares (t = 0) to a class a node (t = 1) at epsilon "
            f"{epsilon:g}, points lost: {own} (paper: {printed})."
        )
    return [*lines, "", "![accuracy against connectivity](graphs.svg)", ""]


def _steps(known: dict) -> list[str]:
    lines = [
        "## What the searches chose",
        "",
        "| method | "
        + " | ".join(["not private", *(f"epsilon {e:g}" for e in EPSILONS[1:])])
        + " |",
        "| --- " * 6 + "|",
    ]
    for method in ("central", "DSGD", "DSGT", "DiNNO"):
        name = WRONGLY_SET.get(method, method)
        cells = []
        for epsilon in EPSILONS:
            chosen = known[f"search {method} {epsilon}"]["chosen"]
            cells.append(
                ", ".join(f"{k.split('_')[0]} {v:g}" for k, v in chosen.items())
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _figure(here: pathlib.Path, known: dict) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "privaudit"  # equal results, equal bytes
    import matplotlib.pyplot as plt

    values = [1.0, 0.7, 0.39, 0.06]
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), sharey=True)
    for axis, epsilon in zip(axes, EPSILONS[1:], strict=True):
        for method, colour in (("DSGD", "C0"), ("DSGT", "C1")):
            own = [_mean(known, method, epsilon, graph, 1.0) for graph in FIEDLER]
            i = EPSILONS.index(epsilon)
            printed = [TABLE_1[graph][method][i][0] for graph in FIEDLER]
            axis.plot(values, own, "o-", color=colour, label=method)
            axis.plot(values, printed, ":", color=colour, alpha=0.6)
        axis.set_title(f"epsilon {epsilon:g}")
        axis.set_xlabel("normalised Fiedler value")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy, per cent")
    axes[0].legend(title="solid: here; dotted: paper", fontsize=8, title_fontsize=8)
    figure.tight_layout()
    figure.savefig(here / "graphs.svg", metadata={"Date": None})


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    write(folder, json.loads((folder / "results.json").read_text()))
