"""The figures of an attack: its scores, and its ROC beside what a claim allows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting import Certificate
from privaudit.auditing.bounds.contract import Evidence
from privaudit.auditing.scores import Roc, Scores
from privaudit.report.meaning import allowed_tpr
from privaudit.report.numbers import claimed, down
from privaudit.report.standing import WORDS
from privaudit.report.svg import COLOURS, allowed, drawing, guessing, inline, percent
from privaudit.results import Claim, LowerBound


def span(scores: Scores) -> tuple[float, float, int]:
    """Range in which to draw the scores, and how many lie outside.

    All of them, unless the central 98 % fill less than half of that.
    """
    low, high = float(scores.score.min()), float(scores.score.max())
    inner = np.quantile(scores.score, (0.01, 0.99))
    width = float(inner[1] - inner[0])
    if 0 < width < 0.5 * (high - low):
        low = max(low, float(inner[0]) - 0.1 * width)
        high = min(high, float(inner[1]) + 0.1 * width)
    outside = int(np.count_nonzero((scores.score < low) | (scores.score > high)))
    if high - low <= 1e-13 * max(abs(low), abs(high)):  # one score, to drawing
        pad = max(0.5, 0.05 * abs(low))
        low, high = low - pad, high + pad
    return low, high, outside


def histogram(scores: Scores, evidence: Evidence) -> str:
    """Scores of both worlds in the same bins, as shares of each world's runs."""
    low, high, outside = span(scores)
    bins = int(min(40, max(8, 2 * len(scores) ** 0.4)))
    edges = np.linspace(low, high, bins + 1)
    with drawing(440, 430) as (figure, axes):
        for world, values, style in (
            ("member", scores.members, "-"),
            ("non-member", scores.non_members, (0, (4, 1.5))),
        ):
            heights = np.histogram(values, edges)[0] / len(values)
            filled = {"fill": True, "alpha": 0.25, "lw": 0}
            axes.stairs(heights, edges, color=COLOURS[world], **filled)
            drawn = {"color": COLOURS[world], "lw": 1.8, "linestyle": style}
            label = f"{world} ({len(values):,} {_counted(scores)})"
            axes.stairs(heights, edges, label=label, **drawn)
        threshold = evidence.threshold
        if threshold is not None and low <= threshold <= high:
            line = {"color": COLOURS["ink"], "linewidth": 1.2, "dashes": (2, 2)}
            axes.axvline(threshold, label="threshold", **line)
        axes.set_xlim(low, high)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda share, _: percent(share))
        axes.locator_params(axis="x", nbins=6)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("attack score (higher says “member”)")
        axes.set_ylabel(f"share of that world's {_counted(scores)}")
        figure.legend(loc="outside upper left", ncols=3, columnspacing=1.2)
        said = (
            f"Histogram of {len(scores):,} attack scores in both worlds; "
            f"{outside:,} lie outside the drawing."
        )
        return inline(figure, "scores", said)


def roc_of(scores: Scores, evidence: Evidence) -> Roc:
    """The ROC of the scores, as the attack reads them: low ones for members, maybe."""
    sign = -1.0 if evidence.tail == "lower" else 1.0
    return Scores(scores.member, sign * scores.score, scores.design).roc()


def _counted(scores: Scores) -> str:
    return "canaries" if scores.design == "one-run" else "runs"


def has_limits(evidence: Evidence) -> bool:
    """Return whether limits on both rates tested a threshold, which `roc` marks."""
    tpr, fpr = evidence.tpr, evidence.fpr
    if tpr is None or fpr is None or evidence.tail == "both":
        return False
    return (tpr.low, fpr.high) != (0.0, 1.0)  # else they are not used


def roc(
    scores: Scores,
    evidence: Evidence,
    claim: Claim,
    lower: LowerBound,
    certificate: Certificate | None,
) -> str:
    """The ROC in log-log, what claim and certificate allow, and the tested point."""
    from matplotlib.ticker import FixedLocator

    floor = min(0.05, 0.5 / max(scores.member_runs, scores.non_member_runs))
    found = roc_of(scores, evidence)
    x, y = _thinned(found.fpr, found.tpr, floor)
    grid = np.logspace(math.log10(floor), 0, 240)
    least, most = allowed_tpr(claim.epsilon, claim.delta, grid)
    with drawing(440, 430) as (figure, axes):
        axes.set_xscale("log")
        axes.set_yscale("log")
        label = f"allowed by the claim, ε = {claimed(claim.epsilon)}"
        allowed(axes, grid, np.maximum(least, floor), np.maximum(most, floor), label)
        if certificate is not None:
            curve = np.maximum(1 - certificate.trade_off(grid), floor)
            label = WORDS[certificate.standing].most
            axes.plot(grid, curve, color=COLOURS["allowed"], lw=1.6, label=label)
        guessing(axes, grid, grid)
        label = f"the attack, all {len(scores):,} {_counted(scores)}"
        style = {"color": COLOURS["audited"], "lw": 1.8, "label": label}
        axes.step(x, y, where="post", **style)
        tpr, fpr = evidence.tpr, evidence.fpr
        if tpr is not None and fpr is not None and evidence.tail != "both":
            at = max(fpr.rate, floor), max(tpr.rate, floor)
            worst = max(fpr.high, floor), max(tpr.low, floor)
            ink = COLOURS["ink"]
            limited = has_limits(evidence)
            if limited:
                axes.plot([at[0], worst[0]], [at[1], at[1]], color=ink, lw=1.4)
                axes.plot([at[0], at[0]], [worst[1], at[1]], color=ink, lw=1.4)
            label = "on the testing runs" + (", with its limits" if limited else "")
            axes.plot(*at, "o", color=ink, ms=6, clip_on=False, label=label)
            if limited:
                label = "both limits at once"
                style = {"mfc": COLOURS["paper"], "mec": ink, "label": label}
                axes.plot(*worst, "s", mew=1.4, ms=6, clip_on=False, **style)
        ticks = [x for x in (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0) if floor <= x]
        if len(ticks) < 3:
            ticks = [x for x in (0.05, 0.1, 0.2, 0.5, 1.0) if floor <= x]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter(lambda rate, _: percent(rate))
            axis.set_minor_formatter(lambda rate, _: "")
        axes.set(xlim=(floor, 1), ylim=(floor, 1.03))
        axes.set_xlabel("false positive rate (logarithmic)")
        axes.set_ylabel("true positive rate (logarithmic)")
        figure.legend(loc="outside upper left", ncols=1, labelspacing=0.25)
        said = (
            "ROC of the attack in log-log, with the region that the claim allows; "
            f"by its limits, epsilon is at least {down(lower.epsilon)}."
        )
        return inline(figure, "roc", said)


def _thinned(
    fpr: NDArray[np.float64], tpr: NDArray[np.float64], floor: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ROC's points, no two within one cell of the drawing; 0 drawn at ``floor``."""
    x, y = np.maximum(fpr, floor), np.maximum(tpr, floor)
    scale = 500 / -math.log(floor)
    cell = np.rint(np.stack([np.log(x), np.log(y)]) * scale)
    moved = np.r_[True, (np.diff(cell) != 0).any(0)]
    moved[-1] = True
    return x[moved], y[moved]
