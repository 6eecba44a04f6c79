"""What is audited, and how: settings that a person can write down."""

from __future__ import annotations

import msgspec
import torch

from privaudit.auditing.attacks import ADVERSARIES
from privaudit.auditing.attacks.canaries import CANARIES
from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.bounds.ledger_family import FAMILY
from privaudit.auditing.experiments.planted import PLANTED
from privaudit.results import Claim, Relation
from privaudit.version import __version__
from trainers.numerics.device import check_device
from trainers.runs.problem import Problem
from trainers.runs.training import Training

BLOCK = 50  # runs that are trained together, by default
MOST_RUNS = 10_000_000


class Audit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is audited, and how; equal audits give equal scores, bit for bit.

    Parameters
    ----------
    claim
        The promise under test.
    training, noise_multiplier
        The algorithm as it runs.
    adversary, canary
        Names in `ADVERSARIES` and `CANARIES`: what is seen, and what is planted.
    estimator
        A name in `privaudit.auditing.bounds.ESTIMATORS`, or `FAMILY`.
    account
        The account that certifies the run's ledger.
    confidence
        Of the lower bound, in (0, 1).
    runs
        In both worlds together; each tosses a fair coin for its world.
    block
        Runs that are trained together; large blocks are faster for small models.
    seed
        Of the study: makes data split, sampling and noise repeatable.
    device, compiled
        Where runs are trained, and whether under `torch.compile`. Scores on a GPU are
        others than on the CPU, as it draws other numbers; worlds are the same.
    planted_bug
        A name in `PLANTED`: a bug of the training that its ledger does not know of;
        None for the training as it is.
    """

    claim: Claim
    training: Training
    noise_multiplier: float
    adversary: str = "final-loss"
    canary: str = "blank"
    estimator: str = "best"
    account: str = "certified"
    confidence: float = 0.95
    runs: int = 2000
    block: int = BLOCK
    seed: int = 0
    device: str = "cpu"
    compiled: bool = False
    planted_bug: str | None = None
    torch_version: str = str(torch.__version__)
    version: str = __version__

    def __post_init__(self) -> None:
        check_device(self.device)
        for value, known, kind in (
            (self.adversary, ADVERSARIES, "adversary"),
            (self.canary, CANARIES, "canary"),
            (self.estimator, (*ESTIMATORS, FAMILY), "estimator"),
        ):
            if value not in known:
                raise ValueError(
                    f"there is no {kind} {value!r}; choose one of {', '.join(known)}"
                )
        tested = tested_relation(self.training)
        if self.claim.relation != tested:
            raise ValueError(
                f"an audit of this training tests {tested}: that is what its two "
                f"worlds differ in; got the relation {self.claim.relation}"
            )
        if self.planted_bug is not None and self.planted_bug not in PLANTED:
            raise ValueError(
                f"there is no planted bug {self.planted_bug!r}; choose one of "
                f"{', '.join(PLANTED)}"
            )
        if not 1 <= self.block <= 10_000:
            raise ValueError(f"block must be between 1 and 10,000, got {self.block}")
        if not 2 <= self.runs <= MOST_RUNS:
            raise ValueError(
                f"runs must be between 2 and {MOST_RUNS:,}, got {self.runs}"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")

    def problem(self) -> Problem:
        """The data, model and network of the training, with the bug if one is planted.

        Raises as `trainers.runs.problem.Problem.of`.
        """
        kind = Problem if self.planted_bug is None else PLANTED[self.planted_bug]
        return kind.of(self.training, compiled=self.compiled)

    @property
    def blocks(self) -> int:
        """How many blocks the runs fill."""
        return -(-self.runs // self.block)


def tested_relation(training: Training) -> Relation:
    """What the two worlds differ in: a canary added, or one put in a record's place.

    The second under sampling without replacement, where a record more would change the
    chances of all others.
    """
    fixed = training.mechanism(1.0).sampling == "without-replacement"
    return "replace-one" if fixed else "add-or-remove-one"
