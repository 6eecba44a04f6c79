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
from privaudit.schedules import Constant, Geometric, HasValues
from trainers.algorithms import ALGORITHMS, Entry
from trainers.algorithms.dinno import RHO, OptimiserState
from trainers.bookkeeping import BookKeeping, differentiator
from trainers.data import (
    Dataset,
    Partition,
    PrivateData,
    check_dataset,
    load_dataset,
)
from trainers.engine import Algorithm, Network, Observer, Schedule
from trainers.graphs import complete
from trainers.mixing import Mixing
from trainers.models import (
    MODELS,
    check_model,
    cross_entropy,
    initial_parameters,
    make_model,
)
from trainers.named_graphs import Weights, mixing
from trainers.optimisers import OptimiserName
from trainers.oracle import MEMORY_LIMIT, Mechanism, Oracle, ReleaseObserver
from trainers.outcome import Curves
from trainers.per_sample import PerSample
from trainers.randomness import Streams

# Which of the algorithm's options each setting is part of.
_OPTIONS = {
    "rho": "rho",
    "rho_growth": "rho",
    "inner_steps": "inner_steps",
    "optimiser": "optimiser",
    "optimiser_state": "optimiser_state",
}


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained, on what, and how; all but the noise.

    Parameters
    ----------
    algorithm
        A name in `trainers.algorithms.ALGORITHMS`. Central ones hold all data at one
        place, whatever ``nodes``.
    nodes, graph, graph_seed, weights
        The network: a name in `trainers.named_graphs.GRAPHS` with its number or file,
        such as ``ring``, ``fiedler:0.39`` or ``edges:friends.csv``; the seed of random
        graphs; and the rule of the mixing weights.
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
    final_step_size
        Step sizes fall (or rise) by equal factors from ``step_size`` in the first round
        to this in the last; None keeps them constant.
    rho, rho_growth, inner_steps, optimiser, optimiser_state
        Of DiNNO (see there): ``rho`` is multiplied by ``rho_growth`` each round. None
        is the algorithm's default, and all that algorithms without them take.

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
    rho: float | None = None
    rho_growth: float | None = None
    inner_steps: int | None = None
    optimiser: OptimiserName | None = None
    optimiser_state: OptimiserState | None = None
    graph_seed: int = 0

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise ValueError(
                f"there is no algorithm {self.algorithm!r}; choose one of {known}"
            )
        for name in ("nodes", "train", "hidden", "rounds", "inner_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        for name in (
            *("lot_size", "clip_norm", "gain", "step_size", "final_step_size"),
            *("rho", "rho_growth"),
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be > 0 and finite, got {value}")
        if self.graph_seed < 0:
            raise ValueError(f"graph_seed must be >= 0, got {self.graph_seed}")
        for name, option in _OPTIONS.items():
            if getattr(self, name) is not None and option not in self.entry.options:
                raise ValueError(
                    f"{self.algorithm} has no use for {name}, which was set to "
                    f"{getattr(self, name)}; leave it out"
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

    def make(self) -> Algorithm:
        """The algorithm, with its schedules over ``rounds``.

        Raises ``ValueError`` if rho grows beyond all bounds.
        """
        options = {
            name: getattr(self, name)
            for name, option in _OPTIONS.items()
            if name != "rho" and option == name and getattr(self, name) is not None
        }
        rho = RHO if self.rho is None else self.rho
        if self.rho_growth is not None and self.rho_growth != 1:
            # Of the logarithm, which does not overflow.
            power = math.log(rho) + (self.rounds - 1) * math.log(self.rho_growth)
            if not abs(power) < 100:
                raise ValueError(
                    f"rho = {rho:g} times {self.rho_growth:g} in each of "
                    f"{self.rounds:,} rounds ends near e^{power:.0f}; "
                    "use a rho_growth closer to 1"
                )
            options["rho"] = _per_round(Geometric(rho, math.exp(power)), self.rounds)
        elif self.rho is not None:
            options["rho"] = _per_round(Constant(rho), self.rounds)
        last = self.final_step_size
        steps = (
            Constant(self.step_size)
            if last is None
            else (Geometric(self.step_size, last))
        )
        return self.entry.make(_per_round(steps, self.rounds), **options)

    def mixing(self) -> Mixing:
        """Who hears whom; a single node if the algorithm is central."""
        if self.entry.central:
            return Mixing.of(complete(1), "uniform")
        return mixing(self.graph, self.weights, self.nodes, seed=self.graph_seed)

    def mechanism(self, noise_multiplier: float) -> Mechanism:
        """The oracle's mechanism; without clipping and noise if not private."""
        if not self.entry.private:
            return Mechanism(self.lot_size)
        return Mechanism(self.lot_size, self.clip_norm, noise_multiplier)


def _per_round(schedule: HasValues, rounds: int) -> Schedule:
    """The schedule's values over ``rounds``, as a function of the round."""
    values = schedule.values(rounds).tolist()
    return lambda k: values[k]


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
            network=Network(training.make(), training.mixing(), training.entry.needs),
            gradients=lambda: differentiator(module, cross_entropy, example),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many records each node has."""
        return tuple(len(share) for share in self.shares)

    def ledger(self, noise_multiplier: float) -> Ledger:
        """What a run would release, as often as its algorithm asks the oracle."""
        mechanism = self.training.mechanism(noise_multiplier)
        releases = self.training.entry.releases(
            self.network.algorithm, self.training.rounds
        )
        return mechanism.ledger(self.sizes, releases)

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
