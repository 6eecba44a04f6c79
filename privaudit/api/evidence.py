"""Reading and verifying the folders of finished runs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from privaudit.files.arguments import public
from privaudit.files.json import Summary
from privaudit.report import verify as _evidence
from privaudit.report.attempts import Together, together
from privaudit.report.sweep import FoundSweep
from privaudit.report.verify import Verification

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Shown:
    """Findings of several folders, each compared with its evidence; `show` returns it.

    Attributes
    ----------
    checks
        A `Verification` for each folder, in the order in which they were given.
    """

    checks: tuple[Verification, ...]

    @property
    def found(self) -> list[Any]:
        """The runs and sweeps of folders whose figures agree with their evidence."""
        return [one.found for one in self.checks if one.found and not one.differences]

    @property
    def differs(self) -> bool:
        """Return whether the figures of a folder disagree with its evidence."""
        return len(self.found) < len(self.checks)

    @property
    def verdicts(self) -> list[str | None]:
        """Verdicts of all runs, those of sweeps too; None where nothing was claimed."""
        return [one.status for one in self._runs]

    @property
    def complete(self) -> bool:
        """Return whether every run of every sweep is finished; True without sweeps."""
        return all(one.complete for one in self.found if isinstance(one, FoundSweep))

    @functools.cached_property
    def together(self) -> list[Together]:
        """Claims that several audits attack, each with the bound of all of them."""
        return together(self._runs)

    @property
    def _runs(self) -> list[Any]:
        each = (x.finished if isinstance(x, FoundSweep) else [x] for x in self.found)
        return [*itertools.chain.from_iterable(each)]

    summary = Summary("runs=found together evidence=checks")

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        lines: list[str] = []
        for one in self.checks:
            if one.found and not one.differences:
                lines += one.found.lines()
            lines += one.lines() if one.differences else [str(one)]
        return lines + [f"together: {one}" for one in self.together]


def show(folders: Iterable[Path], *, signer: Path | None = None) -> Shown:
    """Read the folders of finished runs and sweeps, checked as `verify` does.

    All but the comparison of the ledger with the settings, so that no torch is needed.
    Raises `privaudit.files.folder.FolderError` if there is no finished run.
    """
    return Shown(tuple(_evidence.verify(path, signer=signer) for path in folders))


@public
def verify(folder: Path, *, signer: Path | None = None) -> Verification:
    """Recompute the figures of a finished run or sweep from its evidence; compare them.

    Parameters
    ----------
    folder
        The run's folder, as given to ``out``. Nothing in it is changed.
    signer
        A file with a public key; the folder must be signed by its owner. None: the
        signature is not checked.

    Returns
    -------
    A `Verification`: what was checked, what was not, and the ``differences``. It is
    true if there are none.

    Raises
    ------
    privaudit.files.folder.FolderError
        If the folder holds no finished run, or a file that the manifest does not list
        is damaged.
    ValueError
        If ``signer`` is not a file with a public key.

    Examples
    --------
    >>> import tempfile
    >>> import privaudit as pa
    >>> with tempfile.TemporaryDirectory() as out:
    ...     _ = pa.audit_program("numpy:copysign", pa.ProgramSettings(runs=9), out=out)
    ...     found = pa.verify(out)
    >>> bool(found)
    True
    """
    return _evidence.verify(folder, settings=True, signer=signer)


def report(folder: Path, *, signer: Path | None = None) -> pathlib.Path:
    """Write ``report.html`` into the folder of a finished run; returns its path."""
    from privaudit.report.page import write

    return write(folder, signer=signer)


def site(
    folders: Iterable[Path], out: Path, *, signer: Path | None = None
) -> tuple[pathlib.Path, bool]:
    """Write a static site: an overview, and a page for each item.

    Parameters
    ----------
    folders
        Of finished runs, sweeps, the demo or studies; folders of these; and files with
        what ``privaudit claims --json`` printed.
    out
        Its folder; a site that is there is written again.
    signer
        A file with the public key of who must have signed each run.

    Returns
    -------
    The path of the overview, and whether all runs agree with their evidence. What does
    not is listed without figures.

    Raises
    ------
    privaudit.files.folder.FolderError
        If one of ``folders`` is something else, or ``out`` is.
    """
    from privaudit.report.site import Site

    made = Site(signer)
    for folder in folders:
        made.add(folder)
    return made.write(out), not made.differs
