"""`privaudit verify`: whether a folder's figures are what its evidence gives."""

from __future__ import annotations

import pathlib

from privaudit.cli import FINE, REFUTED
from privaudit.cli.accounts import Json
from privaudit.cli.output import emit


def verify(folder: pathlib.Path, /, *, json: Json = False) -> int:
    """Make the figures of a finished run or sweep again from its evidence, and compare.

    Checked are the digests of all files, the account from the ledger, the bound from
    the scores, the verdict, and the ledger against the settings. A difference is a line
    that names the file and both values, with status 1.

    Parameters
    ----------
    folder
        As given to --out.
    """
    from privaudit.report.verify import verify as verified

    found = verified(folder, settings=True)
    lines = [str(found)]
    if not found.differences:
        lines = [f"{folder}: {found}", *(f"not checked: {x}" for x in found.unchecked)]
    emit(found.summary(), lines, as_json=json)
    return REFUTED if found.differences else FINE
