"""Data sets in IDX files, as MNIST and Fashion-MNIST come."""

from __future__ import annotations

import functools
import gzip
import math
import pathlib
import zlib

import numpy as np

from privaudit.files.folder import MOST_ARRAYS, content_of
from trainers.data.fetched import DEBIAN, Arrays, DataUnavailableError

# http://yann.lecun.com/exdb/mnist: two zeros, a type, the number of sizes, the sizes.
_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: pathlib.Path) -> np.ndarray:
    """The array of an IDX file, gzipped or not; ``ValueError`` if it is none."""
    content = content_of(path, MOST_ARRAYS)
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        zero, kind, sizes = content[:2], content[2], content[3]
        start = 4 + 4 * sizes
        shape = tuple(np.frombuffer(content[4:start], ">i4").tolist())
        if zero != b"\0\0" or kind not in _TYPES or len(shape) != sizes:
            raise ValueError("it does not begin as one")
        found = np.frombuffer(content, _TYPES[kind], offset=start)
        if len(found) != math.prod(shape):
            raise ValueError(f"it has {len(found)} numbers, not {math.prod(shape)}")
    except (ValueError, IndexError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is no IDX file: {error}") from None
    return found.reshape(shape).astype(found.dtype.newbyteorder("="))


def read_folder(folder: str | pathlib.Path) -> Arrays:
    """The data set in a folder of four IDX files, called as those of MNIST are."""
    folder = pathlib.Path(folder).expanduser()
    parts = {}
    for part in ("train-images", "train-labels", "t10k-images", "t10k-labels"):
        files = sorted(folder.glob(f"{part}*idx*"))
        if not files:
            raise DataUnavailableError(
                f"{folder} has no file {part}-idx...-ubyte, gzipped or not: a folder "
                "of IDX files has four, as MNIST's"
            )
        try:
            parts[part] = read_idx(files[0])
        except (OSError, ValueError) as error:
            raise DataUnavailableError(f"cannot read {files[0]}: {error}") from None
    train, test = parts["train-images"], parts["t10k-images"]
    labels = [parts["train-labels"], parts["t10k-labels"]]
    if train.shape[1:] != test.shape[1:] or any(
        len(images) != len(of) or of.ndim != 1
        for images, of in zip((train, test), labels, strict=True)
    ):
        raise DataUnavailableError(f"the files in {folder} do not fit each other")
    inputs = np.concatenate([train, test])
    if inputs.ndim == 3:
        inputs = inputs[:, None]
    scale = 255.0 if inputs.dtype == np.uint8 else 1.0
    return Arrays(inputs, np.concatenate(labels).astype(np.int64), len(train), scale)


@functools.cache
def sizes(folder: str) -> tuple[int, int]:
    """Number of classes the data set in ``folder`` has, and records to train on."""
    arrays = read_folder(folder)
    assert arrays.train is not None
    return int(arrays.targets.max()) + 1, arrays.train


def installed(name: str) -> Arrays | None:
    """The data set of Debian's package dataset-``name``; None if it is not there."""
    folder = DEBIAN / name
    return read_folder(folder) if folder.is_dir() else None
