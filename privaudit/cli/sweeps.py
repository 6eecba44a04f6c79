"""`privaudit sweep`: many audits from one file."""

from __future__ import annotations

import pathlib

from privaudit.cli import COULD_NOT, FINE
from privaudit.cli.options import Json, Out, Require
from privaudit.cli.output import emit
from privaudit.cli.signing import Sign, check_key, kept
from privaudit.cli.verdicts import status_of


def sweep(
    file: pathlib.Path,
    /,
    *,
    out: Out = None,
    workers: int | None = None,
    require: Require = None,
    sign: Sign = None,
    json: Json = False,
) -> int:
    """Make all audits that a file names: algorithms, budgets, adversaries, settings.

    The tables of the file: [all] has what all audits have in common, [grid] lists of
    which every combination is an audit, and each [[audit]] is one more. Settings are
    those of privaudit audit and its --set: algorithm, epsilon, adversary, canary, runs,
    rounds, ... Each audit has a folder of its own in --out; one that fails does not
    stop the others. Status 1 if a claim is refuted or disproved, else 3 if an audit
    failed.

    Parameters
    ----------
    file
        The TOML file that names the audits.
    workers
        Number of audits made at once; as many as processors by default.
    """
    check_key(sign)
    from privaudit.api.audits import sweep
    from privaudit.api.console import Console

    found = sweep(file, out=out, workers=workers, watch=Console())
    emit(found.summary(), [*found.lines(), kept(found.path, sign)], as_json=json)
    # A claim that does not hold is the status, whatever else failed.
    return status_of(found.statuses, require) or (FINE if found.complete else COULD_NOT)
