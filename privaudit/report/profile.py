"""The privacy profile of a ledger as a picture: delta against epsilon, both sides."""

from __future__ import annotations

import io
import pathlib

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.parallel import outside_passes, views
from privaudit.accounting.pld import compose_entries
from privaudit.files.folder import write_whole
from privaudit.ledger import Ledger
from privaudit.report.standing import of_curve
from privaudit.results import Relation

Floats = NDArray[np.float64]


def draw_profile(ledger: Ledger, relation: Relation, path: pathlib.Path) -> None:
    """Draw delta(epsilon), bounded from above and below, of the worst node.

    The chance that a sensitivity fails is part of delta; what is assumed is said.

    Raises ``ValueError`` if ``path`` is of a kind that matplotlib does not write, or a
    release had no noise.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    epsilons, lower, upper = profile_of(ledger, relation)
    worth = of_curve(ledger)
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    axes.fill_between(epsilons, np.maximum(lower, 1e-300), upper, alpha=0.3)
    axes.plot(epsilons, upper, label=f"{worth}: no more than")
    axes.plot(epsilons, np.maximum(lower, 1e-300), "--", label="no less than")
    axes.set(
        yscale="log",
        ylim=(1e-12, 1.5),
        xlabel="epsilon",
        ylabel="delta",
        title=f"Privacy profile under {relation}",
    )
    axes.legend()
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, format=path.suffix.removeprefix("."))
    finally:
        pyplot.close(figure)
    write_whole(path, drawn.getvalue())


def profile_of(ledger: Ledger, relation: Relation) -> tuple[Floats, Floats, Floats]:
    """Epsilons, and at each what delta of the worst node is no less and no more than.

    Raises ``ValueError`` if a release had no noise.
    """
    nodes = dict.fromkeys(ledger.nodes)
    ways = {
        node: [compose_entries(view, relation) for view in views(node, relation)]
        for node in nodes
    }
    top = max(way.epsilon(1e-10, 0.1).upper for each in ways.values() for way in each)
    epsilons = np.linspace(0, min(top, 1e4) or 1.0, 49)
    below, above = [np.zeros_like(epsilons)], []
    for node, each in ways.items():
        profiles = [way.profile(epsilons, 0.05) for way in each]
        above += [upper for _, upper in profiles]
        shared = outside_passes(node)
        if ledger.unit != "record" or ledger.failure > 0:
            continue  # as in `privaudit.accounting.account.certified_lower`
        if len(shared) < len(node):
            profiles = [compose_entries(shared, relation).profile(epsilons, 0.05)]
        below += [lower for lower, _ in profiles]
    most = np.minimum(np.max(above, axis=0) + ledger.failure, 1.0)
    return epsilons, np.max(below, axis=0), most
