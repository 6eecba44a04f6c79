"""`privaudit demo`: what the tool can do, in half a minute."""

from __future__ import annotations

import pathlib
from typing import Annotated

from cyclopts import Parameter

from privaudit.cli import FINE, REFUTED
from privaudit.cli.accounts import Json
from privaudit.cli.output import emit, progress_bar


def demo(
    *,
    out: Annotated[
        pathlib.Path,
        Parameter(help="The demo's folder; what is there already is not done again."),
    ] = pathlib.Path("runs/demo"),
    seed: int = 0,
    workers: int | None = None,
    json: Json = False,
) -> int:
    """Audit one training on handwritten digits three times, and write one page.

    As a neighbour sees it, by its final model alone, and with a bug planted in it. The
    claim is epsilon 4 at delta 1e-5 each time. The bug makes the third audit end as
    refuted; that is its purpose, and the exit status is 0. It is 1 if a figure
    disagrees with its evidence: there is a line that names the file and both values.

    Parameters
    ----------
    seed
        Of the audits: which runs have the canary, their batches and their noise.
    workers
        Threads; as many as processors by default. Results do not depend on it.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be >= 1, got {workers}")
    from privaudit.auditing.experiments.demo import RUNS, run_demo
    from privaudit.report import demo as report
    from privaudit.report.verify import EvidenceError

    with progress_bar("runs") as progress:
        run_demo(out, seed=seed, runs=RUNS, workers=workers, progress=progress)
    views = report.load_views(out)
    try:
        page = report.write(out, views)
    except EvidenceError as error:
        differences = list(map(str, error.differences))
        emit({"page": None, "differences": differences}, differences, as_json=json)
        return REFUTED
    lower = views[0].run.result.lower()
    emit(
        {
            "folder": str(out),
            "page": str(page),
            "audits": [view.summary() for view in views],
        },
        [
            *(view.sentence for view in views),
            f"Lower bounds hold with {100 * lower.confidence:g} % confidence each, "
            f"at delta {lower.delta:g}, for {lower.valid_for}. The bug is planted: its "
            "refutation is meant, and the exit status is 0.",
            f"all three on one axis: {page}",
        ],
        as_json=json,
    )
    return FINE
