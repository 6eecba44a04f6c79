"""Reading and verifying the folders of finished runs."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from privaudit.report import verify as _evidence
from privaudit.report.attempts import Together, together
from privaudit.report.sweep import FoundSweep
from privaudit.report.verify import Verification

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Shown:
    """What several folders hold; each was compared with its evidence."""

    checks: tuple[Verification, ...]

    @property
    def found(self) -> list[Any]:
        """What those hold whose figures agree with their evidence."""
        return [one.found for one in self.checks if one.found and not one.differences]

    @property
    def differs(self) -> bool:
        """Whether some do not."""
        return len(self.found) < len(self.checks)

    @property
    def verdicts(self) -> list[str | None]:
        """Of all runs in them."""
        verdicts: list[str | None] = []
        for one in self.found:
            many = isinstance(one, FoundSweep)
            verdicts += one.statuses if many else [one.status]
        return verdicts

    @property
    def complete(self) -> bool:
        """Whether all runs of all sweeps have a verdict."""
        return all(one.complete for one in self.found if isinstance(one, FoundSweep))

    @functools.cached_property
    def together(self) -> list[Together]:
        """Claims that several audits in them attack, and what these show together."""
        runs: list[Any] = []
        for one in self.found:
            runs += one.finished if isinstance(one, FoundSweep) else [one]
        return together(runs)

    def summary(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {
            "runs": [one.summary() for one in self.found],
            "together": [one.summary() for one in self.together],
            "evidence": [one.summary() for one in self.checks],
        }

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        lines: list[str] = []
        for one in self.checks:
            if one.found and not one.differences:
                lines += one.found.lines()
            lines.append(str(one))
        return lines + [f"together: {one}" for one in self.together]


def show(folders: Iterable[Path], *, signer: Path | None = None) -> Shown:
    """What the folders of finished runs and sweeps hold, checked as `verify` does.

    All but the comparison of the ledger with the settings, so that no torch is needed.
    Raises `privaudit.files.folder.FolderError` if there is no finished run.
    """
    return Shown(tuple(_evidence.verify(path, signer=signer) for path in folders))


def verify(folder: Path, *, signer: Path | None = None) -> Verification:
    """Make the figures of a finished run or sweep again from its evidence, and compare.

    Parameters
    ----------
    folder
        As it was given to ``out``; nothing in it is changed.
    signer
        A file with the public key of who must have signed the folder.

    Returns
    -------
    What was compared, and what differs: ``differences`` is empty if all agrees.

    Raises
    ------
    privaudit.files.folder.FolderError
        If there is no finished run, or a file is damaged that no manifest lists.
    ValueError
        If ``signer`` is no such file.

    Examples
    --------
    >>> import tempfile
    >>> import privaudit as pa
    >>> with tempfile.TemporaryDirectory() as out:
    ...     _ = pa.audit_program("operator:add", pa.ProgramSettings(runs=9), out=out)
    ...     found = pa.verify(out)
    >>> found.differences
    ()
    """
    return _evidence.verify(folder, settings=True, signer=signer)


def report(folder: Path, *, signer: Path | None = None) -> pathlib.Path:
    """Write ``report.html`` into the folder of a finished audit or training.

    Returns its path. Raises as `privaudit.report.page.write`.
    """
    from privaudit.report.page import write

    return write(folder, signer=signer)
