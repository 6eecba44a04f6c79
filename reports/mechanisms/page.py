"""Values of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reports.study import Results


def said(row: Mapping[str, Any] | None) -> str:
    """The verdict of another tool."""
    if row is None or "missing" in row:
        return "not tried"
    if "refused" in row:
        return f"none: {row['refused']}"
    word = "refuted" if row["refuted"] else "no"
    return f"{word}, {row['seconds']:.1f} s"


def rows(known: Results) -> Iterable[tuple]:
    """A mechanism, and what each tool says of it."""
    others = [known.starting("statdp: "), known.starting("dp_auditorium: ")]
    for name, row in known.starting("ours: ").items():
        if "missing" in row:
            continue
        yield (
            name,
            row["claim"],
            "yes" if row["right"] else "no",
            "refuted" if row["refuted"] else "no",
            f"{row['bound']:.2f}",
            f"{row['runs']:,}",
            f"{row['seconds']:.1f}",
            *(said(other.get(name)) for other in others),
        )


def _found(known: Mapping[str, Any], right: Mapping[str, bool]) -> dict[str, int]:
    tried = {name: row for name, row in known.items() if "refuted" in row}
    return {
        "tried": sum(not right[name] for name in tried),
        "found": sum(row["refuted"] and not right[name] for name, row in tried.items()),
        "wrong": sum(row["refuted"] and right[name] for name, row in tried.items()),
    }


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    ours = {n: row for n, row in known.starting("ours: ").items() if "right" in row}
    right = {name: row["right"] for name, row in ours.items()}
    return {
        "rows": rows(known),
        "suites": {
            name: sum(row[name] for row in known.starting("suites from ").values())
            for name in ("suites", "tests", "alarms", "failed")
        },
        "by": {
            "ours": _found(ours, right),
            "statdp": _found(known.starting("statdp: "), right),
            "dp_auditorium": _found(known.starting("dp_auditorium: "), right),
        },
    }
