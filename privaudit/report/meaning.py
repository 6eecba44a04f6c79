"""Meaning of an epsilon for an attacker: rates that it allows, guesses, audits."""

from __future__ import annotations

import math

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from privaudit.auditing.bounds.two_binomial import ceiling
from privaudit.report.load import FinishedAudit, Paged
from privaudit.report.numbers import claimed, down, seer, up
from privaudit.report.program import FinishedProgram
from privaudit.report.standing import WORDS
from privaudit.results import Claim, UpperBound


def allowed_tpr(
    epsilon: float, delta: float, fpr: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and largest TPR at ``fpr`` that (epsilon, delta)-DP allows."""
    if epsilon == math.inf:
        return np.zeros_like(fpr), np.ones_like(fpr)
    return 1 - ceiling(1 - fpr, epsilon, delta), ceiling(fpr, epsilon, delta)


def most_right(epsilon: float, delta: float) -> float:
    """Largest share of right guesses at a fair coin, under (epsilon, delta)-DP.

    (e^epsilon + delta) / (e^epsilon + 1): where TPR = 1 - FPR.

    >>> most_right(0.0, 0.0), most_right(math.inf, 0.0)
    (0.5, 1.0)
    """
    decay = math.exp(-epsilon)
    return (1 + delta * decay) / (1 + decay)


def paragraphs(run: Paged | FinishedProgram) -> list[str]:
    """Explain the numbers, a paragraph each."""
    lines = of_figures(run.config.claim, run.upper)
    if isinstance(run, FinishedAudit | FinishedProgram):
        lines += _of_the_audit(run)
    return lines


def of_figures(claim: Claim | None, upper: UpperBound | None) -> list[str]:
    """Explain claim and account for an attacker, a paragraph each."""
    lines: list[str] = []
    found = "" if upper is None else _attacker(upper)
    if claim is not None:
        promised = _attacker(claim)
        at = f"ε = {claimed(claim.epsilon)} and δ = {claim.delta:.15g}"
        lines.append(f"If the claim holds, {at}: {promised}.")
        if upper and found == promised and upper.standing == "certified":
            lines.append("What is certified says the same, to these digits.")
            found = ""
    if upper and found and upper.epsilon == math.inf:
        lines.append(f"The account gives no bound: {found}.")
    elif upper and found:
        at = f"ε at most {up(upper.epsilon)} at δ = {upper.delta:.15g}"
        lines.append(f"{WORDS[upper.standing].by}, {at}: {found}.")
    return lines


def _attacker(figure: Claim | UpperBound) -> str:
    epsilon, delta, unit = figure.epsilon, figure.delta, figure.unit
    seen = seer(figure)
    who = f"an attacker who sees no more than {seen}" if seen else "an attacker"
    if epsilon == math.inf:
        return f"{who} may be right every time"
    caught = float(allowed_tpr(epsilon, delta, np.array([0.01]))[1][0])
    right = most_right(epsilon, delta)
    whose = "record was" if unit == "record" else "records were"
    one = "one record was" if unit == "record" else f"the records of one {unit} were"
    return (
        f"{who} {'and' if seen else 'who'} wrongly accuses at most 1 % of those whose "
        f"{whose} not used finds at most {up(100 * caught, 3)} % of those whose "
        f"{whose} (accusing blindly finds 1 %); and an attacker who must say "
        f"whether {one} used, where a fair coin decided it, is right at most "
        f"{up(100 * right, 3)} % of the time (guessing is right 50 %)"
    )


def _of_the_audit(run: FinishedAudit | FinishedProgram) -> list[str]:
    lower = run.result.lower()
    promised = run.config.claim.epsilon
    chance = f"one audit in {1 / (1 - lower.confidence):.3g}"
    lines = [
        "The audited figure is what this attack showed: ε is at least "
        f"{down(lower.epsilon)}, with {100 * lower.confidence:g} % confidence. A "
        "figure above the claim refutes it; where the claim holds, chance leads there "
        f"in at most {chance}. A low figure is no proof of safety: a better attack, "
        f"or more {'canaries' if lower.in_one_run else 'runs'}, may show more."
    ]
    verdict = run.result.verdict
    best, by = verdict.most, verdict.most_by
    if best is UNSET or best == math.inf or (by is UNSET and best < lower.epsilon):
        return lines  # or the method rewards something else than order
    end = (
        ""
        if by is not UNSET
        else f"That is not above the claim: with so few {lower.counted} no attack "
        "could have refuted it."
        if best <= promised
        else f"That is above the claim: {lower.counted} enough to refute it, had an "
        "attack been good enough."
        if run.status != "refuted"
        else ""
    )
    method = "this method" if by is UNSET else f"the method {by}"
    lines.append(
        f"The most that {lower.member_runs:,} + {lower.non_member_runs:,} "
        f"{lower.counted} can show by {method}, with an attack that never errs, is "
        f"ε at least {down(best)}. {end}".strip()
    )
    return lines
