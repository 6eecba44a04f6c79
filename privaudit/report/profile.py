"""The privacy profile of a ledger as a picture: delta against epsilon, both sides."""

from __future__ import annotations

import pathlib

import numpy as np

from privaudit.accounting import Certificate
from privaudit.report.svg import write


def draw_profile(certificate: Certificate, path: pathlib.Path) -> None:
    """Draw delta(epsilon), bounded from both sides; the chance of failure is in it."""
    from matplotlib.figure import Figure

    epsilons, lower, upper = certificate.profile()
    if upper.min() == 1:
        raise ValueError("nothing bounds epsilon here: there is no profile to draw")
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between(epsilons, np.maximum(lower, 1e-300), upper, alpha=0.3)
    axes.plot(epsilons, upper, label=f"{certificate.standing}: no more than")
    axes.plot(epsilons, np.maximum(lower, 1e-300), "--", label="no less than")
    axes.set(
        yscale="log",
        ylim=(1e-12, 1.5),
        xlabel="epsilon",
        ylabel="delta",
        title=f"Privacy profile under {certificate.relation}",
    )
    axes.legend()
    write(figure, path)
