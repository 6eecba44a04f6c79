"""What an epsilon means for an attacker, and what an audit could have shown."""

from __future__ import annotations

import math

import numpy as np

from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.scores import Scores
from privaudit.report.load import Finished, FinishedAudit
from privaudit.report.numbers import down, up


def most_caught(epsilon: float, delta: float, fpr: float) -> float:
    """Largest true positive rate at ``fpr`` under (epsilon, delta)-DP."""
    if epsilon == math.inf:
        return 1.0
    here = math.exp(min(epsilon, 700.0)) * fpr + delta
    there = 1 - math.exp(-epsilon) * (1 - delta - fpr)
    return max(0.0, min(1.0, here, there))


def most_right(epsilon: float, delta: float) -> float:
    """Largest share of right guesses, both worlds alike, under (epsilon, delta)-DP.

    (e^epsilon + delta) / (e^epsilon + 1): where TPR = 1 - FPR.
    """
    decay = math.exp(-epsilon)
    return (1 + delta * decay) / (1 + decay)


def paragraphs(run: Finished) -> list[str]:
    """What the numbers mean, a paragraph each."""
    upper, claim = run.upper, run.config.claim
    known = [
        ("As certified" if upper.standing == "certified" else "As accounted", upper)
    ]
    promised = [] if claim is None else [("If the claim holds", claim)]
    lines = []
    for opening, figure in (*promised, *known):
        epsilon, delta = figure.epsilon, figure.delta
        at = f"(ε = {up(epsilon)}, δ = {delta:.15g})"
        if epsilon == math.inf:
            lines.append(
                f"{opening} {at}: nothing. Without enough noise an attacker may be "
                "right every time."
            )
            continue
        lines.append(
            f"{opening} {at}: an attacker who wrongly accuses at most 1 % of those "
            "whose record was not used finds at most "
            f"{up(100 * most_caught(epsilon, delta, 0.01), 3)} % of those whose record "
            "was; one who tosses a coin for each guess would find 1 %. And whoever "
            "must say, of a record used or not by the toss of a fair coin, which it "
            f"was, is right at most {up(100 * most_right(epsilon, delta), 3)} % of the "
            "time; a coin is right 50 %."
        )
    if isinstance(run, FinishedAudit):
        lines += _of_the_audit(run)
    return lines


def _of_the_audit(run: FinishedAudit) -> list[str]:
    lower = run.result.lower()
    percent = f"{100 * lower.confidence:g} %"
    lines = [
        f"The audited figure is what this attack showed: with {percent} confidence ε "
        f"is at least {down(lower.epsilon)}. A low figure is no proof of safety: a "
        "better attack, or more runs, may show more. A figure above the claim is proof "
        f"against it, but for one audit in {1 / (1 - lower.confidence):.3g}, which "
        "chance alone may lead so far."
    ]
    best = perfect(run)
    if best is not None:
        lines.append(
            f"The most that {lower.member_runs:,} + {lower.non_member_runs:,} runs can "
            f"show by this method, with an attack that never errs, is ε at least "
            f"{down(best)}. "
            + (
                "That is less than the claim: no attack could have refuted it with so "
                "few runs."
                if best <= run.result.verdict.claim.epsilon
                else "That is more than the claim: an attack good enough would have "
                "refuted it."
            )
        )
    return lines


def perfect(run: FinishedAudit) -> float | None:
    """The bound that as many runs would give if no score were out of place.

    None where that cannot be said: an estimator that is not known here, or one that is
    valid for a family only and reads more from scores than their order.
    """
    lower, config = run.result.lower(), run.config
    estimator = ESTIMATORS.get(config.estimator)
    if estimator is None or estimator.valid_for != "any mechanism":
        return None
    members, others = lower.member_runs, lower.non_member_runs
    scores = Scores(
        np.repeat([True, False], [members, others]),
        np.arange(members + others, 0, -1.0),
        run.scores.design,
    )
    return estimator(
        scores,
        lower.delta,
        lower.confidence,
        relation=lower.relation,
        threat_model=lower.threat_model,
        seed=config.seed,
    ).epsilon
