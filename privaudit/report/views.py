"""Pictures of who learns how much of whom: nodes by nodes, and on the graph."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.views import Pair, pairs_observed
from privaudit.report.load import Finished
from privaudit.report.numbers import up
from privaudit.report.svg import drawing, inline, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = {
    "nobody_reacts": "nobody reacts (not for training)",
    "certified": "certified",
    "everything_seen": "everything seen",
}
_MOST_NODES = 8  # on a page: more take seconds, and are hard to read


def draw_views(
    pairs: Sequence[Pair], joined: NDArray[np.bool_], path: pathlib.Path
) -> None:
    """Draw the three figures: a square a pair, and the graph around one node.

    ``joined``, (nodes, nodes): who hears whom. Nodes have the colour of what they learn
    of the first node with a figure; without figures by single nodes there are bars.
    """
    from matplotlib.figure import Figure

    if not pairs:
        raise ValueError("nobody is left to be protected: there is nothing to draw")
    values = [getattr(pair, name) for pair in pairs for name in _TITLES]
    finite = [value for value in values if math.isfinite(value)]
    top = max(finite, default=1.0) or 1.0
    single = len({pair.by for pair in pairs}) > 1
    figure = Figure(figsize=(12, 7.5 if single else 4), layout="constrained")
    axes = figure.subplots(2 if single else 1, 3, squeeze=False)
    for column, (name, title) in enumerate(_TITLES.items()):
        above = axes[0, column]
        above.set_title(title)
        endless = [pair for pair in pairs if math.isinf(getattr(pair, name))]
        if single:
            image = _squares(above, pairs, len(joined), name, top)
            _without_bound(above, [(int(p.by), p.of) for p in endless])
            _graph(axes[1, column], pairs, joined, name, top)
            if column == 2:
                figure.colorbar(image, ax=axes, label="epsilon, at most")
        else:
            above.bar(
                [str(pair.of) for pair in pairs],
                [min(getattr(pair, name), 1.1 * top) for pair in pairs],
            )
            above.set(xlabel="node", ylabel="epsilon, at most", ylim=(0, 1.1 * top))
            _without_bound(above, [(pairs.index(p), 0.55 * top) for p in endless])
    write(figure, path)


def on_page(run: Finished) -> str | None:
    """Nodes by nodes, for a page; None where no ledger alone says who learns what."""
    upper, nodes = run.upper, len(run.ledger.nodes)
    if nodes > _MOST_NODES:
        return None
    try:
        pairs = pairs_observed(
            run.config.settings.algorithm, run.ledger, upper.delta, upper.relation
        )
    except ValueError:  # releases that have no account by observer
        return None
    finite = [p.certified for p in pairs if math.isfinite(p.certified)]
    if not finite:
        return None
    every = max(pair.everything_seen for pair in pairs)
    with drawing(440, 380) as (figure, axes):
        top = every if math.isfinite(every) else max(finite)
        image = _squares(axes, pairs, nodes, "certified", top or 1.0)
        for pair in pairs:
            ink = "white" if pair.certified > 0.5 * top else "black"
            style = {"ha": "center", "va": "center", "color": ink}
            axes.text(int(pair.by), pair.of, up(pair.certified), fontsize=8, **style)
        axes.grid(visible=False)
        axes.set_xticks(range(nodes))
        axes.set_yticks(range(nodes))
        figure.colorbar(image, ax=axes, label="epsilon, at most")
        worst = max(pair.certified for pair in pairs)
        said = (
            f"Of each node, what each other one learns: epsilon at most {up(worst)}; "
            f"an observer of everything, at most {up(every)}."
        )
        return inline(figure, "views", said)


def _without_bound(axes: Axes, places: Sequence[tuple[float, float]]) -> None:
    for place in places:
        axes.annotate(
            "∞", place, ha="center", va="center", color="white", fontsize=14, zorder=4
        )


def _squares(
    axes: Axes, pairs: Sequence[Pair], nodes: int, name: str, top: float
) -> Any:
    grid = np.full((nodes, nodes), np.nan)
    for pair in pairs:
        grid[pair.of, int(pair.by)] = min(getattr(pair, name), top)
    axes.set(xlabel="learned by node", ylabel="of node")
    image = axes.imshow(grid, vmin=0, vmax=top, cmap="magma_r")
    axes.locator_params(integer=True)  # a tick is a node
    return image


def _graph(
    axes: Axes, pairs: Sequence[Pair], joined: NDArray[np.bool_], name: str, top: float
) -> None:
    from matplotlib import colormaps

    of, nodes = pairs[0].of, len(joined)
    turn = 2 * np.pi * np.arange(nodes) / nodes
    x, y = np.sin(turn), np.cos(turn)
    for edge in np.argwhere(np.triu(joined | joined.T, 1)):
        axes.plot(x[edge], y[edge], color="#d9dce1", lw=1)
    known = {int(pair.by): getattr(pair, name) for pair in pairs if pair.of == of}
    colours = colormaps["magma_r"]
    for node in range(nodes):
        face = "white" if node == of else colours(min(known[node] / top, 1.0))
        axes.scatter(
            x[node], y[node], s=260, color=[face], edgecolor="#6b7078", zorder=3
        )
        if node != of and math.isinf(known[node]):
            _without_bound(axes, [(x[node], y[node])])
        axes.annotate(
            str(node), (1.18 * x[node], 1.18 * y[node]), ha="center", va="center"
        )
    axes.set(title=f"what each learns of node {of}", aspect="equal")
    axes.margins(0.2)
    axes.axis("off")
