"""The figures of every run: epsilon on one axis, and how training went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from privaudit.report.numbers import at_most, claimed, down
from privaudit.report.svg import COLOURS, WIDTHS, drawing, from_zero, inline, percent
from privaudit.results import Claim, LowerBound, UpperBound
from trainers.runs.outcome import Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def epsilon_axes(
    claim: Claim | None,
    upper: UpperBound | None,
    lowers: Sequence[tuple[str, LowerBound]],
) -> dict[str, str]:
    """Draw on one axis of epsilon what each figure leaves possible, for each width.

    Claim and upper bound allow what is left of them, a lower bound, by its label, what
    is right of it; account and audit together a band, where there is one audit.
    """
    rows: list[tuple[str, str, float, float, str]] = []
    if claim is not None:
        text = f"ε = {claimed(claim.epsilon)}"
        rows.append(("claimed", text, 0.0, claim.epsilon, "ink"))
    most = math.inf if upper is None else upper.epsilon
    if upper is not None:
        rows.append((upper.standing, at_most(upper), 0.0, most, "allowed"))
    for label, lower in lowers:
        text = f"ε ≥ {down(lower.epsilon)}"
        role = "refuted" if claim is not None and lower > claim else "audited"
        rows.append((label, text, lower.epsilon, math.inf, role))
    mark = None if claim is None else claim.epsilon
    limit = _axis_end([mark or 0.0, *(lower.epsilon for _, lower in lowers)], most)
    band = None
    if upper is not None and len(lowers) == 1:
        band = lowers[0][1].epsilon, min(most, limit)
    return {
        name: _epsilon_axis(rows, limit, band, mark, width, name)
        for name, width in WIDTHS.items()
    }


def _epsilon_axis(
    rows: Sequence[tuple[str, str, float, float, str]],
    limit: float,
    band: tuple[float, float] | None,
    claim: float | None,
    width: float,
    name: str,
) -> str:
    """Each row from where to where, up to ``limit``; behind them, the band."""
    with drawing(width, 46 + 42 * len(rows)) as (figure, axes):
        if band is not None and band[0] <= band[1]:
            axes.axvspan(*band, facecolor=COLOURS["allowed"], alpha=0.14, lw=0)
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
        if claim is not None and claim <= limit:
            axes.axvline(claim, color=COLOURS["ink"], lw=1.3, dashes=(4, 3))
        axes.set_xlim(0, limit)
        axes.set_ylim(-len(rows) + 0.45, 0.55)
        gap = "\N{EM SPACE}" if width > 600 else "\n"
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
        axes.set_xlabel("epsilon: the less, the more private")
        said = "; ".join(f"{label} {text}" for label, text, *_ in rows)
        return inline(figure, name, f"One axis of epsilon: {said}.")


def _axis_end(values: Sequence[float], upper: float) -> float:
    """End of the axis; what lies beyond, as a far-off upper bound, gets an arrow."""
    near = [value for value in values if 0 < value < math.inf]
    largest = max(near, default=0.0)
    if upper < math.inf and (not near or upper <= 20 * largest):
        largest = max(largest, upper)
    return 1.25 * largest or 1.0


def quality(curves: Curves, nodes: int) -> str:
    """Accuracy, or the loss, on test data over the rounds, and the worst node's."""
    kind = "accuracy" if curves.accuracy is not None else "loss"
    mean, worst = getattr(curves, kind), getattr(curves, f"worst_{kind}")
    with drawing(440, 280) as (figure, axes):
        label = "mean of the nodes" if nodes > 1 else kind
        _over_rounds(axes, curves, mean, label=label)
        if nodes > 1 and worst is not None:
            style = {"role": "faint", "dashes": (4, 1.5)}
            _over_rounds(axes, curves, worst, label="the worst node", **style)
            figure.legend(loc="outside upper left", ncols=2)
        if kind == "accuracy":
            axes.set_ylim(0, 1.02)
            axes.yaxis.set_major_formatter(lambda share, _: percent(share))
        else:
            from_zero(axes)
        axes.set_ylabel(f"{kind} on test data")
        said = f"{kind.capitalize()} on test data over the rounds."
        return inline(figure, "quality", said)


def consensus(curves: Curves) -> str:
    """Draw the distance of nodes' models from their mean, over the rounds."""
    with drawing(440, 280) as (figure, axes):
        label = "root mean square over the nodes"
        _over_rounds(axes, curves, curves.consensus, label=label)
        figure.legend(loc="outside upper left")
        from_zero(axes)
        axes.set_ylabel("distance from the mean model")
        said = "Distance of the nodes' models over the rounds."
        return inline(figure, "consensus", said)


def _over_rounds(
    axes: Axes, curves: Curves, values: Any, *, role: str = "ink", **style: Any
) -> None:
    """A curve of ``values`` over the rounds; a point, where there is one alone."""
    marker = "." if len(curves.rounds) < 2 else ""
    axes.plot(
        curves.rounds, values, color=COLOURS[role], lw=1.8, marker=marker, **style
    )
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("round")
