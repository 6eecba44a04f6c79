"""Costs of single things fitted to measured rows, what fits cannot know, and charts.

A cost is an array: a median, and the middle 90 per cent of what resampled rows give. A
sum of two is as if all that is wrong with one were wrong with the other.
"""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from reports import pages
from reports.study import Results
from tests.benchmarks.counting import H200, Work

Row = dict[str, float]
Terms = Callable[[Row], dict[str, float]]
_DRAWS = 500  # of rows with repetition
_SMALL, _LARGE = 2e6, 1e7  # parameters: of fits that must reach far, of large models


def widened(cost: np.ndarray, factor: float) -> np.ndarray:
    """With an upper end so many times as far, for what a fit cannot know."""
    return np.array([*cost[:2], max(cost[2], cost[0] * factor)])


def predicted(fit: dict[str, np.ndarray], terms: dict[str, float]) -> np.ndarray:
    """Cost of so much of each of a fit's."""
    return sum((fit[name] * amount for name, amount in terms.items()), np.zeros(3))


def fitted(
    rows: Sequence[Row], seen: Callable[[Row], float], terms: Terms
) -> dict[str, np.ndarray]:
    """Costs >= 0 by name, of what was seen of rows and how much they have of each."""
    amounts = np.array([list(terms(row).values()) for row in rows])
    scaled = amounts / np.array([seen(row) for row in rows])[:, None]
    # Columns of about one size: nnls is not indifferent to units.
    size = np.maximum(scaled.max(0), np.finfo(float).tiny)
    random = np.random.default_rng(0)

    def solve(chosen: np.ndarray) -> np.ndarray:
        return nnls(scaled[chosen] / size, np.ones(len(chosen)))[0] / size

    draws = [solve(random.integers(len(rows), size=len(rows))) for _ in range(_DRAWS)]
    ends = np.quantile(np.array(draws), [0.05, 0.95], axis=0)
    costs = np.array([solve(np.arange(len(rows))), *ends]).T
    return dict(zip(terms(rows[0]), costs, strict=True))


def rate(rows: Sequence[Row], seen: Callable[[Row], float]) -> np.ndarray:
    """The median over rows, and between which nine in ten of them are."""
    return np.quantile([seen(row) for row in rows], [0.5, 0.05, 0.95])


def parameters(row: Row) -> float:
    """Millions of parameters of all nodes."""
    return row["nodes"] * row["dims"] / 1e6


def trained(row: Row) -> dict[str, float]:
    """Amounts of an audited run."""
    return {"node": row["nodes"], "parameter": row["nodes"] * row["dims"] / 1e3}


def costs(known: Results) -> dict[str, Any]:
    """All fits and rates; times of a run or a round in ms, of a coordinate in ns."""
    rows: list[Row] = known["growth"]["parameters"]
    large = [row for row in rows if row["dims"] > _LARGE]
    small = [row for row in rows if row["dims"] < _SMALL]
    audits: list[Row] = [row for row in known["growth"]["runs"] if row["block"] == 50]

    def rest(row: Row) -> float:
        return row["ms"] - row["mixing"] - row["noise"]

    def work(row: Row) -> dict[str, float]:
        each = parameters(row)
        return {"parameter": each, "sample": each * row["batch"]}

    def noise(row: Row) -> float:
        return row["noise"] * 1e6 / row["nodes"] / row["dims"]

    def mixing(row: Row) -> float:
        return row["mixing"] * 1e6 / (row["nodes"] + row["edges"]) / row["dims"]

    def blind(row: Row) -> dict[str, float]:
        return {"node": row["nodes"], **work(row)}

    far = fitted(small, rest, blind)
    near = [row for row in small if row["dims"] > 1e5]
    drawn, mixed = rate(near, noise)[0], rate(near, mixing)[0]

    def missed(row: Row) -> float:
        sums = (row["nodes"] + row["edges"]) * row["dims"] / 1e6
        told = predicted(far, blind(row))[0] + drawn * parameters(row)
        return row["ms"] / (told + mixed * sums)

    def kept(row: Row) -> dict[str, float]:
        return {"process": 1.0, "number": row["nodes"] * row["dims"] * 4 / 2**20}

    softmax = [row for row in audits if row["nodes"] == 3 and row["dims"] < 400]
    held = [row for row in rows if row["dims"] > 1e6]
    return {
        "noise": rate(large, noise),
        "mixing": rate(large, mixing),
        "rest": fitted(large, rest, work),
        "memory": fitted(held, lambda row: row["peak"], kept),
        "missed": statistics.median(map(missed, large)),
        "runs": fitted(audits, lambda row: 1e3 * row["seconds"], trained),
        "run": rate(softmax, lambda row: row["seconds"]),
        "keep": fitted(
            known["setup"]["audit"],
            lambda row: 1e3 * row["keep"],
            lambda row: {"block": 1.0, "run": row["runs"] / 1e6},
        ),
    }


def values(known: Results) -> dict[str, Any]:
    """Costs, and the tools that the template counts with."""
    return {"found": costs(known), "H200": H200, "Work": Work}


def draw_time(path: pathlib.Path, known: Results) -> None:
    """Milliseconds of a round of four nodes, in parts, against parameters."""
    found = costs(known)
    rows = [row for row in known["growth"]["parameters"] if row["batch"] == 64]
    rest = predicted(found["rest"], {"parameter": 1.0, "sample": 64.0})
    parts = {
        "noise": (lambda row: row["noise"], found["noise"], 4),
        "mixing": (lambda row: row["mixing"], found["mixing"], 16),
        "batches, gradients and else": (
            lambda row: row["ms"] - row["noise"] - row["mixing"],
            rest,
            4,
        ),
    }
    dims = np.array([row["dims"] for row in rows])
    reach = np.geomspace(dims.max(), 1e8, 40)
    with pages.chart(path, figsize=(6, 4)) as axes:
        for colour, (name, (seen, cost, times)) in enumerate(parts.items()):
            style = {"color": f"C{colour}"}
            axes.loglog(dims, [seen(row) for row in rows], "o", ms=4, **style)
            axes.loglog(reach, reach * cost[0] * times / 1e6, label=name, **style)
            low = reach * cost[1] * times / 1e6
            high = reach * cost[2] * max(found["missed"], 1) * times / 1e6
            axes.fill_between(reach, low, high, alpha=0.2, lw=0, **style)
        axes.axvline(dims.max(), color="grey", ls=":", lw=1)
        low = axes.get_ylim()[0]
        axes.text(dims.max() * 1.1, low * 2, "beyond: no row", fontsize=8)
        axes.set_xlabel("parameters")
        axes.set_ylabel("ms of one core, 4 nodes, batches of 64")
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)


def draw_audits(path: pathlib.Path, known: Results) -> None:
    """Runs a second of one core, against runs in a block and against parameters."""
    rows = [row for row in known["growth"]["runs"] if row["nodes"] == 3]
    blocks = [row for row in rows if row["dims"] < 400]
    sizes = [row for row in rows if row["block"] == 50]
    size = {"figsize": (7, 3.2), "sharey": True}
    with pages.chart(path, 1, 2, **size) as (left, right):
        for axes, some, what in ((left, blocks, "block"), (right, sizes, "dims")):
            x, y = ([row[name] for row in some] for name in (what, "per_second"))
            axes.semilogx(x, y, "o")
            axes.grid(alpha=0.3)
        left.set_xlabel("runs in a block")
        left.set_ylabel("runs of 100 rounds a second, one core")
        right.set_xlabel("parameters, blocks of 50")
        left.set_ylim(bottom=0)


CHARTS = {"time.svg": draw_time, "audits.svg": draw_audits}
