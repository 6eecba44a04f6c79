"""Settings of trainings and audits, written once and checked when made.

They are what a user asks for: the command line's options, a sweep's and a file of
claims' keys, arguments in Python. `privaudit.task_settings` has what is trained;
`privaudit.records` what a run's ``config.json`` holds of both; and
`privaudit.figure_settings` what is asked for without training.

Nothing here knows which algorithms, data sets, models or attacks there are, or imports
torch: what runs them checks their names.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from msgspec import UNSET, Meta, UnsetType

from privaudit.files.arguments import Checked, given_fields, public_class, told_by
from privaudit.results import (
    DELTA,
    Claim,
    Relation,
    Unit,
    check_delta,
    check_epsilon,
    check_relation,
)
from privaudit.task_settings import Natural, Positive, TaskSettings

Precision = Literal["float32", "bf16"]
Calibration = Literal["certified", "paper"]
Saved = Literal["models", "none"]
Carrier = Literal["torch", "flare"]
NoiseBy = Literal["one", "per-node"]
Evaluate = Literal["tenth", "all"]

BLOCK = 50  # runs that are trained together, by default
MOST_RUNS = 10_000_000
MOST_CANARIES = 1_000_000  # in one run
MOST_NOISE = 1e30  # float32 can add it
Block = Annotated[int, Meta(ge=1, le=10_000)]
# In files and at the command line a name, in Python what it would name as well.
ByName = Any if TYPE_CHECKING else Annotated[str, Meta()]
Planted = Annotated[int, Meta(ge=10, le=MOST_CANARIES)]
COMMAND_LINE = "the command line"  # as the source of a claim


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute(Checked):
    """Device and method of gradients: it changes the last digits of numbers.

    Parameters
    ----------
    device
        cpu, cuda or cuda:NUMBER. Noise is the same on each; sums round differently.
    compiled
        Start the kernels of a gradient at once, as a CUDA graph: the same numbers, on a
        GPU in less time, on a CPU as without it.
    precision
        bf16: gradients in bfloat16, clipped and summed in double precision.
    """

    device: str = "cpu"
    compiled: bool = False
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device_name(self.device)
        check_precision(self.precision)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimSettings(Checked):
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
    delta: float = DELTA
    relation: Relation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_claim(self.epsilon, self.delta, self.relation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundSettings(Checked):
    """Number of runs, and the way from their scores to a lower bound.

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

    runs: Annotated[int, Meta(ge=2, le=MOST_RUNS)] = 2000
    estimator: str = "best"
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    seed: Natural = 0
    stop_when_refuted: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackSettings(BoundSettings, Compute):
    """Attack on an algorithm; equal attacks give equal scores, bit for bit.

    Scores on a GPU are others than on the CPU, as it draws other numbers; worlds are
    the same.

    Parameters
    ----------
    adversary
        What the attacker sees. Default: what the certificate counts as seen,
        noisy-gradients (all of them of one node); where messages are released,
        neighbour, one neighbour's inbox. Weaker threat models: neighbour, observer (by
        itself, one that hears all; the default with --observer), all-models,
        final-models (their weights along a crafted gradient), final-models-colluding
        (and all other nodes show what they added), final-loss, all-losses,
        lira or rmia (the final loss beside those under reference models that it
        trains), actions (of deep-q), and your own score of the final model, a function
        or module:function. In one run: noisy-gradients (the default),
        final-loss, all-losses, lira or rmia.
    canary
        What is planted: gradient (a crafted one, where others are smallest; the default
        where they are clipped, and the attacker sees them or what is linear in them),
        random-gradient, blank (the default elsewhere), mislabelled, out-of-distribution
        or clipbkd; or a record of yours, (input, target), or a module:function that
        gives one. In one run: gradient (the default where the model has a parameter
        for each), mislabelled or out-of-distribution.
    estimator
        How scores become a lower bound. For any mechanism: best, rank-walk,
        two-binomial, clopper-pearson, betting. Within a family: family (that of the
        run's own releases), both (the larger of best and family, half of alpha each),
        top-half and betting-gaussian (Gaussian DP).
    block
        Number of runs that are trained together, 50 by default. It changes only how
        numbers round; larger blocks are faster for small models.
    one_run
        Train once, with many canaries, each in by its own fair coin (Steinke, Nasr and
        Jagielski 2023), instead of many runs.
    canaries
        Number of canaries in one run; 2000 by default. Of many runs: of crafted
        gradients in each, at right angles and each by a coin of its own, which only
        bounds within a family read; 128 by default where family or both decides.
    observer
        Who attacks, and for whom the claim is to hold: any-node, each other node by
        itself; a node (3); several that collude (3,5); a wire (edge:1-2). The attack
        sees what it sees, and nothing else. For dp-butterfly, dp-chain and
        dp-mf-butterfly. Default: an observer of all releases, attacked by the
        adversary.
    """

    adversary: str | None = None
    canary: str | None = None
    estimator: str = "best"
    block: Block = BLOCK
    one_run: bool = False
    canaries: Annotated[int, Meta(ge=1, le=MOST_CANARIES)] | None = None
    observer: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.one_run and self.stop_when_refuted:
            raise ValueError(
                "one run cannot stop early: leave --stop-when-refuted or --one-run out"
            )
        if self.one_run and self.canaries is not None and self.canaries < 10:
            raise ValueError(
                f"canaries must be >= 10 and <= {MOST_CANARIES:,} in one run, got "
                f"{self.canaries}"
            )
        if self.observer is not None and self.one_run:
            raise ValueError(
                "the canaries of one run are read from all releases: leave --observer "
                "or --one-run out"
            )
        if self.observer is not None and self.adversary not in (None, "observer"):
            raise ValueError(
                f"--observer attacks by what it sees itself, and {self.adversary} sees "
                "something else: leave one of them out"
            )

    @classmethod
    def part_of(cls, other: AttackSettings, **changes: Any) -> dict[str, Any]:
        """The attack in ``other``, with ``changes``, as arguments."""
        names = [field.name for field in dataclasses.fields(AttackSettings)]
        return {**{name: getattr(other, name) for name in names}, **changes}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountSettings(Checked):
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

    noise_multiplier: Annotated[float, Meta(gt=0, le=MOST_NOISE)] | None = None
    account: str = "certified"


@public_class
@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSettings(AttackSettings, AccountSettings, ClaimSettings):
    """Settings of `privaudit.audit_algorithm`: the claim, the noise and the attack.

    Parameters
    ----------
    epsilon
        Epsilon of the claim, > 0. Without --noise-multiplier, the noise is the least
        that certifies it. Default: 1, or with --noise-multiplier what the account
        certifies of that noise.
    relation
        Neighbour relation of the claim; the two worlds of an audit differ by it.
        Default: add-or-remove-one, or replace-one for batches of fixed size.
    block
        Number of runs that are trained together; by default as many of small models as
        stay in the processor's cache, 50 to 500. It changes only how numbers round.
    """

    adversary: ByName | None = None  # type: ignore[assignment]
    canary: ByName | None = None  # type: ignore[assignment]
    estimator: ByName = "best"  # type: ignore[assignment]
    epsilon: float | None = None  # type: ignore[assignment]  # see `planned`
    block: Block | None = None  # type: ignore[assignment]  # chosen from the model


@public_class
@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramSettings(BoundSettings, ClaimSettings):
    """Settings of `privaudit.audit_program`: the claim, the runs and the estimator.

    Parameters
    ----------
    epsilon
        Epsilon of the claim, > 0. Default: 1, or what the account gives where there is
        a ledger or a noise multiplier.
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
        Instead of a ledger: the noise multiplier of DP-SGD, whose account is then
        shown beside the audit.
    sampling_rate
        With --noise-multiplier: the sampling rate, Poisson. Default: 1.
    steps
        With --noise-multiplier: the number of steps. Default: 1.
    about
        What your program is and what its scores are, in a sentence, for the page.
        Default: the first line of a function's docstring.
    """

    epsilon: float | None = None  # type: ignore[assignment]  # see `audit_program`
    batch: Annotated[int, Meta(ge=1)] = 50
    time_limit: Positive | None = None
    retries: Natural = 1
    serve: bool = False
    ledger: pathlib.Path | None = None
    noise_multiplier: Annotated[float, Meta(gt=0, le=MOST_NOISE)] | None = None
    sampling_rate: Annotated[float, Meta(gt=0, le=1)] | None = None
    steps: Annotated[int, Meta(ge=1)] | None = None
    about: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings(Checked):
    """Settings of a training that its record keeps as they were asked for.

    Parameters
    ----------
    seed
        Seed of a study: makes sampling and noise repeatable. A model trained with a
        seed is not protected. Default: the recipe's seed, or a secret key.
    public_seed
        Seed of what may be public: how data are dealt to nodes, and the initial model.
    evaluate
        How many test records measure the models. tenth: as many as cost about a tenth
        of the training, and at least 500 at the end. all: all of them for the final
        models.
    """

    seed: Natural | None = None
    public_seed: Natural = 0
    evaluate: Evaluate = "tenth"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluate not in get_args(Evaluate):
            raise ValueError(
                f"evaluate must be {' or '.join(get_args(Evaluate))}, got "
                f"{self.evaluate!r}"
            )

    def kept(self) -> dict[str, Any]:
        """All of them, by name."""
        fields = dataclasses.fields(RunSettings)
        return {field.name: getattr(self, field.name) for field in fields}


@told_by(TaskSettings)
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskChanges(Checked):
    """Settings of what is trained; None where the algorithm's or the plan's stand."""

    rounds: int | None = None
    batch_size: float | None = None
    sampling_rate: float | None = None
    sampling: str | None = None
    clip_norm: float | None = None
    step_size: float | None = None
    final_step_size: float | None = None
    schedule: str | None = None
    warm_up: int | None = None
    optimiser: str | None = None
    classes: int | None = None
    overlap: int | None = None

    def changes(self) -> dict[str, Any]:
        """Those that are given, by name."""
        given = ((field.name, getattr(self, field.name)) for field in _TASK)
        return {name: value for name, value in given if value is not None}


_TASK = dataclasses.fields(TaskChanges)


@public_class
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(AccountSettings, TaskChanges, RunSettings):
    """Settings of a training, for `privaudit.train`; what is None is the recipe's.

    Parameters
    ----------
    epsilon
        Epsilon of the claim, > 0. Without --noise-multiplier, the noise is the least
        that certifies it. Default: the recipe's, or 1; with --noise-multiplier nothing
        is claimed.
    budgets
        Epsilon of each node, such as 2,2,1: the claim where nodes have budgets of their
        own. Each node then adds the noise that its own budget needs.
    delta
        Delta of the claim, in (0, 1). Default: the recipe's, or 1e-5.
    noise
        one: the noise multiplier that all nodes' budgets need, at all of them.
        per-node: each node adds as little as its own budget needs. Default: one, with
        --budgets per-node.
    relation
        Neighbour relation of the claim. Default: add-or-remove-one, or replace-one for
        batches of fixed size.
    observer
        Against whom the claim is to hold: any-node (each other node by itself), a node
        (3), several that collude (3,5), or a wire (edge:1-2). Proved for
        dp-butterfly, dp-chain and dp-mf-butterfly. Default: an observer of all
        releases.
    unit
        What the claim is to protect: a record, or a user (all records of one). Refused
        where the algorithm protects another one. Default: the algorithm's.
    calibrate
        Which account chooses the noise: the certified one, or that of the algorithm's
        paper.
    data_dir
        Folder where data sets are kept.
    key_file
        File that keeps the secret key until the run ends. Default: in the run's folder.
    device
        cpu, cuda or cuda:NUMBER. Noise is the same on each; sums round differently.
        Default: the recipe's, or cpu.
    compiled
        Start the kernels of a gradient at once, as a CUDA graph: the same numbers, on a
        GPU in less time, on a CPU as without it.
    precision
        bf16: gradients in bfloat16, clipped and summed in double precision. Default:
        the recipe's, or float32.
    save
        models: keep every node's final model (model.safetensors); none: do not.
    shards
        In how many parts each node's parameters, sums and noise lie, each at a rank of
        torchrun: the same bits for any number, models that no process holds whole.
    parties
        Each process is a party: it loads only its own data, has its own key, ledger and
        folder (OUT/party-N), and sends the algorithm's messages and nothing else.
        Started by torchrun, or anywhere with RANK, WORLD_SIZE, MASTER_ADDR and
        MASTER_PORT in the environment.
    exchange
        What carries messages between parties. torch: torch.distributed, in one trust
        domain. flare: NVIDIA FLARE, sealed from site to site, with --kit; implies
        --parties. Default: torch.
    kit
        Folder of this site's FLARE kit, which says who it is, where the server is and
        which sites train.
    identifiers
        File of this party with an identifier a line for each of its records, such as
        patients' numbers. Parties then count, two by two, how many they share, by
        private set intersection, and join says at how many a record may be.
    patience
        Seconds that a party waits for another one before it ends.
    drop_lost
        Whether the others go on without a party that is lost, as long as they are more
        than half; for algorithms whose nodes average with symmetric weights.
    canaries
        Number of canaries to plant in this very run: crafted gradients, each there or
        not by a secret coin, which show afterwards what the run gave away, without
        training again. Each moves a parameter of its own.
    canary_nodes
        Nodes that canaries are dealt to in turn: numbers such as 0,3, or all; 0 by
        default.
    clip_quantile
        Instead of a clip norm: that than which this share of the records' gradients is
        shorter at the start, such as 0.5. Each node counts its own, with noise that is
        charged (about 5 % more noise in the training). A step size that is left open is
        scaled so that steps stay as long.

    Examples
    --------
    >>> TrainingSettings(clip_norm=0.5, seed=0).changes()
    {'clip_norm': 0.5}
    >>> TrainingSettings(clip_norm=0.5, key_file="run.key").key_file.name
    'run.key'
    >>> TrainingSettings(clip_norm=0)
    Traceback (most recent call last):
        ...
    ValueError: clip_norm must be > 0, got 0
    """

    epsilon: float | None = None
    budgets: str | None = None
    delta: float | None = None
    noise: NoiseBy | None = None
    relation: Relation | None = None
    observer: str | None = None
    unit: Unit | None = None
    calibrate: Calibration = "certified"
    data_dir: pathlib.Path | None = None
    key_file: pathlib.Path | None = None
    device: str | None = None
    compiled: bool | None = None
    precision: Precision | None = None
    save: Saved = "models"
    shards: Annotated[int, Meta(ge=1)] | None = None
    parties: bool = False
    exchange: Carrier | None = None
    kit: pathlib.Path | None = None
    identifiers: pathlib.Path | None = None
    patience: Positive = 300.0
    drop_lost: bool = False
    canaries: Planted | None = None
    canary_nodes: str | None = None
    clip_quantile: Annotated[float, Meta(gt=0, lt=1)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.exchange == "flare") != (self.kit is not None):
            raise ValueError(
                "a kit is a FLARE site's: give --exchange flare and --kit together"
            )
        if self.shards is not None and (
            self.parties or self.canaries or self.clip_quantile
        ):
            raise ValueError(
                "shards are of nodes whose noise and clip norm are given, under one "
                "torchrun: leave parties, canaries, clip_quantile or shards out"
            )
        if self.exchange == "flare":
            object.__setattr__(self, "parties", True)
        if self.parties and self.observer is not None:
            raise ValueError(
                "--observer is an account of all nodes together, and with --parties "
                "each has the ledger of its own nodes: leave one of them out"
            )
        if self.noise not in (None, *get_args(NoiseBy)):
            raise ValueError(f"noise is one or per-node, got {self.noise!r}")
        if self.clip_quantile is not None and self.clip_norm is not None:
            raise ValueError(
                "a clip norm is given or found in the data: leave clip_norm or "
                "clip_quantile out"
            )
        if self.canary_nodes is not None and self.canaries is None:
            raise ValueError(
                "canary_nodes are of canaries in the run itself: give canaries, or "
                "leave it out"
            )
        if self.noise_multiplier is not None and (self.noise or self.budgets):
            raise ValueError(
                "noise and budgets are of noise that is found for a budget: leave them "
                "or noise_multiplier out"
            )
        if self.budgets is not None and self.epsilon is not None:
            raise ValueError(
                "epsilon is the budget of every node, and budgets are of each: give "
                "one of them"
            )
        if self.batch_size is not None and self.sampling_rate is not None:
            raise ValueError(
                "give batch_size, the same at all nodes, or sampling_rate, the same "
                "share of each node's records, not both"
            )
        for value in self.each_budget or ():
            check_epsilon(value)
        _check_claim(self.epsilon, self.delta, self.relation)
        if self.device is not None:
            check_device_name(self.device)
        if self.precision is not None:
            check_precision(self.precision)

    def __repr__(self) -> str:  # short in the help of `privaudit.train`
        given = [f"{name}={x!r}" for name, x in given_fields(self).items()]
        return f"{type(self).__name__}({', '.join(given)})"

    @property
    def each_budget(self) -> tuple[float, ...] | None:
        """Epsilon of each node, where ``budgets`` have it; None where one is for all.

        >>> TrainingSettings(budgets="2,1").each_budget
        (2.0, 1.0)
        """
        if self.budgets is None:
            return None
        try:
            return tuple(map(float, self.budgets.split(",")))
        except ValueError:
            raise ValueError(
                f"budgets are one epsilon a node, such as 2,2,1, got {self.budgets}"
            ) from None

    def nodes_of_canaries(self, nodes: int) -> tuple[int, ...]:
        """Nodes that canaries are dealt to, of so many; ``ValueError`` for others.

        >>> TrainingSettings(canaries=50, canary_nodes="2,0").nodes_of_canaries(3)
        (0, 2)
        """
        said = self.canary_nodes or "0"
        if said == "all":
            return tuple(range(nodes))
        parts = [part.strip() for part in said.split(",")]
        if not all(part.isdecimal() and int(part) < nodes for part in parts):
            raise ValueError(
                f"canary_nodes are numbers from 0 to {nodes - 1}, such as 0 or 0,"
                f"{nodes - 1}, or all; got {said!r}"
            )
        return tuple(sorted(set(map(int, parts))))

    @property
    def budget(self) -> float | tuple[float, ...] | None:
        """Epsilon of every node, or of each."""
        return self.each_budget or self.epsilon

    def given(self, **more: Any) -> Self:
        """These settings, and ``more`` of them; ``ValueError`` for one given twice."""
        more = {name: value for name, value in more.items() if value is not None}
        for name, value in more.items():
            if getattr(self, name) not in (None, value):
                raise ValueError(
                    f"{name} is {value} as an argument, and {getattr(self, name)} in "
                    "settings: give one of them"
                )
        return dataclasses.replace(self, **more)

    def over(self, **recipe: Any) -> Self:
        """These settings, with those of a ``recipe`` where they leave one open."""
        left = {name: x for name, x in recipe.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **left)

    def check_only(self, names: Collection[str], why: str) -> None:
        """``ValueError`` if something else than ``names`` is set, for which ``why``."""
        for name in given_fields(self):
            if name not in names:
                raise ValueError(f"leave {name} out: {why}")

    @property
    def compute(self) -> Compute:
        """Device and method of gradients."""
        given = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(Compute)
            if getattr(self, field.name) is not None
        }
        return Compute(**given)


def claim_of(
    epsilon: float,
    delta: float,
    relation: Relation,
    unit: Unit = "record",
    source: str = COMMAND_LINE,
    observer: str | UnsetType = UNSET,
    overlap: int | UnsetType = UNSET,
) -> Claim:
    """The claim of a user. ``ValueError`` if it is out of its range."""
    return Claim(
        epsilon=check_epsilon(epsilon),
        delta=check_delta(delta),
        relation=check_relation(relation),
        unit=unit,
        source=source,
        observer=observer,
        overlap=overlap,
    )


def check_device_name(device: str) -> str:
    """``device`` if it is cpu or a GPU's name, else ``ValueError``."""
    kind, colon, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdigit()):
        raise ValueError(f"the device is cpu, cuda or cuda:NUMBER, got {device!r}")
    return device


def check_precision(precision: str) -> bool:
    """Return whether it is the lower one. ``ValueError`` if there is none such."""
    if precision not in get_args(Precision):
        raise ValueError(
            f"precision must be one of {', '.join(get_args(Precision))}, got "
            f"{precision!r}"
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
