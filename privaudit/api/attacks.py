"""From the scores of an attack to a lower bound, and a check of such bounds."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import cast

from numpy.typing import ArrayLike

from privaudit.api.watch import SILENT, Watch
from privaudit.auditing import selfcheck as _selfcheck
from privaudit.auditing.bounds import (
    ESTIMATORS,
    ONE_RUN,
    ORDERS,
    Betting,
    Bound,
    Estimator,
    Order,
)
from privaudit.auditing.conclude import Tested, conclude
from privaudit.auditing.rates import AttackRates, attack_rates
from privaudit.auditing.scores import Design, Scores
from privaudit.figure_settings import ScoreSettings, SelfcheckSettings
from privaudit.files.arguments import public
from privaudit.files.json import Summary
from privaudit.results import (
    Claim,
    Finding,
    LowerBound,
    Relation,
    check_relation,
    could_show,
    round_down,
    round_up,
)
from privaudit.settings import claim_of

_KNOWN: dict[str, Estimator] = {**ESTIMATORS, **ONE_RUN}


@public
def lower_bound(
    scores: ArrayLike,
    member: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    design: Design = "coin-flip",
    method: str = "best",
    relation: Relation = "add-or-remove-one",
    seed: int = 0,
) -> LowerBound:
    """Compute a lower bound on epsilon from attack scores, at a stated confidence.

    Parameters
    ----------
    scores
        (runs,): the attack's score of each run. Members may score higher or lower.
        An array, a list or a pandas Series.
    member
        (runs,) bool: whether the record was in the training data of each run, in the
        same order.
    delta
        The delta at which epsilon is bounded, in [0, 1).
    confidence
        Probability that the bound is not above the true epsilon, in (0, 1).
    design
        How membership was decided. "coin-flip": a fair coin in each run. "fixed": the
        numbers of members and non-members were set beforehand. "one-run": ``scores``
        are those of many canaries in a single run, each in it by its own fair coin; see
        `privaudit.canaries`.
    method
        The estimator. Valid for any mechanism: "best", "rank-walk", "two-binomial",
        "clopper-pearson" or "betting". With design "one-run": "best" (here the same as
        "one-run"), "one-run", or "one-run-gaussian", valid for Gaussian DP only.
    relation
        What runs with and without the record differ in; it is stated with the bound.
    seed
        Seed of the estimator's own coins.

    Returns
    -------
    A `LowerBound`. Its ``epsilon`` is 0 if the scores show nothing. Rows are first put
    in an order that a digest of both arrays deals: theirs is of no account.

    Raises
    ------
    ValueError
        If a value is out of its range, a score is not a finite number, or fair coins
        would hardly ever give such numbers of members and non-members.

    Examples
    --------
    >>> import numpy as np
    >>> import privaudit as pa
    >>> coins = np.random.default_rng(0).random(1000) < 0.5
    >>> scores = np.random.default_rng(1).normal(size=1000) + 3 * coins
    >>> 1 < pa.lower_bound(scores, coins, delta=1e-5).epsilon < 10
    True
    """
    how = ScoreSettings(delta=delta, method=method)
    found = _estimator(how, design)(
        Scores(member, scores, design).shuffled(),
        delta,
        confidence,
        relation=check_relation(relation),
        threat_model="what the scores were made from",
        seed=seed,
    )
    return found.lower


@dataclasses.dataclass(frozen=True, slots=True)
class Bounded:
    """Lower bounds that scores in a file show.

    Parameters
    ----------
    settings
        How they became a bound.
    scores, found
        The scores, and the bound with its evidence.
    most
        The bound that so many runs could have shown.
    verdict
        On the claim, if there is one: by the bound, or, where that is valid for a
        family only, by the best one for any mechanism.
    """

    settings: ScoreSettings
    scores: Scores
    found: Bound
    most: float
    verdict: Finding | None

    @property
    def rates(self) -> AttackRates | None:
        """AUROC and TPR at fixed FPR; none of one run, whose scores may depend."""
        counts = self.scores.member_runs, self.scores.non_member_runs
        if self.scores.design == "one-run" or not all(counts):
            return None
        return attack_rates(self.scores, self.settings.confidence)

    @property
    def order(self) -> Order | None:
        """Order in which a betting estimator reads the scores."""
        estimator = _estimator(self.settings, self.scores.design)
        return estimator.order if isinstance(estimator, Betting) else None

    summary = Summary(
        "epsilon_lower=found.epsilon delta=settings.delta "
        "confidence=settings.confidence method=settings.method "
        "valid_for=found.lower.valid_for "
        "relation=settings.relation design=scores.design order seed=settings.seed "
        "runs.member=scores.member_runs runs.non_member=scores.non_member_runs "
        "threshold=found.evidence.threshold tail=found.evidence.tail "
        "tpr=found.evidence.tpr fpr=found.evidence.fpr *rates note=found.evidence.note "
        "most_shown=most claimed=settings.epsilon verdict=verdict.status"
    )

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        evidence, verdict = self.found.evidence, self.verdict
        lines = [] if verdict is None else [str(verdict.claim)]
        lines += [str(self.found.lower)]
        if verdict is not None and verdict.lower not in (None, self.found.lower):
            lines.append(f"for the verdict, {verdict.lower}")  # one for any mechanism
        lines += [evidence.note] if evidence.note else []
        if evidence.threshold is not None:
            side = "at or above" if evidence.tail == "upper" else "at or below"
            lines.append(f"scores {side} {evidence.threshold:g} say member")
        for name, rate in (("TPR", evidence.tpr), ("FPR", evidence.fpr)):
            if rate is not None:
                lines.append(
                    f"{name} {rate.rate:.4f} ({rate.hits:,} of {rate.runs:,} runs), "
                    f"its limits [{round_down(rate.low)}, {round_up(rate.high)}]"
                )
        lines += [] if self.rates is None else [str(self.rates)]
        lower = self.found.lower
        said = could_show(self.most, lower.counted, lower.method)
        lines += [said] if said else []
        return lines if verdict is None else [*lines, str(verdict)]


def bound_of_file(file: pathlib.Path, settings: ScoreSettings) -> Bounded:
    """The bound that the scores in ``file`` give, and the verdict on the claim."""
    delta, claim = settings.delta, None
    if settings.epsilon is not None:
        claim = claim_of(settings.epsilon, delta, settings.relation)
    try:
        scores = Scores.load(file, cast("Design | None", settings.design))
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from None
    estimator = _estimator(settings, scores.design)
    if settings.order != "time":
        scores = scores.shuffled()

    tested = Tested(
        scores=scores,
        claim=claim
        or Claim(epsilon=math.inf, delta=delta, relation=settings.relation, source="-"),
        sees="what the scores were made from",
        confidence=settings.confidence,
        seed=settings.seed,
    )

    def named(name: str) -> Estimator:
        if name == settings.method:
            return estimator
        return _estimator(
            dataclasses.replace(settings, method=name, order=None), scores.design
        )

    found, verdict = tested.bound(estimator), None
    if claim is not None:
        verdict = conclude(tested, settings.method, named).verdict
    most = tested.most(estimator)
    return Bounded(settings, scores, found, most, verdict)


def _estimator(settings: ScoreSettings, design: str = "coin-flip") -> Estimator:
    method, order = settings.method, settings.order
    if design == "one-run" and method == "best":
        method = "one-run"
    if method not in _KNOWN:
        raise ValueError(
            f"there is no method {method!r}; choose one of {', '.join(_KNOWN)}"
        )
    estimator = _KNOWN[method]
    if order is None:
        return estimator
    if order not in ORDERS:
        raise ValueError(f"--order is {' or '.join(ORDERS)}, got {order!r}")
    if not isinstance(estimator, Betting):
        raise ValueError(
            f"{method} does not look at the order of rows; --order is for betting and "
            "betting-gaussian"
        )
    return dataclasses.replace(estimator, order=cast("Order", order))


@dataclasses.dataclass(frozen=True, slots=True)
class Selfchecked:
    """Frequency at which each estimator exceeds the truth, where it is known."""

    rows: tuple[_selfcheck.Row, ...]

    @property
    def passed(self) -> bool:
        """Return whether none does more often than chance explains."""
        return all(row.passed for row in self.rows)

    summary = Summary("passed rows")

    def lines(self) -> list[str]:
        """A table, and what it says."""
        end = (
            "every estimator kept its confidence"
            if self.passed
            else "some estimator exceeds the truth too often"
        )
        return [*_selfcheck.table(list(self.rows)).splitlines(), end]


def selfcheck(settings: SelfcheckSettings, watch: Watch = SILENT) -> Selfchecked:
    """Simulated audits of mechanisms whose epsilon is known, by every estimator."""
    chosen = settings.estimator or list(_KNOWN)
    for name in chosen:
        if name not in _KNOWN:
            raise ValueError(f"no estimator {name!r}; there are {', '.join(_KNOWN)}")
    rows = _selfcheck.selfcheck(
        2000 if settings.full else settings.repeats,
        runs=settings.runs,
        confidence=settings.confidence,
        estimators=[_KNOWN[name] for name in chosen],
        seed=settings.seed,
        progress=watch.row,
    )
    return Selfchecked(tuple(rows))
