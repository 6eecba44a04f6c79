"""`privaudit views`: what an observer of a decentralised training learns of a node."""

from __future__ import annotations

import pathlib
from typing import Annotated

from cyclopts import Parameter

from privaudit.cli.accounts import NoiseMultiplier
from privaudit.cli.options import Changes, Json
from privaudit.cli.output import emit
from privaudit.results import Relation, Unit


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
    observer: str | None = None,
    relation: Relation | None = None,
    unit: Unit = "record",
    final_models: bool = False,
    seed: int = 0,
    plot: pathlib.Path | None = None,
    json: Json = False,
) -> None:
    """What each node learns of each other one: three upper bounds on epsilon.

    Nobody reacts: as if gradients were fixed, which training breaks. Certified: valid
    for training as it is. Everything seen: the account of all releases.

    Parameters
    ----------
    delta
        In (0, 1).
    observer
        A node (3), several that collude (3,5), a wire (edge:1-2), or everybody: whoever
        hears all messages. Default: each node by itself.
    relation
        What neighbouring data differ in: as in training by default.
    unit
        record, or node: all records of a node are replaced.
    final_models
        All nodes' last models are published as well.
    seed
        Deals the data: how many records each node has.
    plot
        A file for a picture: who learns how much of whom.
    """
    from privaudit.api.views import How, views_of
    from privaudit.settings import changes_of

    found = views_of(
        what,
        changes_of(changes),
        noise_multiplier=noise_multiplier,
        delta=delta,
        how=How(observer, relation, unit, final_models, seed),
        plot=plot,
    )
    emit(found.summary(), found.lines(), as_json=json)
