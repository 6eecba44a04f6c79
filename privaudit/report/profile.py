"""The privacy profile of a ledger as a picture: delta against epsilon, both sides."""

from __future__ import annotations

import pathlib

import numpy as np

from privaudit.accounting.parallel import views
from privaudit.accounting.pld import compose_entries
from privaudit.ledger import Ledger
from privaudit.results import Relation


def draw_profile(ledger: Ledger, relation: Relation, path: pathlib.Path) -> None:
    """Draw delta(epsilon), certified from above and below, of the worst node.

    Raises ``ValueError`` if ``path`` is of a kind that matplotlib does not write, or a
    release had no noise.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    compositions = [
        compose_entries(view, relation)
        for node in dict.fromkeys(ledger.nodes)
        for view in views(node, relation)
    ]
    top = max(one.epsilon(1e-10, 0.1).upper for one in compositions)
    epsilons = np.linspace(0, min(top, 1e4) or 1.0, 49)
    profiles = [one.profile(epsilons, 0.05) for one in compositions]
    lower = np.max([below for below, _ in profiles], axis=0)
    upper = np.max([above for _, above in profiles], axis=0)
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    axes.fill_between(epsilons, np.maximum(lower, 1e-300), upper, alpha=0.3)
    axes.plot(epsilons, upper, label="certified: no more than")
    axes.plot(epsilons, np.maximum(lower, 1e-300), "--", label="no less than")
    axes.set(
        yscale="log",
        ylim=(1e-12, 1.5),
        xlabel="epsilon",
        ylabel="delta",
        title=f"Privacy profile under {relation}",
    )
    axes.legend()
    try:
        figure.savefig(path)
    finally:
        pyplot.close(figure)
