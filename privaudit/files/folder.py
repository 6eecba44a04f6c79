"""A run's folder: whole files only, one process at a time, one set of settings."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import io
import itertools
import os
import pathlib
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from privaudit.files import json as _json

T = TypeVar("T")

KEY = "key"  # of a run without a seed, while it can go on; of a rank: key-RANK
RELEASES = ".releases"  # after a key's name: what was released under it
KEY_ID = "key-id"  # the public id of the key that a run began with
MANIFEST, SIGNATURE, PAGE = "manifest.json", "manifest.sig", "report.html"
MODEL = "model.safetensors"
CERTIFICATE = "certificate.json"  # what privaudit.kernel checks by itself
FILES = (
    *("config.json", KEY_ID, "ledger.json", CERTIFICATE, "curves.json", "rounds.csv"),
    *("checkpoint.pt", "steps.bin", "scores.npz", MODEL, "result.json"),
    *(MANIFEST, SIGNATURE, PAGE),
)
TRIES = "tries"  # a folder of what a tuning that can go on has made
_LOCK = ".lock"
_AUDIT = re.compile(r"audit-[a-z-]+\d*")  # a folder in that of the audited run
_SHARDS = re.compile(r"shards-\d+")  # a folder of a checkpoint, by shard
_PART = re.compile(r"(.+?)(\.[0-9a-f]{16})?\.part")  # a file as it is written
NODE_MODEL = re.compile(r"node-(\d+)\.safetensors")  # its `state_dict`
_KEYS = re.compile(rf"{KEY}(-\d+)?({RELEASES})?")
_NO_LINK = os.O_CLOEXEC | os.O_NOFOLLOW
# What evidence may weigh, in bytes. Parsed text is held as objects, at twenty times its
# size, and 64 MiB of ledger are some 160 000 releases that differ; files that are
# only hashed may be as large as models.
MOST_TEXT, MOST_ARRAYS, MOST_HASHED = 1 << 26, 1 << 30, 1 << 36


@contextlib.contextmanager
def opened_regular(
    path: str | os.PathLike[str], most: int, *, follow: bool = True
) -> Iterator[io.BufferedReader]:
    """The regular file at ``path``, of at most ``most`` bytes, to be read within.

    No pipe, device, folder or sparse file, and no link unless to ``follow``:
    ``OSError``.
    """
    path = pathlib.Path(path)

    def check(known: os.stat_result) -> None:
        if not stat.S_ISREG(known.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if known.st_size > most:
            raise OSError(
                errno.EFBIG,
                f"it has {known.st_size:,} bytes, and at most {most:,} are read",
                str(path),
            )
        if known.st_size > MOST_TEXT and known.st_blocks * 1024 < known.st_size:
            raise OSError(errno.EFBIG, "most of it are holes", str(path))

    check(path.stat() if follow else path.lstat())
    # What took its place meanwhile is not waited for, and not read either.
    flags = os.O_RDONLY | os.O_NONBLOCK | (os.O_CLOEXEC if follow else _NO_LINK)
    with open(os.open(path, flags), "rb") as file:
        check(os.fstat(file.fileno()))
        yield file


def content_of(
    path: str | os.PathLike[str], most: int = MOST_TEXT, *, follow: bool = True
) -> bytes:
    """The bytes of a regular file; see `opened_regular`. Raises ``OSError``."""
    with opened_regular(path, most, follow=follow) as file:
        return file.read(most)


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Put ``content`` into the file ``path``, whole or not at all, and on the disk.

    A link is replaced. A new file is its owner's alone; others keep permissions.
    """
    path = pathlib.Path(path)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600)
    try:
        with open(handle, "wb") as file:
            known = _mode(path)
            if stat.S_ISREG(known):
                os.fchmod(handle, stat.S_IMODE(known))
            file.write(content)
            file.flush()
            os.fsync(handle)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class FolderError(Exception):
    """The folder cannot be used; the message says why and what to do."""


class RunFolder:
    """A folder that holds one run, written so that a kill never breaks it; `opened`."""

    of: ClassVar[str] = "run"
    files: ClassVar[tuple[str, ...]] = FILES

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)

    @classmethod
    def holds(cls, entry: pathlib.Path) -> bool:
        """Return whether ``entry`` is something that such a folder may hold."""
        part = _PART.fullmatch(entry.name)
        name = part.group(1) if part else entry.name
        own = _KEYS.fullmatch(name) or NODE_MODEL.fullmatch(name)
        if name in cls.files or name == _LOCK or own:
            return True
        inside = name == TRIES or _AUDIT.fullmatch(name) or _SHARDS.fullmatch(name)
        return bool(inside) and entry.is_dir()

    @property
    def audits(self) -> list[RunFolder]:
        """The folders of audits of this run, which lie in it, by name."""
        return [
            RunFolder(entry)
            for entry in sorted(self.path.glob("audit-*"))
            if _AUDIT.fullmatch(entry.name) and (entry / "config.json").is_file()
        ]

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, path: str | os.PathLike[str], *, patience: float = 0.0
    ) -> Iterator[Self]:
        """The folder at ``path``, made if need be, for this process alone.

        Waits ``patience`` seconds. `FolderError` if it is in use or holds other things.
        """
        folder = cls(path)
        with folder._explained("use"):
            folder.path.mkdir(parents=True, exist_ok=True)
            foreign = sorted(
                entry.name for entry in folder.path.iterdir() if not cls.holds(entry)
            )
            if foreign:
                raise FolderError(
                    f"{folder.path} is no {cls.of}'s folder (it holds {foreign[0]}); "
                    "choose a new or empty one with --out"
                )
            lock = folder.path / _LOCK
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
        try:
            if not _locked(handle, patience):
                raise FolderError(
                    f"another process is at work in {folder.path}; wait for it, or "
                    "choose another folder with --out"
                )
            folder._tidy()
            yield folder
        finally:
            os.close(handle)  # the kernel drops the lock, also on SIGKILL

    @classmethod
    @contextlib.contextmanager
    def taken(
        cls, default: str | os.PathLike[str], fits: Callable[[Self], bool]
    ) -> Iterator[Self]:
        """A folder called ``default``, or if that is taken ``default``-2, and so on.

        The first that is there, ``fits`` and is not in use; else a new one.
        """
        default = pathlib.Path(default)
        for path in numbered(default):
            if not os.path.lexists(path):
                break
            with contextlib.ExitStack() as stack:
                try:
                    if not fits(cls(path)):
                        continue
                    folder = stack.enter_context(cls.opened(path))
                    if not fits(folder):  # another process was faster
                        continue
                except FolderError:  # damaged, in use, or something else
                    continue
                yield folder
                return
        for path in numbered(default):
            with cls(path)._explained("make"):
                try:
                    path.mkdir(parents=True)  # by one process alone
                except FileExistsError:
                    continue
            with cls.opened(path) as folder:
                yield folder
            return

    @property
    def secrets(self) -> list[pathlib.Path]:
        """Files that a run keeps while it can go on, and removes when it ends."""
        until_the_end = KEY_ID, TRIES
        return [
            entry
            for entry in sorted(self.path.glob("*"))
            if entry.name in until_the_end or _KEYS.fullmatch(entry.name)
        ]

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    def has(self, name: str) -> bool:
        """Return whether the file is there."""
        return (self / name).exists()

    def write(self, name: str, content: bytes) -> None:
        """Put ``content`` into file ``name``, whole or not at all, and on the disk."""
        with self._explained("write to"):
            write_whole(self / name, content)

    def remove(self, name: str) -> None:
        """Remove file ``name``, if it is there."""
        with self._explained("remove a file of"):
            (self / name).unlink(missing_ok=True)

    def read(self, name: str, kind: type[T]) -> T:
        """The value in JSON file ``name``; `FolderError` if it is missing or broken."""
        with self._explained("read"):
            try:
                content = content_of(self / name)
            except FileNotFoundError:
                inside = sorted(self.path.glob(f"*/{name}"))
                runs = f"; there is one in {inside[0].parent}" if inside else ""
                raise FolderError(
                    f"{self.path} is no finished run: it has no {name}{runs}"
                ) from None
            try:
                return _json.decode(content, kind)
            except ValueError as error:
                raise self.broken(name, error) from None

    def broken(self, name: str, why: object) -> FolderError:
        """The error for a file that is not what was written."""
        return FolderError(
            f"{self / name} is damaged or not ours ({why}); remove the folder or "
            "choose another with --out"
        )

    def awaits(self, config: object) -> bool:
        """Return whether it holds a run of ``config`` that is not finished."""
        if self.has("result.json") or not self.has("config.json"):
            return False
        return not any(_differences(self.read("config.json", type(config)), config))

    def settle(self, config: object) -> bool:
        """Take ``config`` as what it is for, or `FolderError`; True if it was."""
        if not self.has("config.json"):
            others = [name for name in FILES if self.has(name)]
            if others:
                raise FolderError(
                    f"{self.path} has a {others[0]} but no config.json, which "
                    "says of what it is; choose another folder with --out"
                )
            self.write("config.json", _json.encode(config))
            return False
        self.compare(self.read("config.json", type(config)), config)
        return True

    def compare(self, known: object, config: object) -> None:
        """`FolderError` if the run that it holds, as ``known``, is another one's."""
        differences = list(_differences(known, config))
        # What was chosen by the budget differs because that does.
        differences.sort(key=lambda one: not one[0].endswith("epsilon"))
        if differences:
            name, there, here = differences[0]
            if name == "source":  # a digest of what is audited
                raise FolderError(
                    f"the program has changed since the audit in {self.path} began; "
                    "choose another folder with --out to audit it as it is now"
                )
            raise FolderError(
                f"{self.path} belongs to a run with {name.split('.')[-1]} = {there}, "
                f"not {here}; choose another folder with --out"
            )

    def _tidy(self) -> None:
        """Remove what processes that were killed were writing."""
        with self._explained("remove a file of"):
            for entry in self.path.iterdir():
                if _PART.fullmatch(entry.name) and stat.S_ISREG(_mode(entry)):
                    entry.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _explained(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            if error.errno == errno.ELOOP:
                why = "it is a symbolic link, which is not followed: remove it"
            if action != "write to" and error.errno in (errno.EEXIST, errno.ENOTDIR):
                why = "a file is where a folder should be; choose another with --out"
            elif action != "read":
                why = (
                    f"{why}; what was written before is whole, and the same command "
                    "goes on from there"
                )
            raise FolderError(
                f"cannot {action} {error.filename or self.path}: {why}"
            ) from error


def _mode(path: pathlib.Path) -> int:
    """Kind and permissions of ``path`` itself, not of what it links to; 0 if none."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def numbered(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """``path``, ``path``-2, and so on."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


def _locked(handle: int, patience: float) -> bool:
    """Return whether the lock is ours, now or within ``patience`` seconds."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)


_KEPT_LATER = (("sizes", None),)  # what folders of earlier versions do not say


def _differences(
    one: object, other: object, prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for field in _fields(one):
        left, right = getattr(one, field), getattr(other, field)
        if _fields(left) and type(left) is type(right):
            yield from _differences(left, right, f"{prefix}{field}.")
        elif left != right and (field, left) not in _KEPT_LATER:
            yield f"{prefix}{field}", left, right


def _fields(value: object) -> tuple[str, ...]:
    """Fields of a struct or a dataclass; none of anything else."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return ()
