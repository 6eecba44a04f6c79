"""Values of the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reports.study import Results


def rows(known: Results) -> Iterable[tuple]:
    """Checks that caught each bug."""
    right = known.starting("right ")
    for name, row in known.starting("bug ").items():
        probe = f"{row['check']}, {row['probe_runs']}, {row['probe_seconds']:.0f}"
        cells = [name, probe if row["probed"] else "missed"]
        if "runs" not in row:
            yield *cells, f"none: {row['unseen']}", *[""] * 6
            continue
        same = right.get(row["key"])
        yield (
            *cells,
            f"{row['adversary']}, {row['canary']}, {row['estimator']}",
            f"{row['runs']:,}",
            f"{row['certified']:.2f}",
            f"{row['lower']:.2f}",
            f"{row['refuted']} of {row['repeats']}",
            f"{row['seconds']:.0f}",
            "" if same is None else f"{same['alarms']} of {same['repeats']}",
        )


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    right = known.starting("right ").values()
    return {
        "rows": rows(known),
        "wrong": sum(row["alarms"] for row in right),
        "total": f"{sum(row['repeats'] for row in right):,}",
        "kinds": len(right),
    }
