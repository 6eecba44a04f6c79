"""The folder that a command keeps its work in: as given, or one that it chooses."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar

from cyclopts import Parameter

from privaudit.cli.output import note
from privaudit.files.folder import RunFolder
from privaudit.files.user_code import is_place

Out = Annotated[
    pathlib.Path | None,
    Parameter(
        help="The run's folder; the same command goes on where it stopped. Default: "
        "one in runs, which an unfinished run of the same settings goes on in; where "
        "another run is there, NAME-2, NAME-3, ..."
    ),
]
Folder = TypeVar("Folder", bound=RunFolder)


def short_name(what: str) -> str:
    """An algorithm's or a file's name, as a part of a folder's."""
    if is_place(what):
        return what.replace(":", "-")
    return pathlib.Path(what).stem


class Place:
    """Where the work is kept: ``out``, or without one ``runs/NAME``, or ``NAME-2``, ...

    ``path`` is right once it was opened.
    """

    def __init__(self, out: pathlib.Path | None, name: str) -> None:
        self.path = out or pathlib.Path("runs") / name
        self._is_given = out is not None

    @contextlib.contextmanager
    def opened(
        self, kind: type[Folder], fits: Callable[[Folder], bool]
    ) -> Iterator[Folder]:
        """The folder, for this process alone; one that ``fits`` goes before a new one.

        As given to --out, it is taken whatever it holds. Raises
        `privaudit.files.folder.FolderError`.
        """
        default = self.path
        chosen = kind.opened(default) if self._is_given else kind.taken(default, fits)
        with chosen as folder:
            if folder.path != default:
                note(
                    f"{default} holds another {kind.of}: this is kept in {folder.path}"
                )
            self.path = folder.path
            yield folder
