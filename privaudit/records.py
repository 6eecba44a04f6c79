"""Contents of a run's ``config.json``: settings with all that was left open decided."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

from privaudit.files.arguments import Checked
from privaudit.results import Claim
from privaudit.settings import AttackSettings, Compute, RunSettings
from privaudit.task_settings import Natural

# Who scores the canaries of a run, each in a folder of its own, audit-canaries-NAME.
IN_THE_RUN = ("releases", "final-loss")

T = TypeVar("T")
Task = TypeVar("Task")  # the settings of a training: as they were read, or checked


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunIdentity(Checked):
    """The programs that made a run."""

    torch_version: str
    version: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartyRecord:
    """Share of a network's training that a party had."""

    # party, parties: its number, from 0 on, and how many there were
    party: int
    parties: int
    # how many records, or users, each node of the network had, as its party said
    sizes: tuple[int, ...]
    # what all parties call this run: no two runs with secret keys have one name
    run: str
    # how many identifiers of records it and each party have, by number; of all its own.
    # None: they were not counted
    shared: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.run:
            raise ValueError("a run of parties has a name, and none was kept")
        if self.shared is not None and len(self.shared) != self.parties:
            raise ValueError(f"{len(self.shared)} counts for {self.parties} parties")
        if min(self.shared or (0,)) < 0:
            raise ValueError(f"identifiers shared are counts >= 0, got {self.shared}")
        if not 0 <= self.party < self.parties <= len(self.sizes):
            raise ValueError(
                "parties are numbered from 0 on, each with a node, got party "
                f"{self.party} of {self.parties}, and {len(self.sizes)} nodes"
            )

    @property
    def nodes(self) -> range:
        """The nodes that it held."""
        return dealt(self.party, self.parties, len(self.sizes))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateRecord:
    """Settings that a try might have, and its noise, of all nodes or of each."""

    settings: dict[str, Any]
    noise_multiplier: float | tuple[float, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """Tries of which the run is the best, as far as its account depends on them."""

    # the law of the number of tries, as `privaudit.repeat_and_select` has them, each of
    # a candidate drawn by itself; "all": each candidate once; "public": on data
    # declared public, which the account does not count
    law: str | float
    tries: float  # the number of tries, on average
    # what a try might be. They all set the same names
    candidates: tuple[CandidateRecord, ...]
    chosen: int  # which candidate the best try was
    sizes: tuple[int, ...]  # how many records each node has
    # deviation of the noise in a try's number of records that its models get right;
    # None: tries were judged on public data
    score_noise: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.chosen < len(self.candidates):
            raise ValueError(
                f"there are {len(self.candidates)} candidates, numbered from 0 on: "
                f"none is {self.chosen}"
            )

    @property
    def best(self) -> CandidateRecord:
        """The candidate that was chosen."""
        return self.candidates[self.chosen]

    @property
    def is_charged(self) -> bool:
        """Return whether tries looked at private data."""
        return self.law != "public"

    def remarks(self) -> tuple[str, ...]:
        """Remarks on what the account counts of the tries, in sentences."""
        settings = ", ".join(f"{x}={own}" for x, own in self.best.settings.items())
        of = f"of {len(self.candidates):,} candidates {settings} came out"
        if not self.is_charged:
            return (
                f"tuned on data declared public: {of}; this costs no privacy if those "
                "data are public, and is in no account if they are not",
            )
        if self.score_noise is None:
            of += (
                ", judged on data declared public, which are in no account if they are "
                "not"
            )
        if self.law == "all":
            return (f"tuned on the private data: {of}; all tries are in the account",)
        law = self.law if isinstance(self.law, str) else f"shape {self.law:g}"
        return (
            f"tuned on the private data: {of}; the account is of the best of a secret "
            f"number of tries, {self.tries:g} on average ({law}), and assumes that the "
            "others stay secret",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipRecord:
    """Clip norm that was found in the data, with noise."""

    quantile: float  # share of the records whose first gradients are to be no longer
    # deviation of the noise in each node's numbers of records by norm
    noise_multiplier: float

    def remark(self, clip_norm: float) -> str:
        """Sentence on where the clip norm is from."""
        return (
            f"clip_norm {clip_norm:g} is about where {self.quantile:.0%} of the first "
            f"gradients are shorter, by counts with noise {self.noise_multiplier:.3g}, "
            "which the account has"
        )


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
class TrainingRecord(Compute, RunIdentity, RunSettings, Generic[Task]):
    """Training, its noise, and the claim under test.

    Without a ``seed``, noise and sampling come from a secret key, which stays in the
    folder while the run can go on, and nowhere else. With one, this is a study:
    repeatable, and its model not protected. ``public_seed`` decides how data are dealt
    and where models start; everybody may know it. ``observer`` is for whom the account
    holds; None: for an observer of all releases. ``noise_multiplier`` is of all nodes,
    or of each, and ``budgets`` are their epsilons, where those differ. ``party`` is of
    a run whose processes are parties. ``evaluate`` is on how many test records models
    are measured. ``tuning`` is of the tries of which this is the best, ``clip`` of a
    clip norm that was found in the data. ``canaries`` is how many were planted, dealt
    to ``canary_nodes`` in turn, each by a secret coin; 0: none. ``sizes`` is how many
    records each node has, where records are what is protected.
    """

    training: Task
    claim: Claim | None
    noise_multiplier: float | tuple[float, ...]
    account: str = "certified"
    budgets: tuple[float, ...] | None = None
    observer: str | None = None
    party: PartyRecord | None = None
    tuning: TuningRecord | None = None
    clip: ClipRecord | None = None
    canaries: int = 0
    canary_nodes: tuple[Natural, ...] = (0,)
    sizes: tuple[int, ...] | None = None

    @property
    def own_budgets(self) -> tuple[float, ...] | None:
        """``budgets`` of the nodes whose ledger this run has: a party's, or all."""
        return self._own(self.budgets)

    @property
    def own_sizes(self) -> tuple[int, ...] | None:
        """Numbers of records or users of these nodes; None where they are not kept."""
        return self._own(self.known_sizes)

    @property
    def known_sizes(self) -> tuple[int, ...] | None:
        """Numbers of records, or users, of all nodes; None where they are not kept."""
        kept = self.party or self.tuning
        return self.sizes if kept is None else kept.sizes

    def _own(self, each: tuple[T, ...] | None) -> tuple[T, ...] | None:
        if each is None or self.party is None:
            return each
        held = self.party.nodes
        return each[held.start : held.stop]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditRecord(AttackSettings, RunIdentity, Generic[Task]):
    """Audit settings and the training under attack."""

    claim: Claim  # the promise under test
    # training, noise_multiplier: the algorithm as it runs; the noise is of all nodes,
    # or of each
    training: Task
    noise_multiplier: float | tuple[float, ...]
    account: str = "certified"  # the account that certifies the run's ledger
    adversary: str = "final-loss"
    canary: str = "blank"
    # a name in `privaudit.auditing.experiments.plan.PLANTED`: a bug of the training
    # that its ledger does not know of; None for the training as it is
    planted_bug: str | None = None
    # by which data are dealt and models start, where the training was run before; None:
    # data by 0, and models by the audit's seed
    public_seed: int | None = None
    # whether random records of the same shapes stood in the place of the data
    random_records: bool = False
    # which the canary may join; the canaries of one run are dealt to these in turn
    canary_nodes: tuple[Natural, ...] = (0,)

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        what: Any = self.training
        return what["algorithm"] if isinstance(what, dict) else what.algorithm
