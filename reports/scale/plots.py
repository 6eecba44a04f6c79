"""The report's two plots."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from reports import pages
from reports.scale.fits import Row


def time_plot(path: pathlib.Path, rows: list[Row], found: dict[str, Any]) -> None:
    """Milliseconds of a round of four nodes, in parts, against parameters."""
    rows = [row for row in rows if row["batch"] == 64]
    with pages.chart(path, figsize=(6, 4)) as axes:
        dims = np.array([row["dims"] for row in rows])
        reach = np.geomspace(dims.max(), 1e8, 40)
        parts = {
            "noise": (lambda row: row["noise"], found["noise"], 4),
            "mixing": (lambda row: row["mixing"], found["mixing"], 16),
            "batches, gradients and else": (
                lambda row: row["ms"] - row["noise"] - row["mixing"],
                found["rest"]
                .costs["parameter"]
                .plus(found["rest"].costs["sample"].times(64)),
                4,
            ),
        }
        for colour, (name, (seen, cost, times)) in enumerate(parts.items()):
            axes.loglog(
                dims, [seen(row) for row in rows], "o", color=f"C{colour}", ms=4
            )
            axes.loglog(
                reach, reach * cost.value * times / 1e6, color=f"C{colour}", label=name
            )
            axes.fill_between(
                reach,
                reach * cost.low * times / 1e6,
                reach * cost.high * max(found["missed"], 1) * times / 1e6,
                color=f"C{colour}",
                alpha=0.2,
                lw=0,
            )
        axes.axvline(dims.max(), color="grey", ls=":", lw=1)
        axes.text(
            dims.max() * 1.1, axes.get_ylim()[0] * 2, "beyond: no row", fontsize=8
        )
        axes.set_xlabel("parameters")
        axes.set_ylabel("ms of one core, 4 nodes, batches of 64")
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)


def audits_plot(path: pathlib.Path, rows: list[Row]) -> None:
    """Runs a second of one core, against runs in a block and against parameters."""
    size = {"figsize": (7, 3.2), "sharey": True}
    with pages.chart(path, 1, 2, **size) as (left, right):
        blocks = [row for row in rows if row["nodes"] == 3 and row["dims"] < 400]
        left.semilogx(
            [row["block"] for row in blocks], [row["per_second"] for row in blocks], "o"
        )
        left.set_xlabel("runs in a block")
        left.set_ylabel("runs of 100 rounds a second, one core")
        sizes = [row for row in rows if row["nodes"] == 3 and row["block"] == 50]
        right.semilogx(
            [row["dims"] for row in sizes], [row["per_second"] for row in sizes], "o"
        )
        right.set_xlabel("parameters, blocks of 50")
        left.set_ylim(bottom=0)
        for axes in (left, right):
            axes.grid(alpha=0.3)
