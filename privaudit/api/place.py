"""The folder that a run is kept in, given or chosen."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from privaudit.api.watch import Watch
from privaudit.files.folder import RunFolder
from privaudit.files.user_code import is_place
from privaudit.report.verify import verified

Folder = TypeVar("Folder", bound=RunFolder)


def short_name(what: str) -> str:
    """An algorithm's or a file's name, as a part of a folder's."""
    if is_place(what):
        return what.replace(":", "-")
    return pathlib.Path(what).stem


@contextlib.contextmanager
def shown_again(results: Iterable[pathlib.Path]) -> Iterator[None]:
    """Verify, once the work is over, the folders of those ``results`` that are there.

    By then a command that was stopped at its very end has removed what it had left.
    `privaudit.report.verify.EvidenceError` if a figure disagrees with its evidence.
    """
    ended = [file.parent for file in results if file.exists()]
    yield
    for folder in ended:
        verified(folder, settings=True)


class Place:
    """Folder of the work: ``out``, or without one ``runs/NAME``, or ``NAME-2``, ..."""

    def __init__(self, out: str | os.PathLike[str] | None, name: str) -> None:
        self.path = pathlib.Path("runs") / name if out is None else pathlib.Path(out)
        self._is_given = out is not None

    def looked_at(self, config_of: Callable[[Any], object], kind: type) -> None:
        """`FolderError`, before any work, if ``out`` has the run of something else.

        ``config_of`` what is there makes what would be there, with what is not known
        before the work taken from it.
        """
        folder = RunFolder(self.path)
        if self._is_given and folder.has("config.json"):
            known = folder.read("config.json", kind)
            folder.compare(known, config_of(known))

    @contextlib.contextmanager
    def opened(
        self,
        kind: type[Folder],
        config: object,
        watch: Watch,
        fits: Callable[[Folder], bool] | None = None,
    ) -> Iterator[Folder]:
        """The folder, for this process alone; one that ``fits`` before a new one.

        Without ``fits``, one that awaits ``config``. `FolderError` if a given one has
        the result of another.
        """
        default = self.path
        awaits = fits or (lambda there: there.awaits(config))
        chosen = kind.opened(default) if self._is_given else kind.taken(default, awaits)
        with chosen as folder:
            if folder.path != default:
                watch.note(
                    f"{default} holds another {kind.of}: this is kept in {folder.path}"
                )
            if folder.has("result.json") and folder.settle(config):
                watch.note(
                    f"{folder.path} is finished: its result is shown again, and "
                    "nothing is run; to run again, choose another folder with --out"
                )
            self.path = folder.path
            ended = [*folder.path.glob("result.json")]
            with shown_again(ended or folder.path.glob("*/result.json")):
                yield folder
