"""Commands from settings to figures, without training, and of averaging."""

from __future__ import annotations

import pathlib
from typing import Annotated

from cyclopts import Parameter

from privaudit.api.console import note
from privaudit.cli.options import Changes, Flat, Json
from privaudit.cli.output import tell
from privaudit.figure_settings import (
    ConsensusSettings,
    FigureSettings,
    ReleaseSettings,
    ViewSettings,
    WorthSettings,
)
from privaudit.task_settings import changes_of

NoiseMultiplier = Annotated[
    float,
    Parameter(
        help="Standard deviation (Laplace: scale) of the noise on the SUM of a batch's "
        "clipped gradients, divided by the clip norm. Not divided by the batch size."
    ),
]
Run = Annotated[ReleaseSettings, Flat]
How = Annotated[FigureSettings, Flat]
Worth = Annotated[WorthSettings, Flat]


def noise(
    *,
    epsilon: float,
    delta: float,
    run: Run = ReleaseSettings(),  # frozen, as are the others
    ledger: list[pathlib.Path] | None = None,
    how: How = FigureSettings(),
    json: Json = False,
) -> None:
    """The least noise that meets a budget.

    Parameters
    ----------
    epsilon
        Epsilon of the budget, > 0.
    delta
        Delta of the budget, in [0, 1); 0 needs Laplace noise.
    ledger
        What else is released of the same data, and is paid from the budget: a
        ledger.json, or what epsilon --event wrote; may be repeated.
    """
    from privaudit.api.figures import noise_for

    _warn(run)
    found = noise_for(run, epsilon, delta, how, ledger or (), directions=json)
    tell(found, as_json=json)


def epsilon(
    *,
    delta: float,
    noise_multiplier: NoiseMultiplier | None = None,
    run: Run = ReleaseSettings(),
    ledger: list[pathlib.Path] | None = None,
    worth: Worth = WorthSettings(),
    event: pathlib.Path | None = None,
    how: How = FigureSettings(),
    json: Json = False,
) -> None:
    """Epsilon of noise, sampling and steps, or of a ledger: upper bound, or both sides.

    Parameters
    ----------
    delta
        The delta at which epsilon is bounded, in [0, 1). At 0 a sum of Gaussian noise
        has no finite epsilon, one of Laplace noise has.
    ledger
        A run's ledger.json, or dp-accounting's event in JSON; the worst node is
        accounted. Instead of all the settings. Given several times: runs on the same
        data, whose releases are accounted together.
    event
        Write the releases into this file, as dp-accounting's event in JSON; --ledger
        reads it again.
    """
    from privaudit.api.figures import certificate_of, epsilon_of, write_event

    _warn(run)
    certificate = certificate_of(run, noise_multiplier, ledger or (), worth)
    if event is not None:
        write_event(certificate, event)
    tell(epsilon_of(certificate, delta, how, directions=json), as_json=json)


def _warn(run: ReleaseSettings) -> None:
    if run.sampling == "shuffled":
        from privaudit.accounting.plans import SHUFFLED

        note(SHUFFLED)


def convert(
    *,
    mu: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    json: Json = False,
) -> None:
    """Convert between mu-GDP and (epsilon, delta): from two of the three, the third.

    The third is rounded to the safe side. A Gaussian release of sensitivity s and noise
    sigma, without sampling, is mu-GDP with mu = s / sigma; of several releases, mu is
    the root of the sum of squares.

    Parameters
    ----------
    mu
        mu of Gaussian differential privacy, >= 0.
    epsilon
        Epsilon, >= 0.
    delta
        Delta, in (0, 1).
    """
    from privaudit.api.figures import converted

    tell(converted(mu, epsilon, delta), as_json=json)


def consensus(
    *,
    settings: Annotated[ConsensusSettings, Flat] = ConsensusSettings(),  # frozen
    json: Json = False,
) -> None:
    """Average vectors over a graph by DPPS: how far off, and how private.

    Each node holds a vector, and sends its state with Laplace noise to those that hear
    it, again and again. Two units of privacy are accounted: the node that was asked (a
    round is b / gamma_n, and rounds add up), and all of one node's vector (only the
    first message holds it, the rest follows from messages with noise).
    """
    from trainers.runs.consensus import consensus

    tell(consensus(settings), as_json=json)


def views(
    what: Annotated[
        str,
        Parameter(
            help="An algorithm whose messages are linear in noisy gradients (dp-dsgd, "
            "dp-dsgt, const-d2p, ...), your own as module:Class, or a recipe."
        ),
    ],
    /,
    *,
    noise_multiplier: NoiseMultiplier,
    delta: float,
    changes: Changes = (),  # type: ignore[assignment]  # cyclopts' empty list
    how: Annotated[ViewSettings, Flat] = ViewSettings(),  # frozen
    plot: pathlib.Path | None = None,
    json: Json = False,
) -> None:
    """Bound what each node learns of each other one: three upper bounds on epsilon.

    "Nobody reacts": as if no node's gradients depended on what it hears, which is not
    so in training. "Certified": proved for training as it is. "Everything seen": the
    account of all releases, for an observer of all messages.

    Parameters
    ----------
    delta
        Epsilon is computed at this delta, in (0, 1).
    plot
        Draw who learns how much of whom into this file.
    """
    from privaudit.api.views import views_of

    found = views_of(
        what,
        changes_of(changes),
        noise_multiplier=noise_multiplier,
        delta=delta,
        how=how,
        plot=plot,
    )
    tell(found, as_json=json)
