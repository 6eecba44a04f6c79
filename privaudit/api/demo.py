"""The demo: three audits of one training, on one page."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from privaudit.api.audits import check_workers
from privaudit.api.watch import SILENT, Watch
from privaudit.files.arguments import public
from privaudit.files.extras import need
from privaudit.files.json import Summary
from privaudit.report.demo import View, load_views, write


@dataclasses.dataclass(frozen=True, slots=True)
class Demo:
    """The demo's folder, its page and its three audits."""

    path: pathlib.Path
    page: pathlib.Path
    views: tuple[View, ...]

    summary = Summary("folder=path page audits=views")

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        lower = self.views[0].run.result.lower()
        return [
            *(view.sentence for view in self.views),
            f"Lower bounds hold with {100 * lower.confidence:g} % confidence each, "
            f"at delta {lower.delta:g}, for {lower.valid_for}. The bug is planted: its "
            "refutation is meant, and the exit status is 0.",
            f"all three on one axis: {self.page}",
        ]


@public
def demo(
    out: str | os.PathLike[str] = "runs/demo",
    *,
    seed: int = 0,
    workers: int | None = None,
    watch: Watch = SILENT,
) -> Demo:
    """Audit one training on handwritten digits three times, and write one page on it.

    The first attacker sees what a neighbour sees, the second only the final model. The
    third audit is of the same training with a planted bug, and must end as refuted. All
    three take about 20 seconds.

    Parameters
    ----------
    out
        The demo's folder. Audits that are finished there are not repeated.
    seed
        Seed of the audits: which runs have the canary, their batches and their noise.
    workers
        Number of threads; by default one per processor. Results do not depend on it.
    watch
        An object that is told the progress; see `privaudit.api.watch`.

    Returns
    -------
    A `Demo` with the three audits and the path of their page.

    Raises
    ------
    ValueError
        If ``out`` is a file, or a folder that holds something else.
    privaudit.files.folder.FolderError
        If the folder is damaged, in use, or cannot be written.

    Examples
    --------
    >>> import privaudit as pa
    >>> pa.demo(workers=0)  # pa.demo() writes runs/demo/report.html
    Traceback (most recent call last):
        ...
    ValueError: --workers must be >= 1, got 0
    """
    check_workers(workers)
    need("the demo", "train", "report")
    from privaudit.auditing.experiments.demo import RUNS, run_demo

    path = pathlib.Path(out)
    with watch.runs() as progress:
        run_demo(path, seed=seed, runs=RUNS, workers=workers, progress=progress)
    views = load_views(path)
    return Demo(path, write(path, views), tuple(views))
