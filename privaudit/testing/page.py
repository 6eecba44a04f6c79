"""One page of all assertions of a session, as a web page or as Markdown."""

from __future__ import annotations

import html
import importlib.resources
from collections.abc import Iterable, Mapping, Sequence

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
    "at most shown",
    "confidence",
    "pairs",
    "runs",
    "seconds",
    "seed",
    "not looked at",
)
_NOTE = (
    "What holds was not refuted: a proof it is not, but for assert_accounts. A lower "
    "bound is the largest of all pairs of its test, at the test's confidence; at most "
    "shown is what so many runs can show of any mechanism, and a claim of that or more "
    "could not fail. Runs stop as soon as a claim is refuted: a bound that stopped "
    "there says nothing of how much more there is. Where "
    "seconds ran out (stopped), some pairs had fewer runs, or none."
)


def page(rows: Iterable[Row], said: Mapping[str, str], as_html: bool) -> str:
    """The page, with what fails first, what failing tests said, and others' pairs."""
    order = ["fails", "stopped", "holds"]
    listed = sorted(rows, key=lambda row: (order.index(row.status), row.test))
    cells = [_cells(row) for row in listed]
    said = dict(said) | {
        f"{row.test}, pair of the largest bound: {row.what}, {row.claim}": row.pair
        for row in listed
        if row.pair and row.test not in said
    }
    count = ", ".join(
        f"{sum(row.status == status for row in listed)} {word}"
        for status, word in zip(order, ("fail", "stopped", "hold"), strict=True)
    )
    if as_html:
        return _html(cells, count, said)
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
        *(f"\n## {test}\n\n{_indented(text)}" for test, text in said.items()),
    ]
    return "\n".join(lines) + "\n"


def unseen(row: Row) -> str:
    """Return why a pass says little; "" if it says something."""
    if row.assertion != "assert_private" or row.status != "holds":
        return ""
    if row.idle:
        assert row.most is not None
        return (
            f"could not fail: so many runs show epsilon {round_down(row.most)} at "
            "most, of any mechanism"
        )
    if row.still:
        return "saw nothing: all outputs were the same"
    if not row.bound:
        return "saw nothing: no pair's outputs told its data sets apart (bound 0)"
    return ""


def _status(row: Row) -> str:
    if row.idle and row.status == "holds":
        return "holds (could not fail)"
    if row.assertion == "assert_refuted":
        return {"holds": "refuted", "fails": "not refuted"}.get(row.status, row.status)
    return row.status


def shown(row: Row) -> str:
    """The bound, and that runs stopped there, so that there may be more."""
    assert row.bound is not None
    return f"{round_down(row.bound)}{' (stopped there)' if row.early else ''}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _cells(row: Row) -> list[str]:
    level = "" if row.confidence is None else f"{round_down(100 * row.confidence)} %"
    return [
        row.test,
        row.assertion,
        row.what,
        row.claim,
        _status(row),
        "" if row.bound is None else shown(row),
        "" if row.most is None else round_down(row.most),
        level,
        f"{row.pairs:,}" if row.pairs else "",
        f"{row.runs:,}" if row.runs else "",
        f"{row.seconds:.1f}" if row.runs else "",
        "" if row.seed is None else str(row.seed),
        row.skipped,
    ]


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html(rows: list[list[str]], count: str, said: Mapping[str, str]) -> str:
    def line(cells: Sequence[str]) -> str:
        named = zip(_HEAD, cells, strict=True)
        inner = (f'<td data-label="{x}">{html.escape(cell)}</td>' for x, cell in named)
        return f"<tr>{''.join(inner)}</tr>"

    style = importlib.resources.files("privaudit.report").joinpath("page.css")
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEAD)
    body = "\n".join(map(line, rows))
    failures = "\n".join(
        f'<h2>{html.escape(test)}</h2>\n<pre tabindex="0">{html.escape(text)}</pre>'
        for test, text in said.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_TITLE}</title>
<style>
{style.read_text(encoding="utf-8")}</style>
</head>
<body>
<main class="study assertions">
<h1>{_TITLE}</h1>
<p>{count}.</p>
<div class="scroll" tabindex="0" role="region" aria-label="table">
<table>
<thead>
<tr>{head}</tr>
</thead>
<tbody>
{body}
</tbody>
</table>
</div>
<p class="note">{_NOTE}</p>
{failures}
</main>
</body>
</html>
"""
