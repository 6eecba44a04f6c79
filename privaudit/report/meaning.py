"""Meaning of an epsilon for an attacker, and what an audit could have shown."""

from __future__ import annotations

import math

import numpy as np

from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.scores import Scores
from privaudit.report.load import FinishedAudit, Paged
from privaudit.report.numbers import claimed, down, up
from privaudit.report.program import FinishedProgram
from privaudit.report.region import allowed_tpr, most_right
from privaudit.report.standing import WORDS
from privaudit.results import Claim, UpperBound, seen_by


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
    seer = seen_by(figure.observer).removeprefix("; seen by ")
    who = f"an attacker who sees no more than {seer}" if seer else "an attacker"
    if epsilon == math.inf:
        return f"{who} may be right every time"
    caught = float(allowed_tpr(epsilon, delta, np.array([0.01]))[1][0])
    right = most_right(epsilon, delta)
    whose = "record was" if unit == "record" else "records were"
    one = "one record was" if unit == "record" else f"the records of one {unit} were"
    return (
        f"{who} {'and' if seer else 'who'} wrongly accuses at most 1 % of those whose "
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
    best = perfect(run) if isinstance(run, FinishedAudit) else run.result.most_shown
    if best is None or best == math.inf:
        return lines
    end = (
        f"That is not above the claim: with so few {lower.counted} no attack could "
        "have refuted it."
        if best <= promised
        else f"That is above the claim: {lower.counted} enough to refute it, had an "
        "attack been good enough."
        if run.status != "refuted"
        else ""
    )
    lines.append(
        f"The most that {lower.member_runs:,} + {lower.non_member_runs:,} "
        f"{lower.counted} can show by this method, with an attack that never errs, is "
        f"ε at least {down(best)}. {end}".strip()
    )
    return lines


def perfect(run: FinishedAudit) -> float | None:
    """The bound that as many runs would give to an attack that never errs.

    None where that cannot be said: an estimator that is not known here, or one that is
    valid for a family only and reads more from scores than their order.
    """
    lower, config = run.result.lower(), run.config
    if config.one_run:  # valid for a family: it still reads no more than order
        return None if run.result.gap is None else run.result.gap.most
    estimator = ESTIMATORS.get(config.estimator)
    if estimator is None or estimator.valid_for != "any mechanism":
        return None
    worlds = np.repeat([True, False], [lower.member_runs, lower.non_member_runs])
    best = estimator(
        Scores(worlds, worlds.astype(float), run.scores.design),
        lower.delta,
        lower.confidence,
        relation=lower.relation,
        threat_model=lower.threat_model,
        seed=config.seed,
    ).epsilon
    # Else the method rewards something else than order, and this is no maximum.
    return best if best >= lower.epsilon else None
