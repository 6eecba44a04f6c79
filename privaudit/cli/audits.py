"""Claims tested from below: audits, sweeps of them, and the demo."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from privaudit.cli import COULD_NOT, FINE
from privaudit.cli.options import (
    Changes,
    Flat,
    Json,
    Kept,
    Out,
    Own,
    Require,
    Sign,
    check_key,
    kept,
)
from privaudit.cli.output import status_of, tell
from privaudit.files.arguments import given_fields
from privaudit.files.folder import SIGNATURE
from privaudit.settings import AuditSettings, ProgramSettings
from privaudit.task_settings import changes_of

if TYPE_CHECKING:
    from privaudit.api.run_audits import AuditedRun


def demo(
    *,
    out: Annotated[
        pathlib.Path,
        Parameter(
            help="The demo's folder. Audits that are finished there are not repeated."
        ),
    ] = pathlib.Path("runs/demo"),
    seed: int = 0,
    workers: int | None = None,
    json: Json = False,
) -> int:
    """Audit one training on handwritten digits three times, and write one page.

    The first audit attacks as a neighbour, the second by the final model alone, the
    third a training with a planted bug. The claim is epsilon 4 at delta 1e-5 each time.
    The bug makes the third audit end as refuted; that is its purpose, and the exit
    status is 0. It is 1 if a figure disagrees with its evidence: then a line names the
    file and both values.

    Parameters
    ----------
    seed
        Seed of the audits: which runs have the canary, their batches and their noise.
    workers
        Threads; as many as processors by default. Results do not depend on it.
    """
    from privaudit.api.console import Console
    from privaudit.api.demo import demo

    tell(demo(out, seed=seed, workers=workers, watch=Console()), as_json=json)
    return FINE


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
    tell(found, kept(found.path, sign), as_json=json)
    # A claim that does not hold is the status, whatever else failed.
    return status_of(found.statuses, require) or (FINE if found.complete else COULD_NOT)


Algorithm = Annotated[
    str | None,
    Parameter(
        help="An algorithm that privaudit train knows (dp-sgd, dp-dsgd, dp-dsgt, "
        "dp-dinno, dyn-d2p, adp2sgd, deep-q, ...), or your own as module:Class; or the "
        "folder of a training of yours, which is then attacked as it was."
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
class _Own(Own):
    """A model, data and a loss of the user's own, and the way that runs are trained.

    Parameters
    ----------
    model
        module:function of yours that returns a torch module, or a name. Of a folder:
        the model of its training, where that was given in Python.
    data
        module:function of yours that returns the data sets, a folder of files, or a
        name, as privaudit train takes them. Of a folder: those of its training.
    random_records
        Of a folder: train on random records in the place of the data, so that figures
        are about the program and about nobody's records.
    workers
        Number of threads; as many as processors by default. Results do not depend on
        it.
    """

    random_records: bool = False
    workers: int | None = None


def audit(
    algorithm: Algorithm = None,
    /,
    *,
    settings: Annotated[AuditSettings, Flat] = AuditSettings(),  # frozen
    changes: Changes = (),  # type: ignore[assignment]  # cyclopts' empty list
    own: Annotated[_Own, Flat] = _Own(),  # frozen
    kept_in: Annotated[Kept, Flat] = Kept(),  # frozen
    require: Require = None,
    json: Json = False,
) -> int:
    """Attack an algorithm in many runs: a lower bound on its epsilon, and a verdict.

    Each run tosses a fair coin: heads, a canary is one record more at node 0. An
    attacker scores each run, and the scores bound epsilon from below. The setting is
    that of appendix D of Bayrooti et al. 2023 on scikit-learn's digits, or your own
    --model and --data. Of a run's folder, its own training is attacked by every
    observer that its certificate is for, and the findings join it. Status 1 if the
    claim is refuted by the attack, or disproved by the account. For programs of your
    own there is `privaudit audit-program`.
    """
    from privaudit.files.user_code import is_class, is_place

    check_key(kept_in.sign)
    if algorithm and is_place(algorithm) and not is_class(algorithm):
        raise ValueError(
            "audit is for privaudit's algorithms; for a program of yours there is "
            "privaudit audit-program, with module:function or --command"
        )
    if algorithm is None:
        raise ValueError("audit needs an algorithm, such as dp-dsgd, or a run's folder")
    from privaudit.api.console import Console

    if pathlib.Path(algorithm, "config.json").is_file():
        given = (changes_of(changes), kept_in.out)
        folder = pathlib.Path(algorithm)
        was_signed = (folder / SIGNATURE).is_file()
        attacked = _of_a_run(algorithm, settings, own, given)
        more = [kept(folder, kept_in.sign)]
        if was_signed and kept_in.sign is None:
            more.append(
                "the signature was that of the folder before, and is gone: sign it "
                f"again, with privaudit verify {folder} --sign KEY.pem"
            )
        tell(attacked, *more, as_json=json)
        return status_of([attacked.status], require)
    if own.random_records:
        raise ValueError("--random-records is for a run's folder, whose data it spares")
    from privaudit.api.audits import audit_algorithm

    found = audit_algorithm(
        algorithm,
        settings,
        training={**changes_of(changes), **own.changes()},
        out=kept_in.out,
        workers=own.workers,
        watch=Console(),
    )
    if found is None:  # rank 0 speaks for all
        return FINE
    tell(found, kept(found.path, kept_in.sign), as_json=json)
    return status_of([found.status], require)


# What an audit of a run asks for; all else is the run's.
_ATTACK = (
    *("runs", "adversary", "canary", "canaries"),
    *("estimator", "confidence", "seed", "block"),
)


def _of_a_run(
    folder: str, settings: AuditSettings, own: _Own, others: tuple[object, ...]
) -> AuditedRun:
    """Attack the training in a folder."""
    from privaudit.api.console import Console
    from privaudit.api.run_audits import audit_folder

    asked = given_fields(settings)
    unasked = [f"--{name.replace('_', '-')}" for name in asked if name not in _ATTACK]
    if any(others):
        unasked.append("--set" if others[0] else "--out")
    if unasked:
        raise ValueError(
            f"{folder} says what was trained and claimed, and keeps what is found: "
            f"leave {unasked[0]} out"
        )
    return audit_folder(
        folder,
        **own.changes(),
        **asked,
        random_records=own.random_records,
        workers=own.workers,
        watch=Console(),
    )


def audit_program(
    target: Target = None,
    /,
    *,
    command: str | None = None,
    settings: Annotated[ProgramSettings, Flat] = ProgramSettings(),  # frozen
    kept_in: Annotated[Kept, Flat] = Kept(),  # frozen
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
    from privaudit.api.console import Console
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
    tell(found, kept(found.path, kept_in.sign), as_json=json)
    return status_of([found.status], require)
