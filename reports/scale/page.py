"""Values and charts of the page: costs fitted to rows, and what they come to."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

from reports.scale.fits import Cost, Fit, Row, rate
from reports.scale.plots import audits_plot, time_plot
from reports.study import Results
from tests.benchmarks.counting import H200, Work

NODES, DIMS, BATCH, HEARD = 1000, 100e6, 64, 10
RUNS, ROUNDS = 1_000_000, 100
LARGE = 1e7  # parameters from which rows tell what large models cost
CORES, ETHERNET, INFINIBAND = 64, 12.5e9, 50e9  # bytes a second of a link


def costs(known: Results) -> dict[str, Any]:
    """All fits."""
    rows: list[Row] = known["growth"]["parameters"]
    large = [row for row in rows if row["dims"] > LARGE]
    small = [row for row in rows if row["dims"] < 2e6]

    def rest(row: Row) -> float:
        return row["ms"] - row["mixing"] - row["noise"]

    def work(row: Row) -> dict[str, float]:
        each = row["nodes"] * row["dims"] / 1e6
        return {"parameter": each, "sample": each * row["batch"]}

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


def single(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Cost of single things."""
    rest, memory, runs = found["rest"].costs, found["memory"].costs, found["runs"].costs
    table = (
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
    )
    return [(name, f"{span(cost)} {unit}") for name, cost, unit in table]


def network(known: Results, found: dict[str, Any]) -> dict[str, Any]:
    """A round of the large network, and where it ends."""
    each = NODES * DIMS / 1e9  # so that ns give seconds
    parts = {
        "noise": found["noise"].times(each),
        "mixing": found["mixing"].times(each * (HEARD + 1)),
        "gradients": found["rest"].costs["sample"].times(each * BATCH),
        "else": found["rest"].costs["parameter"].times(each),
    }
    parts = {name: cost.widened(found["missed"]) for name, cost in parts.items()}
    whole = Cost(0.0, 0.0, 0.0)
    for cost in parts.values():
        whole = whole.plus(cost)
    message = DIMS * 4
    memory = found["memory"].costs["number"].times(NODES * message / 1e12)
    dense = known[f"dense {BATCH}"]
    moved = dense["bytes"] + 3 * (HEARD + 1) * message
    work = Work(dense["flops"], moved, dense["launches"])
    floor, network_gpu = work.floor(H200), HEARD * message / INFINIBAND
    network_core = CORES * HEARD * message / ETHERNET
    graph = known["setup"]["network"][-1]
    return {
        "batch": BATCH,
        "heard": HEARD,
        "mb": f"{message / 1e6:.0f}",
        "parts": [
            *((name, span(cost)) for name, cost in parts.items()),
            ("**together**", f"**{span(whole)}**"),
        ],
        "machines": [
            (
                "one core, one process",
                f"{span(whole.times(1 / 3600), 2)} h",
                f"{span(memory, 2)} TB: **does not fit**",
            ),
            (
                f"a core a node, 16 servers of {CORES} cores, 100 Gb/s each",
                f"{span(whole.times(1 / NODES), 2)} s, and up to {network_core:.0f} s "
                "of messages where all leave the server",
                f"{span(memory.times(CORES / NODES * 1e3), 2)} GB a server",
            ),
            (
                "an H200 a node, 400 Gb/s each (counted)",
                f"at least {1e3 * floor:.0f} ms ({work.flops / 1e9:.0f} GFLOP, "
                f"{work.bytes / 1e9:.0f} GB unfused, {work.launches} operations), and "
                f"{1e3 * network_gpu:.0f} ms of messages",
                f"{span(memory.times(1e3 / NODES), 2)} GB a GPU",
            ),
        ],
        "positions": f"{200 * work.flops / H200.flops:.2g}",
        "gathered": f"{NODES * message / 1e9:.0f}",
        "gathered_nodes": f"{64e9 / 2 / message:.0f}",
        "memory": f"{memory.value:.2g}",
        "memory_nodes": f"{64e-3 / memory.value * NODES:.0f}",
        "gpu_times": f"{network_gpu / floor:.1f}",
        "core_times": f"{network_core / (whole.value / NODES):.1f}",
        "graph": graph,
    }


def audits(known: Results, found: dict[str, Any]) -> dict[str, Any]:
    """An audit of a million runs."""
    fit: Fit = found["runs"]
    measured = [
        {"s": row["seconds"]}
        for row in known["growth"]["runs"]
        if row["block"] == 50 and row["nodes"] == 3 and row["dims"] < 400
    ]
    small = rate(measured, lambda row: row["s"])
    cnn = Cost(0.0, 0.0, 0.0)
    for name, amount in fit.terms({"nodes": 3.0, "dims": 28_440.0}).items():
        cnn = cnn.plus(fit.costs[name].times(amount))
    cnn = cnn.times(1e-3)
    keep = found["keep"].costs

    def kept(block: int) -> float:
        """Seconds: every block writes all before it anew."""
        blocks = RUNS / block
        whole = keep["run"].value * blocks * RUNS / 1e6 / 2
        return (keep["block"].value * blocks + whole) / 1e3

    gpu = known["audited 10000"]
    work = Work(gpu["flops"], gpu["bytes"], gpu["launches"])
    seconds = work.floor(H200) * ROUNDS * RUNS / gpu["block"]
    hours = RUNS / 3600
    return {
        "audits": [
            (
                "training, one core, 337 parameters",
                f"{span(small.times(1e3))} ms a run",
                f"{span(small.times(hours))} h; {small.value * hours / CORES:.2g} h "
                f"on {CORES} cores",
            ),
            (
                "training, one core, 28 440 parameters, fitted",
                f"{span(cnn.times(1e3))} ms a run",
                f"{span(cnn.times(hours))} h",
            ),
            (
                "training, one H200, 337 parameters (counted)",
                f"{gpu['block']:,} runs: {1e3 * work.floor(H200):.1f} ms a round "
                "at least",
                f"{seconds:.0f} s at least",
            ),
            (
                "keeping blocks of 50, one process",
                f"{keep['block'].value:.2g} ms and {keep['run'].value:.2g} ms a "
                "million runs kept",
                f"{kept(50):,.0f} s",
            ),
            ("keeping blocks of 10 000", "", f"{kept(10_000):.1f} s"),
            (
                "judging",
                "",
                f"{known['setup']['audit'][-1]['judge']:.0f} s, measured at a million",
            ),
        ],
        "keep": f"{kept(50):,.0f}",
        "serial": f"{small.value * RUNS / kept(50):.0f}",
    }


def speed(known: Results) -> list[tuple[str, str, str]]:
    """Work, by whom, and milliseconds of the processor."""
    found = []
    for work, ways in known["speed"].items():
        for who, row in ways.items():
            if row is None:
                continue
            said = (
                f"{row['ms']:,.3g} ms" if row["ms"] < 1000 else f"{row['ms']:,.0f} ms"
            )
            if "share" in row:
                said += f", of which measuring takes {row['share']:.1%}"
            found.append((work, who, said))
    return found


def processes(known: Results) -> dict[str, Any]:
    """16 and 64 nodes over processes; and what a thousand parties would take."""
    rows = known["processes"]
    first = {row["nodes"]: row for row in rows if row["ranks"] == 1}
    table = [
        (
            f"{row['nodes']}",
            f"{row['ranks']}",
            f"{row['ms']:,.0f}",
            f"{row['ms'] / first[row['nodes']]['ms'] - 1:+.0%}",
            f"{row['bytes'] / 1e6:.2f}",
            f"{row['peak']:.0f}",
        )
        for row in rows
    ]
    large = first[max(first)]
    dims, parties = 28_440, 1000
    return {
        "processes": table,
        "party": {
            "ms": f"{large['ms'] / large['nodes']:.0f}",
            "megabytes": f"{dims * 4 / 1e6:.2f}",
            "connections": parties - 1,
            "beats": f"{2 * 88 * (parties - 1) / 1e3:.0f}",
            "memory": f"{min(row['peak'] for row in rows):.0f}",
        },
    }


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    found = costs(known)
    return {
        "speed": speed(known),
        **processes(known),
        "single": single(found),
        "missed": f"{found['missed']:.2f}",
        **network(known, found),
        **audits(known, found),
    }


def draw_time(path: pathlib.Path, known: Results) -> None:
    """Time of a round by parameters."""
    time_plot(path, known["growth"]["parameters"], costs(known))


def draw_audits(path: pathlib.Path, known: Results) -> None:
    """Runs a second by runs in a block."""
    audits_plot(path, known["growth"]["runs"])


CHARTS = {"time.svg": draw_time, "audits.svg": draw_audits}
