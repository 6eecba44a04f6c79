"""`privaudit claims` and `cite`: promises under test, and where methods come from."""

from __future__ import annotations

import pathlib
from typing import Annotated

from cyclopts import Parameter

from privaudit.cli.accounts import Json
from privaudit.cli.output import emit, note
from privaudit.cli.verdicts import Require, status_of

Which = Annotated[
    str | None,
    Parameter(help="A paper, 000 to 004, or a .toml file of your own claims."),
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
        Threads of an attack.
    """
    from privaudit.claims import all_claims, claims_of
    from privaudit.claims.attacks import attacked
    from privaudit.claims.claim import judged

    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be >= 1, got {workers}")
    if which is not None and which.endswith(".toml"):
        from privaudit.claims.user_claims import read, tested_own

        file = pathlib.Path(which)
        own = read(file)
        if quick and any("audit" in one.tries for one in own):
            note("--quick: audits are left out")
        findings = [
            tested_own(one.quickly() if quick else one, file, out, workers)
            for one in own
        ]
    else:
        chosen = all_claims() if which is None else claims_of(which)
        findings = [judged(claim) for claim in chosen]
        if not quick:
            for place, finding in enumerate(findings):
                if finding.claim.attack is not None:
                    note(f"attacking {finding.claim.key} ...")
                    findings[place] = attacked(finding, out, workers)
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
    from privaudit.claims import PAPERS, all_claims, claims_of
    from privaudit.claims.sources import OF_METHOD, OF_PAPER, bibtex

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
    text = "\n\n".join([*entries, bibtex(methods)])
    emit({"of": what, "bibtex": text}, [text], as_json=json)
