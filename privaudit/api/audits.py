"""Audits of algorithms, of programs, and many at once."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import shlex
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from numpy.typing import ArrayLike

from privaudit.accounting import account_nodes
from privaudit.api.console import watching
from privaudit.api.place import Place, short_name
from privaudit.api.planting import estimator_named, named
from privaudit.api.trainings import own_data
from privaudit.api.watch import Watch
from privaudit.auditing.conclude import AuditedScores
from privaudit.files.arguments import public
from privaudit.files.extras import need
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.json import Summary
from privaudit.files.user_code import ForeignError, is_place
from privaudit.ledger import Ledger
from privaudit.release import PoissonSampling, Release
from privaudit.results import (
    DELTA,
    Finding,
    Judged,
    LowerBound,
    Relation,
    Status,
    UpperBound,
    worst_bound,
)
from privaudit.settings import AuditSettings, ProgramSettings, claim_of
from privaudit.task_settings import OWN, is_own

if TYPE_CHECKING:
    from privaudit.auditing.experiments.outcome import AuditResult
    from privaudit.auditing.programs.audit import ProgramResult
    from privaudit.report.sweep import FoundSweep

Path = str | os.PathLike[str]
U = TypeVar("U")  # an upper bound, or None
_DEFAULT = AuditSettings()
_OF_A_PROGRAM = ProgramSettings()


@dataclasses.dataclass(frozen=True, slots=True)
class _Found(Judged[Status, U]):
    """Verdict and figures that a run's folder holds."""

    path: pathlib.Path
    result: Any

    @property
    def verdict(self) -> Finding:
        """Claim, account and audit together."""
        return self.result.verdict

    @property
    def lower(self) -> LowerBound:
        """The lower bound on epsilon that the attack showed."""
        return self.result.lower()

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        return self.result.lines()

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclasses.dataclass(frozen=True, slots=True)
class Audited(_Found[UpperBound]):
    """The result of `audit_algorithm`: the verdict, its figures and the run's folder.

    Parameters
    ----------
    path
        The run's folder, which `privaudit.verify` reads.
    result
        All figures, as ``result.json`` holds them.
    remarks
        Caveats of the account, in sentences.
    """

    result: AuditResult
    remarks: tuple[str, ...] = ()

    summary = Summary("*result out=path")

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        figures = (self.verdict.claim, self.verdict.upper, self.verdict.lower)
        known = [str(figure) for figure in figures if figure is not None]
        known += self.result.limits()
        rates, stopped = self.result.rates, self.result.stopped
        said = [str(one) for one in (stopped, rates) if one is not None]
        return [*known, *said, str(self.verdict), *self.remarks]


@dataclasses.dataclass(frozen=True, slots=True)
class AuditedProgram(_Found[UpperBound | None]):
    """The result of `audit_program`: the verdict, its figures and the run's folder."""

    result: ProgramResult
    program: str

    summary = Summary("program *result out=path")


@public
def audit_algorithm(
    algorithm: str,
    settings: AuditSettings = _DEFAULT,
    *,
    training: Mapping[str, Any] | None = None,
    model: Any = None,
    data: Any = None,
    loss: Callable[..., Any] | None = None,
    out: Path | None = None,
    workers: int | None = None,
    watch: Watch | str | None = None,
) -> Audited | None:
    """Attack an algorithm in many runs; return a lower bound on epsilon and a verdict.

    In each run a fair coin decides whether node 0 has a canary as one more record. By
    default the training is that of appendix D of Bayrooti et al. 2023, on
    scikit-learn's digits. Under torchrun the ranks share the runs.

    Parameters
    ----------
    algorithm
        A name that ``privaudit train`` knows, or your own as ``module:Class``.
    settings
        The claim, the attack, and the device; see `AuditSettings`. Its ``adversary``
        may be a function that is given the final model of node 0 and returns a score,
        higher for members; its ``canary`` a record of yours, an input and its target;
        or either ``module:function``, of a record without arguments; its ``estimator``
        one of `privaudit.auditing.bounds`, such as ``RankWalk()``.
    training
        Settings and options of the training, by name, that replace an audit's defaults;
        see `privaudit.task_settings.TaskSettings`. Model, data and loss may be objects.
    model, data, loss
        Your own model, shares and loss, as `privaudit.train` takes them, in the place
        of an audit's; or ``module:function`` in ``training``.
    out
        The run's folder. If the run in it was stopped, the same call resumes it.
        Default: a new folder in ``runs``.
    workers
        Number of threads; by default one per processor. Results do not depend on it.
    watch
        As in `privaudit.train`.

    Returns
    -------
    An `Audited` with ``status``, ``lower``, ``upper``, ``verdict`` and ``path``. Under
    torchrun None, except at rank 0.

    Raises
    ------
    ValueError
        If a setting is out of its range or does not go with the others, or training
        diverges.
    privaudit.files.folder.FolderError
        If ``out`` is another run's, damaged, or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import privaudit as pa
    >>> with tempfile.TemporaryDirectory() as out:
    ...     found = pa.audit_algorithm(
    ...         "dsgd",
    ...         pa.AuditSettings(adversary="noisy-gradients", runs=200),
    ...         training={"rounds": 5},
    ...         out=out,
    ...     )
    >>> found.status  # there is no noise
    'refuted'
    """
    need("an audit of an algorithm", "train")
    from privaudit.auditing.experiments import plan as plans
    from privaudit.auditing.experiments.experiment import run, run_on_ranks
    from trainers.network.ranks import launched
    from trainers.runs.budget import noise_of
    from trainers.runs.material import Material

    check_workers(workers)
    watch = watching(watch)
    if settings.one_run and launched():
        raise ValueError(
            "one run with many canaries is made by one process: start it without "
            "torchrun"
        )
    values, material = dict(training or {}), None
    model, data, loss = (
        _object(values, name, own)
        for name, own in (("model", model), ("data", data), ("loss", loss))
    )
    if (model is None) != (data is None):
        raise ValueError("a model and data of your own come together: give both")
    if model is not None:
        material = Material.own(model, data, loss=loss, nodes=values.get("nodes"))
        values |= {
            "data": OWN,
            "model": OWN,
            "partition": "even" if "nodes" in values else "given",
            "nodes": len(material.shares),
            "train": sum(map(len, material.shares)),
        }
    elif is_own(str(values.get("data", ""))):
        values = own_data(values)
    adversary, canary, given = named(settings.adversary, settings.canary, material)
    estimator = estimator_named(settings.estimator)
    settings = dataclasses.replace(
        settings, adversary=adversary, canary=canary, estimator=estimator
    )
    plan = plans.planned(algorithm, settings, values, where="--set")
    # All else is checked by now: calibration takes seconds.
    problem = plan.problem(material)
    noise = noise_of(problem, plan.claim, settings, note=watch.note)
    block = settings.block or plans.chosen_block(problem, plan.runs)
    plan = dataclasses.replace(plan, noise_multiplier=noise, block=block)
    if settings.noise_multiplier is not None and settings.epsilon is None:
        plan = dataclasses.replace(plan, claim=plans.certified_claim(plan, problem))
    place = Place(out, f"audit-{short_name(algorithm)}")
    if given and RunFolder(place.path).has("config.json"):
        raise FolderError(
            f"{place.path} holds an audit, and nothing says that its record or score "
            "was the one that is given: choose another folder"
        )
    opened = place.opened(RunFolder, plan, watch)
    with watch.runs() as progress:
        if launched():
            if given:
                raise ValueError(
                    "records and scores of your own are for one process: start it "
                    "without torchrun"
                )
            result = run_on_ranks(plan, opened, progress=progress)
        else:
            with opened as folder:
                result = run(
                    *(plan, folder),
                    workers=workers,
                    progress=progress,
                    problem=problem,
                    given=given,
                )
    if result is None:  # rank 0 speaks for all
        return None
    family, setting = plan.training.family, plan.training.setting()
    return Audited(place.path, result, tuple(family.remarks(setting)))


def _object(values: dict[str, Any], name: str, given: Any) -> Any:
    """``given``, or what ``values`` have by that name where it is no name itself."""
    if isinstance(values.get(name, ""), str):
        return given
    if given is not None:
        raise ValueError(f"{name} is given twice: leave it out of training")
    return values.pop(name)


@public
def audit(
    scores_of: Callable[[Any, int], ArrayLike],
    *,
    epsilon: float,
    delta: float = DELTA,
    relation: Relation = "add-or-remove-one",
    runs: int = 1000,
    seed: int = 0,
    ledger: Ledger | None = None,
    confidence: float = 0.95,
    method: str = "best",
    batch: int = 50,
    workers: int = 1,
    watch: Watch | str | None = None,
) -> AuditedScores:
    """Test a claim about your own training, from the scores of your own attack on it.

    In each run a fair coin decides whether the record under attack is among the data.
    Your function trains and scores the runs; the scores become a lower bound on
    epsilon, which refutes the claim if it is larger.

    Parameters
    ----------
    scores_of
        Called with a bool array, True for the runs in which the record is to be among
        the data, and one seed in [0, 2^31) for all of them; returns one score a run,
        higher or lower for members. Runs must share no random numbers: seed the i-th by
        ``numpy.random.default_rng([seed, i])``, or set ``batch`` to 1.
    epsilon, delta
        The claim: epsilon > 0, delta in (0, 1).
    relation
        The claim's neighbour relation: how runs with and without the record differ.
    runs
        Number of runs, with and without the record together.
    seed
        Seed of the coins, and of the seeds that ``scores_of`` gets.
    ledger
        What one run releases, if it is known. The result then has its account as an
        upper bound, and another lower bound that is valid for its family of releases.
    confidence
        Probability that the lower bound is not above the true epsilon, in (0, 1).
    method
        As in `privaudit.lower_bound`; with a ledger also "family".
    batch
        Number of runs per call of ``scores_of``.
    workers
        Number of processes that call ``scores_of``. With more than one it must be a
        function at the top level of a module.
    watch
        As in `privaudit.train`.

    Returns
    -------
    An `AuditedScores` with ``status``, ``lower``, ``upper`` and ``most_shown``, the
    most that so many runs could have shown. "unproven" does not mean that the claim
    holds.

    Raises
    ------
    ValueError
        If a value is out of its range, if ``scores_of`` fails or does not return one
        finite number per run, or if its runs are seen to share random numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import privaudit as pa
    >>> def scores_of(member, seed):  # one Gaussian release of sensitivity 1
    ...     return member + np.random.default_rng(seed).normal(size=len(member))
    >>> pa.audit(scores_of, epsilon=0.1, delta=1e-5, runs=2000).status
    'refuted'
    """
    from privaudit.auditing.programs import audit as programs

    check_workers(workers)
    watch = watching(watch)
    if not callable(scores_of):
        raise ValueError(
            "scores_of is a function of worlds and a seed, got "
            f"{type(scores_of).__name__}; algorithms by name are audited by "
            "audit_algorithm, programs by audit_program"
        )
    plan = programs.ProgramAudit(
        program=f"{programs.GIVEN}{_name_of(scores_of)}",
        claim=claim_of(epsilon, delta, relation, source="privaudit.audit"),
        estimator=method,
        confidence=confidence,
        runs=runs,
        batch=min(batch, runs),
        seed=seed,
        ledger=None if ledger is None else programs.digest_of_ledger(ledger),
    )
    with tempfile.TemporaryDirectory() as nowhere, watch.runs() as progress:
        try:
            with RunFolder.opened(nowhere) as folder:
                result = programs.run(
                    plan,
                    folder,
                    function=scores_of,
                    ledger=ledger,
                    workers=workers,
                    progress=progress,
                )
        except ForeignError as error:
            raise ValueError(str(error)) from error
    counts = result.member_runs, result.non_member_runs
    shown = result.most_shown, result.beside, result.rates
    return AuditedScores(result.verdict, *counts, *shown)


def _name_of(function: Callable[..., Any]) -> str:
    """Name of a function in errors: its own if it has one, else its type's."""
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "scores_of"


@public
def audit_program(
    program: str | Callable[[Any, int], ArrayLike],
    settings: ProgramSettings = _OF_A_PROGRAM,
    *,
    out: Path | None = None,
    workers: int | None = None,
    watch: Watch | str | None = None,
) -> AuditedProgram:
    """Attack your own program in many runs; return a lower bound on its epsilon.

    In each run a fair coin decides whether the canary is planted. A function is called
    with a bool array, True for the runs with the canary, and one seed for all of them;
    it returns one score per run. Its runs must share no random numbers; see `audit`. A
    command is started once per run, and the last line that it prints is the score. With
    ``settings.serve`` the command stays alive instead: for each run it reads a line
    "member seed" from standard input, and answers with a line that is the score.

    Parameters
    ----------
    program
        A function, its name as ``module:function``, or a command with ``{member}`` and
        ``{seed}`` in the places of these two values (none with ``settings.serve``).
    settings
        The claim, the estimator, and what a run releases, if it is known; see
        `ProgramSettings`.
    out
        The run's folder. If the run in it was stopped, the same call resumes it.
        Default: a new folder in ``runs``.
    workers
        Number of commands that run at once, by default one per processor; or of
        processes that call a function, by default one.
    watch
        As in `privaudit.train`.

    Returns
    -------
    An `AuditedProgram` with ``status``, ``lower``, ``upper``, ``verdict`` and ``path``.

    Raises
    ------
    ValueError
        If a setting is out of its range, the function does not exist, or its runs are
        seen to share random numbers.
    privaudit.files.folder.FolderError
        If ``out`` holds another run, is damaged or cannot be written; or if a run gave
        no score. Finished runs are kept.

    Examples
    --------
    >>> import tempfile
    >>> import privaudit as pa
    >>> with tempfile.TemporaryDirectory() as out:
    ...     found = pa.audit_program(
    ...         "numpy:copysign",  # the world, as a number: a score that tells all
    ...         pa.ProgramSettings(runs=100),
    ...         out=out,
    ...     )
    >>> found.status
    'refuted'
    """
    from privaudit.auditing.programs import audit as programs
    from privaudit.auditing.programs.targets import about, source_of

    check_workers(workers)
    watch = watching(watch)
    if not (isinstance(program, str) or callable(program)):
        raise ValueError(
            "a program is a function, module:function or a command, got "
            f"{type(program).__name__}"
        )
    source, says = source_of(program), settings.about or about(program)
    function = None
    if not isinstance(program, str):
        function, program = program, f"{programs.GIVEN}{_name_of(program)}"
    ledger = _ledger_asked(settings)
    claim = claim_of(
        1.0 if settings.epsilon is None else settings.epsilon,
        settings.delta,
        settings.relation or "add-or-remove-one",
    )
    if settings.epsilon is None and ledger is not None:
        account = worst_bound(account_nodes(ledger, claim.delta, claim.relation))
        claim = msgspec.structs.replace(
            claim, epsilon=account.epsilon, source="the account of its ledger"
        )
    plan = programs.ProgramAudit(
        program=program,
        claim=claim,
        estimator=settings.estimator,
        confidence=settings.confidence,
        runs=settings.runs,
        batch=settings.batch if is_place(program) else 1,
        stop_when_refuted=settings.stop_when_refuted,
        seed=settings.seed,
        serve=settings.serve,
        ledger=None if ledger is None else programs.digest_of_ledger(ledger),
        about=says,
        source=source,
    )
    name = plan.program if plan.is_function else shlex.split(plan.program)[0]
    short = "".join(c if c.isalnum() else "-" for c in name).strip("-")
    place = Place(out, f"audit-{short}")
    opened = place.opened(RunFolder, plan, watch)
    with opened as folder, watch.runs() as progress:
        try:
            result = programs.run(
                plan,
                folder,
                function=function,
                ledger=ledger,
                time_limit=settings.time_limit or math.inf,
                retries=settings.retries,
                workers=workers,
                progress=progress,
            )
        except ForeignError as error:
            raise FolderError(
                f"{error}; what was done is kept in {place.path}, and the same command "
                "goes on from there"
            ) from None
    return AuditedProgram(place.path, result, program)


def _ledger_asked(settings: ProgramSettings) -> Ledger | None:
    """Ledger that a run of the user's program releases, as the settings say."""
    from privaudit.api.accounts import ledger_from

    if settings.ledger is not None:
        return ledger_from(settings.ledger)
    if settings.noise_multiplier is None:
        return None
    release = Release.of_sum(
        norm_bound=1.0,
        noise_multiplier=settings.noise_multiplier,
        sampling=PoissonSampling(settings.sampling_rate or 1.0),
    )
    return Ledger.of(release, settings.steps or 1)


@public
def sweep(
    file: Path,
    *,
    out: Path | None = None,
    workers: int | None = None,
    watch: Watch | str | None = None,
) -> FoundSweep:
    """Run all audits that a .toml file lists, several at once, each in its own folder.

    Parameters
    ----------
    file
        A .toml file: [all] has what all audits have in common, [grid] lists of which
        every combination is an audit, and each [[audit]] is one more. Settings are
        those of `privaudit.AuditSettings` and of the training.
    out
        The folder of all of them. If the sweep in it was stopped, the same call resumes
        it. Default: a new folder in ``runs``.
    workers
        Number of audits that run at once; by default one per processor.
    watch
        As in `privaudit.train`, of each.

    Returns
    -------
    The sweep, with the figures of each audit, or the reason why it failed.

    Raises
    ------
    ValueError
        If the file has a mistake; the message says where.
    privaudit.files.folder.FolderError
        If ``out`` holds something else, or cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import privaudit as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "mine.toml")
    ...     _ = file.write_text('[[audit]]\\nalgorithm = "dsgd"\\nepsilom = 2')
    ...     pa.sweep(file)
    Traceback (most recent call last):
        ...
    ValueError: ...mine.toml, [[audit]] 1: there is no setting 'epsilom'; did you ...
    """
    check_workers(workers)
    watch = watching(watch)
    from privaudit.auditing.experiments.sweep import Sweep
    from privaudit.auditing.experiments.sweep_folder import SweepFolder
    from privaudit.auditing.experiments.sweep_run import goes_on, run_sweep
    from privaudit.report.sweep import load_sweep

    file = pathlib.Path(file)
    plan = Sweep.read(file)
    place = Place(out, f"sweep-{file.stem}")
    opened = place.opened(SweepFolder, plan, watch, lambda there: goes_on(plan, there))
    with opened as folder, watch.sweep(len(plan.audits)) as tell:
        run_sweep(plan, folder, workers=workers, tell=tell)
    return load_sweep(place.path)


def check_workers(workers: int | None) -> None:
    """``ValueError`` unless ``workers`` is None or at least 1."""
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be >= 1, got {workers}")
