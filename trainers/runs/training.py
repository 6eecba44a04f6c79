"""What is trained, and how: settings that a person can write down."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from torch import nn

from privaudit.files import numbers as _numbers
from privaudit.files.errors import explained
from privaudit.results import Unit
from privaudit.schedules import Constant, Geometric
from trainers.algorithms import Family, Options, family_named, option_names
from trainers.algorithms.setting import Setting
from trainers.data import Partition, check_dataset
from trainers.models import MODELS, check_options, make_model, model_named
from trainers.network.engine import Algorithm, Schedule, per_round
from trainers.network.graphs import complete
from trainers.network.mixing import Mixing
from trainers.network.named_graphs import Weights, mixing
from trainers.oracles.oracle import Mechanism

OWN = "own"  # data and model that a caller has in Python, not by a name


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained, on what, and how; all but the noise.

    Parameters
    ----------
    algorithm
        A name in `trainers.algorithms.ALGORITHMS`, or a user's own ``module:Class``
        (`trainers.algorithms.user_algorithms`). Central ones hold all data at one
        place, whatever ``nodes``.
    nodes, graph, graph_seed, weights
        The network: a name in `trainers.network.named_graphs.GRAPHS` with its number or
        file, such as ``ring``, ``fiedler:0.39`` or ``edges:friends.csv``; the seed of
        random graphs; and the rule of the mixing weights.
    data, digits, train
        A name in `trainers.data.DATASETS`, which classes of a set of ten, and how many
        records to train on; or "own", see `trainers.runs.material`.
    partition, split
        How they are dealt. "classes": A(t) with t = ``split``, t = 1 gives each class
        to one node, t = 0 deals all evenly; "even": shuffled; "dirichlet:ALPHA";
        "file:PATH", a file of node numbers.
    model, hidden, gain
        A name in `trainers.models.MODELS`, ``module:function`` or "own", with options
        as in ``vit:depth=2,features=32``; its hidden units, where it has such an option
        (None: its own number, 32 for small-cnn); scale of its initial parameters.
    rounds, lot_size, clip_norm, step_size
        Of the algorithm. ``lot_size`` is the expected number of records a lot, a node.
    final_step_size
        Step sizes fall (or rise) by equal factors from ``step_size`` in the first round
        to this in the last; None keeps them constant.
    options
        Of the algorithm alone, such as ``rho`` of DiNNO: by name, see its entry.

    Raises
    ------
    ValueError
        If a setting is out of its range, or the algorithm has no use for it.
    """

    algorithm: str
    nodes: int = 4
    graph: str = "complete"
    weights: Weights = "uniform"
    data: str = "digits"
    digits: tuple[int, ...] = tuple(range(10))
    train: int = 1400
    partition: str = "classes"
    split: float = 0.0
    model: str = "small-cnn"
    hidden: int | None = None
    gain: float = 1.0
    rounds: int = 200
    lot_size: float = 64.0
    clip_norm: float = 1.0
    step_size: float = 0.5
    final_step_size: float | None = None
    options: dict[str, Any] = {}
    graph_seed: int = 0

    def __post_init__(self) -> None:
        _ = self.family  # there is one
        for name in ("nodes", "train", "hidden", "rounds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        for name in ("lot_size", "clip_norm", "gain", "step_size", "final_step_size"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be > 0 and finite, got {value}")
        if self.graph_seed < 0:
            raise ValueError(f"graph_seed must be >= 0, got {self.graph_seed}")
        self.algorithm_options()
        if not 0 <= self.split <= 1:
            raise ValueError(f"split must be in [0, 1], got {self.split}")
        if len(set(self.digits)) < 2 or not set(self.digits) <= set(range(10)):
            raise ValueError(
                "digits must be two or more different ones of 0 to 9, "
                f"got {list(self.digits)}"
            )
        if list(self.digits) != sorted(set(self.digits)):
            raise ValueError(f"digits must be in order, got {list(self.digits)}")
        classes = 10 if self.data == OWN else check_dataset(self.data).classes
        if classes != 10 and len(self.digits) != 10:
            raise ValueError(
                f"digits choose among ten classes, but {self.data} has {classes}: "
                "leave them out"
            )
        if Partition.parse(self.partition).kind != "classes" and self.split:
            raise ValueError(
                f"split is t of A(t), which the partition {self.partition} does not "
                "use: leave it out, or use the partition classes"
            )
        if (self.data == OWN) != (self.model == OWN):
            raise ValueError(
                "own data and an own model come together: privaudit.train takes both"
            )
        if self.model == OWN:
            return
        name, options = model_named(self.model)
        if self.hidden is not None and "hidden" in options:
            raise ValueError(
                f"hidden is set twice, to {self.hidden} and in model={self.model}"
            )
        if self.hidden is not None and name in MODELS:
            check_options(name, ["hidden"])

    @property
    def family(self) -> Family:
        """What is known of the algorithm by its name."""
        return family_named(self.algorithm)

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes that are told apart, by their numbers in the data set."""
        if self.data == OWN:
            return ()
        classes = check_dataset(self.data).classes
        return self.digits if classes == 10 else tuple(range(classes))

    def module(self, input_shape: tuple[int, ...]) -> nn.Module:
        """The model, for inputs of that shape. Raises ``ValueError`` if it has none."""
        name, options = model_named(self.model)
        hidden = 32 if self.hidden is None and name == "small-cnn" else self.hidden
        if hidden is not None:
            options.setdefault("hidden", hidden)
        return make_model(name, input_shape, len(self.labels), **options)

    def algorithm_options(self) -> Options:
        """The algorithm's options. ``ValueError`` for unknown ones and bad values."""
        kind = self.family.options
        for name in self.options:
            if name not in kind.__struct_fields__:
                raise ValueError(
                    f"{self.algorithm} has no use for {name}, which was set to "
                    f"{self.options[name]}; {near(name, kind.__struct_fields__)}"
                )
        try:
            return msgspec.convert(self.options, kind, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"{self.algorithm}: {explained(error, kind)}") from None

    @property
    def unit(self) -> Unit:
        """What neighbours differ in, of whom its ledger is: a record, or a node."""
        return getattr(self.algorithm_options(), "unit", "record")

    def step_sizes(self) -> Schedule:
        """The step size of each round."""
        last = self.final_step_size
        steps = (
            Constant(self.step_size)
            if last is None
            else Geometric(self.step_size, last)
        )
        return per_round(steps, self.rounds)

    def setting(
        self, sizes: tuple[int, ...] = (), places: Mapping[str, range] | None = None
    ) -> Setting:
        """What the algorithm is made from, with ``sizes`` and ``places`` once known."""
        return Setting(
            algorithm=self.algorithm,
            options=self.algorithm_options(),
            rounds=self.rounds,
            lot_size=self.lot_size,
            clip_norm=self.clip_norm,
            step_sizes=self.step_sizes(),
            nodes=self.nodes,
            model=self.model,
            labels=len(self.labels),
            graph=self.mixing,
            sizes=sizes,
            places=places or {},
        )

    def make(self) -> Algorithm:
        """The algorithm, with its schedules over ``rounds``."""
        return self.family.algorithm(self.setting())

    def mixing(self) -> Mixing:
        """Who hears whom; a single node if the algorithm is central."""
        if self.family.central:
            return Mixing.of(complete(1), "uniform")
        return mixing(self.graph, self.weights, self.nodes, seed=self.graph_seed)

    def mechanism(self, noise_multiplier: float) -> Mechanism:
        """The oracle's mechanism, with noise by ``noise_multiplier``."""
        return self.family.mechanism(self.setting(), noise_multiplier)


def near(name: str, known: Iterable[str]) -> str:
    """What to do about a ``name`` that is not among the ``known`` ones."""
    known = list(known)
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(known)}" if known else "leave it out"


def training_from(values: Mapping[str, Any], *, where: str) -> Training:
    """A training from flat ``values``: settings and the algorithm's options alike.

    Numbers may come as text, such as .3. ``where`` they come from is named in errors.
    Raises ``ValueError`` for a name that is neither, with the nearest that is.
    """
    settings = [name for name in Training.__struct_fields__ if name != "options"]
    algorithm = values.get("algorithm")
    try:
        family = None if algorithm is None else family_named(str(algorithm))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    options = [] if family is None else list(family.options.__struct_fields__)
    fields: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for name, given in values.items():
        value = _numbers.as_json(given)
        if name in settings:
            fields[name] = value
        elif name in options or family is None:
            chosen[name] = value
        elif name in option_names():
            raise ValueError(
                f"{where}: {values['algorithm']} has no use for {name}, which was set "
                f"to {value}; leave it out"
            )
        else:
            raise ValueError(
                f"{where}: there is no setting {name!r}; "
                f"{near(name, [*settings, *options])}"
            )
    if family is not None and chosen:
        try:
            kind = msgspec.convert(chosen, family.options, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"{where}: {explained(error, family.options)}") from None
        # Only those that were given: a later version may know more options.
        chosen = {
            name: value
            for name, value in msgspec.to_builtins(kind).items()
            if name in chosen
        }
    try:
        return msgspec.convert({**fields, "options": chosen}, Training, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {explained(error, Training)}") from None
