"""Manifest of a finished folder: a digest of every file, and which may be released."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import stat
from collections.abc import Callable, Collection
from typing import Any, Literal, TypeVar

import msgspec

from privaudit.files import json as _json
from privaudit.files.folder import (
    KEY_ID,
    MANIFEST,
    MOST_HASHED,
    MOST_TEXT,
    PAGE,
    SIGNATURE,
    FolderError,
    RunFolder,
    content_of,
    opened_regular,
)
from privaudit.version import __version__

T = TypeVar("T")

# What belongs to a folder and not to its evidence: what is written after the end (a
# page, a signature), what a run needs only while it can go on, and the manifest itself.
NOT_EVIDENCE = (MANIFEST, SIGNATURE, PAGE, "checkpoint.pt", KEY_ID)


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file's SHA-256, and whether it is ``private``: not covered by the account."""

    sha256: str
    private: bool = True


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of a finished run or sweep, by their names within its folder.

    ``settings`` are of its config; None in 0.1.0's. As private as the files: digests
    let whoever guesses one confirm the guess.
    """

    format: Literal["privaudit-manifest"] = "privaudit-manifest"
    version: str = __version__
    settings: dict[str, Any] | None = None
    files: dict[str, File]

    def __post_init__(self) -> None:
        for name in self.files:
            place = pathlib.PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts or "\0" in name:
                raise ValueError(f"it lists {name!r}, which is not within its folder")


def digest(content: bytes) -> str:
    """The SHA-256 of ``content``, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def write_result(
    folder: RunFolder, result: msgspec.Struct, released: Collection[str] = ()
) -> None:
    """End a run: write ``manifest.json``, then ``result.json``, which finishes it.

    A kill between the two leaves a run that goes on. ``released``: what the account
    covers.
    """
    content = _json.encode(result)
    digests = {name: _digest(folder / name) for name in evidence(folder)}
    _write(folder, {**digests, "result.json": digest(content)}, released)
    folder.write("result.json", content)


def amend(folder: RunFolder, result: msgspec.Struct) -> None:
    """Put another ``result`` into a finished run; what may be released stays so.

    What is listed must be there as it was, or `FolderError`; the result may be the new
    one, where a kill was before it.
    """
    known, new = read(folder), digest(_json.encode(result))
    files = {} if known is None else known.files
    for name, one in files.items():
        if one.sha256 not in (digest_of(folder / name), new):
            raise FolderError(
                f"{folder / name} is not the file that {MANIFEST} lists; put that back"
            )
    write_result(folder, result, [name for name in files if not files[name].private])


def seal(folder: RunFolder, more: Collection[str] = ()) -> None:
    """Write the manifest of a folder whose files are all there, and of ``more``."""
    names = [*evidence(folder), *more]
    _write(folder, {name: _digest(folder / name) for name in names}, ())


def content(folder: RunFolder) -> bytes | None:
    """The bytes of the manifest in ``folder``; None if there is none, as in 0.1.0."""
    try:
        return content_of(folder / MANIFEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(folder / MANIFEST, error) from None


def parsed(folder: RunFolder, content: bytes) -> Manifest:
    """The manifest that ``content`` is; `FolderError` if it is damaged."""
    try:
        return _json.decode(content, Manifest)
    except ValueError as error:
        raise folder.broken(MANIFEST, error) from None


def read(folder: RunFolder) -> Manifest | None:
    """The manifest in ``folder``; None if there is none, `FolderError` if damaged."""
    found = content(folder)
    return None if found is None else parsed(folder, found)


def settings_in(folder: RunFolder) -> dict[str, Any] | None:
    """Settings that ``folder`` holds; None if it has none, or they cannot be read."""
    for name in ("config.json", "sweep.json"):
        if folder.has(name):
            with contextlib.suppress(FolderError):
                return folder.read(name, dict)
    return None


def evidence(folder: RunFolder) -> list[str]:
    """The files of ``folder`` that a manifest lists, by name."""
    models = sorted(one.name for one in folder.path.glob("node-*.safetensors"))
    names = [name for name in sorted(folder.files) if name not in NOT_EVIDENCE]
    return [*filter(folder.has, names), *models, *audits_in(folder)]


def audits_in(folder: RunFolder) -> list[str]:
    """The manifests of finished audits that lie in the folder of the audited run."""
    return [
        f"{one.path.name}/{MANIFEST}"
        for one in getattr(folder, "audits", ())
        if one.has("result.json")
    ]


def digest_of(path: pathlib.Path) -> str | None:
    """The SHA-256 of a regular file, no link followed; None if there is none."""
    return _if_regular(_digest, path)


def regular(path: pathlib.Path) -> bytes | None:
    """The bytes of a regular file, no link followed; None if there is none."""
    return _if_regular(content_of, path)


def _digest(path: pathlib.Path, *, follow: bool = True) -> str:
    most = MOST_TEXT if path.suffix in (".json", ".csv") else MOST_HASHED
    with opened_regular(path, most, follow=follow) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _if_regular(read: Callable[..., T], path: pathlib.Path) -> T | None:
    """Read a regular file, no link followed; None if there is none."""
    try:
        return read(path, follow=False)
    except OSError as error:
        with contextlib.suppress(OSError):
            if stat.S_ISREG(path.lstat().st_mode):
                raise _unreadable(path, error) from None
        return None


def _unreadable(path: pathlib.Path, error: OSError) -> FolderError:
    return FolderError(f"cannot read {path}: {error.strerror or error}")


def _write(
    folder: RunFolder, digests: dict[str, str], released: Collection[str]
) -> None:
    files = {
        name: File(sha256=digests[name], private=name not in released)
        for name in sorted(digests)
    }
    new = _json.encode(Manifest(settings=settings_in(folder), files=files))
    if regular(folder / MANIFEST) != new:
        folder.remove(SIGNATURE)  # of another manifest
        folder.write(MANIFEST, new)
