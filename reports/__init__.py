"""Studies of algorithms and claims: what was computed, and pages that say it.

Not a part of what is installed; `reports.study` says how a study is made and run.
"""

from __future__ import annotations

import pathlib
import tomllib
from typing import Any


def told(file: str) -> dict[str, Any]:
    """Return the settings in ``settings.toml`` beside a module's file."""
    return tomllib.loads(pathlib.Path(file).with_name("settings.toml").read_text())
