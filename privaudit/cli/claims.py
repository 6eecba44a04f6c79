"""`privaudit claims` and `cite`: tests of privacy claims, and their sources."""

from __future__ import annotations

import pathlib
from typing import Annotated

from cyclopts import Parameter

from privaudit.cli.options import Json, Require
from privaudit.cli.output import emit
from privaudit.cli.verdicts import status_of

Which = Annotated[
    str | None,
    Parameter(
        help="A paper, 000 to 004; network, accounts of decentralised "
        "training that papers share; or a .toml file of your own claims."
    ),
]


def claims(
    which: Which = None,
    /,
    *,
    quick: bool = False,
    out: pathlib.Path = pathlib.Path("runs/claims"),
    workers: int | None = None,
    require: Require = None,
    json: Json = False,
) -> int:
    """Test claims of epsilon from above and below; all five papers' by default.

    Status 1 if one is refuted by an attack, or disproved by a calculation.

    Parameters
    ----------
    quick
        From accounts alone: seconds, no attack, no torch.
    out
        Where the attacks keep their runs; what is there is not run again.
    workers
        Number of threads of an attack.
    """
    from privaudit.api.claims import findings_on
    from privaudit.api.console import Console

    findings = findings_on(
        which, quick=quick, out=out, workers=workers, watch=Console()
    )
    lines = [line for finding in findings for line in finding.lines()]
    emit({"claims": [one.summary() for one in findings]}, lines, as_json=json)
    return status_of((one.verdict for one in findings), require)


def cite(what: str, /, *, json: Json = False) -> None:
    """Print BibTeX of a claim's paper, and of the methods behind a run or a claim.

    Parameters
    ----------
    what
        A finished run's folder; a claim, such as 000/uniform-sample; or a paper's
        number, for all of its claims.
    """
    from privaudit.api.claims import cite

    text = cite(what)
    emit({"of": what, "bibtex": text}, text.splitlines(), as_json=json)
