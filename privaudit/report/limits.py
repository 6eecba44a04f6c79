"""Limits of an audit: its bound against runs, and its errors against the account."""

from __future__ import annotations

import numpy as np

from privaudit.accounting import Certificate
from privaudit.auditing.bounds import ESTIMATORS, Estimator
from privaudit.auditing.bounds.ledger_family import FAMILY, family_bound
from privaudit.auditing.experiments.judgement import attacked, entries_of
from privaudit.auditing.experiments.outcome import Gap
from privaudit.auditing.programs.audit import SAME_SCORE
from privaudit.auditing.scores import Scores
from privaudit.report.attack import roc_of
from privaudit.report.load import FinishedAudit
from privaudit.report.numbers import down, up
from privaudit.report.program import FinishedProgram
from privaudit.report.standing import WORDS
from privaudit.report.svg import (
    COLOURS,
    allowed,
    drawing,
    from_zero,
    guessing,
    inline,
    percent,
)
from privaudit.results import LowerBound, Standing

_PARTS = 5  # of the runs, each half of the one before, that a bound is drawn of


def sentences(run: FinishedAudit | FinishedProgram) -> list[str]:
    """The bound beside the verdict's, and where the rest of epsilon went."""
    result = run.result
    lines = []
    if result.beside is not None:
        lines.append(_beside(result.beside))
    if isinstance(run, FinishedProgram) and run.result.one_score:
        lines.append(SAME_SCORE)
    if result.stopped is not None:
        lines.append(f"The audit {result.stopped}.")
    if result.rates is not None:
        lines.append(
            f"How well the attack told the worlds apart: {result.rates}. These rates "
            "bound no ε by themselves."
        )
    standing = (
        run.result.nodes[attacked(run.config, run.result.nodes)].standing
        if isinstance(run, FinishedAudit)
        else "certified"
        if run.upper is None  # and then no gap
        else run.upper.standing
    )
    if result.gap is not None:
        lines.append(_parts(result.gap, standing, result.lower().method))
    if result.beside_gap is not None and result.beside is not None:
        parts = _parts(result.beside_gap, standing, result.beside.method)
        lines.append(
            f"By the method {result.beside.method}: {parts[0].lower()}{parts[1:]}"
        )
    return lines


def _beside(bound: LowerBound) -> str:
    figure = f"ε is at least {down(bound.epsilon)} ({bound.method})"
    if bound.valid_for == "any mechanism":
        return (
            f"For any mechanism, the same scores say: {figure}. It differs from a "
            "bound within the family of its releases, which supposes their form."
        )
    return (
        f"Within the family of {bound.valid_for}, the same scores say: {figure}, "
        f"with {100 * bound.confidence:g} % confidence for itself. It is no bound for "
        "a mechanism outside of that family, and refutes nothing."
    )


def _parts(gap: Gap, standing: Standing, method: str) -> str:
    """As in the terminal, and what the figures are of."""
    said = str(gap)
    return (
        f"{said} For the canary's node {up(gap.certified)} {WORDS[standing].is_so}, "
        f"and what was accounted reaches {down(gap.attained)}. The best attack on "
        f"that account shows about {gap.reachable:.3g} in so many {gap.counted}, by "
        f"the method {method}."
    )


def certificate_of(run: FinishedAudit | FinishedProgram) -> Certificate:
    """Certificate of the node under attack: of a program's nodes the worst."""
    assert run.ledger is not None
    nodes = run.result.nodes
    if isinstance(run, FinishedProgram):
        node = max(range(len(nodes)), key=lambda node: nodes[node].epsilon)
    else:
        node = attacked(run.config, nodes)
    return Certificate.of(run.ledger, nodes[node].relation).node(node)


def accounted(run: FinishedAudit | FinishedProgram) -> Certificate | None:
    """As `certificate_of`; None without a ledger, releases, or noise in one of them."""
    if run.ledger is None:
        return None
    found = certificate_of(run)
    (entries,) = found.ledger.nodes
    noisy = entries and all(entry.release.is_private for entry in entries)
    return found if noisy else None


def _family(run: FinishedAudit) -> Estimator | None:
    """Family of the node's releases; None where they have none."""
    certificate = accounted(run)
    if certificate is None or certificate.has_passes:
        return None
    return family_bound(entries_of(run.config, run.ledger), run.upper.relation)


def trade_off(run: FinishedAudit) -> str | None:
    """Both error rates of the attack, beside the least that the account allows."""
    certificate = accounted(run)
    if certificate is None:
        return None
    curve = roc_of(run.scores, run.result.evidence)
    grid = np.linspace(0, 1, 201)
    least = certificate.trade_off(grid)
    places = np.unique(np.linspace(0, len(curve.fpr) - 1, 400).astype(int))
    with drawing(440, 430) as (figure, axes):
        label = WORDS[certificate.standing].ruled_out
        allowed(axes, grid, 0, np.minimum(least, 1), label)
        guessing(axes, grid, 1 - grid)
        label = f"the attack, all {len(run.scores):,} {run.result.lower().counted}"
        style = {"color": COLOURS["audited"], "lw": 1.8, "label": label}
        axes.plot(curve.fpr[places], 1 - curve.tpr[places], **style)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda rate, _: percent(rate))
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.set(xlabel="false positive rate", ylabel="false negative rate")
        figure.legend(loc="outside upper left", ncols=1, labelspacing=0.25)
        said = "Trade-off curve of the attack, with the region below the account's."
        return inline(figure, "tradeoff", said)


def against_runs(run: FinishedAudit) -> str | None:
    """The lower bound from ever more runs, by both estimators; None for one run."""
    if run.config.one_run:
        return None
    family, total = _family(run), len(run.scores)
    chosen: dict[str, Estimator] = {}
    if run.config.estimator in ESTIMATORS:
        chosen[run.config.estimator] = ESTIMATORS[run.config.estimator]
    if family is not None:
        chosen[FAMILY] = family
    parts = {max(20, total // 2**power) for power in range(_PARTS)}
    counts = sorted(parts & {*range(2, total + 1)})
    lower = run.result.lower()
    if len(counts) < 2 or not chosen:
        return None
    styles = (("-", "o", None), ((0, (4, 1.5)), "s", COLOURS["paper"]))
    with drawing(440, 430) as (figure, axes):
        for (label, estimator), style in zip(chosen.items(), styles, strict=False):
            line, marker, face = style
            bounds = [_prefix(run, estimator, count) for count in counts]
            said = "within the family of its releases" if label == FAMILY else label
            marked = {"marker": marker, "ms": 5, "mfc": face, "label": said}
            drawn = {"color": COLOURS["audited"], "lw": 1.8, "linestyle": line}
            axes.plot(counts, bounds, **marked, **drawn)
        if np.isfinite(run.upper.epsilon):
            style = {"color": COLOURS["allowed"], "lw": 1.6}
            axes.axhline(run.upper.epsilon, label=run.upper.standing, **style)
        axes.set_xscale("log")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.minorticks_off()
        from_zero(axes)
        axes.set_xlabel("runs, both worlds together (logarithmic)")
        axes.set_ylabel(f"lower bound on epsilon, {100 * lower.confidence:g} % each")
        figure.legend(
            loc="outside upper left", ncols=1, labelspacing=0.25, handlelength=2.6
        )
        return inline(figure, "runs", "The lower bound from ever more of the runs.")


def _prefix(run: FinishedAudit, estimator: Estimator, count: int) -> float:
    known = run.scores
    try:
        scores = Scores(known.member[:count], known.score[:count], known.design)
        estimator.check_design(scores)
    except ValueError:  # one world only, or worlds that the design does not give
        return 0.0
    lower = run.result.lower()
    return estimator(
        scores,
        lower.delta,
        lower.confidence,
        relation=lower.relation,
        threat_model=lower.threat_model,
        seed=run.config.seed,
    ).epsilon
