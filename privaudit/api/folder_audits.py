"""Audits of a training from its folder, whose model and data are named again."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from privaudit.api.planting import KeptTraining
from privaudit.api.run_audits import AuditedRun, RunAttack, audit_run
from privaudit.api.watch import SILENT, Watch
from privaudit.files import json as _json
from privaudit.files.extras import need
from privaudit.files.folder import MODEL, RunFolder
from privaudit.report.load import FinishedTraining, TrainingConfig, load
from privaudit.task_settings import OWN

if TYPE_CHECKING:
    from trainers.runs.material import Material


def audit_folder(
    path: str | os.PathLike[str],
    *,
    model: str | None = None,
    data: str | None = None,
    loss: str | None = None,
    workers: int | None = None,
    watch: Watch = SILENT,
    **how: Any,
) -> AuditedRun:
    """Audit the training in a folder; model and data are named where it does not.

    They are given as ``privaudit train`` takes them, and ``how`` as to
    `TrainedModels.audit`. Raises ``ValueError`` if they are not those of the run, as
    far as its folder can tell, and `FolderError` without a finished training.
    """
    need("an audit of a training", "train")
    from trainers.runs.material import Material
    from trainers.runs.training import Training

    found = load(path)
    if not isinstance(found, FinishedTraining):
        raise ValueError(f"{path} is no folder of a training: nothing in it is audited")
    config: TrainingConfig = found.config
    named = {"model": model, "data": data, "loss": loss}
    given = {name: value for name, value in named.items() if value is not None}
    if config.training.get("data") == OWN:
        missing = [f"--{name}" for name in ("model", "data") if name not in given]
        if missing:
            raise ValueError(
                f"{path} does not name the model and the data of its training, which "
                f"were given in Python: name them again, by {' and '.join(missing)}"
            )
    training = _json.convert({**config.training, **given}, Training, strict=False)
    material = Material.by_name(training, config.public_seed) if given else None
    folder = RunFolder(path)
    if material is not None:
        _check_model(folder, material)
    return audit_run(
        KeptTraining(
            folder=folder, config=config, training=training, material=material
        ),
        RunAttack.of(how),
        workers=workers,
        watch=watch,
    )


def _check_model(folder: RunFolder, material: Material) -> None:
    from trainers.runs.final_models import modules

    if not folder.has(MODEL):
        return
    with contextlib.suppress(OSError):
        try:
            modules((folder / MODEL).read_bytes(), material.whole)
        except RuntimeError as error:
            raise ValueError(
                f"the model is not that of the run in {folder.path}: {error}"
            ) from None
