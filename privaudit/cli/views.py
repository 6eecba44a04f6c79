"""`privaudit views`: what an observer of a decentralised training learns of a node."""

from __future__ import annotations

import pathlib
from typing import Annotated

from cyclopts import Parameter

from privaudit.cli.accounts import NoiseMultiplier
from privaudit.cli.options import Changes, Flat, Json
from privaudit.cli.output import emit
from privaudit.figure_settings import ViewSettings
from privaudit.task_settings import changes_of


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
    emit(found.summary(), found.lines(), as_json=json)
