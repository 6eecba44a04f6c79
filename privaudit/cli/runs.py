"""`privaudit train`, `audit`, `show` and `report`: what works in a run's folder."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from privaudit.cli import REFUTED
from privaudit.cli.accounts import Account, Json, NoiseMultiplier
from privaudit.cli.output import emit, note, progress_bar
from privaudit.results import Claim, Relation, Verdict

if TYPE_CHECKING:
    from trainers.problem import Problem
    from trainers.training import Training

Algorithm = Annotated[
    str,
    Parameter(
        help="dp-sgd, dp-dsgd, dp-dsgt or dp-dinno; sgd, dsgd, dsgt and dinno are the "
        "same without clipping and noise."
    ),
]
Settings = Annotated[
    list[str],
    Parameter(
        name="--set",
        negative=(),
        help="A setting of the training, as key=value; may be repeated.",
    ),
]
Out = Annotated[
    pathlib.Path | None,
    Parameter(help="The run's folder; the same command goes on where it stopped."),
]


def _training(algorithm: str, settings: list[str], **defaults: Any) -> Training:
    from trainers.algorithms import ALGORITHMS
    from trainers.training import training_from

    entry = ALGORITHMS.get(algorithm)
    own = {} if entry is None else entry.defaults
    values: dict[str, Any] = {**own, **defaults, "algorithm": algorithm}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"--set takes key=value, got {setting!r}")
        values[name] = text.split(",") if name == "digits" else text.strip()
    return training_from(values, where="--set")


def _noise(
    problem: Problem,
    given: float | None,
    epsilon: float,
    delta: float,
    relation: Relation,
    account: str,
) -> float:
    """The noise multiplier of a run: as given, or the least that meets the budget."""
    from privaudit.accounting import noise_multiplier

    if not problem.training.entry.private:
        if given is not None:
            raise ValueError(
                f"{problem.training.algorithm} adds no noise; leave "
                "--noise-multiplier out, or use its private form"
            )
        return 0.0
    if given is not None:
        if not given > 0:
            raise ValueError(f"--noise-multiplier must be > 0, got {given:g}")
        return given
    note(f"calibrating the noise to epsilon {epsilon:g} at delta {delta:g} ...")
    multiplier, _ = noise_multiplier(problem.ledger, epsilon, delta, relation, account)
    return multiplier


def train(
    algorithm: Algorithm,
    /,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-4,
    relation: Relation = "add-or-remove-one",
    noise_multiplier: NoiseMultiplier | None = None,
    account: Account = "certified",
    settings: Settings = (),  # type: ignore[assignment]  # cyclopts' empty list
    out: Out = None,
    seed: int = 0,
    json: Json = False,
) -> None:
    """Train once on handwritten digits, with noise for a budget, and account it.

    Parameters
    ----------
    epsilon
        The claim, > 0; the noise is the least that certifies it.
    delta
        The claim, in (0, 1).
    relation
        What neighbouring data sets differ in.
    seed
        Of the start, the lots and the noise.
    """
    from privaudit.folder import RunFolder
    from trainers.problem import Problem
    from trainers.run import TrainingRun
    from trainers.run import train as train_in

    training = _training(algorithm, list(settings))
    claim = _claim(epsilon, delta, relation)
    problem = Problem.of(training)
    multiplier = _noise(problem, noise_multiplier, epsilon, delta, relation, account)
    run = TrainingRun(
        training=training,
        claim=claim if training.entry.private else None,
        noise_multiplier=multiplier,
        account=account,
        seed=seed,
    )
    path = out or pathlib.Path("runs") / f"train-{algorithm}"
    with RunFolder.opened(path) as folder, progress_bar("rounds") as progress:
        result = train_in(run, folder, delta=delta, progress=progress)
    worst = max(result.nodes, key=lambda bound: bound.epsilon)
    emit(
        {
            "algorithm": algorithm,
            "claimed": run.claim.epsilon if run.claim else None,
            "certified": worst.epsilon,
            "delta": delta,
            "relation": relation,
            "noise_multiplier": multiplier,
            "accuracy": result.accuracy,
            "worst_accuracy": result.worst_accuracy,
            "seconds": result.seconds,
            "verdict": result.status,
            "out": str(path),
        },
        [
            f"{algorithm}: accuracy {result.accuracy:.4f} on test images, mean of "
            f"nodes; {result.worst_accuracy:.4f} at the worst node "
            f"({result.seconds:.1f} s)",
            *([str(run.claim)] if run.claim else []),
            str(worst),
            f"kept in {path}",
        ],
        as_json=json,
    )


def audit(
    algorithm: Algorithm,
    /,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-2,
    noise_multiplier: NoiseMultiplier | None = None,
    account: Account = "certified",
    runs: int = 2000,
    adversary: str = "final-loss",
    estimator: str = "clopper-pearson",
    confidence: float = 0.95,
    settings: Settings = (),  # type: ignore[assignment]  # cyclopts' empty list
    out: Out = None,
    seed: int = 0,
    workers: int | None = None,
    json: Json = False,
) -> int:
    """Test a claim of epsilon from below: train with and without a canary, and tell.

    Each run tosses a fair coin for its world: a blank image, labelled 0, is one record
    more of node 0, or not. The setting is that of appendix D of Bayrooti et al. 2023 on
    scikit-learn's digits.

    Parameters
    ----------
    epsilon
        The claim, > 0; the noise is the least that certifies it.
    delta
        The claim, in (0, 1).
    runs
        How many, both worlds together.
    adversary
        What the attacker sees: final-loss or noisy-gradients.
    estimator
        How scores become a lower bound.
    confidence
        Of the lower bound, in (0, 1).
    seed
        Of everything random.
    workers
        Threads; as many as processors by default. Results do not depend on it.
    """
    from privaudit.auditing.experiment import Audit, run
    from privaudit.auditing.presets import AUDITED
    from privaudit.folder import RunFolder
    from trainers.problem import Problem

    training = _training(algorithm, list(settings), **AUDITED)
    relation: Relation = "add-or-remove-one"
    claim = _claim(epsilon, delta, relation)
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be >= 1, got {workers}")
    plan = Audit(
        claim=claim,
        training=training,
        noise_multiplier=0.0,
        adversary=adversary,
        estimator=estimator,
        account=account,
        confidence=confidence,
        runs=runs,
        seed=seed,
    )
    # All else is checked by now: calibration takes seconds.
    problem = Problem.of(training)
    multiplier = _noise(problem, noise_multiplier, epsilon, delta, relation, account)
    plan = msgspec.structs.replace(plan, noise_multiplier=multiplier)
    path = out or pathlib.Path("runs") / f"audit-{algorithm}"
    with RunFolder.opened(path) as folder, progress_bar("runs") as progress:
        result = run(plan, folder, workers=workers, progress=progress)
    emit(
        result.summary(),
        [*verdict_lines(result.verdict), f"kept in {path}"],
        as_json=json,
    )
    return REFUTED if result.status == "refuted" else 0


def _claim(epsilon: float, delta: float, relation: Relation) -> Claim:
    from privaudit.accounting.account import check_delta, check_epsilon

    return Claim(
        epsilon=check_epsilon(epsilon),
        delta=check_delta(delta),
        relation=relation,
        source="the command line",
    )


def verdict_lines(verdict: Verdict) -> list[str]:
    """A verdict and its figures, a line each."""
    figures = (verdict.claim, verdict.upper, verdict.lower)
    return [*(str(figure) for figure in figures if figure is not None), str(verdict)]


def show(folders: list[pathlib.Path], /, *, json: Json = False) -> int:
    """Say what the folders of finished runs hold.

    Parameters
    ----------
    folders
        One or more, as given to --out.
    """
    from privaudit.report.load import load

    finished = [load(path) for path in folders]
    emit(
        {"runs": [one.summary() for one in finished]},
        [line for one in finished for line in one.lines()],
        as_json=json,
    )
    refuted = any(one.status == "refuted" for one in finished)
    return REFUTED if refuted else 0


def report(folder: pathlib.Path, /) -> None:
    """Write report.html into the folder of a finished audit.

    Parameters
    ----------
    folder
        As given to --out.
    """
    from privaudit.report.page import write

    print(write(folder))
