"""`privaudit verify`: whether a folder's figures are what its evidence gives."""

from __future__ import annotations

import pathlib

from privaudit.cli import FINE, REFUTED
from privaudit.cli.accounts import Json
from privaudit.cli.output import emit
from privaudit.cli.signing import Sign, Signer, check_key


def verify(
    folder: pathlib.Path,
    /,
    *,
    sign: Sign = None,
    signer: Signer = None,
    json: Json = False,
) -> int:
    """Make the figures of a finished run or sweep again from its evidence, and compare.

    Checked are the digests of all files, the account from the ledger, the bound from
    the scores, the verdict, and the ledger against the settings. A difference is a line
    that names the file and both values, with status 1. The signature, if there is one,
    is checked by --signer alone: without it nothing says who wrote the folder.

    Parameters
    ----------
    folder
        As given to --out.
    """
    from privaudit.report.verify import sign as signed
    from privaudit.report.verify import verify as verified

    check_key(sign)
    found = verified(folder, settings=True, signer=signer)
    lines = [str(found)]
    if not found.differences:
        lines = [f"{folder}: {found}", *(f"not checked: {x}" for x in found.unchecked)]
        if sign is not None:
            lines.append(f"signed: {signed(found, sign)}")
    emit(found.summary(), lines, as_json=json)
    return REFUTED if found.differences else FINE
