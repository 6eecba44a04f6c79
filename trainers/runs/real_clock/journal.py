"""Steps as they begin, on disk: what a worker that dies has cost is known from it."""

from __future__ import annotations

import os
import pathlib
import struct

from privaudit.files.folder import opened_to_append

_RECORD = struct.Struct("<H")  # a worker's number


class Journal:
    """A file to which all workers append, each its number before every step.

    At one go, before anything is asked of the data: it has at least the steps of which
    something may have left a process that died. ``OSError`` for a link.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = opened_to_append(path)

    def count(self, worker: int) -> None:
        """A step of ``worker`` begins. ``OSError`` if that cannot be written."""
        if os.write(self._file, _RECORD.pack(worker)) != _RECORD.size:
            raise OSError(
                "a step could not be written to the journal; is the disk full?"
            )

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)


def counted(path: pathlib.Path, workers: int) -> list[int]:
    """Steps that each of ``workers`` began; half a record at the end is one of each."""
    content = path.read_bytes() if path.exists() else b""
    whole = len(content) - len(content) % _RECORD.size
    counts = [int(whole < len(content))] * workers
    for (worker,) in _RECORD.iter_unpack(content[:whole]):
        if worker >= workers:
            raise ValueError(f"{path} has a step of worker {worker} of {workers}")
        counts[worker] += 1
    return counts
