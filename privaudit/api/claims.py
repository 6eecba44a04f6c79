"""Tests of privacy claims, a paper's or a user's own; and their sources."""

from __future__ import annotations

import pathlib

from privaudit.api.audits import check_workers
from privaudit.api.place import shown_again
from privaudit.api.watch import SILENT, Watch
from privaudit.claims import FORMS, PAPERS, all_claims, claims_of
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
    """The findings on the claims of a paper, of a user's .toml file, or of all papers.

    With ``quick``, from accounts alone, without attacks, whose runs are kept in ``out``
    and not made again. Raises ``ValueError`` for a number or a file that there is not,
    or that has a mistake, and `FolderError` if ``out`` holds something else.
    """
    check_workers(workers)
    if which is not None and which.endswith(".toml"):
        from privaudit.claims.user_claims import read, tested_own

        file = pathlib.Path(which)
        own = read(file)
        if quick and any("audit" in one.tries for one in own):
            watch.note("--quick: audits are left out")
        with shown_again(out / one.folder / "result.json" for one in own):
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
                name = f"{finding.claim.paper}-{finding.claim.name}"
                with shown_again(out.glob(f"{name}*/result.json")):
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
        forms = (claim for form in FORMS for claim in claims_of(form))
        found = [claim for claim in (*all_claims(), *forms) if claim.key == what]
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
