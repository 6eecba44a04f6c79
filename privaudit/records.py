"""Contents of a run's ``config.json``: settings with all that was left open decided."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from privaudit.results import Claim
from privaudit.settings import (
    AttackSettings,
    Checked,
    Compute,
    Evaluate,
    check_seeds,
)

Task = TypeVar("Task")  # the settings of a training: as they were read, or checked


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunIdentity(Checked):
    """The programs that made a run."""

    torch_version: str
    version: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartyRecord:
    """Share of a network's training that a party had.

    Parameters
    ----------
    party, parties
        Its number, from 0 on, and how many there were.
    sizes
        How many records, or users, each node of the network had, as its party said.
    run
        What all parties call this run: no two runs with secret keys have one name.
    """

    party: int
    parties: int
    sizes: tuple[int, ...]
    run: str

    def __post_init__(self) -> None:
        if not 0 <= self.party < self.parties <= len(self.sizes):
            raise ValueError(
                "parties are numbered from 0 on, each with a node, got party "
                f"{self.party} of {self.parties}, and {len(self.sizes)} nodes"
            )

    @property
    def nodes(self) -> range:
        """The nodes that it held."""
        return dealt(self.party, self.parties, len(self.sizes))


def as_nodes(nodes: range) -> str:
    """Numbers of nodes, in words.

    >>> as_nodes(range(2, 5))
    'nodes 2 to 4'
    """
    first, last = nodes[0], nodes[-1]
    return f"node {first}" if first == last else f"nodes {first} to {last}"


def dealt(rank: int, size: int, nodes: int) -> range:
    """The nodes that process ``rank`` of ``size`` holds, of so many in all."""
    return range(rank * nodes // size, (rank + 1) * nodes // size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRecord(Compute, RunIdentity, Generic[Task]):
    """Training, its noise, and the claim under test.

    Without a ``seed``, noise and sampling come from a secret key, which stays in the
    folder while the run can go on, and nowhere else. With one, this is a study:
    repeatable, and its model not protected. ``public_seed`` decides how data are dealt
    and where models start; everybody may know it. ``observer`` is for whom the account
    holds; None: for an observer of all releases. ``noise_multiplier`` is of all nodes,
    or of each, and ``budgets`` are their epsilons, where those differ. ``party`` is of
    a run whose processes are parties. ``evaluate`` is on how many test records models
    are measured.
    """

    training: Task
    claim: Claim | None
    noise_multiplier: float | tuple[float, ...]
    account: str = "certified"
    budgets: tuple[float, ...] | None = None
    seed: int | None = None
    public_seed: int = 0
    observer: str | None = None
    party: PartyRecord | None = None
    evaluate: Evaluate = "tenth"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seeds(self.seed, self.public_seed)

    @property
    def own_budgets(self) -> tuple[float, ...] | None:
        """``budgets`` of the nodes whose ledger this run has: a party's, or all."""
        if self.budgets is None or self.party is None:
            return self.budgets
        held = self.party.nodes
        return self.budgets[held.start : held.stop]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditRecord(AttackSettings, RunIdentity, Generic[Task]):
    """Audit settings and the training under attack.

    Parameters
    ----------
    claim
        The promise under test.
    training, noise_multiplier
        The algorithm as it runs.
    account
        The account that certifies the run's ledger.
    planted_bug
        A name in `privaudit.auditing.experiments.planted.PLANTED`: a bug of the
        training that its ledger does not know of; None for the training as it is.
    """

    claim: Claim
    training: Task
    noise_multiplier: float
    account: str = "certified"
    adversary: str = "final-loss"
    canary: str = "blank"
    planted_bug: str | None = None
