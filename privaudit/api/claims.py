"""Tests of privacy claims, a paper's or a user's own; and their sources."""

from __future__ import annotations

import pathlib

from privaudit.api.audits import check_workers
from privaudit.api.watch import SILENT, Watch
from privaudit.claims import PAPERS, all_claims, claims_of
from privaudit.claims.claim import PaperFinding, judged
from privaudit.claims.sources import OF_METHOD, OF_PAPER, bibtex


def findings_on(
    which: str | None = None,
    *,
    quick: bool = False,
    out: pathlib.Path = pathlib.Path("runs/claims"),
    workers: int | None = None,
    watch: Watch = SILENT,
) -> list[PaperFinding]:
    """The findings on the claims of a paper, of a user's file, or of all papers.

    Parameters
    ----------
    which
        A paper's number, or a .toml file; None for all papers.
    quick
        From accounts alone, without attacks.
    out
        Where attacks keep their runs; what is there is not run again.
    workers
        Threads of an attack.
    watch
        Is told what is attacked.

    Raises
    ------
    ValueError
        If there is no such paper or file, or the file has a mistake.
    privaudit.files.folder.FolderError
        If ``out`` holds something else, or cannot be written.
    """
    check_workers(workers)
    if which is not None and which.endswith(".toml"):
        from privaudit.claims.user_claims import read, tested_own

        file = pathlib.Path(which)
        own = read(file)
        if quick and any("audit" in one.tries for one in own):
            watch.note("--quick: audits are left out")
        return [
            tested_own(one.quickly() if quick else one, file, out, workers)
            for one in own
        ]
    findings = [
        judged(claim) for claim in (all_claims() if which is None else claims_of(which))
    ]
    if not quick:
        from privaudit.claims.attacks import attacked

        for place, finding in enumerate(findings):
            if finding.claim.attack is not None:
                watch.note(f"attacking {finding.claim.key} ...")
                findings[place] = attacked(finding, out, workers)
    return findings


def cite(what: str) -> str:
    """BibTeX of a claim's paper, and of the methods behind a run or a claim.

    ``what`` is a finished run's folder, a claim such as 000/uniform-sample, or a
    paper's number. Raises ``ValueError`` if it is none of them.
    """
    paper = None
    if what in PAPERS:
        paper = what
        methods = [one for claim in claims_of(what) for one in claim.methods]
    elif pathlib.Path(what).is_dir():
        from privaudit.report.load import FinishedAudit, load

        run = load(pathlib.Path(what))
        names = ["certified"]
        if isinstance(run, FinishedAudit):
            names = [run.result.upper().method, run.result.lower().method]
        methods = [one for name in names for one in OF_METHOD.get(name, ())]
    else:
        found = [claim for claim in all_claims() if claim.key == what]
        if not found:
            raise ValueError(
                f"{what} is neither a run's folder nor a claim; `privaudit claims "
                "--quick` lists the claims"
            )
        paper = found[0].paper
        methods = list(found[0].methods)
        if found[0].attack is not None:
            methods.append("rank-walk")
    entries = [OF_PAPER[paper]] if paper in OF_PAPER else []
    return "\n\n".join([*entries, bibtex(methods)])
