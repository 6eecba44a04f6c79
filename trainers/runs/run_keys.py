"""The secret key of a run: kept while it can go on, with a journal of its releases."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from privaudit.files.folder import KEY, KEY_ID, RELEASES, FolderError, RunFolder
from trainers.numerics.keys import Key
from trainers.numerics.releases import ReleaseJournal


@contextlib.contextmanager
def journal_of(key: Key, file: Path) -> Iterator[ReleaseJournal | None]:
    """The journal of releases beside the secret key in ``file``; none of a study."""
    if key.seed is not None:
        yield None
        return
    path = releases_file(file)
    try:
        journal = ReleaseJournal(path, key)
    except (OSError, ValueError) as error:
        raise _unusable(path, getattr(error, "strerror", None) or error) from None
    try:
        yield journal
    finally:
        journal.close()


def check_journal(journal: ReleaseJournal, marks: Sequence[bytes], file: Path) -> None:
    """`FolderError` if the journal beside the key in ``file`` has none of ``marks``.

    They are of a checkpoint, which is written when the journal is on the disk: no death
    of the machine makes that older.
    """
    if not any(map(journal.has, marks)):
        raise _unusable(releases_file(file), "it ends before checkpoint.pt")


def _unusable(path: Path, why: object) -> FolderError:
    return FolderError(
        f"the journal of releases {path} cannot be used ({why}), so that nobody "
        "knows what the run released before it was stopped: it cannot go on; "
        "choose another folder with --out"
    )


def releases_file(key_file: Path) -> Path:
    """Path of the journal: beside the key."""
    return key_file.with_name(key_file.name + RELEASES)


def key_of(seed: int | None, folder: RunFolder, file: Path) -> Key:
    """The study's key, or the secret one in ``file``, made if the run begins."""
    if seed is not None:
        return Key.study(seed)
    try:
        if file.exists():
            key = Key.load(file)
            if not _is_of(key, folder, file):
                raise FolderError(
                    f"{file} holds the key of another run than {folder.path}, and no "
                    "key is used twice; choose another file with --key-file"
                )
            return key
        if folder.has("checkpoint.pt") or folder.has(KEY_ID):
            raise FolderError(
                f"{folder.path} holds a run that was stopped, but not its key "
                f"({file.name}): it cannot go on; choose another folder with --out"
            )
        key = Key.secret()
        ReleaseJournal.create(releases_file(file), key)
        if not _is_inside(folder, file):
            folder.write(KEY_ID, key.run)
        try:
            key.save(file)
        except OSError:
            folder.remove(KEY_ID)
            raise
        if file == folder / KEY:  # a key that gets lost is missed from here on
            folder.write(KEY_ID, key.run)
        return key
    except OSError as error:
        raise FolderError(
            f"cannot keep the key in {file}: {error.strerror or error}"
        ) from None
    except ValueError as error:
        raise FolderError(f"{file} is damaged or not ours ({error})") from None


def kept_key(file: Path, terms: str) -> tuple[Key, ReleaseJournal]:
    """The secret key in ``file``, made if there is none, and its open journal."""
    try:
        if file.exists():
            key = Key.load(file)
        else:
            key = Key.secret()
            ReleaseJournal.create(releases_file(file), key, terms)
            key.save(file)
        return key, ReleaseJournal(releases_file(file), key, terms)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(
            f"the key in {file} and its journal of releases cannot be used ({why}), so "
            "that nobody knows what was released: begin again with a key elsewhere"
        ) from None


def forget_key(folder: RunFolder, file: Path) -> None:
    """Remove the secret key of a run that ended, and its journal of releases."""
    with contextlib.suppress(OSError, ValueError):
        if _is_of(Key.load(file), folder, file):
            releases_file(file).unlink(missing_ok=True)
            file.unlink()
    folder.remove(KEY_ID)


def _is_of(key: Key, folder: RunFolder, file: Path) -> bool:
    """Return whether ``key``, read from ``file``, is that of the run in ``folder``."""
    kept = folder / KEY_ID
    return _is_inside(folder, file) or (kept.is_file() and kept.read_bytes() == key.run)


def _is_inside(folder: RunFolder, file: Path) -> bool:
    return file.parent.resolve() == folder.path.resolve()
