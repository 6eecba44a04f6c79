"""The folder of data sets, made or downloaded; public ones, from the network."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import pathlib
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

DEBIAN = pathlib.Path("/usr/share/datasets")  # where Debian's packages put data sets
PACKAGED = ("fashion-mnist",)  # of such a package, dataset-NAME


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


@dataclasses.dataclass(frozen=True, slots=True)
class Arrays:
    """A data set as it comes."""

    inputs: np.ndarray  # (samples, ...), bytes or floats
    targets: np.ndarray  # (samples,), classes from 0
    # how many of the first samples are to train on; None if the set has no such
    # division of its own
    train: int | None
    scale: float = 1.0  # what inputs are divided by


def fetch_images(
    name: str,
    number: int,
    shape: tuple[int, ...],
    train: int,
    data_dir: str | pathlib.Path | None = None,
) -> Arrays:
    """Images of OpenML's ``number``, the first ``train`` to train on, cached."""
    from sklearn.datasets import fetch_openml

    def fetch() -> Any:
        return fetch_openml(
            data_id=number,
            data_home=_home(data_dir),
            as_frame=False,
            # pandas is not asked for, but reads much faster.
            parser="pandas" if importlib.util.find_spec("pandas") else "liac-arff",
            n_retries=1,
            delay=0.1,
        )

    def make() -> dict[str, np.ndarray]:
        bunch = _fetch(name, fetch)
        return {
            "inputs": np.asarray(bunch.data).reshape(-1, *shape).astype(np.uint8),
            "targets": np.asarray(bunch.target).astype(float).astype(np.int64),
        }

    arrays = cached(data_folder(data_dir) / f"{name}.npz", make)
    return Arrays(arrays["inputs"], arrays["targets"], train, 255.0)


# What the ten measured columns of Covertype range over, as its documentation and its
# units have it: scaling by the extremes of private rows would tell them.
_LOWEST = np.array([1859, 0, 0, 0, -173, 0, 0, 0, 0, 0], dtype=float)
_HIGHEST = np.array([3858, 360, 66, 1397, 601, 7117, 254, 254, 254, 7173], dtype=float)


def fetch_covertype(data_dir: str | pathlib.Path | None = None) -> Arrays:
    """Forest cover of 581 012 places: 54 features, rows of length at most 1, 7 classes.

    Measured columns are scaled by their documented ranges, longer rows to the unit
    ball.
    """
    from sklearn.datasets import fetch_covtype

    bunch = _fetch("covertype", lambda: fetch_covtype(data_home=_home(data_dir)))
    rows = np.array(bunch.data, dtype=float)
    rows[:, :10] = ((rows[:, :10] - _LOWEST) / (_HIGHEST - _LOWEST)).clip(0, 1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True).clip(1, None)
    classes = np.asarray(bunch.target).astype(np.int64) - 1
    return Arrays(rows.astype(np.float32), classes, None)


def _home(data_dir: str | pathlib.Path | None) -> str | None:
    return None if data_dir is None else str(data_dir)


def _fetch(name: str, fetch: Callable[[], Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a failed try, which is told below
            return fetch()
    # OpenML's own errors, and those of a damaged answer, are ValueErrors.
    except (OSError, ValueError, EOFError) as error:
        package = ""
        if name in PACKAGED:
            package = (
                f"install the Debian package dataset-{name} (it would be in "
                f"{DEBIAN / name}), have its four IDX files in a folder and give "
                "idx:FOLDER, "
            )
        raise DataUnavailableError(
            f"the data set {name} is neither in scikit-learn's cache nor could it be "
            f"fetched ({error}); {package}connect to the network once, or use glyphs "
            "or digits, which need none"
        ) from error
