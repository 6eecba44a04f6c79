"""Settings of commands that compute or check something without an audit.

Accounts, lower bounds by scores that are at hand, views, probes, consensus. They are
apart from `privaudit.settings` so that a command which only computes starts without
those.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Literal, get_args

from msgspec import Meta

from privaudit.files.arguments import Checked
from privaudit.results import DELTA, Relation, check_delta, check_relation
from privaudit.task_settings import (
    Count,
    Natural,
    Positive,
    WeightName,
    batches_taken,
)

Scheme = Literal[
    "poisson",
    "without-replacement",
    "random-allocation",
    "shuffled",
    "reshuffled",
    "none",
]
Mechanism = Literal["gaussian", "laplace"]
Sensitivity = Literal["real", "paper", "published", "certified", "data-independent"]


def check_plot(path: pathlib.Path) -> None:
    """``ValueError`` unless a plot can be written to ``path``, by its name."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ValueError(f"--plot must end in .svg, .png or .pdf, got {path}")
    if not path.parent.is_dir():
        raise ValueError(f"--plot: there is no folder {path.parent}")


def check_scheme(name: str) -> None:
    """``ValueError`` unless ``name`` is of a scheme of sampling."""
    if name not in get_args(Scheme) and batches_taken(name) is None:
        raise ValueError(
            f"sampling must be {', '.join(get_args(Scheme))} or random-allocation:k "
            f"(balls in bins are random-allocation), got {name!r}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseSettings(Checked):
    """Releases of a run that is only accounted.

    Parameters
    ----------
    sampling_rate
        Probability that a record is in a batch: the expected batch size over the
        records.
    steps
        Number of releases.
    sampling
        How batches are drawn: poisson (every record by its own coin),
        without-replacement (fixed size), random-allocation (every record by itself in
        one of an epoch's t batches: the rate is 1 / t, and the steps are those of all
        epochs; random-allocation:k: in k of them, the rate is k / t), shuffled (passes
        over batches of fixed size: no amplification), reshuffled (such passes, each a
        uniform order of all records that is drawn anew and stays secret), or none.
        Default: poisson, or none at rate 1.
    mechanism
        Distribution of the noise.
    relation
        Neighbour relation. Default: add-or-remove-one, or replace-one for batches of
        fixed size.
    growing_budget
        RHO: noise falls from step to step, and the last of K steps has about 1 / RHO
        of the first one's. Step k has noise 1 / mu_k, with mu_k = mu0 RHO^(k/K).
    schedule
        Noise and rate of every step: a .csv, its first line
        noise_multiplier,sampling_rate and then a row a step, such as 1.1,0.01, or
        noise_multiplier,sampling_rate,steps and a row for so many equal steps, such as
        1.1,0.01,2500; or a .toml, such as steps = 1000, sampling_rate = 0.01 and
        noise_multiplier = {type = "shrinking", initial = 2.0, rho = 1.5}, a line each.
    """

    sampling_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0
    steps: Natural = 1
    sampling: str | None = None
    mechanism: Mechanism = "gaussian"
    relation: Relation | None = None
    growing_budget: float | None = None
    schedule: pathlib.Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling is not None:
            check_scheme(self.sampling)
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
        fixed = self.sampling in ("without-replacement", "shuffled", "reshuffled")
        return "replace-one" if fixed else "add-or-remove-one"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorthSettings:
    """Unit of an epsilon (record or group), and number of tries of a run.

    Parameters
    ----------
    overlap
        How many nodes of the ledger may hold the same record; the releases of so many
        nodes, the costliest, are accounted together.
    group
        Protect groups of so many records at once, such as one user's.
    tries
        Charge for tuning: the run was repeated a random number of times, this many on
        average, and only the best is published.
    tries_law
        Distribution from which the number of tries was drawn.
    """

    overlap: int = 1
    group: int = 1
    tries: float | None = None
    tries_law: Literal["geometric", "logarithmic", "poisson"] = "geometric"

    def __post_init__(self) -> None:
        if self.tries is not None and (self.overlap, self.group) != (1, 1):
            raise ValueError(
                "--tries is accounted for single records at one node: leave --overlap "
                "and --group out"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FigureSettings:
    """Account that gives a figure, and what is shown beside it.

    Parameters
    ----------
    account
        certified (tight, all numerical error bounded), pld (dp-accounting's), rdp, gdp
        (no sampling), gdp-clt (a limit, no guarantee), analytic-gaussian or
        classical-gaussian (one release).
    compare
        Print a table of all accounts that apply.
    plot
        Draw the privacy profile of the answer into this file (.svg, .png, .pdf).
    certificate
        Write what is claimed into this file, which privaudit/kernel.py checks by
        itself.
    upper_only
        Leave the lower side out, which takes most of the time where all steps differ.
    """

    account: str = "certified"
    compare: bool = False
    plot: pathlib.Path | None = None
    certificate: pathlib.Path | None = None
    upper_only: bool = False

    def __post_init__(self) -> None:
        if self.certificate is not None and self.compare:
            raise ValueError("--certificate is of one answer: leave --compare out")
        # Before anything is computed: matplotlib would write to another name, or late.
        if self.plot is None:
            return
        if self.compare:
            raise ValueError(
                "--plot draws what one account gives: leave it or --compare out"
            )
        check_plot(self.plot)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings(Checked):
    """Settings that turn attack scores at hand into a lower bound.

    Parameters
    ----------
    delta
        The delta at which epsilon is bounded, in [0, 1).
    confidence
        Confidence level, in (0, 1): the bound is above the true epsilon with at most
        the remaining probability.
    method
        For any mechanism: best, rank-walk, two-binomial, clopper-pearson, betting. For
        Gaussian DP only: top-half, betting-gaussian. Betting needs coin-flip worlds.
        For the canaries of one run: best, one-run, one-run-gaussian.
    design
        How each run got its world: coin-flip if every run tossed a fair coin, else
        fixed; one-run if these are the canaries of a single run, each in it by its own
        fair coin. Needed for a .csv; a .npz may say it. Counts of the two worlds that
        fair coins hardly give are refused as coin-flip.
    order
        For betting and betting-gaussian, which go through the runs one by one: shuffled
        (the default) permutes the rows by the seed; time takes them as they stand, and
        assumes that this is the order of the runs.
    epsilon
        Epsilon of a claim to test; exit status 1 if it is refuted.
    relation
        Neighbour relation: what the two worlds differ by.
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
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_relation(self.relation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfcheckSettings(Checked):
    """Settings of the check of the lower bounds' estimators.

    Parameters
    ----------
    repeats
        Number of simulated audits for each cell of the table.
    runs
        Number of runs of one audit, both worlds together.
    confidence
        Confidence level of the bounds, in (0, 1).
    estimator
        Check only this estimator; may be repeated.
    full
        2 000 repeats, which take about an hour.
    seed
        Seed of the simulated audits: equal seeds give equal tables.
    """

    repeats: Count = 100
    runs: Annotated[int, Meta(ge=2)] = 1000
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    estimator: list[str] | None = None
    full: bool = False
    seed: Natural = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViewSettings(Checked):
    """Observers of a decentralised training, and their view.

    Parameters
    ----------
    observer
        A node (3), several that collude (3,5), a wire (edge:1-2), or everybody: an
        observer of all messages. Default: any-node, each node by itself.
    relation
        Neighbour relation. Default: that of the algorithm's training.
    unit
        What is protected: one record, or all records of a node, which are replaced.
    final_models
        Count also what the final models of all nodes reveal, as if published.
    seed
        Seed by which data are dealt to the nodes.
    """

    observer: str | None = None
    relation: Relation | None = None
    unit: Literal["record", "node"] = "record"
    final_models: bool = False
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in ("record", "node"):
            raise ValueError(f"unit is record or node, got {self.unit!r}")
        if not isinstance(self.final_models, bool):
            raise ValueError(
                f"final_models is True or False, got {self.final_models!r}"
            )
        if self.relation is not None:
            check_relation(self.relation)
        if self.unit == "node" and self.relation == "add-or-remove-one":
            raise ValueError(
                "a node's records are replaced: with unit node the relation is "
                "replace-one"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeSettings(Checked):
    """Probes for bugs of an algorithm, or of a function.

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

    noise_multiplier: Positive = 1.0
    relation: Relation = "replace-one"
    sensitivity: Positive | None = None
    noise: Positive | None = None
    rate: Annotated[float, Meta(gt=0, le=1)] | None = None
    records: Annotated[int, Meta(ge=2)] = 20
    features: Annotated[int, Meta(ge=1)] = 5
    runs: Annotated[int, Meta(ge=20)] = 200
    seed: Natural = 0
    search: Annotated[int, Meta(ge=1)] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConsensusSettings(Checked):
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
    nodes: Count = 10
    dims: Count = 10
    graph: str = "d-out:2"
    weights: WeightName = "uniform"
    rounds: Count = 20
    b: Positive = 1.0
    gamma_n: Positive = 0.01
    sensitivity: Sensitivity = "data-independent"
    constant: float = 0.78
    decay: float = 0.55
    sync_interval: Natural = 0
    clip_norm: Positive = 1.0
    delta: float = DELTA
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta(self.delta)
