"""The folder of data sets that were made or downloaded."""

from __future__ import annotations

import os
import pathlib
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np


class DataUnavailableError(OSError):
    """Data are neither here nor can they be fetched."""


def data_folder(given: str | pathlib.Path | None = None) -> pathlib.Path:
    """The folder for data: ``given``, or privaudit's below $XDG_CACHE_HOME."""
    if given is not None:
        return pathlib.Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "privaudit"


def cached(
    path: pathlib.Path, make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays in ``path``, a .npz, made and written whole if it is not there."""
    try:
        # Opened here: numpy leaves a damaged file open.
        with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            return dict(file.items())
    except FileNotFoundError:
        pass
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        pass  # half a disk's worth of a file, or another program's
    arrays: dict[str, Any] = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=path.stem, suffix=".part", delete=False
        ) as part:
            np.savez(part, **arrays)
        os.replace(part.name, path)
    except OSError:
        pass
    return arrays
