"""A privacy claim: what is claimed, its source, and how it is tested."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable
from typing import Any, Literal

from privaudit.files import toml
from privaudit.files.json import Summary
from privaudit.results import (
    MEANING,
    Bracket,
    Claim,
    Finding,
    LowerBound,
    Relation,
    Status,
    Unit,
    UpperBound,
    decided,
    round_down,
    round_up,
    stated,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Certified:
    """Bracket proved of an algorithm: the true figure lies between the two."""

    upper: float  # never below the truth; infinity where nothing bounds it
    lower: float = 0.0  # never above the truth; 0 where nothing is known
    how: str = ""  # the account, in words
    # the bracket that they are of; None where they are derived for one claim, and are
    # of its delta, relation and unit
    bracket: Bracket | None = None

    @classmethod
    def of(cls, bracket: Bracket) -> Certified:
        """Both sides of ``bracket``; what is conditional is not proved from above."""
        if bracket.assumptions:
            assumed = "; and that ".join(bracket.assumptions)
            how = f"any account has to assume that {assumed}"
            return cls(math.inf, bracket.lower, how, bracket)
        return cls(bracket.upper, bracket.lower, bracket.method, bracket)

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= self.upper:
            raise ValueError(
                f"a bracket needs 0 <= lower <= upper, got {self.lower}, {self.upper}"
            )

    @property
    def most(self) -> float:
        """``upper`` to twelve digits: stable over machines, finer than any account."""
        return float(f"{self.upper:.12g}")

    @property
    def least(self) -> float:
        """``lower`` likewise."""
        return float(f"{self.lower:.12g}")

    def __str__(self) -> str:
        return round_up(self.upper)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One more attack on the same printed form, besides the one that is shown."""

    # runs, seed: of that attack; None where nobody wrote them down
    runs: int | None = None
    seed: int | None = None
    # what it showed, at least, with the same confidence; None as above
    epsilon: float | None = None
    note: str = ""  # what else must be known of it, in words

    def __str__(self) -> str:
        runs = "runs not recorded" if self.runs is None else f"{self.runs:,} runs"
        seed = "another seed" if self.seed is None else f"seed {self.seed}"
        shown = "" if self.epsilon is None else f", at least {self.epsilon:.3f}"
        note = f" ({self.note})" if self.note else ""
        return f"{runs}, {seed}{shown}{note}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Settings of `privaudit audit`, and the claim that it tests."""

    # algorithm, settings: as on its command line
    algorithm: str
    settings: tuple[str, ...]
    noise_multiplier: float  # of the algorithm as printed
    corrected_noise: float  # of the same algorithm as corrected, for the same epsilon
    # runs, block, seed: of the audit
    runs: int
    block: int
    seed: int = 7
    confidence: float = 0.99
    # planted, seen: in words
    planted: str = (
        "one record of node 0, whose clipped gradient always points in one direction"
    )
    seen: str = "all noisy gradients of node 0"
    # how the program that was attacked differs from the paper's setting
    caveat: str = ""
    # before, after: attacks on record that were made before this one, and after it
    before: tuple[Look, ...] = ()
    after: tuple[Look, ...] = ()

    @property
    def looks(self) -> tuple[Look, ...]:
        """All attacks on record, this one too, in order."""
        this = Look(runs=self.runs, seed=self.seed, note="the one shown")
        return (*self.before, this, *self.after)

    def record(self) -> str:
        """Record of the attacks on the claim: how many, and which, in words."""
        return f"{len(self.looks)}: {'; '.join(map(str, self.looks))}"

    def command(self, epsilon: float, delta: float, *, corrected: bool = False) -> str:
        """The command line that repeats it."""
        noise = self.corrected_noise if corrected else self.noise_multiplier
        settings = " ".join(f"--set {setting}" for setting in self.settings)
        return (
            f"privaudit audit {self.algorithm} --epsilon {epsilon:g} "
            f"--delta {delta:g} --noise-multiplier {noise!r} --runs {self.runs} "
            f"--block {self.block} --adversary noisy-gradients --canary gradient "
            f"--estimator rank-walk --confidence {self.confidence:g} "
            f"--seed {self.seed} {settings}"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelayAttack(Attack):
    """Thresholds that say aloud what ``observer`` hears diluted: `attacks.relay`."""

    observer: int
    planted: str = "one record of node 0; its others are of absolute loss, |x - c|"
    seen: str = "one message that the observer hears"

    def command(self, epsilon: float, delta: float, *, corrected: bool = False) -> str:
        return "privaudit claims network"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PaperClaim:
    """One promise of a paper, at one setting.

    ``paper``, ``name``: the paper's number, and a name unique in it. ``says``: what is
    promised, in a sentence. ``where``: Theorem, equation, section. ``formula``,
    ``conditions``: the paper's own. ``quantity``: what the figures are: epsilon, or
    another quantity that is named here. ``claimed``: the figure; None if the paper
    gives none for this setting. ``delta``, ``relation``, ``unit``: what an epsilon is
    for. ``threat_model``: who sees what. ``printed``, ``corrected``: to what is proved
    of the algorithm as printed, and as corrected; the second is None where nothing is
    to be corrected. They may take seconds. ``correction``: what was corrected, in
    words. ``plain``: the finding for somebody who has read none of the papers, with its
    derivation. ``applies``: whether the theorem has anything to say here; False makes
    it "no theorem". ``attack``: against the running algorithm, if there is one.
    ``methods``: keys of `privaudit.claims.sources.SOURCES`: what the figures rest on.
    """

    paper: str
    name: str
    says: str
    where: str
    formula: str
    plain: str
    claimed: float | None
    printed: Callable[[], Certified]
    corrected: Callable[[], Certified] | None = None
    correction: str = ""
    conditions: tuple[str, ...] = ()
    quantity: str = "epsilon"
    delta: float = 0.0
    relation: Relation = "add-or-remove-one"
    unit: Unit = "record"
    threat_model: str = "whoever sees all that a node sends"
    applies: bool = True
    attack: Attack | None = None
    methods: tuple[str, ...] = ("pld",)

    @property
    def key(self) -> str:
        """``paper/name``."""
        return f"{self.paper}/{self.name}"

    def promise(self) -> Claim:
        """The epsilon that is claimed."""
        assert self.claimed is not None
        return Claim(
            epsilon=self.claimed,
            delta=self.delta,
            relation=self.relation,
            unit=self.unit,
            source=self.where,
        )


def claims_beside(module: str, **common: Any) -> Callable[..., PaperClaim]:
    """Return what makes the claims whose words are in the .toml beside a ``module``.

    It is called with the claim's key there, with fields of `PaperClaim`, and with the
    values of what stands in braces in the words. ``common`` are fields of all of them;
    tables ``all`` and ``words`` are fields and passages that several have.
    """
    path = pathlib.Path(module).with_suffix(".toml")
    told = toml.read(path)
    common.setdefault("claimed", None)
    common["paper"] = path.stem.removeprefix("paper_")
    fields = {field.name for field in dataclasses.fields(PaperClaim)}

    def claim(key: str, **given: Any) -> PaperClaim:
        values = {**told.get("words", {}), **given}
        facts: dict[str, Any] = {"name": key, **told.get("all", {})}
        facts |= told["claims"][key]
        filled = {
            name: value.format(**values)
            if isinstance(value, str)
            else tuple(value)
            if isinstance(value, list)
            else value
            for name, value in facts.items()
        }
        own = {name: value for name, value in given.items() if name in fields}
        facts = {**common, **filled, **own}
        return PaperClaim(**facts)

    return claim


@dataclasses.dataclass(frozen=True, slots=True)
class PaperFinding:
    """A paper's claim after its test: what holds of both forms, and the finding."""

    claim: PaperClaim
    printed: Certified
    corrected: Certified | None
    audited: LowerBound | None = None
    audited_corrected: LowerBound | None = None

    def __post_init__(self) -> None:
        _ = self.finding  # refuses figures that are not of the claim

    @property
    def finding(self) -> Finding | None:
        """The claim as printed with its figures; None if it claims no epsilon."""
        claim, printed = self.claim, self.printed
        if not claim.applies or claim.claimed is None or claim.quantity != "epsilon":
            return None
        proved = printed.bracket or Bracket(
            quantity="epsilon",
            at=claim.delta,
            lower=printed.lower,
            upper=printed.upper,
            reached=True,
            lower_by=printed.how,
            upper_by=printed.how,
            relation=claim.relation,
            unit=claim.unit,
        )
        return Finding(
            claim=claim.promise(),
            upper=UpperBound(
                epsilon=printed.upper,
                delta=proved.at,
                relation=proved.relation,
                unit=proved.unit,
                method="certified",
                source=printed.how,
                standing="certified",
            ),
            proved=proved,
            lower=self.audited,
        )

    @property
    def verdict(self) -> Status | Literal["no theorem"]:
        """The strongest thing that is known; see `privaudit.results.MEANING`."""
        claim, finding = self.claim, self.finding
        if not claim.applies or claim.claimed is None:
            return "no theorem"
        if finding is not None:
            return finding.status
        return decided(
            claim.claimed, upper=self.printed.upper, proved=self.printed.lower
        )

    # The object that `privaudit claims --json` prints; its keys do not change.
    summary = Summary(
        "paper=claim.paper claim=claim.name where=claim.where quantity=claim.quantity "
        "delta=claim.delta relation=claim.relation unit=claim.unit "
        "claimed=claim.claimed certified_as_printed=printed.most "
        "certified_as_printed_lower=printed.least audited_as_printed=audited.epsilon "
        "certified_as_corrected=corrected.most "
        "audited_as_corrected=audited_corrected.epsilon verdict"
    )

    def lines(self) -> list[str]:
        """For a terminal."""
        claim = self.claim
        told = "none" if claim.claimed is None else stated(claim.claimed)
        lines = [
            f"{claim.key}: {self.verdict.upper()} ({MEANING[self.verdict]})",
            f"  {claim.says} ({claim.where})",
            f"  {claim.quantity} claimed {told}; as printed at most "
            f"{self.printed} and at least {round_down(self.printed.lower)}"
            + (f"; as corrected at most {self.corrected}" if self.corrected else ""),
        ]
        if self.audited is not None:
            lines.append(f"  {self.audited}")
        if claim.attack is not None:
            lines.append(f"  attacks on record: {claim.attack.record()}")
        return lines


def judged(claim: PaperClaim) -> PaperFinding:
    """The claim held against accounts alone."""
    return PaperFinding(
        claim,
        claim.printed(),
        claim.corrected() if claim.corrected is not None else None,
    )
