"""A training problem from settings that a person can write down."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable

import msgspec
import torch
from torch import Tensor, nn

from privaudit.ledger import Ledger
from trainers.algorithms import ALGORITHMS, Entry
from trainers.bookkeeping import BookKeeping, differentiator
from trainers.data import (
    Dataset,
    Partition,
    PrivateData,
    check_dataset,
    load_dataset,
)
from trainers.engine import Network, Observer
from trainers.graphs import GraphName, Mixing, WeightName
from trainers.models import (
    MODELS,
    check_model,
    cross_entropy,
    initial_parameters,
    make_model,
)
from trainers.oracle import MEMORY_LIMIT, Mechanism, Oracle, ReleaseObserver
from trainers.outcome import Curves
from trainers.per_sample import PerSample
from trainers.randomness import Streams


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained, on what, and how; all but the noise.

    Parameters
    ----------
    algorithm
        A name in `trainers.algorithms.ALGORITHMS`. Central ones hold all data at one
        place, whatever ``nodes``.
    nodes, graph, weights
        The network.
    data, digits, train
        A name in `trainers.data.DATASETS`, which classes of a set of ten, and how many
        records to train on.
    partition, split
        How they are dealt. "classes": A(t) with t = ``split``, t = 1 gives each class
        to one node, t = 0 deals all evenly; "even": shuffled; "dirichlet:ALPHA";
        "file:PATH", a file of node numbers.
    model, hidden, gain
        A name in `trainers.models.MODELS` or ``module:function``; its hidden units,
        where it has such an option (None: its own number, 32 for small-cnn); scale of
        its initial parameters.
    rounds, lot_size, clip_norm, step_size
        Of the algorithm. ``lot_size`` is the expected number of records a lot, a node.
    """

    algorithm: str
    nodes: int = 4
    graph: GraphName = "complete"
    weights: WeightName = "uniform"
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

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise ValueError(
                f"there is no algorithm {self.algorithm!r}; choose one of {known}"
            )
        for name in ("nodes", "train", "hidden", "rounds"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("lot_size", "clip_norm", "step_size", "gain"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} must be > 0 and finite, got {getattr(self, name)}"
                )
        if not 0 <= self.split <= 1:
            raise ValueError(f"split must be in [0, 1], got {self.split}")
        if len(set(self.digits)) < 2 or not set(self.digits) <= set(range(10)):
            raise ValueError(
                "digits must be two or more different ones of 0 to 9, "
                f"got {list(self.digits)}"
            )
        if list(self.digits) != sorted(set(self.digits)):
            raise ValueError(f"digits must be in order, got {list(self.digits)}")
        classes = check_dataset(self.data).classes
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
        check_model(self.model)
        known = MODELS.get(self.model)
        if self.hidden is not None and known and "hidden" not in known.options:
            raise ValueError(f"the model {self.model} has no option hidden")

    @property
    def entry(self) -> Entry:
        """The algorithm's entry."""
        return ALGORITHMS[self.algorithm]

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes that are told apart, by their numbers in the data set."""
        classes = check_dataset(self.data).classes
        return self.digits if classes == 10 else tuple(range(classes))

    def module(self, input_shape: tuple[int, ...]) -> nn.Module:
        """The model, for inputs of that shape. Raises ``ValueError`` if it has none."""
        options = {}
        if self.hidden is not None or self.model == "small-cnn":
            options["hidden"] = 32 if self.hidden is None else self.hidden
        return make_model(self.model, input_shape, len(self.labels), **options)

    def mechanism(self, noise_multiplier: float) -> Mechanism:
        """The oracle's mechanism; without clipping and noise if not private."""
        if not self.entry.private:
            return Mechanism(self.lot_size)
        return Mechanism(self.lot_size, self.clip_norm, noise_multiplier)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Data, model and network, made once and shared by all runs."""

    training: Training
    shares: list[Dataset]
    test: Dataset
    module: nn.Module
    network: Network
    gradients: Callable[[], BookKeeping | PerSample]  # one for each worker

    @classmethod
    def of(
        cls,
        training: Training,
        *,
        seed: int = 0,
        data_dir: str | pathlib.Path | None = None,
    ) -> Problem:
        """The problem that ``training`` describes; ``seed`` deals the data.

        ``data_dir`` is where data are kept; see `trainers.data.load_dataset`. Raises
        ``ValueError`` if the settings do not fit the data, and
        `trainers.data.DataUnavailableError` if these are not to be had.
        """
        train, test = load_dataset(
            training.data,
            train=training.train,
            labels=training.labels,
            seed=seed,
            data_dir=data_dir,
        )
        nodes = 1 if training.entry.central else training.nodes
        shares = Partition.parse(training.partition)(
            train, nodes, t=training.split, seed=seed
        )
        for node, share in enumerate(shares):
            try:
                training.mechanism(0.0).sampling_rate(len(share))
            except ValueError as error:
                raise ValueError(f"node {node}: {error}") from None
        module = training.module(tuple(train.inputs.shape[1:]))
        example = train.inputs[0]
        return cls(
            training=training,
            shares=shares,
            test=test,
            module=module,
            network=Network(
                training.entry.make(lambda k: training.step_size),
                Mixing.named(training.graph, training.weights, nodes),
            ),
            gradients=lambda: differentiator(module, cross_entropy, example),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many records each node has."""
        return tuple(len(share) for share in self.shares)

    def ledger(self, noise_multiplier: float) -> Ledger:
        """What a run would release: every round asks the oracle once."""
        mechanism = self.training.mechanism(noise_multiplier)
        return mechanism.ledger(self.sizes, self.training.rounds)

    def start(self, seed: int, runs: int = 1) -> Tensor:
        """Initial parameters, (runs, nodes, dims): one draw for all nodes and runs."""
        generator = Streams(seed).generator("start")
        vector = initial_parameters(self.module, generator, gain=self.training.gain)
        return vector.repeat(runs, len(self.shares), 1)

    def train(
        self,
        noise_multiplier: float,
        streams: Streams,
        *,
        runs: int = 1,
        canary: Dataset | None = None,
        planted: Tensor | None = None,
        start: Tensor | None = None,
        observers: tuple[Observer, ...] = (),
        release_observers: tuple[ReleaseObserver, ...] = (),
        after_round: Callable[[int, Tensor], None] | None = None,
        memory_limit: int = MEMORY_LIMIT,
    ) -> tuple[Tensor, Ledger]:
        """Train a block of runs: final models (runs, nodes, dims), and their ledger.

        ``canary`` joins node 0 in the runs that are ``planted``, (runs,) bool.
        """
        oracle = Oracle(
            PrivateData.of(self.shares, canary=canary),
            self.gradients(),
            self.training.mechanism(noise_multiplier),
            streams,
            runs=runs,
            planted=planted,
            memory_limit=memory_limit,
            observers=release_observers,
        )
        models = self.network.run(
            self.start(streams.seed, runs) if start is None else start,
            oracle,
            self.training.rounds,
            observers=observers,
            after_round=after_round,
        )
        return models, oracle.ledger


def accuracy(
    gradients: BookKeeping | PerSample, models: Tensor, test: Dataset
) -> Tensor:
    """Share of ``test`` that each model gets right, (runs, nodes)."""
    flat = models.flatten(0, 1)
    values = gradients.values_per_sample + test.inputs[0].numel()
    step = max(1, MEMORY_LIMIT // (values * models.element_size() * len(flat)))
    right = torch.zeros(len(flat), dtype=torch.float64, device=models.device)
    for start in range(0, len(test), step):
        inputs = test.inputs[start : start + step]
        inputs = inputs.expand(len(flat), *inputs.shape)
        said = gradients.outputs(flat, inputs).argmax(-1)
        right += (said == test.targets[start : start + step]).sum(1)
    return (right / len(test)).view(models.shape[:2])


def consensus_distance(models: Tensor) -> Tensor:
    """Root mean square distance of the nodes' models from their mean, (runs,)."""
    return (models - models.mean(1, keepdim=True)).square().sum(2).mean(1).sqrt()


class CurveRecorder:
    """Measures models after about ``points`` of the rounds, and the last."""

    def __init__(
        self, problem: Problem, gradients: BookKeeping | PerSample, points: int = 25
    ) -> None:
        self._problem = problem
        self._gradients = gradients
        self._every = max(1, problem.training.rounds // points)
        self._points: list[tuple[int, float, float, float]] = []

    def __call__(self, done: int, models: Tensor) -> None:
        """Measure ``models``, (runs, nodes, dims), if ``done`` rounds are a point."""
        if done % self._every and done != self._problem.training.rounds:
            return
        right = accuracy(self._gradients, models, self._problem.test)
        self._points.append(
            (
                done,
                float(right.mean()),
                float(right.min(1).values.mean()),
                float(consensus_distance(models).mean()),
            )
        )

    def curves(self) -> Curves:
        """All that was measured."""
        rounds, mean, worst, distance = zip(*self._points, strict=True)
        return Curves(
            rounds=rounds, accuracy=mean, worst_accuracy=worst, consensus=distance
        )
