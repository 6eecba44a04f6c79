"""`privaudit show`, `verify`, `report` and `site`: the folders of runs."""

from __future__ import annotations

import pathlib

from privaudit.cli import COULD_NOT, FINE, REFUTED
from privaudit.cli.options import Json, Require, Sign, Signer, Signers, check_key
from privaudit.cli.output import emit, status_of, tell


def show(
    folders: list[pathlib.Path],
    /,
    *,
    require: Require = None,
    signer: Signer = None,
    json: Json = False,
) -> int:
    """Print the results in folders of finished runs; a sweep's runs as one table.

    Figures are recomputed from ledger and scores. Where one disagrees, a line names the
    file and both values, and no figure is shown. Where several audits attack one claim,
    a line says what they show together. Status 1 if a claim is refuted or disproved or
    a figure disagrees, else 3 if a run of a sweep has no verdict.

    Parameters
    ----------
    folders
        One or more, as given to --out.
    """
    from privaudit.api.evidence import show

    found = show(folders, signer=signer)
    tell(found, as_json=json)
    if found.differs:
        return REFUTED
    return status_of(found.verdicts, require) or (FINE if found.complete else COULD_NOT)


def verify(
    folder: pathlib.Path,
    /,
    *,
    sign: Sign = None,
    signer: Signer = None,
    kernel: bool = False,
    json: Json = False,
) -> int:
    """Recompute the figures of a finished run or sweep from its evidence, and compare.

    Checks the digests of all files, the account from the ledger, the bound from the
    scores, the verdict, and the ledger against the settings. For each difference a line
    names the file and both values, and the status is 1. A signature is checked only
    with --signer: without it nothing says who wrote the folder.

    Parameters
    ----------
    folder
        As given to --out.
    kernel
        Require that the certificate is proved by ball arithmetic (the extra kernel):
        the status is 3 if it is not.
    """
    from privaudit.api.evidence import verify
    from privaudit.files.folder import SIGNATURE
    from privaudit.files.manifest import regular
    from privaudit.report.verify import sign as signed

    check_key(sign)
    if folder.is_file():
        raise ValueError(
            f"{folder} is a file, and this checks a run's folder; a certificate alone "
            f"is checked by python -m privaudit.kernel {folder}"
        )
    found = verify(folder, signer=signer)
    more = []
    if sign is not None and not found.differences:
        before = regular(folder / SIGNATURE)
        place = signed(found, sign)
        more = [f"signed: {place}"]
        if before is not None and before != regular(place):
            whose = f"the holder of the key of {signer}" if signer else "another key"
            more.append(
                f"replaced: a signature by {whose}; --signer asks for this one now"
            )
    tell(found, *more, as_json=json)
    if found.differences:
        return REFUTED
    return COULD_NOT if kernel and not found.is_proved else FINE


def join(
    folders: list[pathlib.Path],
    /,
    *,
    overlap: int = 1,
    observer: str | None = None,
    signer: Signers = (),  # type: ignore[assignment]  # cyclopts' empty list
    out: pathlib.Path | None = None,
    json: Json = False,
) -> int:
    """Make one statement from the folders of all parties of a training.

    Checks each folder as verify does, and recomputes each account from its ledger: no
    party's figure is believed. Status 1 if figures disagree with their
    evidence, or the claim is disproved.

    Parameters
    ----------
    folders
        OUT/party-N of all parties, in any order.
    overlap
        How many parties may hold the same record. Its epsilon is that of the releases
        of so many nodes together, the costliest.
    observer
        For whom the statement holds, such as any-node, for dp-butterfly, dp-chain and
        dp-mf-butterfly. Default: an observer of all releases.
    out
        A file for the statement: a page if its name ends in .html; else JSON, with the
        ledger of all nodes.
    """
    from privaudit.report.joining import join

    found = join(folders, overlap=overlap, signers=signer, observer=observer)
    if out is not None:
        found.save(out)
    tell(found, as_json=json)
    return FINE if found.verdict is None else status_of([found.verdict.status], None)


def report(
    folder: pathlib.Path, /, *, signer: Signer = None, json: Json = False
) -> int:
    """Write report.html into the folder of a finished audit or training.

    A folder whose figures disagree with its evidence gets no page: a line names the
    file and both values, and the status is 1.

    Parameters
    ----------
    folder
        As given to --out.
    """
    from privaudit.api.evidence import report

    page = report(folder, signer=signer)
    emit({"page": str(page)}, [str(page)], as_json=json)
    return FINE


def site(
    folders: list[pathlib.Path],
    /,
    *,
    out: pathlib.Path,
    signer: Signer = None,
    json: Json = False,
) -> int:
    """Write a static site: an overview of many runs, and a page for each.

    The overview has claimed, certified and audited figures in one picture and in a
    table that can be sorted. Every run is checked against its evidence; one that
    disagrees is listed without figures, with status 1.

    Parameters
    ----------
    folders
        Of finished runs, sweeps, the demo or studies, or folders of these; and files
        with what `privaudit claims --json` printed.
    out
        The site's folder; a site that is there is written again.
    """
    from privaudit.api.evidence import site

    page, agrees = site(folders, out, signer=signer)
    emit({"page": str(page), "agrees": agrees}, [str(page)], as_json=json)
    return FINE if agrees else REFUTED
