"""`privaudit train`: one training, accounted."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from typing import Annotated

from cyclopts import Parameter

from privaudit.cli import FINE
from privaudit.cli.options import (
    Changes,
    Flat,
    Json,
    Kept,
    Own,
    Require,
    check_key,
    kept,
)
from privaudit.cli.output import status_of, tell
from privaudit.settings import TrainingSettings
from privaudit.task_settings import changes_of, laid_over

What = Annotated[
    str,
    Parameter(
        help="An algorithm (dp-sgd, dp-dsgd, dp-dsgt, dp-dinno, ...; sgd, dsgd, dsgt, "
        "dinno without clipping and noise), your own as module:Class, a recipe of "
        "`privaudit recipes`, or a recipe's file."
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Own(Own):
    """A transform of the user's own as well.

    Parameters
    ----------
    transform
        module:function of yours that augments a record: called with its input each time
        that it is drawn, it returns one of the same shape, such as a random flip.
    """

    transform: str | None = None


def train(
    what: What,
    /,
    *,
    settings: Annotated[TrainingSettings, Flat] = TrainingSettings(),  # frozen
    changes: Changes = (),  # type: ignore[assignment]  # cyclopts' empty list
    own: Annotated[_Own, Flat] = _Own(),  # frozen
    kept_in: Annotated[Kept, Flat] = Kept(),  # frozen
    log_dir: pathlib.Path | None = None,
    require: Require = None,
    json: Json = False,
) -> int:
    """Train once, with noise for a budget, and account what was released.

    Status 1 if the account disproves the claim: it proves that epsilon is larger.

    Noise and sampling come from a secret key, which is removed when the run ends; with
    --seed the run is a study, and its model is not protected.

    Handwritten digits are the default data. A run that was stopped continues from its
    last checkpoint, to the same bits. Started by torchrun, each rank holds some of the
    nodes, and messages go between ranks along the graph's edges; with --parties, each
    rank is a party with its own data, key and folder. With --set clock=real, workers of
    adp2sgd and adpsgd wait for nobody, and no two runs are the same.

    Parameters
    ----------
    log_dir
        A folder for TensorBoard's events: accuracy or loss, consensus distance, and the
        epsilon spent, by round. Needs the extra tensorboard.
    """
    sign = kept_in.sign
    check_key(sign, all_sign=settings.parties)
    if settings.parties:  # each has a screen of its own, but under torchrun
        os.environ.setdefault("LOCAL_RANK", "0")
        # Who is lost is said in a line, not by torch's stacks: read as torch is loaded.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from privaudit.api.console import Console

    watch = Console()
    if log_dir is not None:
        from privaudit.cli.tensorboard import Logged

        watch = Logged(log_dir)
    from privaudit.api.trainings import run_training

    try:
        found = run_training(
            what,
            settings,
            changes=laid_over(changes_of(changes), own.changes()),
            out=kept_in.out,
            claimed=require is not None,
            watch=watch,
        )
    except OSError as error:
        from trainers.network.exchange import CameBack

        if not isinstance(error, CameBack):
            raise
        watch.warn(str(error))
        os.execv(sys.executable, [sys.executable, "-m", "privaudit", *sys.argv[1:]])
    if found is None:  # rank 0 speaks for all
        return FINE
    tell(found, kept(found.path, sign), as_json=json)
    return FINE if found.verdict is None else status_of([found.status], require)
