"""Settings of trainings and audits, written once and checked when made.

``...Settings`` are what a user asks for: the command line's options, a sweep's and a
file of claims' keys, arguments in Python. ``...Record`` is what a run's ``config.json``
holds: the same settings, with all that was left open decided, and the programs that
made the run. `TaskSettings` are what both are about.

Nothing here knows which algorithms, data sets, models or attacks there are, or imports
torch: what runs them checks their names.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, Self, TypeVar, get_args

import msgspec

from privaudit.files.user_code import is_place
from privaudit.results import (
    Claim,
    Relation,
    Unit,
    check_delta,
    check_epsilon,
    check_relation,
)

Precision = Literal["float32", "bf16"]
Calibration = Literal["certified", "paper"]
Saved = Literal["models", "none"]
WeightName = Literal["uniform", "metropolis", "max-degree", "column-stochastic"]
Sensitivity = Literal["real", "paper", "published", "certified", "data-independent"]

BLOCK = 50  # runs that are trained together, by default
MOST_RUNS = 10_000_000
MOST_CANARIES = 1_000_000  # in one run
MOST_NOISE = 1e30  # float32 can add it
COMMAND_LINE = "the command line"  # as the source of a claim


OWN = "own"  # data and a model that a caller has in Python, not by a name
FOLDER = "folder:"  # of data, before the path of a folder with a file a node


def is_own(data: str) -> bool:
    """Whether these are data of the user's own, and none of those that we know."""
    return data == OWN or data.startswith(FOLDER) or is_place(data)


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
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
        A name in `trainers.data.DATASETS`, ``idx:FOLDER``, or the user's own as
        ``module:function`` or ``folder:PATH``; which classes of a set of ten, and how
        many records to train on; or "own", see `trainers.runs.material`.
    partition, split
        How they are dealt. "classes": A(t) with t = ``split``, t = 1 gives each class
        to one node, t = 0 deals all evenly; "even": shuffled; "dirichlet:ALPHA";
        "file:PATH", a file of node numbers.
    model, hidden, gain
        A name in `trainers.models.MODELS`, ``module:function`` or "own", with options
        as in ``vit:depth=2,features=32``; its hidden units, where it has such an option
        (None: its own number, 32 for small-cnn); scale of its initial parameters.
    rounds, batch_size, clip_norm, step_size
        Of the algorithm. ``batch_size`` is the expected size of a node's batch.
    final_step_size
        Step sizes fall (or rise) by equal factors from ``step_size`` in the first round
        to this in the last; None keeps them constant.
    schedule
        Another way: "cosine", from ``step_size`` to ``final_step_size`` or 0;
        "parts:100=0.1,150=0.01", from those rounds on by other step sizes; "constant",
        "geometric". None: as ``final_step_size`` says.
    warm_up
        Rounds before it over which step sizes rise from 0 by equal steps.
    optimiser
        What makes a step of each noisy gradient: sgd, momentum, adam or adamw, with
        options as in ``momentum:decay=0.8``. It is post-processing: no account changes.
        None: sgd.
    options
        Of the algorithm alone, such as ``rho`` of DiNNO: by name, see its entry.
    loss
        ``module:function`` for data of the user's own; None: cross entropy.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    """

    algorithm: str
    nodes: int = 4
    graph: str = "complete"
    weights: str = "uniform"
    data: str = "digits"
    digits: tuple[int, ...] = tuple(range(10))
    train: int = 1400
    partition: str = "classes"
    split: float = 0.0
    model: str = "small-cnn"
    hidden: int | None = None
    gain: float = 1.0
    rounds: int = 200
    batch_size: float = 64.0
    clip_norm: float = 1.0
    step_size: float = 0.5
    final_step_size: float | None = None
    schedule: str | None = None
    warm_up: int = 0
    optimiser: str | None = None
    options: dict[str, Any] = {}
    graph_seed: int = 0
    loss: str | None = None

    def __post_init__(self) -> None:
        for name in ("nodes", "train", "hidden", "rounds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        for name in ("batch_size", "clip_norm", "gain", "step_size", "final_step_size"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be > 0 and finite, got {value}")
        for name in ("graph_seed", "warm_up"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not 0 <= self.split <= 1:
            raise ValueError(f"split must be in [0, 1], got {self.split}")
        if len(set(self.digits)) < 2 or not set(self.digits) <= set(range(10)):
            raise ValueError(
                "digits must be two or more different ones of 0 to 9, "
                f"got {list(self.digits)}"
            )
        if list(self.digits) != sorted(set(self.digits)):
            raise ValueError(f"digits must be in order, got {list(self.digits)}")


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


Task = TypeVar("Task")  # the settings of a training: as they were read, or checked


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Checked:
    def __post_init__(self) -> None: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunIdentity(_Checked):
    """The programs that made a run."""

    torch_version: str
    version: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute(_Checked):
    """Where gradients are taken, and how: it changes the last digits of numbers.

    Parameters
    ----------
    device
        cpu, cuda or cuda:NUMBER. Noise is the same on each; sums round differently.
    compiled
        Take gradients under torch.compile, which takes about a minute to start.
    precision
        bf16: gradients in bfloat16, clipped and summed in double precision.
    """

    device: str = "cpu"
    compiled: bool = False
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device_name(self.device)
        check_precision(self.precision, compiled=self.compiled)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimSettings(_Checked):
    """A claim under test.

    Parameters
    ----------
    epsilon
        Epsilon of the claim, > 0.
    delta
        Delta of the claim, in (0, 1).
    relation
        What neighbouring data sets differ in.
    """

    epsilon: float = 1.0
    delta: float = 1e-2
    relation: Relation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_claim(self.epsilon, self.delta, self.relation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundSettings(_Checked):
    """How many runs are made, and how their scores become a lower bound.

    Parameters
    ----------
    runs
        Number of runs, both worlds together.
    estimator
        How scores become a lower bound.
    confidence
        Confidence level of the lower bound, in (0, 1).
    seed
        Seed of a study: makes data split, sampling and noise repeatable. A model
        trained with a seed is not protected.
    stop_when_refuted
        Stop as soon as the claim is refuted, at one of the looks after a sixteenth, an
        eighth, a quarter and half of the runs; their confidence is shared.
    """

    runs: int = 2000
    estimator: str = "best"
    confidence: float = 0.95
    seed: int = 0
    stop_when_refuted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.runs <= MOST_RUNS:
            raise ValueError(
                f"runs must be between 2 and {MOST_RUNS:,}, got {self.runs}"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackSettings(BoundSettings, Compute):
    """How an algorithm is attacked; equal attacks give equal scores, bit for bit.

    Scores on a GPU are others than on the CPU, as it draws other numbers; worlds are
    the same.

    Parameters
    ----------
    adversary
        What the attacker sees: final-loss (the default), all-losses, lira or rmia (the
        final loss beside those under reference models that it trains), all-models,
        neighbour (one neighbour's inbox; the default where a part of the model never
        leaves its node), noisy-gradients, or actions (of deep-q). In one run:
        noisy-gradients (the default), final-loss, all-losses, lira or rmia.
    canary
        What is planted: blank, mislabelled, out-of-distribution, clipbkd, gradient (a
        crafted one, where others are smallest) or random-gradient. In one run: gradient
        (the default where the model has a parameter for each), mislabelled or
        out-of-distribution.
    estimator
        How scores become a lower bound. For any mechanism: best, rank-walk,
        two-binomial, clopper-pearson, betting. Within a family: family (that of the
        run's own releases), top-half and betting-gaussian (Gaussian DP).
    block
        Number of runs that are trained together. It changes only how numbers round;
        larger blocks are faster for small models.
    one_run
        Train once, with many canaries, each in by its own fair coin (Steinke, Nasr and
        Jagielski 2023), instead of many runs.
    canaries
        Number of canaries in one run; 2000 by default.
    """

    adversary: str | None = None
    canary: str = "blank"
    estimator: str = "best"
    block: int = BLOCK
    one_run: bool = False
    canaries: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.block <= 10_000:
            raise ValueError(f"block must be between 1 and 10,000, got {self.block}")
        if self.one_run and self.stop_when_refuted:
            raise ValueError(
                "one run cannot stop early: leave --stop-when-refuted or --one-run out"
            )
        if self.canaries is not None and not self.one_run:
            raise ValueError(
                "canaries are many in one run alone: add --one-run, or leave "
                "--canaries out"
            )
        if self.canaries is not None and not 10 <= self.canaries <= MOST_CANARIES:
            raise ValueError(
                f"canaries must be between 10 and {MOST_CANARIES:,}, got "
                f"{self.canaries}"
            )

    @classmethod
    def part_of(cls, other: AttackSettings, **changes: Any) -> dict[str, Any]:
        """The attack in ``other``, with ``changes``, as arguments."""
        names = [field.name for field in dataclasses.fields(AttackSettings)]
        return {**{name: getattr(other, name) for name in names}, **changes}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountSettings(_Checked):
    """The account that noise is found by, and a run is held to.

    Parameters
    ----------
    noise_multiplier
        Standard deviation (Laplace: scale) of the noise on the SUM of a batch's clipped
        gradients, divided by the clip norm. Not divided by the batch size. Default: the
        least that meets the claim.
    account
        certified (tight, all numerical error bounded), pld (dp-accounting's), rdp, gdp
        (no sampling), gdp-clt (a limit, no guarantee), analytic-gaussian or
        classical-gaussian (one release).
    """

    noise_multiplier: float | None = None
    account: str = "certified"

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.noise_multiplier
        if given is not None and not 0 < given <= MOST_NOISE:
            raise ValueError(
                f"noise_multiplier must be > 0 and at most {MOST_NOISE:g}, which "
                f"float32 can add, got {given:g}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSettings(AttackSettings, AccountSettings, ClaimSettings):
    """A claim about an algorithm as it runs, and how it is tested from below.

    Parameters
    ----------
    epsilon
        Epsilon of the claim, > 0. Without --noise-multiplier, the noise is the least
        that certifies it.
    relation
        Neighbour relation of the claim; the two worlds of an audit differ by it.
        Default: add-or-remove-one, or replace-one for batches of fixed size.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramSettings(BoundSettings, ClaimSettings):
    """A claim about a program of the user's, and how it is tested from below.

    Parameters
    ----------
    relation
        Neighbour relation: what the two worlds differ by. Default: add-or-remove-one.
    estimator
        How scores become a lower bound. For any mechanism: best, rank-walk,
        two-binomial, clopper-pearson, betting. Within a family: top-half and
        betting-gaussian (Gaussian DP).
    seed
        Seed that decides each run's world and the seeds that the program is given.
    batch
        Number of runs that one call of your function makes.
    time_limit
        Seconds that one run of your command may take.
    retries
        How often a failed run of your command is tried again.
    serve
        The command stays alive: it reads a line "member seed", such as "1 17", from
        standard input for each run, and answers with a line that is the score.
    ledger
        What one run releases, as a file: a ledger, or an event of dp-accounting's as
        JSON. Its account is shown beside the audit.
    noise_multiplier
        The same in numbers, instead of a ledger: the noise multiplier of noisy sums of
        clipped gradients.
    sampling_rate
        Their sampling rate, Poisson; 1 by default.
    steps
        Their number; 1 by default.
    """

    batch: int = 50
    time_limit: float | None = None
    retries: int = 1
    serve: bool = False
    ledger: pathlib.Path | None = None
    noise_multiplier: float | None = None
    sampling_rate: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise ValueError(f"batch must be >= 1, got {self.batch}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be > 0 seconds, got {self.time_limit:g}")
        if self.retries < 0:
            raise ValueError(f"retries must be >= 0, got {self.retries}")
        numbers = (self.noise_multiplier, self.sampling_rate, self.steps)
        if numbers == (None, None, None):
            return
        if self.ledger is not None:
            raise ValueError(
                "a ledger says noise, sampling rate and steps: leave it out, or "
                "noise_multiplier, sampling_rate and steps"
            )
        if self.noise_multiplier is None:
            raise ValueError(
                "sampling_rate and steps need a noise_multiplier (--noise-multiplier)"
            )
        if not 0 < self.noise_multiplier <= MOST_NOISE:
            raise ValueError(
                f"noise_multiplier must be > 0 and at most {MOST_NOISE:g}, got "
                f"{self.noise_multiplier:g}"
            )
        if self.sampling_rate is not None and not 0 < self.sampling_rate <= 1:
            raise ValueError(
                f"sampling_rate must be in (0, 1], got {self.sampling_rate:g}"
            )
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be >= 1, got {self.steps}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(AccountSettings):
    """Budget, seeds and device of a training; what is None is the recipe's.

    Parameters
    ----------
    epsilon
        Epsilon of the claim, > 0. Without --noise-multiplier, the noise is the least
        that certifies it. Default: the recipe's, or 1.
    delta
        Delta of the claim, in (0, 1). Default: the recipe's, or 1e-4.
    relation
        Neighbour relation of the claim. Default: add-or-remove-one, or replace-one for
        batches of fixed size.
    calibrate
        Which account chooses the noise: the certified one, or that of the algorithm's
        paper.
    data_dir
        Folder where data sets are kept.
    seed
        Seed of a study: makes sampling and noise repeatable. A model trained with a
        seed is not protected. Default: the recipe's seed, or a secret key.
    public_seed
        Seed of what may be public: how data are dealt to nodes, and the initial model.
    key_file
        File that keeps the secret key until the run ends. Default: in the run's folder.
    device
        cpu, cuda or cuda:NUMBER. Noise is the same on each; sums round differently.
        Default: the recipe's, or cpu.
    compiled
        Take gradients under torch.compile, which takes about a minute to start.
    precision
        bf16: gradients in bfloat16, clipped and summed in double precision. Default:
        the recipe's, or float32.
    save
        models: keep every node's final model (model.safetensors); none: do not.
    """

    epsilon: float | None = None
    delta: float | None = None
    relation: Relation | None = None
    calibrate: Calibration = "certified"
    data_dir: pathlib.Path | None = None
    seed: int | None = None
    public_seed: int = 0
    key_file: pathlib.Path | None = None
    device: str | None = None
    compiled: bool | None = None
    precision: Precision | None = None
    save: Saved = "models"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_claim(self.epsilon, self.delta, self.relation)
        _check_seeds(self.seed, self.public_seed)
        if self.device is not None:
            check_device_name(self.device)
        if self.precision is not None:
            check_precision(self.precision, compiled=bool(self.compiled))

    def over(self, **recipe: Any) -> Self:
        """These settings, with those of a ``recipe`` where they leave one open."""
        left = {name: x for name, x in recipe.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **left)

    @property
    def compute(self) -> Compute:
        """Where and how gradients are taken."""
        given = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(Compute)
            if getattr(self, field.name) is not None
        }
        return Compute(**given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRecord(Compute, RunIdentity, Generic[Task]):
    """What is trained, with how much noise, and what is claimed of it.

    Without a ``seed``, noise and sampling come from a secret key, which stays in the
    folder while the run can go on, and nowhere else. With one, this is a study:
    repeatable, and its model not protected. ``public_seed`` decides how data are dealt
    and where models start; everybody may know it.
    """

    training: Task
    claim: Claim | None
    noise_multiplier: float
    account: str = "certified"
    seed: int | None = None
    public_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_seeds(self.seed, self.public_seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditRecord(AttackSettings, RunIdentity, Generic[Task]):
    """What is audited, and how.

    Parameters
    ----------
    claim
        The promise under test.
    training, noise_multiplier
        The algorithm as it runs.
    account
        The account that certifies the run's ledger.
    planted_bug
        A name in `privaudit.auditing.experiments.planted.PLANTED`: a bug of the
        training that its ledger does not know of; None for the training as it is.
    """

    claim: Claim
    training: Task
    noise_multiplier: float
    account: str = "certified"
    adversary: str = "final-loss"
    planted_bug: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeSettings(_Checked):
    """What is probed of an algorithm, or of a function, for bugs.

    Parameters
    ----------
    noise_multiplier
        Noise multiplier that the algorithm runs with.
    relation
        Neighbour relation of your function's data.
    sensitivity
        Promised L2 sensitivity of what your function releases.
    noise
        Promised standard deviation of your function's noise, in each coordinate.
    rate
        Promised probability that a record is used, in (0, 1].
    records
        Number of records in the data that your function is given.
    features
        Number of features of each of those records.
    runs
        Number of runs of the algorithm, or calls of your function.
    seed
        Seed of the random numbers: equal seeds give equal results.
    search
        Number of seeds of known generators to try, to find noise that somebody could
        make again; 4096 by default.
    """

    noise_multiplier: float = 1.0
    relation: Relation = "replace-one"
    sensitivity: float | None = None
    noise: float | None = None
    rate: float | None = None
    records: int = 20
    features: int = 5
    runs: int = 200
    seed: int = 0
    search: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConsensusSettings(_Checked):
    """Private averaging of vectors over a graph, by DPPS.

    Parameters
    ----------
    vectors
        A CSV (a vector a line) or an npz file (its first array), one vector a node.
        Random ones by default.
    nodes
        Number of random vectors.
    dims
        Length of random vectors.
    graph
        Who hears whom, such as d-out:2, exponential, complete, ring.
    weights
        The rule of the mixing weights.
    rounds
        Number of rounds.
    b
        b of the paper: Laplace noise has scale gamma_n S / b.
    gamma_n
        gamma_n of the paper: each round costs epsilon b / gamma_n.
    sensitivity
        How the sensitivity S is found: data-independent (the only guarantee),
        certified, paper or published (equation 22, and the paper's code), or real (from
        the vectors themselves, to compare).
    constant
        C' of the paper's equation 22.
    decay
        lambda of the paper's equation 22.
    sync_interval
        All nodes hear all others every so many rounds; 0: never.
    clip_norm
        L1 bound on each vector, public; longer ones are scaled to it.
    delta
        Epsilon of all rounds together is computed at this delta, in (0, 1).
    seed
        Seed of a study: makes the random vectors and the noise repeatable. Vectors
        averaged with a seed are not protected.
    """

    vectors: pathlib.Path | None = None
    nodes: int = 10
    dims: int = 10
    graph: str = "d-out:2"
    weights: WeightName = "uniform"
    rounds: int = 20
    b: float = 1.0
    gamma_n: float = 0.01
    sensitivity: Sensitivity = "data-independent"
    constant: float = 0.78
    decay: float = 0.55
    sync_interval: int = 0
    clip_norm: float = 1.0
    delta: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta(self.delta)
        for name in ("b", "gamma_n", "clip_norm"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} must be > 0 and finite, got {value:g}")
        if self.rounds < 1 or self.sync_interval < 0 or self.seed < 0:
            raise ValueError(
                "--rounds must be >= 1, --sync-interval and --seed >= 0, got "
                f"{self.rounds}, {self.sync_interval} and {self.seed}"
            )
        if self.vectors is None and (self.nodes < 1 or self.dims < 1):
            raise ValueError(
                f"--nodes and --dims must be >= 1, got {self.nodes} and {self.dims}"
            )


def claim_of(
    epsilon: float,
    delta: float,
    relation: Relation,
    unit: Unit = "record",
    source: str = COMMAND_LINE,
) -> Claim:
    """The claim of a user. ``ValueError`` if it is out of its range."""
    return Claim(
        epsilon=check_epsilon(epsilon),
        delta=check_delta(delta),
        relation=check_relation(relation),
        unit=unit,
        source=source,
    )


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


def check_device_name(device: str) -> str:
    """``device`` if it is cpu or a GPU's name, else ``ValueError``."""
    kind, colon, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdigit()):
        raise ValueError(f"the device is cpu, cuda or cuda:NUMBER, got {device!r}")
    return device


def check_precision(precision: str, *, compiled: bool) -> bool:
    """Whether it is the lower one. ``ValueError`` if it is none or cannot be had."""
    if precision not in get_args(Precision):
        raise ValueError(
            f"precision must be one of {', '.join(get_args(Precision))}, got "
            f"{precision!r}"
        )
    if precision == "bf16" and compiled:
        raise ValueError(
            "bf16 and compiled gradients cannot go together: a compiler may take norms "
            "of other roundings than are summed; choose one"
        )
    return precision == "bf16"


def _check_claim(
    epsilon: float | None, delta: float | None, relation: Relation | None
) -> None:
    if epsilon is not None:
        check_epsilon(epsilon)
    if delta is not None:
        check_delta(delta)
    if relation is not None:
        check_relation(relation)


def _check_seeds(seed: int | None, public_seed: int) -> None:
    for name, value in (("seed", seed), ("public_seed", public_seed)):
        if value is not None and value < 0:
            raise ValueError(f"{name} must be >= 0, got {value}")
