"""Reading and verifying the folders of finished runs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from privaudit.files.arguments import public
from privaudit.files.json import Summary
from privaudit.report import joining as _joining
from privaudit.report import verify as _evidence
from privaudit.report.attempts import Together, together
from privaudit.report.joint import Joint
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


@public
def join(
    folders: Iterable[Path],
    *,
    overlap: int = 1,
    signers: Sequence[Path] = (),
    observer: str | None = None,
) -> Joint:
    """Join the folders of all parties of one training into a statement on its epsilon.

    Each folder is checked as by `verify`, and each account is computed again from the
    party's ledger, so that no party's figure has to be believed.

    Parameters
    ----------
    folders
        One folder per party, in any order.
    overlap
        At how many parties the same record (or user) may be. The bound composes the
        releases of the worst so many nodes.
    signers
        Files with the parties' public keys, one per folder in the same order: each
        party must have signed its folder. If empty, nothing proves who wrote them.
    observer
        For whom the statement holds, as of `privaudit.train`: "any-node", or a node's
        number as text. It rests on the noise of all others. None: for an observer of
        all releases, such as a server that relays what is not sealed.

    Returns
    -------
    A `Joint` with the bound ``upper``, the ``verdict``, and a statement of each of the
    ``parties``. ``save`` writes it as JSON, with the ledger of all nodes, or, to a name
    in .html, as a page.

    Raises
    ------
    privaudit.report.verify.EvidenceError
        If a folder's figures disagree with its evidence, or a signature does not hold.
    privaudit.files.folder.FolderError
        If a folder holds no finished training.
    ValueError
        If the folders are not those of all parties of one run; if ``overlap`` is larger
        than the number of parties; or if it makes too many combinations of nodes.

    Examples
    --------
    >>> import privaudit as pa
    >>> pa.join([])
    Traceback (most recent call last):
    ...
    ValueError: give the folders of all parties, each as OUT/party-N
    """
    return _joining.join(folders, overlap=overlap, signers=signers, observer=observer)


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
