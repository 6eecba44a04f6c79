"""The figures of the page, each as inline SVG."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.bounds.contract import Evidence
from privaudit.auditing.scores import Scores
from privaudit.report.numbers import down, exact, up
from privaudit.report.region import allowed_tpr
from privaudit.report.svg import COLOURS, inline, settings
from privaudit.results import Claim, LowerBound, UpperBound, round_up
from trainers.outcome import Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator


@contextlib.contextmanager
def _drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure of so many points, and its axes, in the page's style."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(settings()):  # pyrefly: ignore
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        yield figure, figure.add_subplot()


def epsilon_axis(
    claim: Claim | None,
    upper: UpperBound,
    lower: LowerBound | None,
    *,
    width: float,
    name: str,
) -> str:
    """What each figure leaves possible, on one axis of epsilon.

    A row a figure: the claim and the upper bound allow what is left of them, the lower
    bound what is right of it. What account and audit leave together is the band.
    """
    rows: list[tuple[str, str, float, float, str]] = []
    if claim is not None:
        text = f"ε = {exact(claim.epsilon, round_up)}"
        rows.append(("claimed", text, 0.0, claim.epsilon, "ink"))
    sign = "≈" if upper.standing == "asymptotic" else "≤"
    text = f"ε {sign} {up(upper.epsilon)}" if upper.epsilon < math.inf else "no bound"
    rows.append((upper.standing, text, 0.0, upper.epsilon, "allowed"))
    if lower is not None:
        text = f"ε ≥ {down(lower.epsilon)}"
        rows.append(("audited", text, lower.epsilon, math.inf, "worst"))
    limit = _axis_end(
        [] if claim is None else [claim.epsilon],
        upper.epsilon,
        [] if lower is None else [lower.epsilon],
    )
    with _drawing(width, 46 + 42 * len(rows)) as (figure, axes):
        if lower is not None and lower.epsilon <= min(upper.epsilon, limit):
            end = min(upper.epsilon, limit)
            axes.axvspan(
                lower.epsilon, end, facecolor=COLOURS["allowed"], alpha=0.14, lw=0
            )
        for place, (_, _, left, right, role) in enumerate(rows):
            line = {"color": COLOURS[role], "solid_capstyle": "butt"}
            ends = min(left, limit), min(right, limit)
            axes.plot(ends, (-place, -place), linewidth=6, **line)
            for end in (left, right):
                if 0 < end <= limit:
                    tick = (-place - 0.2, -place + 0.2)
                    axes.plot((end, end), tick, linewidth=2.5, **line)
            if right > limit:
                axes.plot(limit, -place, ">", color=COLOURS[role], ms=12, clip_on=False)
        if claim is not None and claim.epsilon <= limit:
            axes.axvline(claim.epsilon, color=COLOURS["ink"], lw=1.3, dashes=(4, 3))
        axes.set_xlim(0, limit)
        axes.set_ylim(-len(rows) + 0.45, 0.55)
        gap = "   " if width > 600 else "\n"
        axes.set_yticks(
            [-place for place in range(len(rows))],
            [f"{label}{gap}{text}" for label, text, *_ in rows],
        )
        for label, row in zip(axes.get_yticklabels(), rows, strict=True):
            label.set(color=COLOURS[row[-1]], fontweight="bold", fontsize=12.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=8 if width > 600 else 5)
        axes.set_xlabel("ε")
        said = "; ".join(f"{label} {text}" for label, text, *_ in rows)
        return inline(figure, name, f"One axis of epsilon: {said}.")


def _axis_end(claim: list[float], upper: float, lower: list[float]) -> float:
    """Where the axis ends; what lies beyond gets an arrow.

    A far-off upper bound would press all else into a corner, so it may lie beyond.
    """
    near = [value for value in (*claim, *lower) if 0 < value < math.inf]
    largest = max(near, default=0.0)
    if upper < math.inf and (not near or upper <= 20 * largest):
        largest = max(largest, upper)
    return 1.25 * largest or 1.0


def span(scores: Scores) -> tuple[float, float, int]:
    """Where to draw the scores, and how many lie outside.

    All of them, unless the central 98 % fill less than half of that: long tails would
    press the rest into one bin.
    """
    low, high = float(scores.score.min()), float(scores.score.max())
    inner = np.quantile(scores.score, (0.01, 0.99))
    width = float(inner[1] - inner[0])
    if 0 < width < 0.5 * (high - low):
        low = max(low, float(inner[0]) - 0.1 * width)
        high = min(high, float(inner[1]) + 0.1 * width)
    outside = int(np.count_nonzero((scores.score < low) | (scores.score > high)))
    if not high > low:
        pad = max(0.5, 0.05 * abs(low))
        low, high = low - pad, high + pad
    return low, high, outside


def histogram(scores: Scores, evidence: Evidence, *, name: str) -> str:
    """Scores of both worlds in the same bins, as shares of each world's runs."""
    low, high, outside = span(scores)
    bins = int(min(40, max(8, 2 * len(scores) ** 0.4)))
    edges = np.linspace(low, high, bins + 1)
    with _drawing(440, 430) as (figure, axes):
        for label, role, values in (
            ("member", "member", scores.members),
            ("non-member", "non-member", scores.non_members),
        ):
            heights = np.histogram(values, edges)[0] / len(values)
            axes.stairs(
                heights,
                edges,
                fill=True,
                color=COLOURS[role],
                alpha=0.25,
                linewidth=0,
            )
            axes.stairs(
                heights,
                edges,
                color=COLOURS[role],
                linewidth=1.8,
                linestyle="-" if role == "member" else (0, (4, 1.5)),
                label=f"{label} ({len(values):,} runs)",
            )
        threshold = evidence.threshold
        if threshold is not None and low <= threshold <= high:
            axes.axvline(
                threshold,
                color=COLOURS["ink"],
                linewidth=1.2,
                dashes=(2, 2),
                label="threshold",
            )
        axes.set_xlim(low, high)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda share, _: _percent(share))
        axes.locator_params(axis="x", nbins=6)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("attack score (higher says “member”)")
        axes.set_ylabel("share of that world's runs")
        figure.legend(loc="outside upper left", ncols=3, columnspacing=1.2)
        return inline(
            figure,
            name,
            f"Histogram of {len(scores):,} attack scores in both worlds; "
            f"{outside:,} lie outside the drawing.",
        )


def roc(
    scores: Scores, evidence: Evidence, claim: Claim, lower: LowerBound, *, name: str
) -> str:
    """The ROC in log-log, what the claim allows, and the tested operating point."""
    floor = min(0.05, 0.5 / max(scores.member_runs, scores.non_member_runs))
    sign = -1.0 if evidence.tail == "lower" else 1.0
    curve = Scores(scores.member, sign * scores.score, scores.design).roc()
    x, y = _thinned(curve.fpr, curve.tpr, floor)
    grid = np.logspace(math.log10(floor), 0, 240)
    least, most = allowed_tpr(claim.epsilon, claim.delta, grid)
    with _drawing(440, 430) as (figure, axes):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.fill_between(
            grid,
            np.maximum(least, floor),
            np.maximum(most, floor),
            facecolor=COLOURS["allowed"],
            alpha=0.16,
            linewidth=0,
            label=f"allowed by the claim, ε = {exact(claim.epsilon, round_up)}",
        )
        axes.plot(
            grid, grid, color=COLOURS["faint"], lw=1, dashes=(1, 2), label="guessing"
        )
        axes.step(
            x,
            y,
            where="post",
            color=COLOURS["member"],
            linewidth=1.8,
            label=f"the attack, all {len(scores):,} runs",
        )
        tpr, fpr = evidence.tpr, evidence.fpr
        if tpr is not None and fpr is not None and evidence.tail != "both":
            at = max(fpr.rate, floor), max(tpr.rate, floor)
            worst = max(fpr.high, floor), max(tpr.low, floor)
            ink = COLOURS["ink"]
            axes.plot([at[0], worst[0]], [at[1], at[1]], color=ink, linewidth=1.4)
            axes.plot([at[0], at[0]], [worst[1], at[1]], color=ink, linewidth=1.4)
            axes.plot(
                *([value] for value in at),
                "o",
                color=ink,
                markersize=6,
                clip_on=False,
                label="on the testing runs, with its limits",
            )
            axes.plot(
                *([value] for value in worst),
                "s",
                markerfacecolor=COLOURS["paper"],
                markeredgecolor=ink,
                markeredgewidth=1.4,
                markersize=6,
                clip_on=False,
                label="both limits at once: what is certain",
            )
        ticks = [
            tick for tick in (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0) if floor <= tick
        ]
        if len(ticks) < 3:
            ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1.0) if floor <= tick]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(_fixed(ticks))
            axis.set_major_formatter(lambda rate, _: _percent(rate))
            axis.set_minor_formatter(lambda rate, _: "")
        axes.set_xlim(floor, 1)
        axes.set_ylim(floor, 1.03)
        axes.set_xlabel("false positive rate (log)")
        axes.set_ylabel("true positive rate (log)")
        figure.legend(loc="outside upper left", ncols=1, labelspacing=0.25)
        return inline(
            figure,
            name,
            "ROC of the attack in log-log, with the region that the claim allows; "
            f"the limits certify epsilon at least {down(lower.epsilon)}.",
        )


def accuracy(curves: Curves, *, nodes: int, name: str) -> str:
    """Accuracy on test data over the rounds: mean of the nodes, and the worst one."""
    with _drawing(440, 280) as (figure, axes):
        label = "mean of the nodes" if nodes > 1 else "accuracy"
        axes.plot(
            curves.rounds,
            curves.accuracy,
            color=COLOURS["non-member"],
            linewidth=1.8,
            marker="." if len(curves.rounds) < 2 else "",
            label=label,
        )
        if nodes > 1:
            axes.plot(
                curves.rounds,
                curves.worst_accuracy,
                color=COLOURS["worst"],
                linewidth=1.8,
                marker="." if len(curves.rounds) < 2 else "",
                dashes=(4, 1.5),
                label="the worst node",
            )
            figure.legend(loc="outside upper left", ncols=2)
        axes.set_ylim(0, 1.02)
        axes.set_xlim(left=0)
        axes.yaxis.set_major_formatter(lambda share, _: _percent(share))
        axes.set_xlabel("round")
        axes.set_ylabel("accuracy on test images")
        return inline(figure, name, "Accuracy on test images over the rounds.")


def consensus(curves: Curves, *, name: str) -> str:
    """How far the nodes' models are from their mean, over the rounds."""
    with _drawing(440, 280) as (figure, axes):
        axes.plot(
            curves.rounds,
            curves.consensus,
            color=COLOURS["non-member"],
            linewidth=1.8,
            marker="." if len(curves.rounds) < 2 else "",
            label="root mean square over the nodes",
        )
        figure.legend(loc="outside upper left")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("round")
        axes.set_ylabel("distance from the mean model")
        return inline(figure, name, "Distance of the nodes' models over the rounds.")


def _thinned(
    fpr: NDArray[np.float64], tpr: NDArray[np.float64], floor: float, cells: int = 500
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ROC's points, no two within one cell of the drawing; 0 drawn at ``floor``."""
    x, y = np.maximum(fpr, floor), np.maximum(tpr, floor)
    scale = cells / -math.log(floor)
    cell = np.rint(np.stack([np.log(x), np.log(y)]) * scale)
    moved = np.r_[True, (np.diff(cell) != 0).any(0)]
    moved[-1] = True
    return x[moved], y[moved]


def _fixed(ticks: list[float]) -> Locator:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(ticks)


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"
