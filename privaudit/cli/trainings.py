"""From what a command line says to a training, its claim and its noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from privaudit.cli.output import note
from privaudit.results import Claim, Relation, Unit

if TYPE_CHECKING:
    from trainers.runs.problem import Problem
    from trainers.runs.training import Training

Calibration = Literal["certified", "paper"]
_MOST_NOISE = 1e30


def split_settings(settings: list[str]) -> dict[str, Any]:
    """``--set`` key=value, as a dict; ``ValueError`` for what is none."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError(f"--set takes key=value, got {setting!r}")
        if name in values:
            raise ValueError(f"--set {name} is given twice; leave one of them out")
        values[name] = text.split(",") if name == "digits" else text.strip()
    return values


def training_named(algorithm: str, settings: list[str], **defaults: Any) -> Training:
    """The training of an algorithm by name, with its own defaults beneath."""
    from privaudit.auditing.experiments.presets import training_upon

    return training_upon(algorithm, split_settings(settings), defaults, "--set")


def relation_of(training: Training, given: Relation | None) -> Relation:
    """The relation of an account: as given, or what the sampling has a meaning for."""
    if given is not None:
        return given
    if training.unit == "node":  # another node is asked
        return "replace-one"
    fixed = training.mechanism(1.0).sampling == "without-replacement"
    return "replace-one" if fixed else "add-or-remove-one"


def claim_of(
    epsilon: float,
    delta: float,
    relation: Relation,
    unit: Unit = "record",
    source: str = "the command line",
) -> Claim:
    """The claim that the command line makes. ``ValueError`` if it is out of range."""
    from privaudit.accounting.account import check_delta, check_epsilon

    return Claim(
        epsilon=check_epsilon(epsilon),
        delta=check_delta(delta),
        relation=relation,
        unit=unit,
        source=source,
    )


def noise_of(
    problem: Problem,
    given: float | None,
    claim: Claim,
    account: str,
    calibrate: Calibration = "certified",
) -> float:
    """The noise multiplier of a run: as given, or the least that meets the claim.

    ``calibrate`` "paper" takes the algorithm's own paper's account instead. Raises
    ``ValueError`` if the algorithm has none, or no noise.
    """
    from privaudit.accounting import noise_multiplier
    from trainers.algorithms.family import HasPaperNoise

    family, name = problem.training.family, problem.training.algorithm
    if not family.private:
        if given is not None:
            raise ValueError(
                f"{name} adds no noise; leave --noise-multiplier out, or use its "
                "private form"
            )
        return 0.0
    if given is not None:
        if not 0 < given <= _MOST_NOISE:
            raise ValueError(
                f"--noise-multiplier must be > 0 and at most {_MOST_NOISE:g}, which "
                f"float32 can add, got {given:g}"
            )
        return given
    if calibrate == "paper":
        if not isinstance(family, HasPaperNoise):
            raise ValueError(
                f"there is no account of a paper's own for {name}; use --calibrate "
                "certified"
            )
        note("noise by the paper's own account; the certified one tells what it gives")
        return family.paper_noise(problem.setting, claim.epsilon, claim.delta)
    note(
        f"calibrating the noise to epsilon {claim.epsilon:g} at delta {claim.delta:g} "
        "..."
    )
    multiplier, _ = noise_multiplier(
        problem.ledger, claim.epsilon, claim.delta, claim.relation, account
    )
    return multiplier
