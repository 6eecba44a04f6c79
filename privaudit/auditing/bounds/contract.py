"""The contract of estimators: from scores to a lower bound and its assumptions."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import ClassVar, Literal

import numpy as np

from privaudit.auditing.scores import Design, Scores
from privaudit.files.arguments import Checked
from privaudit.files.json import Summary
from privaudit.results import LowerBound, Relation

Tail = Literal["upper", "lower"]
ANY = "any mechanism"


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """A share of runs, ``hits`` of ``runs``, and limits of its probability."""

    hits: int
    runs: int
    low: float
    high: float
    summary = Summary("rate lower=low upper=high")

    @classmethod
    def unlimited(cls, called: np.ndarray) -> Rate:
        """The share of ``called`` runs, whose probability nothing limits."""
        return cls(int(np.count_nonzero(called)), len(called), 0.0, 1.0)

    @property
    def rate(self) -> float:
        """Observed share; 0 if there was no run."""
        return self.hits / self.runs if self.runs else 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence that an estimator saw, for a reader; nothing is computed from it.

    ``choosing_runs`` chose the threshold, and ``testing_runs``, others, were tested.
    """

    # where "member" is said, in the unit of the scores; None without a single one
    threshold: float | None = None
    tail: Tail = "upper"  # "member" at or above the threshold; ``lower``: at or below
    # tpr, fpr: share of "member" among members, and others, of the testing runs
    tpr: Rate | None = None
    fpr: Rate | None = None
    choosing_runs: int = 0
    testing_runs: int = 0
    note: str = ""  # anything else in a few words

    @classmethod
    def of_called(
        cls,
        scores: Scores,
        called: np.ndarray,
        threshold: float,
        flipped: bool,
        note: str,
    ) -> Evidence:
        """Evidence of all ``scores``, ``called`` member or not; rates have no limits.

        ``flipped``: whether low scores say "member".
        """
        return cls(
            threshold=float(threshold),
            tail="lower" if flipped else "upper",
            tpr=Rate.unlimited(called[scores.member]),
            fpr=Rate.unlimited(called[~scores.member]),
            testing_runs=len(scores),
            note=note,
        )


Found = tuple[float, Evidence]  # what an estimator finds: epsilon, and why


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound on epsilon and the evidence that it rests on."""

    lower: LowerBound
    evidence: Evidence

    @property
    def epsilon(self) -> float:
        """The bound itself."""
        return self.lower.epsilon

    def __str__(self) -> str:
        return str(self.lower)


@dataclasses.dataclass(frozen=True, slots=True)
class Estimator(Checked, abc.ABC):
    """A method, of a ``source``, that bounds epsilon from below by ``find``."""

    name: ClassVar[str]
    designs: ClassVar[tuple[Design, ...]] = ("coin-flip", "fixed")
    source: ClassVar[str]

    @property
    def valid_for(self) -> str:
        """The mechanisms for which the confidence holds."""
        return ANY

    @property
    def limited_by_runs(self) -> bool:
        """Return whether an attack that never errs is limited by how many runs are."""
        return True

    @abc.abstractmethod
    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        """Epsilon, above the true one with probability at most ``alpha``; and why.

        Less than 0 is read as 0. ``seed`` must not depend on the scores.
        """

    def reads(self, scores: Scores) -> Scores:
        """Those of ``scores`` that it holds for; see `Scores.in_family`."""
        known = scores.in_family
        return scores if known is None or self.valid_for == ANY else known

    def check_design(self, scores: Scores) -> None:
        """Raise ``ValueError`` if the method does not hold for the runs' design."""
        if scores.design in self.designs:
            return
        if scores.design == "one-run":
            raise ValueError(
                f"{self.name} is for independent runs, and these scores are of the "
                "canaries of one run: use one-run, or one-run-gaussian"
            )
        if "fixed" not in self.designs:
            raise ValueError(
                f"{self.name} is valid only if every run tossed a fair coin for its "
                f"world; these scores are of the design {scores.design}: "
                "use rank-walk, two-binomial or clopper-pearson"
            )

    def __call__(
        self,
        scores: Scores,
        delta: float,
        confidence: float = 0.95,
        *,
        relation: Relation = "add-or-remove-one",
        threat_model: str,
        seed: int = 0,
    ) -> Bound:
        """The lower bound at ``delta`` in [0, 1) from ``scores`` of independent runs.

        Above the true epsilon with probability at most ``1 - confidence``.
        ``relation``, ``threat_model`` are passed on; ``seed``, of own coins, is to be
        fixed before the scores are seen. ``ValueError`` out of range, or for another
        design of runs.
        """
        if not 0 <= delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {delta}")
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {confidence}")
        # Sums with numbers of a shorter kind would be rounded to it.
        delta, confidence = float(delta), float(confidence)
        read = self.reads(scores)
        self.check_design(read)
        epsilon, evidence = self.find(read, delta, 1 - confidence, seed)
        if not np.ptp(read.score):  # equal ones show nothing, however ties are broken
            epsilon = 0.0
        if math.isnan(epsilon):
            raise ArithmeticError(f"{self.name} could not compute a bound")
        return Bound(
            lower=LowerBound(
                epsilon=max(0.0, float(epsilon)),
                delta=delta,
                relation=relation,
                method=self.name,
                source=self.source,
                confidence=confidence,
                threat_model=threat_model,
                valid_for=self.valid_for,
                member_runs=scores.member_runs,
                non_member_runs=scores.non_member_runs,
            ),
            evidence=evidence,
        )


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers of an estimator, independent of those of ``default_rng(seed)``.

    Runs often draw worlds from the latter, which ties broken by it would know.
    """
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
    return np.random.default_rng(np.random.SeedSequence([seed, *purpose.encode()]))
