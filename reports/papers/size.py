"""Size of an experiment, as printed and as computed: by how much it is reduced."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

from reports import told
from trainers.models import make_model

SHAPES = told(__file__)["size"]["SHAPES"]
CLASSES = {"forest": 7, "cifar-100": 100}
ONE_AT_A_TIME = ("adp2sgd", "adpsgd")  # a round is a step of one node


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Size of an experiment."""

    # rounds, nodes, batch: of one training: records that each node sees are rounds
    # times batch
    rounds: float
    nodes: float
    batch: float
    parameters: float  # of the model
    runs: float = 1  # seeds of each cell
    cells: float = 1  # numbers of a table, curves of a figure

    @property
    def gradients(self) -> float:
        """Number of gradients, of all cells and seeds together."""
        return self.rounds * self.nodes * self.batch * self.runs * self.cells

    def reduced(self, ours: Size) -> float:
        """The factor from this size to ``ours``: what is smaller, multiplied.

        What is larger there makes up for nothing.
        """
        pairs = (
            (self.rounds * self.batch, ours.rounds * ours.batch),
            (self.nodes, ours.nodes),
            (self.parameters, ours.parameters),
            (self.runs, ours.runs),
            (self.cells, ours.cells),
        )
        return math.prod(max(1.0, printed / own) for printed, own in pairs)


@functools.cache
def parameters(model: str, data: str, classes: int | None = None) -> int:
    """Number of parameters of a model by name on a data set by name."""
    data = "fashion-mnist" if data.startswith("idx:") else data
    return _counted(model, tuple(SHAPES[data]), classes or CLASSES.get(data, 10))


@functools.cache
def _counted(model: str, shape: tuple[int, ...], classes: int) -> int:
    module = make_model(model, shape, classes)
    return sum(part.numel() for part in module.parameters())


def of_records(records: list[dict[str, Any]]) -> Size:
    """Size of what was computed, from the settings kept with the results.

    Of trainings that differ in size, the smallest, on the most nodes; cells that differ
    in their seed alone are runs of one.
    """
    kinds: dict[str, int] = {}
    for record in records:
        known = {k: v for k, v in record["settings"].items() if k != "seed"}
        kinds[repr(known)] = kinds.get(repr(known), 0) + 1
    sizes = [_of(record["settings"]) for record in records]
    least = min(sizes, key=lambda size: size.rounds * size.batch * size.parameters)
    return dataclasses.replace(
        least,
        nodes=max(size.nodes for size in sizes),
        runs=min(kinds.values()) * min(size.runs for size in sizes),
        cells=len(kinds),
    )


def _of(settings: dict[str, Any]) -> Size:
    training = settings.get("training") or settings["values"]
    seeds = settings.get("seeds", settings.get("runs", 1))
    nodes, rounds = training.get("nodes", 10), training.get("rounds", 100)
    if "stages" in settings:
        rounds = sum(stage[0] for stage in settings["stages"])
    if training.get("algorithm") in ONE_AT_A_TIME or "speed" in training:
        rounds /= nodes
    model = training.get("model", "softmax")
    if training.get("hidden"):
        model += f":hidden={training['hidden']}"
    if "shape" in settings:  # a pilot's
        dims = _counted(model, tuple(settings["shape"]), settings["classes"])
    else:
        digits = training.get("digits")
        classes = None if digits is None else len(digits)
        dims = parameters(model, training.get("data", "digits"), classes)
    return Size(
        rounds=rounds,
        nodes=nodes,
        batch=training.get("batch_size", 1),
        parameters=dims,
        runs=len(seeds) if isinstance(seeds, list) else seeds,
    )
