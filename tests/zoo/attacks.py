"""Audits of planted bugs: who looks at what, in how many runs.

An audit takes what the ledger certifies as the claim, and refutes it when its lower
bound at confidence 0.99 lies above ("best", for any mechanism), or at 0.999 within the
family of the ledger's releases with more or less noise.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import msgspec
import torch

from privaudit.accounting import Certificate, account_nodes
from privaudit.accounting.views import observed_by
from privaudit.auditing.attacks import ADVERSARIES, Adversary, Scene
from privaudit.auditing.attacks.canaries import CANARIES, CANARY_NODE, Canary, clipbkd
from privaudit.auditing.attacks.contract import Watcher
from privaudit.auditing.bounds.ledger_family import FAMILY, family_bound
from privaudit.auditing.experiments.experiment import Audit, train_block
from privaudit.auditing.experiments.judgement import estimator_named
from privaudit.auditing.experiments.plan import tested_relation
from privaudit.auditing.experiments.presets import training_upon
from privaudit.auditing.scores import Scores
from privaudit.ledger import Ledger
from privaudit.results import Claim, LowerBound, UpperBound
from trainers.algorithms import ALGORITHMS
from trainers.data import Dataset
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy as LOSS
from trainers.runs.problem import Problem

# An attack that sees all that is released attains the certified curve: within the
# family it raises as many false alarms as the confidence allows, two in 200 at 0.99.
CONFIDENCE = {"best": 0.99, FAMILY: 0.999}
DELTA = 1e-5
# Digits 0, 1, 2, twenty a node, half of them in a batch; next to no step, so that every
# round is alike.
COMMON: dict[str, Any] = {
    "nodes": 3,
    "digits": (0, 1, 2),
    "train": 60,
    "model": "softmax",
    "rounds": 4,
    "batch_size": 10.0,
    "clip_norm": 1.0,
    "step_size": 1e-3,
}


class _Sum(Watcher):
    """Adds up what ``evidence`` finds in each release."""

    def __init__(self, scene: Scene, runs: int) -> None:
        self.scene = scene
        self.total = torch.zeros(runs, dtype=torch.float64)

    @property
    def release_observers(self):
        return (self,)

    def release(self, index, at, gradient, nodes):
        self.total += self.evidence(index, gradient.double())

    def evidence(self, index, gradient):
        raise NotImplementedError

    def along(self, gradient):
        """The canary's direction in sums, (runs, nodes)."""
        direction = self.scene.canary.direction.double()
        return gradient @ direction * self.scene.mechanism.batch_size

    def score(self, models):
        return self.total


class _NodesApart(_Sum):
    def evidence(self, index, gradient):
        along = self.along(gradient)
        return along[:, CANARY_NODE] - along[:, CANARY_NODE + 1]


class _RoundsApart(_Sum):
    before = None

    def evidence(self, index, gradient):
        along, before = self.along(gradient)[:, CANARY_NODE], self.before
        self.before = along
        if index % 2 == 0:  # pairs, so that those of two noises do not drown others
            return torch.zeros_like(along)
        return (along - before).abs()


class _Grid(_Sum):
    """How many silent coordinates are no noise that a 16-bit float can hold."""

    def evidence(self, index, gradient):
        where = self.scene.canary.direction != 0
        _, noise = self.scene.scales(index)
        drawn = gradient[:, CANARY_NODE][:, where]
        drawn = drawn * self.scene.mechanism.batch_size / noise
        rounded = drawn.half().double()
        return ((drawn - rounded).abs() > 1e-5 * drawn.abs()).sum(1).double()


class _OwnGradient(_Sum):
    """Along the record's gradient at the start, whatever noise and others are."""

    def __init__(self, scene, runs):
        super().__init__(scene, runs)
        record, reference = scene.canary.record, PerSample(scene.problem.module, LOSS)
        own = reference.gradients(
            scene.start[None], record.inputs[None], record.targets[None]
        )[0, 0].double()
        self.direction = own / own.norm()

    def evidence(self, index, gradient):
        return gradient[:, CANARY_NODE] @ self.direction


class _Norm(_Sum):
    """How short releases are: noise that was divided by a larger batch."""

    def evidence(self, index, gradient):
        return -gradient[:, CANARY_NODE].norm(dim=1)


def _attacker(kind, words):
    class Attacker(Adversary):
        name, sees, reads_models = words, words, False

        def watch(self, runs, gradients):
            return kind(self.scene, runs)

    return Attacker


ATTACKERS: Mapping[str, type[Adversary]] = {
    **ADVERSARIES,
    "nodes-apart": _attacker(_NodesApart, "the difference of two nodes' releases"),
    "rounds-apart": _attacker(_RoundsApart, "the difference of successive releases"),
    "grid": _attacker(_Grid, "the digits of a release"),
    "own-gradient": _attacker(_OwnGradient, "a release along its gradient"),
    "norm": _attacker(_Norm, "the length of a release"),
}


def loud(problem: Problem, seed: int) -> Canary:
    """ClipBKD's record, a hundred times as bright: far beyond any clip."""
    record = clipbkd(problem, seed).record
    return Canary(Dataset(100 * record.inputs, record.targets))


def contrary(problem: Problem, seed: int) -> Canary:
    """The mean of its node's images, as bright, labelled with another class."""
    own = problem.shares[CANARY_NODE]
    label = int(own.targets[0]) + 1
    image = 100 * own.inputs.mean(0, keepdim=True)
    return Canary(Dataset(image, torch.tensor([label % len(problem.training.labels)])))


PLANTED: Mapping[str, Callable[[Problem, int], Canary]] = {
    **CANARIES,
    "loud": loud,
    "contrary": contrary,
}


@dataclasses.dataclass(frozen=True)
class Attack:
    """An audit that is made for a bug.

    Parameters
    ----------
    runs
        Of both worlds together.
    noise
        The noise multiplier.
    adversary, canary
        Names in ``ATTACKERS`` and ``PLANTED``.
    estimator
        `FAMILY`, or "best".
    settings
        Of the training, upon ``COMMON``.
    observer
        Nodes that attack, in the adversary's place, and whose account is refuted.
    """

    runs: int
    noise: float = 1.0
    adversary: str = "noisy-gradients"
    canary: str = "gradient"
    estimator: str = FAMILY
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Not in the names of cells that know of none.
    observer: str | None = dataclasses.field(default=None, repr=False)

    @property
    def confidence(self) -> float:
        """Of its lower bound."""
        return CONFIDENCE[self.estimator]

    def key(self) -> str:
        """Equal attacks have equal ones."""
        return repr(self)


@functools.cache
def _family(ledger: Ledger, relation: str):
    return family_bound(ledger.nodes[CANARY_NODE], relation)


@functools.cache
def _certified(ledger: Ledger, relation: str) -> UpperBound:
    return account_nodes(ledger, DELTA, relation)[CANARY_NODE]


def played(
    attack: Attack, algorithm: str, family=None, seed: int = 0
) -> tuple[Scores, Ledger, str]:
    """The attack's scores, the ledger as the attacker sees it, and what is seen.

    ``family`` stands in the algorithm's place; None for the right one.
    """
    family = family or ALGORITHMS[algorithm]
    with mock.patch.dict(ALGORITHMS, {algorithm: family}):
        training = training_upon(algorithm, {**COMMON, **attack.settings}, {}, "zoo")
        relation = tested_relation(training)
        problem = Problem.of(training)
        plan = Audit(
            claim=Claim(epsilon=1.0, delta=DELTA, relation=relation, source="the zoo"),
            training=training,
            noise_multiplier=attack.noise,
            confidence=attack.confidence,
            runs=attack.runs,
            block=attack.runs,
            seed=seed,
        )
        scene = Scene(
            problem=problem,
            canary=PLANTED[attack.canary](problem, seed),
            noise_multiplier=attack.noise,
            start=problem.start(seed)[0, 0],
            replaces=relation == "replace-one",
            observer=attack.observer,
        )
        kind = attack.adversary if attack.observer is None else "observer"
        adversary = ATTACKERS[kind](scene)
        ((block, _),) = train_block(plan, [adversary], 0)
    ledger = observed_by(algorithm, block.ledger, attack.observer, relation)
    return Scores(block.member, block.score, "coin-flip"), ledger, adversary.sees


def attacked(
    attack: Attack, algorithm: str, family=None, seed: int = 0
) -> tuple[UpperBound, LowerBound]:
    """What the ledger certifies, and what the attack shows; as `played`."""
    scores, ledger, sees = played(attack, algorithm, family, seed)
    relation = Certificate.of(ledger).relation
    if attack.estimator == FAMILY:
        estimator = _family(ledger, relation)
    else:
        entries = ledger.nodes[CANARY_NODE]
        estimator = estimator_named(attack.estimator, entries, relation)
    bound = estimator(
        scores,
        DELTA,
        attack.confidence,
        relation=relation,
        threat_model=sees,
        seed=seed,
    )
    upper = _certified(ledger, relation)
    lower = msgspec.structs.replace(
        bound.lower, observer=ledger.observer, unit=upper.unit
    )
    return upper, lower
