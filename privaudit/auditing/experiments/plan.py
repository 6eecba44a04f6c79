"""The checked settings of an audit."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from msgspec import UNSET
from torch import Tensor

from privaudit.accounting.account import method_named
from privaudit.accounting.views import (
    ANY_NODE,
    Observer,
    check_observer,
)
from privaudit.auditing.attacks import ADVERSARIES
from privaudit.auditing.attacks.canaries import (
    CANARIES,
    CANARY_NODE,
    CRAFTED,
    KINDS,
    MISLABELLED,
    RECORD,
    TOGETHER,
)
from privaudit.auditing.attacks.final_loss import FinalLoss
from privaudit.auditing.attacks.many import MANY
from privaudit.auditing.attacks.messages import FinalModels
from privaudit.auditing.attacks.perturbed import is_overheard
from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.bounds.ledger_family import BOTH, FAMILY
from privaudit.auditing.experiments.judgement import accounts_of
from privaudit.auditing.experiments.one_run_bounds import NAMES
from privaudit.auditing.experiments.presets import AUDITED, training_upon
from privaudit.files.user_code import is_place
from privaudit.ledger import Ledger
from privaudit.records import AuditRecord
from privaudit.results import Claim, Relation, worst_bound
from privaudit.settings import (
    BLOCK,
    COMMAND_LINE,
    AttackSettings,
    AuditSettings,
    claim_of,
)
from privaudit.task_settings import is_own
from privaudit.version import __version__
from trainers.algorithms.family import Noise
from trainers.gradients.per_sample import parameter_count
from trainers.numerics.device import check_device
from trainers.numerics.randomness import Streams
from trainers.oracles.capabilities import GivesGradients, GivesMessages, gives
from trainers.runs.budget import check_noise
from trainers.runs.material import Material
from trainers.runs.problem import Problem
from trainers.runs.training import Training


class HalfNoise(Problem):
    """Trains with half the noise that its ledger states."""

    def train(
        self, noise_multiplier: Noise, streams: Streams, **more: Any
    ) -> tuple[Tensor, Ledger]:
        if isinstance(noise_multiplier, tuple):
            half: Noise = tuple(each / 2 for each in noise_multiplier)
        else:
            half = noise_multiplier / 2
        models, _ = super().train(half, streams, **more)
        return models, self.ledger(noise_multiplier)


# Bugs to plant in an audited training, of which no ledger knows.
PLANTED: dict[str, type[Problem]] = {"half-noise": HalfNoise}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit(AuditRecord[Training]):
    """Plan of an audit, checked; equal audits give equal scores, bit for bit."""

    training: Training
    torch_version: str = str(torch.__version__)
    version: str = __version__

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)
        for value, known, kind in (
            (self.adversary, MANY if self.one_run else ADVERSARIES, "adversary"),
            (self.canary, KINDS if self.one_run else [*CANARIES, RECORD], "canary"),
            (self.estimator, (*ESTIMATORS, FAMILY, BOTH), "estimator"),
        ):
            own = kind == "adversary" and not self.one_run and is_place(value or "")
            if value not in known and not own:
                raise ValueError(
                    f"there is no {kind} {value!r}; choose one of {', '.join(known)}"
                )
        check_relation(self.training, self.claim.relation)
        if (self.claim.observer or "") != (self.observer or ""):
            raise ValueError(
                f"the claim is for {self.claim.observer or 'an observer of all'}, and "
                f"the attack by {self.observer or 'its adversary'}: give both the "
                "same observer"
            )
        if self.planted_bug is not None and self.planted_bug not in PLANTED:
            raise ValueError(
                f"there is no planted bug {self.planted_bug!r}; choose one of "
                f"{', '.join(PLANTED)}"
            )

        why = "" if self.one_run or (self.canaries or 1) == 1 else _alone(self)
        if why:
            raise ValueError(
                f"each of many runs has one canary where {why}: leave canaries out, or "
                "set one_run"
            )

    def problem(self, material: Material | None = None) -> Problem:
        """The data, model and network of the training, with the bug if planted."""
        kind = Problem if self.planted_bug is None else PLANTED[self.planted_bug]
        seed = self.public_seed or 0
        if material is None and is_own(self.training.data):
            material = Material.by_name(self.training, seed)
        found = kind.of(
            self.training,
            seed=seed,
            compiled=self.compiled,
            precision=self.precision,
            material=None if material is None else material.in_memory(),
        )
        if found.material.transform is not None and self.block > 1:
            raise ValueError(
                "random numbers of a transform are drawn for one run at a time: leave "
                f"block out, or set it to 1; got {self.block}"
            )
        return found

    @property
    def start_seed(self) -> int:
        """Seed of the models' start."""
        return self.seed if self.public_seed is None else self.public_seed

    @property
    def blocks(self) -> int:
        """Number of blocks that the runs fill."""
        return -(-self.runs // self.block)


_TOGETHER = 1 << 18  # numbers of models, which a processor's cache holds
_PARTS = 16  # of the runs: for as many workers, and for the earliest look
_MOST = 500


def chosen_block(problem: Problem, runs: int) -> int:
    """Number of runs trained together by default: more, the smaller a model."""
    if problem.material.transform is not None:
        return 1  # whose random numbers runs would share
    models = problem.training.nodes * parameter_count(problem.module)
    return max(BLOCK, min(runs // _PARTS, _TOGETHER // models, _MOST))


def tested_relation(training: Training) -> Relation:
    """Relation of the two worlds: a canary added, or put in a record's place."""
    fixed = training.mechanism(1.0).sampling == "without-replacement"
    return "replace-one" if fixed else "add-or-remove-one"


def check_relation(training: Training, relation: Relation) -> None:
    """``ValueError`` if two worlds of a ``training`` cannot differ by ``relation``."""
    tested = tested_relation(training)
    replaced = tested == "add-or-remove-one" and training.unit == "record"
    if relation != tested and not replaced:
        raise ValueError(
            f"an audit of this training tests {tested}: that is what its two "
            f"worlds differ in; got the relation {relation}"
        )


# Adversaries that see noisy gradients, or what is linear in them: to these a crafted
# one shows most. To others it is nothing, as the loss of its record does not move.
SEES = (
    "noisy-gradients",
    "neighbour",
    "observer",
    "final-models",
    "final-models-colluding",
)


def strongest(training: Training) -> str:
    """The adversary that sees what the certificate counts as seen, or most of that."""
    if gives(training.family.oracle, GivesGradients):
        return "noisy-gradients"
    if not gives(training.family.oracle, GivesMessages):
        return "final-loss"
    if training.family.stays_home(training.setting()):
        return "neighbour"
    return "neighbour" if is_overheard(training.mixing()) else "final-loss"


def of_final_models(problem: Problem, *, crafted: bool) -> str | None:
    """The strongest adversary that sees final models alone; or None."""
    training = problem.training
    if training.family.stays_home(training.setting()):
        return None
    if crafted:
        with contextlib.suppress(ValueError):
            FinalModels.map_of(problem)
            return FinalModels.name
    return FinalLoss.name


def planted_together(audit: Audit, problem: Problem) -> int:
    """Number of canaries a run: several where, crafted, they show more."""
    if audit.canaries is not None:
        return audit.canaries
    several = audit.estimator in (FAMILY, BOTH) and not _alone(audit)
    return min(TOGETHER, parameter_count(problem.module)) if several else 1


def _alone(audit: Audit) -> str:
    """Return why a run has one canary alone; "" if it may have several."""
    training = audit.training
    if audit.canary != CRAFTED:
        return f"it is no crafted gradient, but {audit.canary}"
    if training.unit != "record" or not training.family.private:
        return "records' gradients are not clipped one by one"
    if audit.claim.relation != "add-or-remove-one":
        return "it comes in the place of a record"
    if audit.adversary not in (*SEES, FinalLoss.name, "all-models"):
        return f"{audit.adversary} attacks"
    return ""


def certified_claim(plan: Audit, problem: Problem) -> Claim:
    """Claim that the account certifies for the noise of ``plan``, to be tested."""
    worst = worst_bound(accounts_of(plan, problem.ledger(plan.noise_multiplier)))
    return msgspec.structs.replace(
        plan.claim, epsilon=worst.epsilon, source="the account of its noise"
    )


def planned(
    algorithm: str,
    settings: AuditSettings,
    training: Mapping[str, Any],
    *,
    where: str,
    source: str = COMMAND_LINE,
) -> Audit:
    """The audit of an algorithm by name; its noise is 0 where it is to be calibrated.

    Where settings give a noise and no epsilon, `certified_claim` is what is claimed.
    ``training``: upon what audits start from; ``where``, ``source``: where that and the
    claim are from.
    """
    canaries = (settings.canaries or _CANARIES) if settings.one_run else 0
    if canaries:
        what = training_of(algorithm, training, canaries)
    else:
        start = {} if is_own(str(training.get("data", ""))) else AUDITED
        what = training_upon(algorithm, training, start, where)
    return attack_on(what, settings, source=source, canaries=canaries)


def attack_on(
    what: Training,
    settings: AuditSettings,
    *,
    source: str = COMMAND_LINE,
    canaries: int = 0,
    public_seed: int | None = None,
    claim: Claim | None = None,
) -> Audit:
    """The audit of a training that is made, as `planned`.

    ``canaries``: in one run; 0 for many runs. ``claim``: in place of the settings'.
    """
    algorithm = what.algorithm
    if what.unit == "node":
        raise ValueError(
            f"audits test what one record or user gives away, not a {what.unit}: set "
            "unit=record"
        )
    method_named(settings.account)
    check_noise(what, settings.noise_multiplier)
    seen = settings.adversary
    if canaries:
        attack = _attack_in_one_run(settings, what, canaries)
    elif settings.observer is not None:
        named = check_observer(algorithm, settings.observer, what.nodes)
        if named != ANY_NODE and CANARY_NODE in Observer.parse(named).nodes:
            raise ValueError(
                f"the canary is at node {CANARY_NODE}, and an observer knows all of "
                "its own nodes: choose one of other nodes"
            )
        attack = {"adversary": "observer", "observer": named}
    else:
        attack = {"adversary": seen or strongest(what)}
    crafted = (
        what.family.private  # else nothing is clipped, and a record shows more
        and gives(what.family.oracle, GivesGradients)
        and attack["adversary"] in SEES
    )
    attack.setdefault("canary", settings.canary or ("gradient" if crafted else "blank"))
    if what.transform is not None and "gradient" not in attack["canary"]:
        raise ValueError(
            "audits plant records that stay as they are: leave transform out, which "
            "costs no privacy, or choose the canary gradient"
        )
    return Audit(
        public_seed=public_seed,
        **AttackSettings.part_of(settings, block=settings.block or BLOCK, **attack),
        claim=claim
        or claim_of(
            1.0 if settings.epsilon is None else settings.epsilon,
            settings.delta,
            what.relation(settings.relation),
            what.unit,
            source=source,
            observer=attack.get("observer", UNSET),
        ),
        training=what,
        noise_multiplier=settings.noise_multiplier or 0.0,
        account=settings.account,
    )


_CANARIES = 2000  # of one run, by default
_ROOM = 1.5  # parameters a canary, in the model that such audits start from
_FEATURES, _CLASSES = 64, 3  # of the digits that audits start from


def training_of(algorithm: str, given: Mapping[str, Any], canaries: int) -> Training:
    """The training of a one-run audit: ``given`` settings upon those it starts from.

    An audit's, with a model that has room for so many gradients, and all records.
    """
    hidden = math.ceil(_ROOM * canaries / (_FEATURES + _CLASSES))
    start = {**AUDITED, "model": "tanh-mlp", "hidden": hidden, "batch_size": 1.0}
    training = training_upon(algorithm, given, start, "--set")
    if "batch_size" in given:
        return training
    start["batch_size"] = float(min(Problem.of(training).sizes))
    return training_upon(algorithm, given, start, "--set")


def _attack_in_one_run(
    settings: AuditSettings, training: Training, canaries: int
) -> dict[str, Any]:
    """Adversary and canary, decided; ``ValueError`` for what cannot be in one run."""
    mechanism = training.mechanism(1.0)
    if not gives(training.family.oracle, GivesGradients):
        raise ValueError(
            f"one run with many canaries is for algorithms that release gradients; "
            f"{training.algorithm} releases something else: leave --one-run out"
        )
    if mechanism.sampling != "poisson":
        raise ValueError(
            "many canaries are each one record more, which needs Poisson sampling; "
            f"got sampling {mechanism.sampling}"
        )
    if training.family.stays_home(training.setting()):
        raise ValueError(
            f"parts of the models of {training.algorithm} stay at their nodes with "
            "these settings, where one run cannot be read: leave --one-run out"
        )
    seen = settings.adversary or "noisy-gradients"
    if seen not in MANY:
        raise ValueError(
            f"in one run with many canaries the adversary is {', '.join(MANY)}; got "
            f"{seen!r}"
        )
    if settings.estimator not in NAMES:
        raise ValueError(
            "one run with many canaries is judged by the estimators "
            f"{' and '.join(NAMES)}; got {settings.estimator!r}"
        )
    canary = settings.canary
    if canary is None:
        room = Problem.of(training).start(settings.seed).shape[2]
        canary = CRAFTED if room >= canaries else MISLABELLED
    if canary not in KINDS:
        raise ValueError(
            f"many canaries are {', '.join(KINDS[:-1])} or {KINDS[-1]}; got {canary!r}"
        )
    return {"adversary": seen, "canary": canary, "runs": canaries, "canaries": canaries}
