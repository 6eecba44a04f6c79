"""Settings of what is trained, on what and how; their former names, and ``--set``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from privaudit.files.arguments import check_limits
from privaudit.files.user_code import is_place

WeightName = Literal["uniform", "metropolis", "max-degree", "column-stochastic"]

OWN = "own"  # data and a model that a caller has in Python, not by a name
FOLDER = "folder:"  # of data, before the path of a folder with a file a node
# What is chosen for a budget where it is left open.
OPEN = ("rounds", "batch_size", "sampling_rate", "clip_norm", "step_size", "schedule")
IDX = "idx:"  # of data, before the path of a folder of IDX files


def is_own(data: str) -> bool:
    """Return whether these are data of the user's own, and none of those we know."""
    if data.startswith(IDX):  # which may look like module:function
        return False
    return data == OWN or data.startswith(FOLDER) or is_place(data) or is_table(data)


def placed(data: str) -> str:
    """Data as settings name them: a folder of files is marked as one."""
    return f"{FOLDER}{data}" if pathlib.Path(data).is_dir() else data


def is_table(data: str) -> bool:
    """Return whether these are data of a CSV, by a TOML file of its columns."""
    return data.endswith(".toml")


# A matrix of nodes squared, and a schedule of all rounds, are made of these: more would
# take all memory before anything is said.
Nodes = Annotated[int, Meta(ge=1, le=10_000)]
Rounds = Annotated[int, Meta(ge=1, le=1_000_000)]
Count = Annotated[int, Meta(ge=1, le=1 << 53)]  # doubles count no more
Positive = Annotated[float, Meta(gt=0)]
Natural = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Inside = Annotated[float, Meta(gt=0, lt=1)]


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Algorithm, data, model and schedule of a training: all but the noise.

    Parameters
    ----------
    algorithm
        A name in `trainers.algorithms.ALGORITHMS`, or a user's own ``module:Class``.
    nodes
        Number of nodes, at most 10,000. Central algorithms hold all data at one place,
        whatever it is.
    graph
        Who is linked to whom: a name, with its number or file where it has one, such as
        ``ring``, ``fiedler:0.39`` or ``edges:friends.csv``.
    weights
        Rule of the mixing weights: uniform, metropolis, max-degree or
        column-stochastic.
    data
        A data set by name, ``idx:FOLDER``, the user's own as ``module:function`` or
        ``folder:PATH``, or "own", which `privaudit.train` was given.
    digits
        Which classes of a data set of ten, such as 3,8; unset for the user's own data.
    train
        Number of records to train on.
    partition
        How records are dealt to nodes. "classes": a share ``split`` of them class by
        class, the rest evenly; "even": shuffled; "dirichlet:ALPHA"; "file:PATH", a file
        of node numbers; "given": own data that come as one set a node. Own data are
        never dealt by labels, which are private.
    split
        In [0, 1], of the partition "classes": 1 gives each class to one node, 0 deals
        all evenly.
    model
        A model by name, with options as in ``vit:depth=2,features=32``,
        ``module:function``, or "own", which `privaudit.train` was given.
    classes
        How many classes the targets of the user's own data have: needed where the
        model is by name, since it is never counted in private data.
    overlap
        At how many nodes one record, or user, may be; each of them releases what it is
        in. The noise of a budget and all accounts are for so many.
    hidden
        Number of hidden units, where the model has such an option. None: the model's
        own number, 32 for small-cnn.
    gain
        Scale of the initial parameters.
    rounds
        Number of rounds, at most 1,000,000.
    batch_size
        Expected number of records in a node's batch: records of small shares are drawn
        more often, and nodes count alike.
    sampling_rate
        Instead of ``batch_size``: the probability that a record is in a batch, the same
        at every node, in (0, 1]. Each node's sum is divided by the batch of a node of
        mean size, so that all records count alike; sizes of shares are public.
    sampling
        How a batch is drawn: "poisson", each record by its own coin;
        "random-allocation", each record by itself in one of an epoch's batches;
        "random-allocation:k", in k of them.
    clip_norm
        Longer gradients of a record are scaled down to this norm.
    step_size
        Size of a step, in the first round.
    final_step_size
        Step sizes fall (or rise) by equal factors to this in the last round. None: they
        stay as they are.
    schedule
        Another way: "cosine", from ``step_size`` to ``final_step_size`` or 0;
        "parts:100=0.1,150=0.01", other step sizes from those rounds on; "constant",
        "geometric". None: as ``final_step_size`` says.
    warm_up
        Number of rounds at the start over which step sizes rise from 0 by equal steps.
    optimiser
        What makes a step of each noisy gradient: sgd, momentum, adam or adamw, with
        options as in ``momentum:decay=0.8``. It costs no privacy. None: sgd.
    options
        Of the algorithm alone, such as ``rho`` of DiNNO: by name, see its entry.
    graph_seed
        Seed of random graphs.
    loss
        ``module:function`` for data of the user's own. None: cross entropy.
    transform
        ``module:function`` that augments a record: what its input goes through, by
        itself, each time that it is drawn, such as a random flip. It costs no privacy.
        None: nothing.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    """

    algorithm: str
    nodes: Nodes = 4
    graph: str = "complete"
    weights: str = "uniform"
    data: str = "digits"
    digits: tuple[int, ...] | UnsetType = tuple(range(10))
    train: Count = 1400
    partition: str = "classes"
    split: Annotated[float, Meta(ge=0, le=1)] = 0.0
    model: str = "small-cnn"
    classes: Annotated[int, Meta(ge=2)] | None = None
    overlap: Nodes = 1
    hidden: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    gain: Positive = 1.0
    rounds: Rounds = 200
    batch_size: Positive | UnsetType = 64.0
    sampling_rate: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    sampling: str = "poisson"
    clip_norm: Positive = 1.0
    step_size: Positive = 0.5
    final_step_size: Positive | None = None
    schedule: str | None = None
    warm_up: Natural = 0
    optimiser: str | None = None
    options: dict[str, Any] = {}
    graph_seed: Natural = 0
    loss: str | None = None
    transform: str | None = None

    def __post_init__(self) -> None:
        check_limits(self)
        if self.sampling_rate is not UNSET:
            msgspec.structs.force_setattr(self, "batch_size", UNSET)
        elif self.batch_size is UNSET:
            raise ValueError("give batch_size or sampling_rate")
        if self.sampling != "poisson" and batches_taken(self.sampling) is None:
            raise ValueError(
                "sampling must be poisson, random-allocation or random-allocation:k, "
                f"where each record is in k of an epoch's batches; got {self.sampling}"
            )
        if is_own(self.data):
            msgspec.structs.force_setattr(self, "digits", UNSET)
        if self.digits is UNSET:
            return
        if len(set(self.digits)) < 2 or not set(self.digits) <= set(range(10)):
            raise ValueError(
                "digits must be two or more different ones of 0 to 9, "
                f"got {list(self.digits)}"
            )
        if list(self.digits) != sorted(set(self.digits)):
            raise ValueError(f"digits must be in order, got {list(self.digits)}")


def batches_taken(sampling: str) -> int | None:
    """Number of batches of an epoch with a given record; None if none are allocated.

    >>> batches_taken("random-allocation"), batches_taken("random-allocation:2")
    (1, 2)
    """
    name, colon, text = sampling.partition(":")
    if name != "random-allocation":
        return None
    if not colon:
        return 1
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise ValueError(
            "random-allocation:k has a whole number k >= 1, in how many batches of an "
            f"epoch each record is; got {sampling}"
        )
    return int(text)


# Names that settings had in earlier versions: files that have them are still read.
FORMER_NAMES = {"lot_size": "batch_size"}


def renamed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` by the names that they have today.

    Raises ``ValueError`` if one is given by both its names.
    """
    new: dict[str, Any] = {}
    for name, value in settings.items():
        today = FORMER_NAMES.get(name, name)
        if today in new:
            raise ValueError(f"{name} is a former name of {today}: give one of them")
        new[today] = value
    return new


def laid_over(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of ``first``, with those of ``second`` where both have them.

    ``batch_size`` and ``sampling_rate`` say the same thing: one of the second leaves
    the first's other one out.

    >>> laid_over({"batch_size": 64, "nodes": 5}, {"sampling_rate": 0.1})
    {'nodes': 5, 'sampling_rate': 0.1}
    """
    sizes = {"batch_size", "sampling_rate"}
    found = renamed(first)
    second = renamed(second)
    if sizes & second.keys():
        found = {name: value for name, value in found.items() if name not in sizes}
    return {**found, **second}


def check_no_table(name: str) -> None:
    """``ValueError`` for a table's or a program's file in the place of data."""
    if name.endswith((".csv", ".tsv", ".xlsx", ".parquet")):
        raise ValueError(
            f"{name} does not say what is at which node, nor what its targets are: "
            "give --data FILE.toml, which says so of a CSV, or module:function, which "
            "reads it (pandas.read_csv, ...) and returns [(inputs, targets), ...], one "
            "a node (docs/tutorial.md has both, for text, dates and missing values)"
        )
    if name.endswith(".py"):
        raise ValueError(f"{name} is a file: name what is in it, {name}:NAME")


def changes_of(texts: Iterable[str]) -> dict[str, Any]:
    """Settings that were given as key=value; ``ValueError`` for what is none."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError(f"--set takes key=value, got {text!r}")
        if name in values:
            raise ValueError(f"--set {name} is given twice; leave one of them out")
        values[name] = value.split(",") if name == "digits" else value.strip()
    return renamed(values)
