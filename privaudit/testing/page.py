"""One page of all assertions of a session, as a web page or as Markdown."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from privaudit.results import round_down
from privaudit.testing.record import Row

_TITLE = "Privacy assertions"
_HEAD = (
    "test",
    "assertion",
    "of",
    "claim",
    "status",
    "epsilon at least",
    "confidence",
    "pairs",
    "runs",
    "seconds",
    "seed",
)
_NOTE = (
    "What holds was not refuted: a proof it is not, but for assert_accounts. A lower "
    "bound is the largest of all pairs of its test, at the test's confidence. Where "
    "seconds ran out (stopped), some pairs had fewer runs, or none."
)


def page(rows: Iterable[Row], as_html: bool) -> str:
    """The page, with what fails first."""
    order = ["fails", "stopped", "holds"]
    listed = sorted(rows, key=lambda row: (order.index(row.status), row.test))
    cells = [_cells(row) for row in listed]
    count = ", ".join(
        f"{sum(row.status == status for row in listed)} {word}"
        for status, word in zip(order, ("fail", "stopped", "hold"), strict=True)
    )
    if as_html:
        return _html(cells, count)
    lines = [
        f"# {_TITLE}",
        "",
        f"{count}.",
        "",
        _markdown(_HEAD),
        _markdown(["---"] * len(_HEAD)),
        *(_markdown(row) for row in cells),
        "",
        _NOTE,
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    level = "" if row.confidence is None else f"{round_down(100 * row.confidence)} %"
    return [
        row.test,
        row.assertion,
        row.what,
        row.claim,
        row.status,
        "" if row.bound is None else round_down(row.bound),
        level,
        f"{row.pairs:,}" if row.pairs else "",
        f"{row.runs:,}" if row.runs else "",
        f"{row.seconds:.1f}" if row.runs else "",
        "" if row.seed is None else str(row.seed),
    ]


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html(rows: list[list[str]], count: str) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        inner = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{_TITLE}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid #ccc; padding: .2rem .6rem; text-align: left; }}
</style></head><body>
<h1>{_TITLE}</h1>
<p>{count}.</p>
<table>
{line(_HEAD, "th")}
{body}
</table>
<p>{_NOTE}</p>
</body></html>
"""
