"""Exit statuses of verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from privaudit.cli import FINE, REFUTED


def status_of(verdicts: Iterable[str | None], require: str | None = None) -> int:
    """Exit status: 1 if a claim is refuted or disproved, or not as ``require`` says.

    With ``require`` what has no claim, None, is not consistent either; a paper's "no
    theorem" promises nothing.
    """
    for verdict in verdicts:
        required = require is None or verdict in (require, "no theorem")
        if verdict in ("refuted", "disproved") or not required:
            return REFUTED
    return FINE
