"""Values of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reports.study import Results


def _verdict(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "no floats"
    bound = f"above {row['bound']:.2f}" if row["bound"] else "at least 0"
    return f"{'refuted, ' if row['refuted'] else ''}{bound}, {row['runs']:,} runs"


def rows(known: Results) -> Iterable[tuple[str, ...]]:
    """A promise, and the verdicts on its values and on their low bits."""
    for name, row in known.items():
        if "claim" in row:
            both = _verdict(row["values"]), _verdict(row.get("bits"))
            yield (name, row["claim"], *both, f"{row['seconds']:.1f}")


def values(known: Results) -> dict[str, Any]:
    """Variables of the template."""
    tried = {name: row for name, row in known.items() if "claim" in row}
    return {
        "rows": rows(known),
        "tried": len(tried),
        "wrong": {n: row for n, row in tried.items() if row["values"]["refuted"]},
        "bits": [n for n, row in tried.items() if row.get("bits", {}).get("refuted")],
        "floats": sum("bits" in row for row in tried.values()),
    }
