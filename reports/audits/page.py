"""Values of the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from privaudit.results import round_down, round_up
from reports import pages
from reports.papers.manifest import published
from reports.study import Results

PAPER = published("bayrooti")["table_5"]


def audits(known: Results, kind: str) -> Iterable[tuple]:
    """Bound shown by each audit, and why it is not all."""
    for name, row in known.starting(f"{kind} ").items():
        gap = row["family_gap"] or {}
        parts = ("account", "statistics", "attack")
        yield (
            row["algorithm"],
            f"{row['runs']:,}",
            round_up(row["certified"]),
            round_down(row["family"], 3),
            round_down(row["family"] / row["certified"], 2),
            round_down(row["best"], 3),
            round_down(row["clopper_pearson"], 3),
            *(f"{gap[part]:.2f}" if gap else "-" for part in parts),
            f"{known.seconds(f'{kind} {name}'):.0f}",
        )


def black_box(known: Results) -> Iterable[tuple]:
    """Bounds from one loss, beside the paper's."""
    for row in known.starting("black-box ").values():
        shown = (round_down(row[k], 3) for k in ("best", "clopper_pearson"))
        paper, family = f"{PAPER[row['algorithm']]:.3f}", round_down(row["family"], 3)
        certified, score = round_up(row["certified"]), f"{row['accuracy']:.2f}"
        yield row["algorithm"], certified, *shown, paper, family, score


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    heard = known.starting("neighbour ").values()
    unseen = [row["family_gap"]["statistics"] for row in heard if row["epsilon"] == 1]
    every = known.values()
    counts = {row["epsilon"]: row["runs"] for row in heard}
    return {
        "replaced": ", ".join(
            sorted({r["algorithm"] for r in every if r["relation"] == "replace-one"})
        ),
        "unseen": pages.span(unseen, 2),
        "runs": ", ".join(f"{n:,} runs at epsilon {e:g}" for e, n in counts.items()),
        "neighbour": audits(known, "neighbour"),
        "full": audits(known, "full"),
        "partly": audits(known, "partly"),
        "black_box": black_box(known),
    }
