"""The checked settings of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from torch import nn

from privaudit.files import json as _json
from privaudit.files.arguments import near
from privaudit.files.errors import explained
from privaudit.files.user_code import is_place
from privaudit.results import Relation, Unit
from privaudit.schedules import Constant, Cosine, Geometric, Parts, WarmUp
from privaudit.task_settings import OWN, TaskSettings, is_own, renamed
from trainers.algorithms import Family, Options, family_named, option_names
from trainers.algorithms.family import Noise
from trainers.algorithms.optimisers import Optimised, optimiser_named
from trainers.algorithms.setting import Setting
from trainers.data import Partition, check_dataset
from trainers.models import MODELS, check_options, make_model, model_named
from trainers.network.engine import Algorithm, Schedule, per_round
from trainers.network.graphs import complete
from trainers.network.mixing import Mixing
from trainers.network.named_graphs import Weights, check_graph, mixing
from trainers.oracles.oracle import Mechanism


class Training(TaskSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a training whose algorithm, data and model there are, checked."""

    weights: Weights = "uniform"

    def __post_init__(self) -> None:
        _ = self.family  # there is one
        super().__post_init__()
        self.algorithm_options()
        self.step_sizes()
        check_graph(self.graph)
        if self.sampling not in ("poisson", self.mechanism(0.0).sampling):
            raise ValueError(
                f"{self.algorithm} draws its batches in a way of its own: leave "
                f"sampling={self.sampling} out"
            )
        if self.sampling_rate is not UNSET and (why := self.family.no_rates):
            raise ValueError(
                f"{self.algorithm} {why}: leave sampling_rate="
                f"{self.sampling_rate:g} out"
            )
        if optimiser_named(self.optimiser) and not self.family.takes_optimisers:
            raise ValueError(
                f"{self.algorithm} has no use for optimiser={self.optimiser}: it makes "
                "no steps by gradients of its own in each round, or has an option for "
                "it; leave it out"
            )
        self._check_overlap()
        own = is_own(self.data)
        classes = 10 if own else check_dataset(self.data).classes
        if classes != 10 and self.digits is not UNSET and len(self.digits) != 10:
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
        if own and self.hidden is not None:
            raise ValueError(
                "hidden is for data that we know: give model=NAME:hidden="
                f"{self.hidden} for your own"
            )
        if self.classes is not None and not own:
            raise ValueError(
                f"classes are of data of your own, and {self.data} has {classes}: "
                "leave them out"
            )
        if self.loss is not None and not (own and is_place(self.loss)):
            raise ValueError(
                "a loss is module:function, for data of your own, got "
                f"loss={self.loss} and data={self.data}"
            )
        if self.transform is not None and not is_place(self.transform):
            raise ValueError(
                f"a transform is module:function, got transform={self.transform}"
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

    def _check_overlap(self) -> None:
        """``ValueError`` if no record can be at so many nodes, or it has no account."""
        if self.overlap == 1:
            return
        places = 1 if self.family.central else self.nodes
        if self.overlap > places:
            raise ValueError(
                f"overlap, at how many nodes one {self.unit} may be, must be at most "
                f"the number of nodes that have data, {places}, got {self.overlap}"
            )
        if self.unit == "node":
            raise ValueError(
                f"{self.algorithm} protects all that one node holds: leave overlap out"
            )
        if self.sampling != "poisson":
            raise ValueError(
                f"sampling={self.sampling} is not accounted for records that several "
                "nodes hold; leave overlap at 1, or use Poisson sampling"
            )

    @property
    def told_overlap(self) -> int | UnsetType:
        """At how many nodes a record may be; unset where there is no other node."""
        alone = self.family.central or self.nodes == 1 or self.unit == "node"
        return UNSET if alone else self.overlap

    @property
    def family(self) -> Family:
        return family_named(self.algorithm)

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes that are told apart, by their numbers in the data set."""
        if is_own(self.data):
            return ()
        classes = check_dataset(self.data).classes
        if classes != 10 or self.digits is UNSET:
            return tuple(range(classes))
        return self.digits

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
            return _json.convert(self.options, kind, strict=False)
        except msgspec.ValidationError as error:
            told = explained(error, kind, self.options)
            raise ValueError(f"{self.algorithm}: {told}") from None

    @property
    def unit(self) -> Unit:
        """Unit in which neighbours differ, for its ledger: a record, or a node."""
        return getattr(self.algorithm_options(), "unit", "record")

    def relation(self, given: Relation | None = None) -> Relation:
        """Neighbouring relation: ``given``, or one the sampling has a meaning for."""
        if given is not None:
            return given
        fixed = self.mechanism(1.0).sampling == "without-replacement"
        return "replace-one" if fixed or self.unit == "node" else "add-or-remove-one"

    def step_sizes(self) -> Schedule:
        first, last = self.step_size, self.final_step_size
        kind, _, text = (self.schedule or "").partition(":")
        if self.schedule is None:
            kind = "constant" if last is None else "geometric"
        steps: Constant | Geometric | Cosine | Parts
        if kind == "constant" and last is None:
            steps = Constant(first)
        elif kind == "geometric" and last is not None:
            steps = Geometric(first, last)
        elif kind == "cosine" and not text:
            steps = Cosine(first, last or 0.0)
        elif kind == "parts" and last is None:
            steps = Parts.parsed(first, text)
        else:
            raise ValueError(
                f"schedule must be cosine (to final_step_size, or 0), geometric (to "
                "final_step_size), or, without final_step_size, constant or "
                f"parts:100=0.1,150=0.01; got {self.schedule}"
            )
        warm = WarmUp(steps, self.warm_up) if self.warm_up else steps
        return per_round(warm, self.rounds)

    def expected_batch(self, sizes: Sequence[int] = ()) -> float:
        """Records in a batch of a node of mean size; of size 1 where none is known."""
        if self.batch_size is not UNSET:
            return self.batch_size
        assert self.sampling_rate is not UNSET
        return self.sampling_rate * (sum(sizes) / len(sizes) if sizes else 1.0)

    def setting(
        self, sizes: tuple[int, ...] = (), places: Mapping[str, range] | None = None
    ) -> Setting:
        """Settings of the algorithm, with ``sizes`` and ``places`` once known."""
        return Setting(
            algorithm=self.algorithm,
            options=self.algorithm_options(),
            rounds=self.rounds,
            batch_size=self.expected_batch(sizes),
            sampling_rate=None if self.sampling_rate is UNSET else self.sampling_rate,
            sampling=self.sampling,
            clip_norm=self.clip_norm,
            step_sizes=self.step_sizes(),
            nodes=self.nodes,
            model=self.model,
            labels=len(self.labels),
            graph=self.mixing,
            sizes=sizes,
            places=places or {},
        )

    def make(self, sizes: tuple[int, ...] = ()) -> Algorithm:
        """The algorithm, with its schedules over ``rounds`` and its optimiser."""
        algorithm = self.family.algorithm(self.setting(sizes))
        optimiser = optimiser_named(self.optimiser)
        return algorithm if optimiser is None else Optimised(algorithm, optimiser)

    def mixing(self) -> Mixing:
        """Mixing of the graph; of a single node if the algorithm is central."""
        if self.family.central:
            return Mixing.of(complete(1), "uniform")
        return mixing(self.graph, self.weights, self.nodes, seed=self.graph_seed)

    def mechanism(self, noise: Noise, sizes: tuple[int, ...] = ()) -> Mechanism:
        """The oracle's mechanism, with ``noise`` of all nodes or of each."""
        return self.family.noisy(self.setting(sizes), noise)


def training_from(values: Mapping[str, Any], *, where: str) -> Training:
    """A training from flat ``values``: settings and the algorithm's options alike.

    Numbers may come as text, such as .3; errors name ``where`` they come from.
    """
    try:
        values = renamed(values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    settings = [name for name in Training.__struct_fields__ if name != "options"]
    algorithm = values.get("algorithm")
    try:
        family = None if algorithm is None else family_named(str(algorithm))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if {"batch_size", "sampling_rate"} <= values.keys():
        raise ValueError(
            f"{where}: give batch_size, the same at all nodes, or sampling_rate, the "
            "same share of each node's records, not both"
        )
    options = [] if family is None else list(family.options.__struct_fields__)
    fields: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for name, given in values.items():
        value = _json.spelled(given)
        if name in settings and name not in options:
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
            kind = _json.convert(chosen, family.options, strict=False)
        except msgspec.ValidationError as error:
            told = explained(error, family.options, chosen)
            raise ValueError(f"{where}: {told}") from None
        # Only those that were given: a later version may know more options.
        chosen = {
            name: value
            for name, value in msgspec.to_builtins(kind).items()
            if name in chosen
        }
    try:
        return _json.convert({**fields, "options": chosen}, Training, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {explained(error, Training, fields)}") from None
