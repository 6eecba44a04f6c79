"""`privaudit bound` and `privaudit selfcheck`: lower bounds from scores."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import Parameter

from privaudit.cli import FINE, REFUTED
from privaudit.cli.accounts import Json
from privaudit.cli.output import emit, note
from privaudit.cli.trainings import claim_of
from privaudit.cli.verdicts import status_of
from privaudit.results import Finding, Relation, round_down, round_up

if TYPE_CHECKING:
    from privaudit.auditing.bounds import Evidence, Order, Rate

Method = Annotated[
    str,
    Parameter(
        help="For any mechanism: best, rank-walk, two-binomial, clopper-pearson, "
        "betting. For Gaussian DP only: top-half, betting-gaussian."
    ),
]


def bound(
    scores: pathlib.Path,
    /,
    *,
    delta: float,
    confidence: float = 0.95,
    method: Method = "best",
    design: str | None = None,
    order: str | None = None,
    epsilon: float | None = None,
    relation: Relation = "add-or-remove-one",
    seed: int = 0,
    json: Json = False,
) -> int:
    """Bound epsilon from below by the attack scores in a file.

    Parameters
    ----------
    scores
        A .csv with the columns member (0 or 1) and score, one row for each run; or a
        .npz with arrays of these names.
    delta
        The delta at which epsilon is bounded, in [0, 1).
    confidence
        Chance that the bound is not above the true epsilon, in (0, 1).
    design
        How each run got its world: coin-flip if every run tossed a fair coin, else
        fixed. Needed for a .csv; a .npz may say it. Counts of the two worlds that fair
        coins hardly give are refused as coin-flip.
    order
        For betting and betting-gaussian, which go through the runs one by one: shuffled
        (the default) permutes the rows by the seed; time takes them as they stand, and
        assumes that this is the order of the runs.
    epsilon
        A claim to be tested; exit status 1 if it is refuted.
    relation
        What the two worlds differ in.
    seed
        Seed of the method's own random choices: splits, ties, the order of bets. Choose
        it before you see the scores.
    """
    from privaudit.auditing.bounds import ESTIMATORS, ORDERS, Betting, most_shown
    from privaudit.auditing.scores import DESIGNS, Scores

    if method not in ESTIMATORS:
        raise ValueError(
            f"there is no method {method!r}; choose one of {', '.join(ESTIMATORS)}"
        )
    if design is not None and design not in DESIGNS:
        raise ValueError(f"--design is {' or '.join(DESIGNS)}, got {design!r}")
    estimator = ESTIMATORS[method]
    if order is not None:
        if order not in ORDERS:
            raise ValueError(f"--order is {' or '.join(ORDERS)}, got {order!r}")
        if not isinstance(estimator, Betting):
            raise ValueError(
                f"{method} does not look at the order of rows; --order is for betting "
                "and betting-gaussian"
            )
        estimator = dataclasses.replace(estimator, order=cast("Order", order))
    if seed < 0:
        raise ValueError(f"--seed must be >= 0, got {seed}")
    claim = None if epsilon is None else claim_of(epsilon, delta, relation)
    try:
        known = Scores.load(scores, design)  # type: ignore[arg-type]
    except OSError as error:
        raise ValueError(f"cannot read {scores}: {error.strerror}") from None
    found = estimator(
        known,
        delta,
        confidence,
        relation=relation,
        threat_model="what the scores were made from",
        seed=seed,
    )
    most = most_shown(
        estimator,
        known.member_runs,
        known.non_member_runs,
        delta,
        confidence,
        design=known.design,
    )
    verdict = None if claim is None else Finding(claim=claim, lower=found.lower)
    evidence = found.evidence
    emit(
        {
            "epsilon_lower": found.epsilon,
            "delta": delta,
            "confidence": confidence,
            "method": method,
            "valid_for": found.lower.valid_for,
            "relation": relation,
            "design": known.design,
            "order": estimator.order if isinstance(estimator, Betting) else None,
            "seed": seed,
            "runs": {
                "member": known.member_runs,
                "non_member": known.non_member_runs,
            },
            "threshold": evidence.threshold,
            "tail": evidence.tail,
            "tpr": _rate(evidence.tpr),
            "fpr": _rate(evidence.fpr),
            "note": evidence.note,
            "most_shown": most,
            "claimed": epsilon,
            "verdict": None if verdict is None else verdict.status,
        },
        [
            *([] if claim is None else [str(claim)]),
            str(found.lower),
            *_rates(evidence),
            f"the most that so many runs could have shown: {round_down(most)}",
            *([] if verdict is None else [str(verdict)]),
        ],
        as_json=json,
    )
    return FINE if verdict is None else status_of([verdict.status])


def _rate(rate: Rate | None) -> dict[str, float] | None:
    if rate is None:
        return None
    return {"rate": rate.rate, "lower": rate.low, "upper": rate.high}


def _rates(evidence: Evidence) -> list[str]:
    lines = [evidence.note] if evidence.note else []
    if evidence.threshold is not None:
        side = "at or above" if evidence.tail == "upper" else "at or below"
        lines.append(f"scores {side} {evidence.threshold:g} say member")
    for name, rate in (("TPR", evidence.tpr), ("FPR", evidence.fpr)):
        if rate is not None:
            lines.append(
                f"{name} {rate.rate:.4f} ({rate.hits:,} of {rate.runs:,} runs), its "
                f"limits [{round_down(rate.low)}, {round_up(rate.high)}]"
            )
    return lines


def selfcheck(
    *,
    repeats: int = 100,
    runs: int = 1000,
    confidence: float = 0.95,
    estimator: list[str] | None = None,
    full: bool = False,
    seed: int = 0,
    json: Json = False,
) -> int:
    """Do the bounds keep their confidence? Exceed rates where epsilon is known.

    An estimator at confidence c may exceed the true epsilon in a share 1 - c of audits.
    Exit status 1 if one does so more often than chance explains.

    Parameters
    ----------
    repeats
        Audits a cell of the table.
    runs
        Of both worlds together, an audit.
    confidence
        Of the bounds, in (0, 1).
    estimator
        Only these; may be repeated.
    full
        2 000 repeats, an hour or so.
    seed
        Seed of the simulated audits: equal seeds give equal tables.
    """
    from privaudit.auditing import selfcheck as module
    from privaudit.auditing.bounds import ESTIMATORS, ONE_RUN

    known = {**ESTIMATORS, **ONE_RUN}
    for name in estimator or ():
        if name not in known:
            raise ValueError(f"no estimator {name!r}; there are {', '.join(known)}")
    for name, value in (("repeats", repeats), ("runs", runs - 1)):
        if value < 1:
            raise ValueError(f"--{name} is too small")
    if not 0 < confidence < 1:
        raise ValueError(f"--confidence must be in (0, 1), got {confidence}")
    rows = module.selfcheck(
        2000 if full else repeats,
        runs=runs,
        confidence=confidence,
        estimators=[known[name] for name in estimator or known],
        seed=seed,
        progress=lambda row: note(module.table([row]).splitlines()[1]),
    )
    passed = all(row.passed for row in rows)
    emit(
        {"passed": passed, "rows": [dataclasses.asdict(row) for row in rows]},
        [
            module.table(rows),
            "every estimator kept its confidence"
            if passed
            else "some estimator exceeds the truth too often",
        ],
        as_json=json,
    )
    return FINE if passed else REFUTED
