"""Canaries in the very run: planted before it begins, judged before its result is."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from privaudit.auditing.bounds import ESTIMATORS
from privaudit.files.folder import RunFolder
from privaudit.files.user_code import checked, function_named, is_place
from privaudit.records import IN_THE_RUN
from privaudit.report.load import audits_of
from privaudit.results import Claim, UpperBound
from privaudit.settings import AuditSettings, TrainingSettings
from trainers.runs.outcome import TrainingResult

if TYPE_CHECKING:
    from privaudit.auditing.attacks.canaries import Canary
    from privaudit.auditing.experiments.experiment import Given
    from privaudit.auditing.experiments.one_run import PlantedInRun
    from privaudit.auditing.experiments.plan import Audit
    from trainers.algorithms.family import Noise
    from trainers.runs.material import Material
    from trainers.runs.problem import Problem
    from trainers.runs.run import TrainingRun
    from trainers.runs.training import Training

_CONFIDENCE = 0.95  # of all bounds together


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptTraining:
    """A training that was made, as what audits it needs it."""

    folder: RunFolder
    config: Any  # `trainers.runs.run.TrainingRun`, or as its folder has it
    training: Training
    material: Material | None = None
    paged: bool = True  # whether its folder, which stays, has a page


def planted_in(
    problem: Problem, settings: TrainingSettings, noise: Noise, *, together: bool
) -> PlantedInRun:
    """Plant ``settings.canaries`` in a run that is to begin, or ``ValueError``."""
    from privaudit.auditing.experiments.one_run import PlantedInRun

    training, count = problem.training, settings.canaries
    check_attackable(training)
    assert count is not None
    if together:
        raise ValueError(
            "canaries are planted where one process trains all nodes: leave canaries, "
            "or parties and torchrun, out"
        )
    if training.unit != "record":
        raise ValueError(
            f"a canary in the run is one record more, and {training.algorithm} "
            f"protects a {training.unit}: leave canaries out, and attack it by an audit"
        )
    if training.relation(settings.relation) != "add-or-remove-one":
        raise ValueError(
            "a canary is one record more, and tells nothing of replace-one: leave "
            "canaries or relation out"
        )
    everything = Claim(
        epsilon=math.inf,
        delta=1e-5,
        relation="add-or-remove-one",
        unit=training.unit,
        source="-",
    )
    nodes = settings.nodes_of_canaries(len(problem.sizes))
    if count < len(nodes):
        raise ValueError(
            f"{count:,} canaries are too few for {len(nodes):,} nodes: plant more, or "
            "declare fewer canary_nodes"
        )
    _plan(training, everything, noise, (count, IN_THE_RUN[0], nodes))
    return PlantedInRun(problem, count, noise, settings.public_seed, nodes)


def judged_in(
    planting: PlantedInRun, run: TrainingRun, folder: RunFolder, result: TrainingResult
) -> TrainingResult:
    """Keep what the canaries of a run show in its folder; ``result`` with that.

    The run has its result afterwards: one that is stopped here goes on and comes back.
    """
    node = max(run.canary_nodes, key=lambda one: result.nodes[one].epsilon)
    claim = promised(result, run, run.training, node)
    if run.observer is not None or result.verdict is None:
        claim = certified(result.everything_seen(), run.training)
    for name, scores in planting.scores.items():
        what = (len(scores), name, run.canary_nodes)
        plan = _plan(run.training, claim, run.noise_multiplier, what)
        plan = dataclasses.replace(plan, public_seed=run.public_seed)
        with RunFolder.opened(folder / f"audit-canaries-{name}") as own:
            planting.judged(plan, own, folder)
    audits = audits_of(folder)
    assert audits is not UNSET
    cost = {"without_canaries": planting.without}
    return msgspec.structs.replace(result.audited(audits), **cost)


def check_attackable(training: Training) -> None:
    """``ValueError`` where a run has nothing to test."""
    if not training.family.private:
        raise ValueError(
            f"{training.algorithm} adds no noise and promises nothing: there is no "
            "claim to test"
        )


def named(
    adversary: Any, canary: Any, material: Material | None
) -> tuple[Any, str | None, Given]:
    """Names of an attack's adversaries and canary, and the objects that they name."""
    from privaudit.auditing.experiments.experiment import Given

    scores: dict[str, Any] = {}

    def score(one: Any) -> Any:
        if callable(one):
            own = getattr(one, "__name__", type(one).__name__)
            name = f"own:{own if own.isidentifier() else 'score'}"
            if scores.setdefault(name, one) is not one:
                raise ValueError(f"two adversaries are called {own}: name them apart")
            return name
        if isinstance(one, str) and is_place(one):
            scores[one] = function_named(one)
        if one is not None and not isinstance(one, str):
            raise ValueError(f"an adversary is a name or a function, got {one!r}")
        return one

    several = isinstance(adversary, list | tuple)
    adversary = [*map(score, adversary)] if several else score(adversary)
    if isinstance(canary, str) and is_place(canary):
        with checked(canary):
            canary = function_named(canary)()
    if canary is None or isinstance(canary, str):
        return adversary, canary, Given(scores=scores)
    return adversary, "record", Given(_record(canary, material), scores)


def estimator_named(given: Any) -> Any:
    """Name of an estimator that is given as a name, or as one of `ESTIMATORS`."""
    if given is None or isinstance(given, str):
        return given
    for name, known in ESTIMATORS.items():
        if given == known:
            return name
    raise ValueError(
        "an estimator is a name, or one of privaudit.auditing.bounds with the shares "
        f"that it has by default, got {given!r}; call any other with scores"
    )


def _record(record: Any, material: Material | None) -> Canary:
    """A record of the user's, an input and a target, as a canary."""
    from privaudit.auditing.attacks.canaries import Canary
    from trainers.data import Dataset
    from trainers.data.shares import check_alike, check_labels, data_set

    if not (isinstance(record, tuple | list) and len(record) == 2):
        raise ValueError("record is an input and its target, as a pair")
    import torch

    pair = [torch.as_tensor(part)[None] for part in record]
    found = data_set(tuple(pair), "record")
    assert isinstance(found, Dataset)
    if material is not None:
        check_alike(found, material.shares[0].example, "record")
        if material.classes is not None:
            check_labels(found.targets, material.classes, "record")
    return Canary(found)


def promised(result: TrainingResult, run: Any, training: Training, node: int) -> Claim:
    """Claim of a training, or what its account certifies at ``node``."""
    claim = None if result.verdict is None else result.verdict.claim
    if claim is None:
        claim = certified(result.upper(), training)
    if not isinstance(run.noise_multiplier, tuple):
        return claim
    own = result.nodes[node].epsilon if run.budgets is None else run.budgets[node]
    return msgspec.structs.replace(claim, epsilon=own)


def certified(upper: UpperBound, training: Training) -> Claim:
    """Claim of what an account certifies, to be tested."""
    return Claim(
        epsilon=upper.epsilon,
        delta=upper.delta,
        relation=upper.relation,
        unit=upper.unit,
        source="the account of the run",
        observer=upper.observer,
        overlap=training.told_overlap,
    )


def _plan(
    training: Training,
    claim: Claim,
    noise: Noise,
    canaries: tuple[int, str, tuple[int, ...]],
) -> Audit:
    """Plan of reading so many canaries, by an adversary, at these nodes."""
    from privaudit.auditing.experiments.plan import attack_on

    count, adversary, nodes = canaries
    settings = AuditSettings(
        one_run=True,
        canaries=count,
        canary="gradient",
        adversary=adversary,
        confidence=1 - (1 - _CONFIDENCE) / len(IN_THE_RUN),  # the union bound
    )
    plan = attack_on(training, settings, canaries=count, claim=claim)
    return dataclasses.replace(plan, canary_nodes=nodes, noise_multiplier=noise)
