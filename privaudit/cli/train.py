"""`privaudit train`: one training, accounted."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from typing import Annotated, Any

from cyclopts import Parameter

from privaudit.cli import FINE
from privaudit.cli.options import Changes, Flat, Json, Out, Require
from privaudit.cli.output import emit, status_of
from privaudit.cli.signing import Sign, check_key, kept
from privaudit.settings import TrainingSettings
from privaudit.task_settings import FOLDER, changes_of, laid_over

What = Annotated[
    str,
    Parameter(
        help="An algorithm (dp-sgd, dp-dsgd, dp-dsgt, dp-dinno, ...; sgd, dsgd, dsgt, "
        "dinno without clipping and noise), your own as module:Class, a recipe of "
        "`privaudit recipes`, or a recipe's file."
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Own:
    """A model, data and a loss of the user's own.

    Parameters
    ----------
    model
        module:function of yours that returns a torch module, whose parameters are the
        initial model; or a name (softmax, small-cnn, tanh-mlp, ...).
    data
        module:function of yours that returns a list with one data set a node, or one
        data set for all (with --parties it is called with a node's number, and returns
        that node's); a TOML file that says what the columns of a CSV are; a folder
        with node-0.npz, node-1.npz, ..., each with arrays inputs and targets;
        idx:FOLDER, with four IDX files as MNIST's; or a name (digits, mnist, ...).
    loss
        module:function of yours that returns the loss of outputs and targets. Default:
        cross entropy.
    transform
        module:function of yours that augments a record: called with its input each time
        that it is drawn, it returns one of the same shape, such as a random flip.
    """

    model: str | None = None
    data: str | None = None
    loss: str | None = None
    transform: str | None = None

    def changes(self) -> dict[str, Any]:
        """Settings that were given."""
        data = self.data
        if data is not None and pathlib.Path(data).is_dir():
            data = f"{FOLDER}{data}"
        given = {**dataclasses.asdict(self), "data": data}
        return {name: value for name, value in given.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kept:
    """Options for where a run is kept, and who vouches for it.

    Parameters
    ----------
    log_dir
        A folder for TensorBoard's events: accuracy or loss, consensus distance, and the
        epsilon spent, by round. Needs the extra tensorboard.
    """

    out: Out = None
    sign: Sign = None
    log_dir: pathlib.Path | None = None


def train(
    what: What,
    /,
    *,
    settings: Annotated[TrainingSettings, Flat] = TrainingSettings(),  # frozen
    changes: Changes = (),  # type: ignore[assignment]  # cyclopts' empty list
    own: Annotated[_Own, Flat] = _Own(),  # frozen
    kept_in: Annotated[_Kept, Flat] = _Kept(),  # frozen
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
    """
    sign = kept_in.sign
    check_key(sign, all_sign=settings.parties)
    if settings.parties:  # each has a screen of its own, but under torchrun
        os.environ.setdefault("LOCAL_RANK", "0")
        # Who is lost is said in a line, not by torch's stacks: read as torch is loaded.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from privaudit.api.console import Console

    watch = Console()
    if kept_in.log_dir is not None:
        from privaudit.cli.tensorboard import Logged

        watch = Logged(kept_in.log_dir)
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
    lines = [*found.lines(), kept(found.path, sign)]
    emit(found.summary(), lines, as_json=json)
    return FINE if found.verdict is None else status_of([found.status], require)
