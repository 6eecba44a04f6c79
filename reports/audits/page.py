"""README.md of the audits, from their figures."""

from __future__ import annotations

import pathlib
from typing import Any


def write(path: pathlib.Path, results: dict[str, Any], paper: dict) -> None:
    path.write_text("")
