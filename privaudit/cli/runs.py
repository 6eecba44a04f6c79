"""`privaudit audit`, `show` and `report`: what works in a run's folder."""

from __future__ import annotations

import pathlib
from typing import Annotated

import msgspec
from cyclopts import Parameter

from privaudit.cli import COULD_NOT, FINE, REFUTED
from privaudit.cli.accounts import Account, Json, NoiseMultiplier, Seed
from privaudit.cli.output import emit, progress_bar
from privaudit.cli.place import Out, Place, short_name
from privaudit.cli.signing import Sign, Signer, check_key, kept
from privaudit.cli.trainings import claim_of, noise_of, relation_of, training_named
from privaudit.cli.verdicts import Require, status_of
from privaudit.results import Finding, Relation

Algorithm = Annotated[
    str,
    Parameter(
        help="An algorithm that privaudit train knows (dp-sgd, dp-dsgd, dp-dsgt, "
        "dp-dinno, dyn-d2p, adp2sgd, deep-q, ...), your own as module:Class, or a "
        "whole program of yours as module:function."
    ),
]
Settings = Annotated[
    list[str],
    Parameter(
        name="--set",
        negative=(),
        help="A setting of the training, as key=value; may be repeated.",
    ),
]


def audit(
    algorithm: Algorithm | None = None,
    /,
    *,
    command: str | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-2,
    noise_multiplier: NoiseMultiplier | None = None,
    account: Account = "certified",
    runs: int = 2000,
    adversary: str | None = None,
    canary: str = "blank",
    estimator: str = "best",
    confidence: float = 0.95,
    settings: Settings = (),  # type: ignore[assignment]  # cyclopts' empty list
    out: Out = None,
    seed: Seed = 0,
    block: int = 50,
    device: str = "cpu",
    compiled: bool = False,
    workers: int | None = None,
    batch: int = 50,
    relation: Relation | None = None,
    time_limit: float | None = None,
    retries: int = 1,
    require: Require = None,
    sign: Sign = None,
    json: Json = False,
) -> int:
    """Test a claim of epsilon from below: train with and without a canary, and tell.

    Each run tosses a fair coin for its world: a canary is one record more of node 0, or
    not. The setting is that of appendix D of Bayrooti et al. 2023 on
    scikit-learn's digits. Status 1 if the claim is refuted by the attack, or disproved
    by the account.

    A program that is not ours is audited as module:function, called with a bool array
    (True: plant the canary) and a seed, or by --command; it gives one score a run.

    Parameters
    ----------
    command
        A command that trains once, with {member} and {seed} where they go; the last
        line that it prints is the score.
    epsilon
        The claim, > 0; the noise is the least that certifies it.
    delta
        The claim, in (0, 1).
    runs
        How many, both worlds together.
    adversary
        What the attacker sees: final-loss (the default), all-losses, all-models,
        neighbour (one neighbour's inbox; the default where a part of the model never
        leaves its node) or noisy-gradients.
    canary
        What is planted: blank, mislabelled, out-of-distribution, clipbkd, gradient (a
        crafted one, where others are smallest) or random-gradient.
    estimator
        How scores become a lower bound. For any mechanism: best, rank-walk,
        two-binomial, clopper-pearson, betting. Within a family: family (that of the
        run's own releases), top-half and betting-gaussian (Gaussian DP).
    confidence
        Of the lower bound, in (0, 1).
    block
        Runs trained together: it changes roundings alone. Many are faster for
        a small model.
    device
        cpu, or cuda: the same noise, and other roundings.
    compiled
        Take gradients under torch.compile: a minute to begin with.
    workers
        Threads; as many as processors by default. Results do not depend on it.
    batch
        Runs that a function of yours is called for at once.
    relation
        What the two worlds differ in, where the program is yours.
    time_limit
        Seconds that one run of your command may take.
    retries
        How often a run of your command that fails is tried again.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be >= 1, got {workers}")
    if (algorithm is None) == (command is None):
        raise ValueError(
            "audit takes an algorithm, module:Class, module:function, or --command"
        )
    check_key(sign)
    program = command if algorithm is None else program_of(algorithm)
    _check_options(
        program is not None,
        ours={
            "--adversary": adversary is not None,
            "--canary": canary != "blank",
            "--noise-multiplier": noise_multiplier is not None,
            "--account": account != "certified",
            "--set": bool(settings),
            "--block": block != 50,
            "--device": device != "cpu",
            "--compiled": compiled,
            "--require": require is not None,
        },
        theirs={
            "--batch": batch != 50,
            "--time-limit": time_limit is not None,
            "--retries": retries != 1,
        },
    )
    if program is not None:
        from privaudit.cli.programs import audit_program
        from privaudit.files.user_code import is_place

        if command is None and not is_place(program):
            raise ValueError(
                f"a function is given as module:function, got {program!r}; a command "
                "goes behind --command"
            )
        if command is not None and is_place(command):
            raise ValueError(
                f"--command takes a command with {{member}} and {{seed}}, got the "
                f"function {command!r}; leave --command out"
            )

        return audit_program(
            program,
            epsilon=epsilon,
            delta=delta,
            relation=relation or "add-or-remove-one",
            runs=runs,
            batch=batch,
            estimator=estimator,
            confidence=confidence,
            out=out,
            seed=seed,
            workers=workers,
            time_limit=time_limit,
            retries=retries,
            sign=sign,
            json=json,
        )
    assert algorithm is not None
    from privaudit.auditing.experiments.experiment import Audit, run
    from privaudit.auditing.experiments.over_ranks import run_on_ranks
    from privaudit.auditing.experiments.presets import AUDITED
    from privaudit.files.folder import RunFolder
    from trainers.network.ranks import launched
    from trainers.runs.problem import Problem

    training = training_named(algorithm, list(settings), **AUDITED)
    if training.unit != "record":
        raise ValueError(
            f"audits test what one record gives away, not a {training.unit}: set "
            "unit=record"
        )
    claim = claim_of(epsilon, delta, relation_of(training, relation))
    if adversary is None:
        at_home = training.family.stays_home(training.setting())
        adversary = "neighbour" if at_home else "final-loss"
    plan = Audit(
        claim=claim,
        training=training,
        noise_multiplier=0.0,
        adversary=adversary,
        canary=canary,
        estimator=estimator,
        account=account,
        confidence=confidence,
        runs=runs,
        block=block,
        seed=seed,
        device=device,
        compiled=compiled,
    )
    # All else is checked by now: calibration takes seconds.
    problem = Problem.of(training)
    multiplier = noise_of(problem, noise_multiplier, claim, account)
    plan = msgspec.structs.replace(plan, noise_multiplier=multiplier)
    place = Place(out, f"audit-{short_name(algorithm)}")
    opened = place.opened(RunFolder, lambda there: there.awaits(plan))
    with progress_bar("runs") as progress:
        if launched():
            found = run_on_ranks(plan, opened, progress=progress)
            if found is None:  # rank 0 speaks for all
                return FINE
            result = found
        else:
            with opened as folder:
                result = run(plan, folder, workers=workers, progress=progress)
    emit(
        {**result.summary(), "out": str(place.path)},
        [
            *verdict_lines(result.verdict),
            *training.family.remarks(training.setting()),
            kept(place.path, sign),
        ],
        as_json=json,
    )
    return status_of([result.status], require)


def program_of(name: str) -> str | None:
    """``module:function``, a whole program of a user's; None for an algorithm."""
    if ":" not in name:
        return None
    from privaudit.files.user_code import is_class

    return None if is_class(name) else name


def _check_options(
    program: bool, *, ours: dict[str, bool], theirs: dict[str, bool]
) -> None:
    """``ValueError`` for an option that was set and would be passed over in silence."""
    for name, is_set in (ours if program else theirs).items():
        if is_set:
            raise ValueError(
                f"{name} is for audits of privaudit's algorithms; the program is yours "
                "and says itself how it trains, and what its score is made of"
                if program
                else f"{name} is for audits of a program of yours; leave it out"
            )


def verdict_lines(verdict: Finding) -> list[str]:
    """A verdict and its figures, a line each."""
    figures = (verdict.claim, verdict.upper, verdict.lower)
    return [*(str(figure) for figure in figures if figure is not None), str(verdict)]


def show(
    folders: list[pathlib.Path],
    /,
    *,
    require: Require = None,
    signer: Signer = None,
    json: Json = False,
) -> int:
    """Say what the folders of finished runs hold; all runs of a sweep in one table.

    Figures are made again from ledger and scores, and shown if they agree; else there
    is one line that names the file and both values. Status 1 if a claim is refuted or
    disproved or a figure disagrees, else 3 if a run of a sweep has no verdict.

    Parameters
    ----------
    folders
        One or more, as given to --out.
    """
    from privaudit.report.sweep import FoundSweep
    from privaudit.report.verify import verify

    checks = [verify(path, signer=signer) for path in folders]
    found = [each.found for each in checks if each.found and not each.differences]
    lines: list[str] = []
    for each in checks:
        if each.found and not each.differences:
            lines += each.found.lines()
        lines.append(str(each))
    emit(
        {
            "runs": [one.summary() for one in found],
            "evidence": [each.summary() for each in checks],
        },
        lines,
        as_json=json,
    )
    if len(found) < len(checks):
        return REFUTED
    verdicts: list[str | None] = []
    for one in found:
        verdicts += one.statuses if isinstance(one, FoundSweep) else [one.status]
    incomplete = any(isinstance(one, FoundSweep) and not one.complete for one in found)
    return status_of(verdicts, require) or (COULD_NOT if incomplete else FINE)


def report(
    folder: pathlib.Path, /, *, signer: Signer = None, json: Json = False
) -> int:
    """Write report.html into the folder of a finished audit or training.

    A folder whose figures disagree with its evidence gets none: there is one line that
    names the file and both values, and status 1.

    Parameters
    ----------
    folder
        As given to --out.
    """
    from privaudit.report.page import write
    from privaudit.report.verify import EvidenceError

    try:
        page = write(folder, signer=signer)
    except EvidenceError as error:
        differences = list(map(str, error.differences))
        emit({"page": None, "differences": differences}, differences, as_json=json)
        return REFUTED
    emit({"page": str(page)}, [str(page)], as_json=json)
    return FINE
