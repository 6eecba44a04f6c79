"""Arrays from .npz files, whatever is wrong with these."""

from __future__ import annotations

import contextlib
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from privaudit.files.folder import MOST_ARRAYS, content_of

# All that numpy and zipfile are known to raise: RuntimeError for files that are
# encrypted or compressed as Python does not know, TypeError for a .npy, MemoryError for
# shapes that nothing has room for.
_BROKEN = (
    *(ArithmeticError, EOFError, LookupError, MemoryError, RuntimeError, TypeError),
    ValueError,
    *(lzma.LZMAError, zipfile.BadZipFile, zlib.error),
)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[NpzFile]:
    """The file at ``path``, for its arrays to be read within, or ``ValueError``."""
    # Read whole first: numpy leaves a damaged file open.
    content = io.BytesIO(content_of(path, MOST_ARRAYS))
    try:
        with np.load(content, allow_pickle=False) as file:
            whole = sum(part.file_size for part in file.zip.infolist())
            if whole > MOST_ARRAYS:
                raise ValueError(
                    f"it unpacks to {whole:,} bytes, and at most {MOST_ARRAYS:,} are "
                    "read"
                )
            yield file
    except _BROKEN as error:
        raise ValueError(str(error)) from None


def packed(**arrays: Any) -> bytes:
    """The content of a .npz file of ``arrays``."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def check_unmasked(values: Any, name: str) -> None:
    """``ValueError`` if entries are masked: numpy's conversions drop the mask."""
    # pandas' arrays have masks too, which their conversions know.
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} hold masked entries, which would be read as if they were not: "
            "leave them out, or fill them in, as values.filled(0) does"
        )


def real_numbers(values: object) -> NDArray[np.float64]:
    """``values`` as a new array of float64; ``ValueError`` for other kinds."""
    check_unmasked(values, "they")
    try:
        given = np.asarray(values)
    except Exception as error:  # whatever an object's own conversion raises
        raise ValueError(str(error)) from None
    if given.dtype.kind not in "biufUSO":
        raise ValueError(f"they are of type {given.dtype}, not real numbers")
    try:
        with np.errstate(over="ignore"):  # to infinity, which is refused where it must
            return np.array(given, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(str(error)) from None
