"""Reads TOML files, with or without a byte-order mark."""

from __future__ import annotations

import pathlib
import tomllib
from typing import Any


def read(path: pathlib.Path) -> dict[str, Any]:
    """The TOML file at ``path``, or ``ValueError``, which does not name it."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"it is no UTF-8 text ({error.reason} at byte {error.start}); save it as "
            "UTF-8"
        ) from None
    except RecursionError:
        raise ValueError("its tables are nested too deeply") from None
