"""Steps as they begin, on disk: what a worker that dies has cost is known from it."""

from __future__ import annotations

import os
import pathlib
import struct

from privaudit.files.folder import opened_to_append

_RECORD = struct.Struct("<H")  # a worker's number


class Journal:
    """A file to which all workers append, each its number before every step.

    A record is written at one go, and before anything is asked of the data: after a
    worker's death, at whatever point, it has at least the steps of which something may
    have left the process. A death of the machine may lose the last ones.

    ``path``: the file, which is made if it is not there. ``OSError`` for a link.
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
    """Steps that each of ``workers`` began; none if there is no file.

    Half a record, at the end of a file that was cut, may be anybody's: it is a step of
    each. Raises ``ValueError`` for a worker that there is not.
    """
    content = path.read_bytes() if path.exists() else b""
    whole = len(content) - len(content) % _RECORD.size
    counts = [int(whole < len(content))] * workers
    for (worker,) in _RECORD.iter_unpack(content[:whole]):
        if worker >= workers:
            raise ValueError(f"{path} has a step of worker {worker} of {workers}")
        counts[worker] += 1
    return counts
