"""README.md and its plots from results.json."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

from counting import H200, Work
from fits import Cost, Fit, Row, rate
from plots import audits_plot, time_plot

Known = dict[str, Any]

NODES, DIMS, LOT, HEARD = 1000, 100e6, 64, 10
RUNS, ROUNDS = 1_000_000, 100
LARGE = 1e7  # parameters from which rows tell what large models cost
CORES, ETHERNET, INFINIBAND = 64, 12.5e9, 50e9  # bytes a second of a link
HEAD = """# Beyond these machines: what 1 000 nodes and a million audited runs would take

    OMP_NUM_THREADS=1 PYTHONPATH=. python reports/scale/make.py

**Extrapolated, on paper.** Measured is one core of a two-core virtual machine (AMD EPYC,
Zen 4, AVX-512, no GPU), shared with others: times are the processor's, of which a loaded
minute takes up to half as many again as a quiet one. What a GPU would do is *counted* (arithmetic, bytes and
operations of a round, from the shapes that go through the code) and divided by data
sheets; no GPU was at hand, so that nothing of it is measured. Intervals are of nine in
ten resampled rows; the upper ends of extrapolations are widened by what the same fit
missed when it had to reach ten times as far as its rows. `results.json` has all rows.
They are of before noise on a CPU was drawn block by block, which takes a fifth off it (24
to 19 ns a coordinate, at 4 million; `trainers/numerics/randomness.py`): noise is that much less now.
"""


def costs(known: Known) -> dict[str, Any]:
    """All fits."""
    rows: list[Row] = known["growth"]["parameters"]
    large = [row for row in rows if row["dims"] > LARGE]
    small = [row for row in rows if row["dims"] < 2e6]

    def rest(row: Row) -> float:
        return row["ms"] - row["mixing"] - row["noise"]

    def work(row: Row) -> dict[str, float]:
        each = row["nodes"] * row["dims"] / 1e6
        return {"parameter": each, "sample": each * row["lot"]}

    def small_work(row: Row) -> dict[str, float]:
        return {"node": row["nodes"], **work(row)}

    def kept(row: Row) -> dict[str, float]:
        return {"process": 1.0, "number": row["nodes"] * row["dims"] * 4 / 2**20}

    def noise(row: Row) -> float:
        return row["noise"] * 1e6 / row["nodes"] / row["dims"]

    def mixing(row: Row) -> float:
        return row["mixing"] * 1e6 / (row["nodes"] + row["edges"]) / row["dims"]

    def total(row: Row, fit: Fit, some: list[Row]) -> float:
        each = row["nodes"] * row["dims"] / 1e6
        sums = (row["nodes"] + row["edges"]) * row["dims"] / 1e6
        drawn = rate(some, noise).value * each
        return fit.predicted(row) + drawn + rate(some, mixing).value * sums

    blind = Fit.of(small, rest, small_work)
    near = [row for row in small if row["dims"] > 1e5]
    missed = statistics.median(row["ms"] / total(row, blind, near) for row in large)
    audits: list[Row] = [row for row in known["growth"]["runs"] if row["block"] == 50]
    return {
        "noise": rate(large, noise),
        "mixing": rate(large, mixing),
        "rest": Fit.of(large, rest, work),
        "memory": Fit.of(
            [row for row in rows if row["dims"] > 1e6], lambda row: row["peak"], kept
        ),
        "missed": missed,
        "runs": Fit.of(
            audits,
            lambda row: 1e3 * row["seconds"],
            lambda row: {
                "node": row["nodes"],
                "parameter": row["nodes"] * row["dims"] / 1e3,
            },
        ),
        "keep": Fit.of(
            known["setup"]["audit"],
            lambda row: 1e3 * row["keep"],
            lambda row: {"block": 1.0, "run": row["runs"] / 1e6},
        ),
    }


def span(cost: Cost, digits: int = 3) -> str:
    """value (low - high)"""
    value, low, high = (
        f"{each:,.0f}" if each >= 1000 else f"{each:.{digits}g}"
        for each in (cost.value, cost.low, cost.high)
    )
    return f"{value} ({low} - {high})"


def fitted(found: dict[str, Any]) -> list[str]:
    """Table of costs."""
    rest, memory, runs = found["rest"].costs, found["memory"].costs, found["runs"].costs
    table = [
        ("noise, a coordinate and node", found["noise"], "ns"),
        (
            "mixing, a coordinate and message heard, one's own too",
            found["mixing"],
            "ns",
        ),
        ("else, a parameter and node", rest["parameter"], "ns"),
        ("gradient, a parameter and sample (dense layers)", rest["sample"], "ns"),
        ("memory, numbers kept a parameter and node", memory["number"], ""),
        ("memory, of a process", memory["process"], "MiB"),
        ("audit, a run of 100 rounds and a node", runs["node"], "ms"),
        ("audit, beside that a thousand parameters", runs["parameter"], "ms"),
    ]
    lines = ["## What single things cost", "", "| | one core |", "| --- | --- |"]
    lines += [f"| {name} | {span(cost)} {unit} |" for name, cost, unit in table]
    return [
        *lines,
        "",
        "Of large models these are the costs at 20 million parameters, the most that was "
        "measured (memory: from 2 million on). Fits to the smaller ones alone, below 2 "
        f"million, miss them by a factor of {found['missed']:.2f}: beyond the caches "
        "each number costs more. From 20 to 100 million is another factor of five, and "
        "upper ends are widened by what a factor of ten has missed.",
        "",
        "![Time of a round by parameters](time.svg)",
        "",
    ]


def network(known: Known, found: dict[str, Any]) -> tuple[list[str], dict[str, float]]:
    """Table of the large network."""
    each = NODES * DIMS / 1e9  # so that ns give seconds
    parts = {
        "noise": found["noise"].times(each),
        "mixing": found["mixing"].times(each * (HEARD + 1)),
        "gradients": found["rest"].costs["sample"].times(each * LOT),
        "else": found["rest"].costs["parameter"].times(each),
    }
    parts = {name: cost.widened(found["missed"]) for name, cost in parts.items()}
    whole = Cost(0.0, 0.0, 0.0)
    for cost in parts.values():
        whole = whole.plus(cost)
    message = DIMS * 4
    memory = found["memory"].costs["number"].times(NODES * message / 1e12)
    (dense,) = (row for row in known["dense"][-1:])
    work = Work(
        dense["flops"], dense["bytes"] + 3 * (HEARD + 1) * message, dense["launches"]
    )
    floor, network_gpu = work.floor(H200), HEARD * message / INFINIBAND
    network_core = CORES * HEARD * message / ETHERNET
    lines = [
        "## 1 000 nodes, 100 million parameters",
        "",
        f"DP-DSGD, dense layers, lots of {LOT}, a graph on which each node hears "
        f"{HEARD} others and sends {message / 1e6:.0f} MB to as many. A round:",
        "",
        "| of a round | seconds of one core, all nodes |",
        "| --- | --- |",
        *(f"| {name} | {span(cost)} |" for name, cost in parts.items()),
        f"| **together** | **{span(whole)}** |",
        "",
        "| on | a round | memory |",
        "| --- | --- | --- |",
        f"| one core, one process | {span(whole.times(1 / 3600), 2)} h | {span(memory, 2)} "
        "TB: **does not fit** |",
        f"| a core a node, 16 servers of {CORES} cores, 100 Gb/s each | "
        f"{span(whole.times(1 / NODES), 2)} s, and up to {network_core:.0f} s of messages "
        f"where all leave the server | {span(memory.times(CORES / NODES * 1e3), 2)} GB a "
        "server |",
        f"| an H200 a node, 400 Gb/s each (counted) | at least {1e3 * floor:.0f} ms "
        f"({work.flops / 1e9:.0f} GFLOP, {work.bytes / 1e9:.0f} GB unfused, "
        f"{work.launches} operations), and {1e3 * network_gpu:.0f} ms of messages | "
        f"{span(memory.times(1e3 / NODES), 2)} GB a GPU |",
        "",
        "Gradients are of dense layers, 6 operations a parameter and sample. A network "
        "that uses each parameter at 200 positions (a vision transformer, say) takes 200 "
        f"times as many: {200 * work.flops / H200.flops:.2g} s a round of an H200 at its "
        "single-precision peak, and book-keeping's norms beside that. The real share of "
        "the roofline is not known; 30 per cent would be usual, and lots are as wide as "
        "they may get there, which the count has in it.",
        "",
    ]
    return lines, {
        "message": message,
        "memory": memory.value,
        "gpu": floor,
        "network_gpu": network_gpu,
        "core": whole.value / NODES,
        "network_core": network_core,
    }


def audits(known: Known, found: dict[str, Any]) -> tuple[list[str], dict[str, float]]:
    """Table of the audit."""
    fit: Fit = found["runs"]
    measured = [
        row["seconds"]
        for row in known["growth"]["runs"]
        if row["block"] == 50 and row["nodes"] == 3 and row["dims"] < 400
    ]
    small = rate([{"s": value} for value in measured], lambda row: row["s"])
    cnn = {"nodes": 3.0, "dims": 28_440.0}
    cnn_cost = Cost(
        *(
            sum(
                getattr(fit.costs[name], end) * amount
                for name, amount in fit.terms(cnn).items()
            )
            / 1e3
            for end in ("value", "low", "high")
        )
    )
    keep = found["keep"].costs
    judged = known["setup"]["audit"][-1]["judge"]

    def kept(block: int) -> float:
        """Seconds: every block writes all before it anew."""
        blocks = RUNS / block
        whole = keep["run"].value * blocks * RUNS / 1e6 / 2
        return (keep["block"].value * blocks + whole) / 1e3

    gpu = known["audited"][-1]
    work = Work(gpu["flops"], gpu["bytes"], gpu["launches"])
    seconds = work.floor(H200) * ROUNDS * RUNS / gpu["block"]
    lines = [
        "## An audit of a million runs",
        "",
        "Three nodes, 100 rounds, 8x8 digits (337 parameters), `final-loss`.",
        "",
        "| | measured or counted | a million runs |",
        "| --- | --- | --- |",
        f"| training, one core, 337 parameters | {span(small.times(1e3))} ms a run | "
        f"{span(small.times(RUNS / 3600))} h; {small.value * RUNS / 3600 / CORES:.2g} h "
        f"on {CORES} cores |",
        f"| training, one core, 28 440 parameters, fitted | {span(cnn_cost.times(1e3))} ms "
        f"a run | {span(cnn_cost.times(RUNS / 3600))} h |",
        f"| training, one H200, 337 parameters (counted) | {gpu['block']:,} runs: "
        f"{1e3 * work.floor(H200):.1f} ms a round at least | {seconds:.0f} s at least |",
        f"| keeping blocks of 50, one process | {keep['block'].value:.2g} ms and "
        f"{keep['run'].value:.2g} ms a million runs kept | {kept(50):,.0f} s |",
        f"| keeping blocks of 10 000 | | {kept(10_000):.1f} s |",
        f"| judging | | {judged:.0f} s, measured at a million |",
        "",
        "![Runs a second by runs in a block](audits.svg)",
        "",
    ]
    return lines, {"keep": kept(50), "train": small.value * RUNS}


def breaks(known: Known, net: dict[str, float], aud: dict[str, float]) -> list[str]:
    """What breaks first, in order."""
    graph = known["setup"]["network"][-1]
    serial = aud["train"] / aud["keep"]
    return [
        "## What would break first",
        "",
        "Networks, in this order:",
        "",
        f"1. **Checkpoints over ranks.** Rank 0 gathers every state: "
        f"{NODES * net['message'] / 1e9:.0f} GB of models at once, twenty times a run, "
        "where one rank has some tens or hundreds. With 64 GB at rank 0 this ends at "
        f"about {64e9 / 2 / net['message']:.0f} nodes of 100 million parameters (twice: "
        "as they come, and joined). A file a rank would do away with it.",
        f"2. **One process.** {net['memory']:.2g} TB; 64 GB hold about "
        f"{64e-3 / net['memory'] * NODES:.0f} such nodes.",
        f"3. **Messages, not arithmetic.** On an H200 a node they take "
        f"{net['network_gpu'] / net['gpu']:.1f} times the counted floor of the rest, and "
        f"on cores behind 100 Gb/s {net['network_core'] / net['core']:.1f} times the "
        "arithmetic. They are sent after the local step and waited for: nothing hides "
        "them. A complete graph would send a hundred times as much.",
        "4. **Noise on a CPU.** Normal numbers in double precision are the largest part "
        "of a round of dense layers, at lots of 64 and below.",
        f"5. Checks of the graph: {graph['graph']:.1f} s at {graph['nodes']:,} nodes and "
        "growing with the third power; the plan of messages takes "
        f"{1e3 * graph['plan']:.0f} ms, the account of equal nodes "
        f"{1e3 * graph['account']:.0f} ms. Seeds allow 4 096 nodes.",
        "",
        "Audits:",
        "",
        f"1. **Keeping.** Every block writes all scores anew: {aud['keep']:,.0f} s of one "
        f"process in blocks of 50, so that more than {serial:.0f} cores would wait for it. "
        "Blocks of 1 000 and more, as for a GPU, do away with it.",
        "2. Seeds allow 131 072 blocks: 6.5 million runs in blocks of 50.",
        "3. Judging is one process, and its time grows with the runs.",
        "",
    ]


def write(here: pathlib.Path, known: Known) -> None:
    """Write the page from ``known`` results."""
    found = costs(known)
    large, net = network(known, found)
    audit, aud = audits(known, found)
    lines = [HEAD, *fitted(found), *large, *audit, *breaks(known, net, aud)]
    (here / "README.md").write_text("\n".join(lines).rstrip() + "\n")
    time_plot(here / "time.svg", known["growth"]["parameters"], found)
    audits_plot(here / "audits.svg", known["growth"]["runs"])
