"""`privaudit demo`: three audits of one training, on one page."""

from __future__ import annotations

import pathlib
from typing import Annotated

from cyclopts import Parameter

from privaudit.cli import FINE
from privaudit.cli.options import Json
from privaudit.cli.output import emit
from privaudit.cli.runs import differing


def demo(
    *,
    out: Annotated[
        pathlib.Path,
        Parameter(
            help="The demo's folder. Audits that are finished there are not repeated."
        ),
    ] = pathlib.Path("runs/demo"),
    seed: int = 0,
    workers: int | None = None,
    json: Json = False,
) -> int:
    """Audit one training on handwritten digits three times, and write one page.

    The first audit attacks as a neighbour, the second by the final model alone, the
    third a training with a planted bug. The claim is epsilon 4 at delta 1e-5 each time.
    The bug makes the third audit end as refuted; that is its purpose, and the exit
    status is 0. It is 1 if a figure disagrees with its evidence: then a line names the
    file and both values.

    Parameters
    ----------
    seed
        Seed of the audits: which runs have the canary, their batches and their noise.
    workers
        Threads; as many as processors by default. Results do not depend on it.
    """
    from privaudit.api.console import Console
    from privaudit.api.demo import demo
    from privaudit.report.verify import EvidenceError

    try:
        found = demo(out, seed=seed, workers=workers, watch=Console())
    except EvidenceError as error:
        return differing(error, as_json=json)
    emit(found.summary(), found.lines(), as_json=json)
    return FINE
