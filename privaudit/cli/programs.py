"""`privaudit audit` of a program that is not ours."""

from __future__ import annotations

import math
import pathlib
import shlex

from privaudit.cli.output import emit, progress_bar
from privaudit.cli.place import Place
from privaudit.cli.signing import kept
from privaudit.cli.trainings import claim_of
from privaudit.cli.verdicts import status_of
from privaudit.results import Relation, round_down


def audit_program(
    program: str,
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    runs: int,
    batch: int,
    estimator: str,
    confidence: float,
    out: pathlib.Path | None,
    seed: int,
    workers: int | None,
    time_limit: float | None,
    retries: int,
    sign: pathlib.Path | None,
    json: bool,
) -> int:
    """Audit ``module:function`` or a command; the exit status."""
    from privaudit.auditing.programs.audit import ProgramAudit, run
    from privaudit.files.folder import FolderError, RunFolder
    from privaudit.files.user_code import ForeignError

    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"--time-limit must be > 0 seconds, got {time_limit:g}")
    if retries < 0:
        raise ValueError(f"--retries must be >= 0, got {retries}")
    plan = ProgramAudit(
        program=program,
        claim=claim_of(epsilon, delta, relation),
        estimator=estimator,
        confidence=confidence,
        runs=runs,
        batch=batch,
        seed=seed,
    )
    if not plan.is_function:
        plan = ProgramAudit(
            **{f: getattr(plan, f) for f in plan.__struct_fields__ if f != "batch"},
            batch=1,
        )
    name = plan.program if plan.is_function else shlex.split(plan.program)[0]
    short = "".join(c if c.isalnum() else "-" for c in name).strip("-")
    place = Place(out, f"audit-{short}")
    opened = place.opened(RunFolder, lambda there: there.awaits(plan))
    with opened as folder, progress_bar("runs") as progress:
        try:
            result = run(
                plan,
                folder,
                time_limit=time_limit or math.inf,
                retries=retries,
                workers=workers,
                progress=progress,
            )
        except ForeignError as error:
            raise FolderError(
                f"{error}; what was done is kept in {place.path}, and the same command "
                "goes on from there"
            ) from None
    lower = result.lower()
    emit(
        {
            "program": program,
            "claimed": epsilon,
            "certified": None,
            "epsilon_lower": lower.epsilon,
            "confidence": confidence,
            "delta": delta,
            "relation": relation,
            "runs": {
                "member": result.member_runs,
                "non_member": result.non_member_runs,
            },
            "method": lower.method,
            "valid_for": lower.valid_for,
            "most_shown": result.most_shown,
            "seconds": result.seconds,
            "verdict": result.status,
            "out": str(place.path),
        },
        [
            str(result.verdict.claim),
            str(lower),
            "the most that so many runs could have shown: "
            f"{round_down(result.most_shown)}",
            str(result.verdict),
            kept(place.path, sign),
        ],
        as_json=json,
    )
    return status_of([result.status])
