"""Results in a notebook: a little HTML, in the notebook's own colours."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_BOX = "border-left:3px solid currentColor;padding:.1em .8em;margin:.4em 0"
_SMALL = "font-size:90%;opacity:.8"
_CELL = "text-align:left;padding:.1em .8em .1em 0"


def box(
    head: str, lines: Iterable[str] = (), rows: Sequence[Sequence[str]] = ()
) -> str:
    """HTML of a figure, with a table of ``rows`` and ``lines`` below; all escaped."""
    parts = [f"<b>{html.escape(head)}</b>"]
    if rows:
        cells = "".join(
            "<tr>"
            + "".join(f'<td style="{_CELL}">{html.escape(cell)}</td>' for cell in row)
            + "</tr>"
            for row in rows
        )
        parts.append(f"<table>{cells}</table>")
    parts += [
        f'<div style="{_SMALL}">{html.escape(line)}</div>' for line in lines if line
    ]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'
