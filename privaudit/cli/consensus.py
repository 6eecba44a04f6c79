"""`privaudit consensus`: private averaging of vectors over a graph."""

from __future__ import annotations

from typing import Annotated

from privaudit.cli.options import Flat, Json
from privaudit.cli.output import emit
from privaudit.figure_settings import ConsensusSettings


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

    found = consensus(settings)
    emit(found.summary(), found.lines(), as_json=json)
