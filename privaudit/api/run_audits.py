"""Audits of a training that was made: the same algorithm, model and data, attacked."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from privaudit.api.planting import (
    KeptTraining,
    certified,
    check_attackable,
    estimator_named,
    named,
    promised,
)
from privaudit.api.watch import SILENT, Watch
from privaudit.auditing.bounds.ledger_family import BOTH, has_family
from privaudit.auditing.conclude import BEST
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.scores import CANARY_NODE
from privaudit.files import json as _json
from privaudit.files import manifest
from privaudit.files.arguments import near
from privaudit.files.extras import need
from privaudit.files.folder import MODEL, RunFolder
from privaudit.files.json import Summary
from privaudit.files.notebook import box
from privaudit.ledger import Ledger
from privaudit.report import page
from privaudit.report.load import FinishedTraining, TrainingConfig, audits_of, load
from privaudit.report.verify import verified
from privaudit.results import Finding, LowerBound, Status, UpperBound, worst
from privaudit.settings import AuditSettings
from privaudit.task_settings import OWN
from trainers.runs.outcome import PRIVATE, RANDOM, TrainingResult

if TYPE_CHECKING:
    from trainers.runs.material import Material
    from trainers.runs.problem import Problem


@dataclasses.dataclass(frozen=True)
class AuditedRun:
    """Findings of attacks on a training, beside what is certified.

    Attributes
    ----------
    path
        The run's folder, in which each audit has a folder of its own.
    training
        The training's figures, with the audits'.
    results
        Of each attacker, by the name of its folder.
    private
        Whether these figures tell of the private data, in a sentence.
    """

    path: pathlib.Path
    training: TrainingResult
    results: dict[str, AuditResult]
    private: str

    @property
    def status(self) -> Status:
        """The verdict in a word: refuted where any attacker refutes."""
        found = [one.status for one in self.results.values()]
        own = self.training.status
        return worst(found if own is None else [*found, own])

    @property
    def upper(self) -> UpperBound:
        """The certified upper bound on epsilon, that of the worst node."""
        return self.training.upper()

    @property
    def verdict(self) -> Finding:
        """Claim, account and audit together, of the attacker that shows most."""
        return max(self.results.values(), key=lambda one: one.lower().epsilon).verdict

    @property
    def lower(self) -> LowerBound:
        """The largest of the lower bounds, which hold together."""
        assert self.verdict.lower is not None
        return self.verdict.lower

    summary = Summary(
        "certified=upper.epsilon epsilon_lower=lower.epsilon verdict=status "
        "audits=results private out=path"
    )

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        lines = [str(self.upper)]
        for one in self.results.values():
            lines += [str(one.lower()), *one.limits()]
            lines += [f"  {one.verdict.limits}"] if one.verdict.limits else []
            lines.append(str(one.verdict))
        return [*lines, self.private]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return box(self.status.capitalize(), self.lines())


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunAttack:
    """Settings of attacks on a training: what `TrainedModels.audit` takes."""

    runs: int = 1000
    adversary: Any = None
    canary: Any = None
    canaries: int | None = None
    estimator: Any = None
    confidence: float = 0.95
    seed: int = 0
    block: int | None = None
    random_records: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunAttack:
        """From arguments. ``TypeError`` for one that there is not."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in names:
                raise TypeError(
                    f"an audit of a run has no argument {name!r}; "
                    f"{near(name, [*names, 'record', 'workers', 'watch'])}"
                )
        return cls(**given)


def audit_run(
    run: KeptTraining,
    how: RunAttack,
    *,
    workers: int | None = None,
    watch: Watch = SILENT,
) -> AuditedRun:
    """Attack the training again and again; see `TrainedModels.audit`."""
    need("an audit of a training", "train")
    from privaudit.auditing.experiments.experiment import run_all
    from privaudit.auditing.experiments.plan import attack_on, chosen_block
    from trainers.runs.material import Material
    from trainers.runs.problem import Problem

    config, folder = run.config, run.folder
    if config.party is not None:
        raise ValueError(
            "a party has its own data alone, and no other's to train with again: audit "
            "the algorithm, by privaudit.audit_algorithm"
        )
    result = folder.read("result.json", TrainingResult)
    check_attackable(run.training)
    training, material = run.training, run.material
    if how.random_records:
        material = material or Material.by_name(training, config.public_seed)
        material = material.at_random(config.public_seed)
    elif material is not None:
        material = material.in_memory()
    problem = Problem.of(
        training,
        seed=config.public_seed,
        compiled=config.compiled,
        precision=config.precision,
        material=None if material is None else dataclasses.replace(material, test=None),
    )
    problem = problem.with_counts(config.clip)
    tuning = config.tuning
    if tuning is not None and tuning.is_charged:
        raise ValueError(
            "the certificate of a tuned run is of the best of several tries, and "
            "shadow runs would be of one: audit a run of privaudit.train with the "
            "settings that came out"
        )
    adversary, canary, given = named(how.adversary, how.canary, run.material)
    crafted = "gradient" in (canary or "gradient")
    attackers = list(_attackers(problem, config, result, adversary, crafted))
    known = folder.read("ledger.json", Ledger)
    _check_ledger(problem, config, known)
    settings = AuditSettings(
        runs=how.runs,
        canary=canary,
        canaries=how.canaries,
        estimator=estimator_named(how.estimator)
        or (BOTH if has_family(known.nodes[CANARY_NODE]) else BEST),
        seed=how.seed,
        block=how.block or chosen_block(problem, how.runs),
        confidence=how.confidence,
        account=config.account,
        device=config.device,
        precision=config.precision,
        compiled=config.compiled,
    )
    plans = {}
    # All bounds hold together: the union bound.
    each = 1 - (1 - how.confidence) / len(attackers)
    for name, seen, claim in attackers:
        by_all = claim.observer is UNSET
        attack = {"adversary": seen} if by_all else {"observer": claim.observer}
        plan = attack_on(
            training,
            dataclasses.replace(settings, confidence=each, **attack),
            public_seed=config.public_seed,
            claim=claim,
        )
        plans[name] = dataclasses.replace(
            plan,
            random_records=how.random_records,
            noise_multiplier=config.noise_multiplier,
        )
        # All score the same runs: what is planted is what the first sees most of.
        settings = dataclasses.replace(settings, canary=plan.canary)
    with contextlib.ExitStack() as stack:
        stack.enter_context(RunFolder.opened(folder.path))
        folders = [
            stack.enter_context(
                _folder_for(plan, folder / f"audit-{name}", again=not given)
            )
            for name, plan in plans.items()
        ]
        progress = stack.enter_context(watch.runs())
        found = run_all(
            list(plans.values()),
            folders,
            problem,
            given=given,
            workers=workers,
            progress=progress,
        )
        audits = audits_of(folder)
        assert audits is not UNSET
        result = result.audited(audits)
        manifest.amend(folder, result)
    if run.paged:
        page.keep(folder.path)
    return AuditedRun(
        folder.path,
        result,
        {one.path.name: each for one, each in zip(folders, found, strict=True)},
        RANDOM if how.random_records else PRIVATE,
    )


def _folder_for(
    plan: Any, path: pathlib.Path, *, again: bool
) -> contextlib.AbstractContextManager[RunFolder]:
    """The folder at ``path``, or of the next number, that is empty or of ``plan``."""
    for number in itertools.count(2):
        folder = RunFolder(path)
        if not folder.has("config.json"):
            break
        if again and folder.read("config.json", type(plan)) == plan:
            break
        path = path.with_name(f"{path.name.rstrip('0123456789-')}-{number}")
    return RunFolder.opened(path)


def _attackers(
    problem: Problem,
    config: Any,
    result: TrainingResult,
    adversary: str | Sequence[str] | None,
    crafted: bool,
) -> Any:
    """Name, adversary and claim of each: all observers that the certificate is for."""
    from privaudit.auditing.experiments.plan import of_final_models, strongest

    training = problem.training
    claim = promised(result, config, training, CANARY_NODE)
    if adversary is None and config.observer is not None:
        yield "observer", "observer", claim
        everybody = certified(result.everything_seen(), training)
        yield strongest(training), strongest(training), everybody
        return
    if adversary is None:
        seen = strongest(training)
        final = of_final_models(problem, crafted=crafted and seen != "final-loss")
        chosen = [seen] if final is None else [seen, final]
    else:
        chosen = [adversary] if isinstance(adversary, str) else list(adversary)
    if config.observer is not None:
        claim = certified(result.everything_seen(), training)
    for name in dict.fromkeys(chosen):
        yield name.replace(":", "-"), name, claim


def _check_ledger(problem: Problem, config: Any, known: Ledger) -> None:
    """``ValueError`` if the shadow runs would release something else than the run."""
    expected = problem.stated(problem.ledger(config.noise_multiplier))
    mine, theirs = (
        [[entry.release for entry in node] for node in ledger.nodes]
        for ledger in (expected, known)
    )
    if mine != theirs:
        raise ValueError(
            f"with these data {problem.training.algorithm} would release something "
            "else than the run did: give the same data, each node with as many records"
        )


def audit_folder(
    path: str | os.PathLike[str],
    *,
    model: str | None = None,
    data: str | None = None,
    loss: str | None = None,
    workers: int | None = None,
    watch: Watch = SILENT,
    **how: Any,
) -> AuditedRun:
    """Audit the training in a folder; model and data are named where it does not.

    They are given as ``privaudit train`` takes them, and ``how`` as to
    `TrainedModels.audit`. Raises ``ValueError`` if they are not those of the run, as
    far as its folder can tell, and `FolderError` without a finished training.
    """
    need("an audit of a training", "train")
    from trainers.runs.material import Material
    from trainers.runs.training import Training

    found, folder = load(path), RunFolder(path)
    if not isinstance(found, FinishedTraining):
        raise ValueError(f"{path} is no folder of a training: nothing in it is audited")
    with RunFolder.opened(path):
        if audits := audits_of(folder):  # one was stopped before it joined the run
            joined = folder.read("result.json", TrainingResult).audited(audits)
            manifest.amend(folder, joined)
        verified(path, settings=True)
    config: TrainingConfig = found.config
    named = {"model": model, "data": data, "loss": loss}
    given = {name: value for name, value in named.items() if value is not None}
    if config.training.get("data") == OWN:
        missing = [f"--{name}" for name in ("model", "data") if name not in given]
        if missing:
            raise ValueError(
                f"{path} does not name the model and the data of its training, which "
                f"were given in Python: name them again, by {' and '.join(missing)}"
            )
    training = _json.convert({**config.training, **given}, Training, strict=False)
    material = Material.by_name(training, config.public_seed) if given else None
    if material is not None:
        _check_model(folder, material)
    return audit_run(
        KeptTraining(
            folder=folder, config=config, training=training, material=material
        ),
        RunAttack.of(how),
        workers=workers,
        watch=watch,
    )


def _check_model(folder: RunFolder, material: Material) -> None:
    from trainers.runs.final_models import modules

    if not folder.has(MODEL):
        return
    with contextlib.suppress(OSError):
        try:
            modules((folder / MODEL).read_bytes(), material.whole)
        except RuntimeError as error:
            raise ValueError(
                f"the model is not that of the run in {folder.path}: {error}"
            ) from None
