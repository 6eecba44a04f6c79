"""`privaudit audit` and `privaudit audit-program`: claims tested from below."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from cyclopts import Parameter

from privaudit.cli import FINE
from privaudit.cli.options import Changes, Flat, Json, Out, Require
from privaudit.cli.output import emit
from privaudit.cli.signing import Sign, check_key, kept
from privaudit.cli.verdicts import status_of
from privaudit.settings import AuditSettings, ProgramSettings
from privaudit.task_settings import changes_of

Algorithm = Annotated[
    str | None,
    Parameter(
        help="An algorithm that privaudit train knows (dp-sgd, dp-dsgd, dp-dsgt, "
        "dp-dinno, dyn-d2p, adp2sgd, deep-q, ...), or your own as module:Class."
    ),
]
Target = Annotated[
    str | None,
    Parameter(
        help="module:function of yours: called with a bool array (True: plant the "
        "canary in that run) and one seed for all, it returns one score a run. Runs "
        "share no random numbers: default_rng([seed, i]) for the i-th, or --batch 1."
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Moved:
    """Options that `privaudit audit` had for programs."""

    command: str | None = None
    batch: str | None = None
    time_limit: str | None = None
    retries: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kept:
    """Options for where a run is kept, and who vouches for it."""

    out: Out = None
    sign: Sign = None


def audit(
    algorithm: Algorithm = None,
    /,
    *,
    settings: Annotated[AuditSettings, Flat] = AuditSettings(),  # frozen
    changes: Changes = (),  # type: ignore[assignment]  # cyclopts' empty list
    kept_in: Annotated[_Kept, Flat] = _Kept(),  # frozen
    workers: int | None = None,
    require: Require = None,
    moved: Annotated[_Moved, Parameter(name="*", show=False)] = _Moved(),  # frozen
    json: Json = False,
) -> int:
    """Attack an algorithm in many runs: a lower bound on its epsilon, and a verdict.

    Each run tosses a fair coin: heads, a canary is one record more at node 0. An
    attacker scores each run, and the scores bound epsilon from below. The setting is
    that of appendix D of Bayrooti et al. 2023 on scikit-learn's digits. Status 1 if the
    claim is refuted by the attack, or disproved by the account. For programs of your
    own there is `privaudit audit-program`.

    Parameters
    ----------
    workers
        Number of threads; as many as processors by default. Results do not depend on
        it.
    """
    from privaudit.files.user_code import is_class, is_place

    check_key(kept_in.sign)
    foreign = algorithm and is_place(algorithm) and not is_class(algorithm)
    if moved != _Moved() or foreign:
        raise ValueError(
            "audit is for privaudit's algorithms; for a program of yours there is "
            "privaudit audit-program, with module:function or --command"
        )
    if algorithm is None:
        raise ValueError("audit needs an algorithm, such as dp-dsgd")
    from privaudit.api.audits import audit_algorithm
    from privaudit.cli.console import Console

    found = audit_algorithm(
        algorithm,
        settings,
        training=changes_of(changes),
        out=kept_in.out,
        workers=workers,
        watch=Console(),
    )
    if found is None:  # rank 0 speaks for all
        return FINE
    lines = [*found.lines(), kept(found.path, kept_in.sign)]
    emit(found.summary(), lines, as_json=json)
    return status_of([found.status], require)


def audit_program(
    target: Target = None,
    /,
    *,
    command: str | None = None,
    settings: Annotated[ProgramSettings, Flat] = ProgramSettings(),  # frozen
    kept_in: Annotated[_Kept, Flat] = _Kept(),  # frozen
    workers: int | None = None,
    require: Require = None,
    json: Json = False,
) -> int:
    """Attack a program of yours in many runs: a lower bound on its epsilon.

    Your program is told for each run whether to plant the canary, trains, and returns
    one score; the scores bound epsilon from below. With --ledger, or with
    --noise-multiplier, --sampling-rate and --steps, there is an upper bound as well.
    `privaudit report` makes a page. Status 1 if the claim is refuted or disproved.

    Parameters
    ----------
    command
        A command that trains once, with {member} and {seed} where they go; the last
        line that it prints is the score. With --serve, one that stays alive.
    workers
        How many commands run at once: as many as processors by default. Of a function:
        the number of processes that call it, one by default.
    """
    check_key(kept_in.sign)
    from privaudit.api.audits import audit_program
    from privaudit.cli.console import Console
    from privaudit.files.user_code import is_place

    program = command if target is None else target
    if program is None or None not in (target, command):
        raise ValueError("audit-program takes a module:function, or --command")
    if target is not None and not is_place(target):
        raise ValueError(
            f"a function is given as module:function, got {target!r}; a command goes "
            "behind --command"
        )
    if command is not None and is_place(command):
        raise ValueError(
            f"--command takes a command with {{member}} and {{seed}}, got the function "
            f"{command!r}; leave --command out"
        )
    if require and settings.ledger is None and settings.noise_multiplier is None:
        raise ValueError(
            "--require consistent needs an account, without which no claim is met: "
            "give --ledger, or --noise-multiplier, --sampling-rate and --steps"
        )
    found = audit_program(
        program, settings, out=kept_in.out, workers=workers, watch=Console()
    )
    lines = [*found.lines(), kept(found.path, kept_in.sign)]
    emit(found.summary(), lines, as_json=json)
    return status_of([found.status], require)
