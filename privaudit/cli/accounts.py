"""`privaudit noise`, `epsilon` and `convert`: from settings to figures, no training."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from privaudit.cli.figures import compare_accounts, figure_of, sentence
from privaudit.cli.output import emit, note
from privaudit.results import Relation, round_down, round_up

if TYPE_CHECKING:
    from privaudit.accounting import Certificate
    from privaudit.accounting.plans import Mechanism, Plan, Scheme
else:
    from typing import Literal

    Mechanism = Literal["gaussian", "laplace"]
    Scheme = Literal[
        "poisson", "without-replacement", "random-allocation", "shuffled", "none"
    ]

_BESIDE = 2e-3  # width of what is printed beside an answer, relative
Json = Annotated[bool, Parameter("--json", help="One JSON object, nothing else.")]
NoiseMultiplier = Annotated[
    float,
    Parameter(
        help="Standard deviation (Laplace: scale) of the noise on the SUM of a lot's "
        "clipped gradients, divided by the clip norm. Not divided by the lot size."
    ),
]
SEED = (
    "Seed of a study: makes data split, sampling and noise repeatable. A model trained "
    "with a seed is not protected."
)
Seed = Annotated[int, Parameter(help=SEED)]
Account = Annotated[
    str,
    Parameter(
        help="certified (tight, all numerical error bounded), pld (dp-accounting's), "
        "rdp, gdp (no sampling), gdp-clt (a limit, no guarantee), analytic-gaussian or "
        "classical-gaussian (one release)."
    ),
]


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What is released.

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

    def chosen_relation(self) -> Relation:
        """The relation asked for, or the one that the sampling has."""
        if self.relation is not None:
            return self.relation
        fixed = self.sampling in ("without-replacement", "shuffled")
        return "replace-one" if fixed else "add-or-remove-one"

    def plan(self) -> Plan:
        """Noise relative to the first step's (or as the schedule says)."""
        from privaudit.accounting.plans import SHUFFLED, Plan

        if self.sampling == "shuffled":
            note(SHUFFLED)
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(
                f"--sampling-rate must be in (0, 1], got {self.sampling_rate:g}; it is "
                "the expected lot size over the number of records"
            )
        if self.steps < 0:
            raise ValueError(f"--steps must be >= 0, got {self.steps}")
        scheme: Scheme = self.sampling or "poisson"
        if self.schedule is not None:
            given = (self.growing_budget, self.steps, self.sampling_rate)
            if given != (None, 1, 1.0):
                raise ValueError(
                    "--schedule says noise, rate and number of steps; leave "
                    "--growing-budget, --steps and --sampling-rate out"
                )
            return Plan.from_file(self.schedule, scheme, self.mechanism)
        if self.growing_budget is not None:
            return Plan.growing_budget(
                self.growing_budget,
                self.sampling_rate,
                self.steps,
                scheme,
                self.mechanism,
            )
        return Plan.constant(
            1.0, self.sampling_rate, self.steps, scheme, self.mechanism
        )


def noise(
    *,
    epsilon: float,
    delta: float,
    run: Run = Run(),  # frozen
    account: Account = "certified",
    compare: bool = False,
    plot: pathlib.Path | None = None,
    json: Json = False,
) -> None:
    """The least noise that meets a budget.

    Parameters
    ----------
    epsilon
        The budget, > 0.
    delta
        The budget, in (0, 1).
    compare
        All accounts that apply, in a table.
    plot
        Draw the privacy profile of the answer into this file (.svg, .png, .pdf).
    """
    from privaudit.accounting import Certificate, noise_multiplier, noise_scale

    _check_plot(plot, compare)
    plan, relation = run.plan(), run.chosen_relation()
    search = noise_multiplier if run.schedule is None else noise_scale

    def solve(name: str) -> dict[str, Any]:
        scale, _ = search(plan.ledger, epsilon, delta, relation, name)
        values = (plan.noise_multiplier * scale).tolist()
        answer: dict[str, Any] = {"noise_multiplier": scale}
        if run.growing_budget is not None and values:
            answer = {
                "mu0": 1 / values[0],
                "noise_multiplier_first": values[0],
                "noise_multiplier_last": values[-1],
            }
        elif run.schedule is not None:
            answer = {
                "scale": scale,
                "noise_multiplier_least": min(values),
                "noise_multiplier_most": max(values),
            }
        found = Certificate.of(plan.ledger(scale), relation)
        return {
            **answer,
            "epsilon": figure_of(found, delta, name, width=_BESIDE, as_json=json),
        }

    def words(answer: dict[str, Any]) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')} {_told(name, value)}"
            for name, value in answer.items()
            if name != "epsilon"
        )

    if compare:
        return compare_accounts(solve, words, as_json=json)
    answer = solve(account)
    if plot is not None:
        scale = answer.get("scale") or _first(answer)
        _plot(Certificate.of(plan.ledger(scale), relation), plot)
    emit(
        answer,
        [
            words(answer),
            "(times the clip norm: the noise on the sum of each lot)",
            sentence(answer["epsilon"]),
        ],
        as_json=json,
    )
    return None


def _told(name: str, value: float) -> str:
    """An epsilon as all commands round it; what is to be typed in again, finer.

    Rounded to the safe side: more noise than is needed, or a smaller budget.
    """
    if name == "epsilon":
        return round_up(value)
    return round_down(value, 6) if name in ("mu", "mu0") else round_up(value, 6)


def _first(answer: dict[str, Any]) -> float:
    return answer.get("noise_multiplier") or answer["noise_multiplier_first"]


def epsilon(
    *,
    delta: float,
    noise_multiplier: NoiseMultiplier | None = None,
    run: Run = Run(),  # frozen
    ledger: pathlib.Path | None = None,
    overlap: int = 1,
    account: Account = "certified",
    compare: bool = False,
    plot: pathlib.Path | None = None,
    json: Json = False,
) -> None:
    """The epsilon that a run gives: an upper bound, or both.

    Parameters
    ----------
    delta
        In (0, 1).
    ledger
        A run's ledger.json, or dp-accounting's event in JSON; the worst node is
        accounted. Instead of all the settings.
    overlap
        At how many nodes of the ledger one record may be: the releases of the worst so
        many nodes are accounted together.
    compare
        All accounts that apply, in a table.
    plot
        Draw the privacy profile into this file (.svg, .png, .pdf).
    """
    from privaudit.accounting import Certificate
    from privaudit.api.accounts import ledger_from

    _check_plot(plot, compare)
    relation = run.chosen_relation()
    if ledger is not None:
        if noise_multiplier is not None or dataclasses.replace(run, relation=None) != (
            Run()
        ):
            raise ValueError(
                "--ledger says what was released; leave --noise-multiplier and the "
                "settings of the run out"
            )
        released = ledger_from(ledger)
    else:
        if (noise_multiplier is None) == (run.schedule is None):
            raise ValueError(
                "give one of --noise-multiplier (of the first step), --schedule and "
                "--ledger"
            )
        if noise_multiplier is not None and not noise_multiplier > 0:
            raise ValueError(
                f"--noise-multiplier must be > 0, got {noise_multiplier:g}"
            )
        if overlap != 1:
            raise ValueError("--overlap speaks of the nodes of a --ledger; give one")
        released = run.plan().ledger(noise_multiplier or 1.0)
    certificate = Certificate.of(released, relation, overlap=overlap)

    def solve(name: str) -> dict[str, Any]:
        return figure_of(certificate, delta, name, as_json=json)

    if compare:
        return compare_accounts(
            lambda name: {"epsilon": solve(name)}, None, as_json=json
        )
    answer = solve(account)
    if plot is not None:
        _plot(certificate, plot)
    emit(answer, [sentence(answer)], as_json=json)
    return None


def convert(
    *,
    mu: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    json: Json = False,
) -> None:
    """Between mu-GDP and (epsilon, delta): give two, get the third, on the safe side.

    A Gaussian release of sensitivity s and noise sigma, without sampling, is mu-GDP for
    mu = s / sigma, and several are for the root of the sum of squares.

    Parameters
    ----------
    mu
        Of Gaussian differential privacy, at least 0.
    epsilon
        At least 0.
    delta
        In (0, 1).
    """
    from privaudit.accounting import gdp

    if [mu, epsilon, delta].count(None) != 1:
        raise ValueError("give two of --mu, --epsilon and --delta; the third is found")
    if mu is not None and delta is not None:
        found = {"epsilon": float(gdp.epsilon(mu, delta))}
    elif mu is not None and epsilon is not None:
        found = {"delta": float(gdp.delta(mu, epsilon))}
    else:
        assert epsilon is not None
        assert delta is not None
        found = {"mu": float(gdp.mu(epsilon, delta))}
    given = {"mu": mu, "epsilon": epsilon, "delta": delta}
    known = {name: value for name, value in given.items() if value is not None}
    (name, value), *_ = found.items()
    side = "largest" if name == "mu" else "least"
    told_known = " and ".join(f"{key} {number:.15g}" for key, number in known.items())
    emit(
        {**known, **found},
        [f"{side} {name} for {told_known}: {_told(name, value)}"],
        as_json=json,
    )


def _check_plot(path: pathlib.Path | None, compare: bool) -> None:
    """Before anything is computed: matplotlib would write to another name, or late."""
    if path is None:
        return
    if compare:
        raise ValueError(
            "--plot draws what one account gives: leave it or --compare out"
        )
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ValueError(f"--plot must end in .svg, .png or .pdf, got {path}")
    if not path.parent.is_dir():
        raise ValueError(f"--plot: there is no folder {path.parent}")


def _plot(certificate: Certificate, path: pathlib.Path) -> None:
    from privaudit.report.profile import draw_profile

    draw_profile(certificate, path)
