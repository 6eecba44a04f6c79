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
from collections.abc import Iterable
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
Scheme = Literal[
    "poisson", "without-replacement", "random-allocation", "shuffled", "none"
]
Mechanism = Literal["gaussian", "laplace"]

BLOCK = 50  # runs that are trained together, by default
MOST_RUNS = 10_000_000
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
    rounds, lot_size, clip_norm, step_size
        Of the algorithm. ``lot_size`` is the expected number of records a lot, a node.
    final_step_size
        Step sizes fall (or rise) by equal factors from ``step_size`` in the first round
        to this in the last; None keeps them constant.
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
    lot_size: float = 64.0
    clip_norm: float = 1.0
    step_size: float = 0.5
    final_step_size: float | None = None
    options: dict[str, Any] = {}
    graph_seed: int = 0
    loss: str | None = None

    def __post_init__(self) -> None:
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
        if not 0 <= self.split <= 1:
            raise ValueError(f"split must be in [0, 1], got {self.split}")
        if len(set(self.digits)) < 2 or not set(self.digits) <= set(range(10)):
            raise ValueError(
                "digits must be two or more different ones of 0 to 9, "
                f"got {list(self.digits)}"
            )
        if list(self.digits) != sorted(set(self.digits)):
            raise ValueError(f"digits must be in order, got {list(self.digits)}")


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
        cpu, or cuda: the same noise, and other roundings.
    compiled
        Take gradients under torch.compile: a minute to begin with.
    precision
        bf16 takes gradients in bfloat16, and clips and sums them in float32.
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
        The claim, > 0.
    delta
        The claim, in (0, 1).
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
        How many, both worlds together.
    estimator
        How scores become a lower bound.
    confidence
        Of the lower bound, in (0, 1).
    seed
        Seed of a study: makes data split, sampling and noise repeatable. A model
        trained with a seed is not protected.
    """

    runs: int = 2000
    estimator: str = "best"
    confidence: float = 0.95
    seed: int = 0

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
        What the attacker sees: final-loss (the default), all-losses, all-models,
        neighbour (one neighbour's inbox; the default where a part of the model never
        leaves its node) or noisy-gradients.
    canary
        What is planted: blank, mislabelled, out-of-distribution, clipbkd, gradient (a
        crafted one, where others are smallest) or random-gradient.
    estimator
        How scores become a lower bound. For any mechanism: best, rank-walk,
        two-binomial, clopper-pearson, betting. Within a family: family (that of the
        run's own releases), top-half and betting-gaussian (Gaussian DP).
    block
        Runs trained together: it changes roundings alone. Many are faster for a small
        model.
    """

    adversary: str | None = None
    canary: str = "blank"
    estimator: str = "best"
    block: int = BLOCK

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.block <= 10_000:
            raise ValueError(f"block must be between 1 and 10,000, got {self.block}")

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
        Standard deviation (Laplace: scale) of the noise on the SUM of a lot's clipped
        gradients, divided by the clip norm. Not divided by the lot size. Default: the
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
        The claim, > 0; the noise is the least that certifies it.
    relation
        What neighbouring data sets differ in: add-or-remove-one, but replace-one for
        lots of fixed size. The two worlds of an audit differ in that.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramSettings(BoundSettings, ClaimSettings):
    """A claim about a program of the user's, and how it is tested from below.

    Parameters
    ----------
    relation
        What the two worlds differ in; add-or-remove-one by default.
    estimator
        How scores become a lower bound. For any mechanism: best, rank-walk,
        two-binomial, clopper-pearson, betting. Within a family: top-half and
        betting-gaussian (Gaussian DP).
    seed
        Seed of the worlds, and of the seeds that the program is given.
    batch
        Runs that a function of yours is called for at once.
    time_limit
        Seconds that one run of your command may take.
    retries
        How often a run of your command that fails is tried again.
    """

    batch: int = 50
    time_limit: float | None = None
    retries: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise ValueError(f"batch must be >= 1, got {self.batch}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be > 0 seconds, got {self.time_limit:g}")
        if self.retries < 0:
            raise ValueError(f"retries must be >= 0, got {self.retries}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(AccountSettings):
    """Budget, seeds and device of a training; what is None is the recipe's.

    Parameters
    ----------
    epsilon
        The claim, > 0; the noise is the least that certifies it. A recipe's, or 1.
    delta
        The claim, in (0, 1). A recipe's, or 1e-4.
    relation
        What neighbouring data sets differ in: add-or-remove-one, but replace-one for
        lots of fixed size.
    calibrate
        Noise by the certified account, or by the account of the algorithm's paper.
    data_dir
        Where data sets are kept.
    seed
        Seed of a study: makes sampling and noise repeatable. A model trained with a
        seed is not protected. Default: the recipe's seed, or a secret key.
    public_seed
        How data are dealt and where models start; everybody may know it.
    key_file
        Where the secret key is kept while the run can go on. Default: in its folder.
    device
        cpu, or cuda: the same noise, and other roundings. The recipe's, or cpu.
    compiled
        Take gradients under torch.compile: a minute to begin with.
    precision
        bf16 takes gradients in bfloat16, and clips and sums them in float32. The
        recipe's, or float32.
    save
        models keeps every node's final model, model.safetensors; none does not.
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
class ReleaseSettings(_Checked):
    """What is released by a run that is only accounted.

    Parameters
    ----------
    sampling_rate
        Probability that a record is in a lot: the expected lot size over the records.
    steps
        How many releases.
    sampling
        How lots are drawn: poisson (every record by its own coin), without-replacement
        (fixed size), random-allocation (every record by itself in one of an epoch's t
        lots, or in k of t: the rate is 1 / t, or k / t, and the steps are those of all
        epochs), shuffled (passes over lots of fixed size: no amplification), or none.
        Default: poisson, or none at rate 1.
    mechanism
        The noise.
    relation
        What neighbours differ in. Default: add-or-remove-one, or replace-one for lots
        without replacement.
    growing_budget
        Noise that falls from step to step as 1 / mu_k, mu_k = mu0 RHO^(k/K).
    schedule
        Noise and rate of every step: a CSV with the columns noise_multiplier and
        sampling_rate, one row a step, or a TOML file.
    """

    sampling_rate: float = 1.0
    steps: int = 1
    sampling: Scheme | None = None
    mechanism: Mechanism = "gaussian"
    relation: Relation | None = None
    growing_budget: float | None = None
    schedule: pathlib.Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(
                f"--sampling-rate must be in (0, 1], got {self.sampling_rate:g}; it is "
                "the expected lot size over the number of records"
            )
        if self.steps < 0:
            raise ValueError(f"--steps must be >= 0, got {self.steps}")
        given = (self.growing_budget, self.steps, self.sampling_rate)
        if self.schedule is not None and given != (None, 1, 1.0):
            raise ValueError(
                "--schedule says noise, rate and number of steps; leave "
                "--growing-budget, --steps and --sampling-rate out"
            )

    @property
    def chosen_relation(self) -> Relation:
        """The relation asked for, or the one that the sampling has."""
        if self.relation is not None:
            return self.relation
        fixed = self.sampling in ("without-replacement", "shuffled")
        return "replace-one" if fixed else "add-or-remove-one"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorthSettings(_Checked):
    """Of whom an epsilon speaks, and of how many tries of a run.

    Parameters
    ----------
    overlap
        At how many nodes of the ledger one record may be: the releases of the worst so
        many nodes are accounted together.
    group
        How many records are there or not at once, such as one user's: the figure is
        for any so many of them.
    tries
        The run was tuned: repeated a random number of times, so many in the mean, and
        only the best outcome is published.
    tries_law
        Of the number of tries: geometric, logarithmic or poisson.
    """

    overlap: int = 1
    group: int = 1
    tries: float | None = None
    tries_law: Literal["geometric", "logarithmic", "poisson"] = "geometric"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tries is not None and (self.overlap, self.group) != (1, 1):
            raise ValueError(
                "--tries is accounted for single records at one node: leave --overlap "
                "and --group out"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FigureSettings(_Checked):
    """Which account gives a figure, and what is shown beside it.

    Parameters
    ----------
    account
        certified (tight, all numerical error bounded), pld (dp-accounting's), rdp, gdp
        (no sampling), gdp-clt (a limit, no guarantee), analytic-gaussian or
        classical-gaussian (one release).
    compare
        All accounts that apply, in a table.
    plot
        Draw the privacy profile of the answer into this file (.svg, .png, .pdf).
    """

    account: str = "certified"
    compare: bool = False
    plot: pathlib.Path | None = None

    def __post_init__(self) -> None:
        # Before anything is computed: matplotlib would write to another name, or late.
        super().__post_init__()
        if self.plot is None:
            return
        if self.compare:
            raise ValueError(
                "--plot draws what one account gives: leave it or --compare out"
            )
        if self.plot.suffix not in (".svg", ".png", ".pdf"):
            raise ValueError(f"--plot must end in .svg, .png or .pdf, got {self.plot}")
        if not self.plot.parent.is_dir():
            raise ValueError(f"--plot: there is no folder {self.plot.parent}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings(_Checked):
    """How attack scores that are at hand become a lower bound.

    Parameters
    ----------
    delta
        The delta at which epsilon is bounded, in [0, 1).
    confidence
        Chance that the bound is not above the true epsilon, in (0, 1).
    method
        For any mechanism: best, rank-walk, two-binomial, clopper-pearson, betting. For
        Gaussian DP only: top-half, betting-gaussian.
    design
        How each run got its world: coin-flip if every run tossed a fair coin, else
        fixed. Needed for a .csv; a .npz may say it. Counts of the two worlds that fair
        coins hardly give are refused as coin-flip.
    order
        For betting and betting-gaussian, which go through the runs one by one: shuffled
        (the default) permutes the rows by the seed; time takes them as they stand, and
        assumes that this is the order of the runs.
    epsilon
        A claim to be tested; exit status 1 if it is refuted.
    relation
        What the two worlds differ in.
    seed
        Seed of the method's own random choices: splits, ties, the order of bets. Choose
        it before you see the scores.
    """

    delta: float
    confidence: float = 0.95
    method: str = "best"
    design: str | None = None
    order: str | None = None
    epsilon: float | None = None
    relation: Relation = "add-or-remove-one"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_relation(self.relation)
        if self.seed < 0:
            raise ValueError(f"--seed must be >= 0, got {self.seed}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfcheckSettings(_Checked):
    """How the estimators of lower bounds are checked.

    Parameters
    ----------
    repeats
        Audits a cell of the table.
    runs
        Of both worlds together, an audit.
    confidence
        Of the bounds, in (0, 1).
    estimator
        Only these; may be repeated.
    full
        2 000 repeats, an hour or so.
    seed
        Seed of the simulated audits: equal seeds give equal tables.
    """

    repeats: int = 100
    runs: int = 1000
    confidence: float = 0.95
    estimator: list[str] | None = None
    full: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("repeats", self.repeats), ("runs", self.runs - 1)):
            if value < 1:
                raise ValueError(f"--{name} is too small")
        if not 0 < self.confidence < 1:
            raise ValueError(f"--confidence must be in (0, 1), got {self.confidence}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeSettings(_Checked):
    """What is probed of an algorithm, or of a function, for bugs.

    Parameters
    ----------
    noise_multiplier
        Of our algorithm's noise.
    relation
        What neighbours of your function's data differ in.
    sensitivity
        The most that one record may move what your function releases, in L2 norm.
    noise
        Standard deviation of its noise, in each coordinate.
    rate
        How likely a record is used at all, in (0, 1].
    records
        How many the data have that your function is given.
    features
        How many numbers each of those records has.
    runs
        At once, or calls of your function.
    seed
        Seed of the random numbers: equal seeds give equal results.
    search
        How many seeds of known generators are tried, to find out whether somebody could
        make our algorithm's noise again; 4096 by default.
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
    nodes, dims
        Of random vectors.
    graph
        Who hears whom, such as d-out:2, exponential, complete, ring.
    weights
        The rule of the mixing weights.
    rounds
        How many.
    b
        b: Laplace noise has scale gamma_n S / b.
    gamma_n
        gamma_n: each round is b / gamma_n private.
    sensitivity
        What S is: data-independent (the only guarantee), certified, paper or published
        (equation 22, and the paper's code), real (for study).
    constant, decay
        C' and lambda of equation 22.
    sync_interval
        Every so many rounds all nodes hear all; 0: never.
    clip_norm
        L1 bound on each vector, public; longer ones are scaled to it.
    delta
        Of the account over all rounds, in (0, 1).
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
    return values


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
