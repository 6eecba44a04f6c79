"""The journal of releases of a run with a secret key, on disk before they leave.

A run that was stopped makes the releases since its checkpoint again. Equal sums repeat
their noise and tell nothing new; others, of changed data, threads or libraries, are
further releases. The journal says which.
"""

from __future__ import annotations

import collections
import fcntl
import os
import pathlib
import struct
from collections.abc import Sequence

from privaudit.files.folder import write_whole
from trainers.numerics.keys import PURPOSES, Key, Purpose

# Node, release, purpose, fingerprint, and a keyed hash of it and of all before. Whole
# records fill a page, so that a kill never leaves half of one.
_BODY = struct.Struct("<IQB3x32s")
_HASH = 16
_SIZE = _BODY.size + _HASH
_HEAD = b"privaudit releases 1".ljust(_BODY.size - _HASH)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW

_Address = tuple[int, int, int]


class ReleaseJournal:
    """A file to which each release of noise is written before it is made.

    It has addresses and keyed hashes alone. A death of the machine, not of the process,
    may lose the last records, after the last `mark`. ``OSError`` if it is not there,
    cannot be written, or another process has it; ``ValueError`` if it is of another key
    or of other ``terms``, was cut or changed. ``terms``: what a release would be, of a
    run that has no record of its settings beside the journal.
    """

    def __init__(self, path: str | os.PathLike[str], key: Key, terms: str = "") -> None:
        self._path = pathlib.Path(path)
        self._key = key
        self._file = os.open(self._path, _FLAGS)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = self._path.read_bytes()
            self._before, self._last = self._read(content)
            if content[: _BODY.size] != _head(key, terms):
                raise ValueError(
                    "its releases have other noise, batches or numbers of records: go "
                    "on with the same"
                )
        except BlockingIOError:
            os.close(self._file)
            raise BlockingIOError("another process goes on with this run") from None
        except BaseException:
            os.close(self._file)
            raise
        self._others: dict[_Address, int] = {}
        # Number of releases made at an address where another had been
        self.further = sum(len(marks) - 1 for marks in self._before.values())

    @classmethod
    def create(cls, path: str | os.PathLike[str], key: Key, terms: str = "") -> None:
        """Make the file, without releases, for its owner alone; or replace it."""
        path = pathlib.Path(path)
        # One that an earlier version was writing may be cut.
        if path.is_file() and not _HEAD.startswith(path.read_bytes()[: len(_HEAD)]):
            raise ValueError(f"{path} is no journal of releases, and in its place")
        path.unlink(missing_ok=True)
        head = _head(key, terms)
        write_whole(path, head + _hash(key, b"", head))

    def _read(self, content: bytes) -> tuple[dict[_Address, set[bytes]], bytes]:
        last, found = b"", collections.defaultdict(set)
        if not content or len(content) % _SIZE:
            raise ValueError("it was cut, or has more")
        for start in range(0, len(content), _SIZE):
            body = content[start : start + _BODY.size]
            last = _hash(self._key, last, body)
            if content[start + _BODY.size : start + _SIZE] != last:
                raise ValueError("it was changed, or is of another key")
            if start:
                node, release, purpose, mark = _BODY.unpack(body)
                found[purpose, node, release].add(mark)
        return dict(found), last

    def enter(
        self,
        purpose: Purpose,
        nodes: Sequence[int],
        release: int,
        marks: Sequence[bytes],
    ) -> None:
        """Write down that ``nodes`` release sums of fingerprints ``marks``."""
        text = b""
        for node, mark in zip(nodes, marks, strict=True):
            address = (PURPOSES[purpose], node, release)
            known = self._before.get(address, set())
            if known - {mark}:
                self._others[address] = len(known - {mark})
            if mark not in known:
                body = _BODY.pack(node, release, PURPOSES[purpose], mark)
                self._last = _hash(self._key, self._last, body)
                text += body + self._last
                self.further += bool(known)
        if text and os.write(self._file, text) != len(text):
            raise OSError(
                f"a release could not be written to {self._path}; is the disk full?"
            )

    def sync(self) -> None:
        """Wait until what was entered is on the disk."""
        os.fdatasync(self._file)

    def mark(self) -> bytes:
        """Keyed hash of all that was entered, once it is on the disk."""
        self.sync()
        return self._last

    def has(self, mark: bytes) -> bool:
        """Return whether ``mark`` is of this journal, as it is or as it was before."""
        content = self._path.read_bytes()
        ends = range(_SIZE, len(content) + 1, _SIZE)
        return any(content[end - _HASH : end] == mark for end in ends)

    def others(self, purpose: Purpose, node: int, release: int) -> int:
        """Number of other sums that earlier processes released there."""
        return self._others.get((PURPOSES[purpose], node, release), 0)

    def begun(self, purpose: Purpose, node: int) -> int:
        """Number of releases that earlier processes began, by the last one's."""
        kind = PURPOSES[purpose]
        numbers = [k for of, whose, k in self._before if (of, whose) == (kind, node)]
        return 1 + max(numbers, default=-1)

    @staticmethod
    def has_any(path: pathlib.Path) -> bool:
        """Return whether there is a release in the file, if there is a file."""
        return path.exists() and path.stat().st_size > _SIZE

    def close(self) -> None:
        """Write no more; another process may go on."""
        os.close(self._file)


def _head(key: Key, terms: str) -> bytes:
    return (
        _HEAD + (key.derive(b"terms", terms.encode()) if terms else b" " * 64)[:_HASH]
    )


def _hash(key: Key, before: bytes, body: bytes) -> bytes:
    return key.derive(b"journal", key.run + before.ljust(_HASH, b"\0") + body)[:_HASH]
