"""Default settings of audits, by algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from privaudit.task_settings import changes_of, laid_over

if TYPE_CHECKING:
    from trainers.runs.training import Training

# Appendix D of Bayrooti et al. 2023 with digits for MNIST: 300 images of 0, 1, 2, a
# node a digit, clip 10, 100 rounds. Batch, step size and start are not given there.
AUDITED: dict[str, Any] = {
    "nodes": 3,
    "digits": (0, 1, 2),
    "train": 300,
    "split": 1.0,
    "hidden": 16,
    "gain": 6.0,
    "rounds": 100,
    "batch_size": 32.0,
    "clip_norm": 10.0,
    "step_size": 0.1,
}


def training_named(algorithm: str, texts: Iterable[str], **defaults: Any) -> Training:
    """As `training_upon`, with settings as key=value, and others as ``defaults``."""
    return training_upon(algorithm, changes_of(texts), defaults, "--set")


def training_upon(
    algorithm: str, given: Mapping[str, Any], defaults: Mapping[str, Any], where: str
) -> Training:
    """The training of an algorithm by name: ``given`` settings upon its own defaults.

    ``defaults`` are an audit's: before the algorithm's own, behind its for audits.
    """
    from trainers.algorithms import family_named
    from trainers.models import MODELS
    from trainers.runs.training import training_from

    family = family_named(algorithm)
    audited = family.audited if defaults else {}
    beneath = {**family.defaults, **defaults, **audited}
    own_model = MODELS.get(str(beneath.get("model")))
    if "model" in given or (own_model and "hidden" not in own_model.options):
        beneath.pop("hidden", None)  # of another model
    values = laid_over(beneath, {**given, "algorithm": algorithm})
    return training_from(values, where=where)
