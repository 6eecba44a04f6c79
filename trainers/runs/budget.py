"""The noise of a run that meets a claim."""

from __future__ import annotations

from collections.abc import Callable

from privaudit.accounting import noise_multiplier
from privaudit.accounting.views import observed_by
from privaudit.ledger import Ledger
from privaudit.results import Claim
from privaudit.settings import AccountSettings, Calibration
from trainers.algorithms.family import HasPaperNoise
from trainers.runs.problem import Problem
from trainers.runs.training import Training


def check_noise(training: Training, noise_multiplier: float | None) -> None:
    """``ValueError`` for noise that the algorithm would not add."""
    if noise_multiplier is not None and not training.family.private:
        raise ValueError(
            f"{training.algorithm} adds no noise: leave noise_multiplier out, or use "
            "its private form"
        )


def noise_of(
    problem: Problem,
    claim: Claim,
    settings: AccountSettings,
    calibrate: Calibration = "certified",
    note: Callable[[str], None] = lambda message: None,
) -> float:
    """The noise multiplier of a run: as given, or the least that meets ``claim``.

    ``calibrate`` "paper" takes the account of the algorithm's own paper instead of that
    in ``settings``. ``note`` is told what takes seconds. Raises ``ValueError`` if the
    algorithm has no such account, or no noise where some is given.
    """
    training = problem.training
    check_noise(training, settings.noise_multiplier)
    if not training.family.private:
        return 0.0
    if settings.noise_multiplier is not None:
        return settings.noise_multiplier
    if calibrate == "paper":
        if not isinstance(training.family, HasPaperNoise):
            raise ValueError(
                f"there is no account of a paper's own for {training.algorithm}; use "
                "--calibrate certified"
            )
        note("noise by the paper's own account; the certified one tells what it gives")
        return training.family.paper_noise(problem.setting, claim.epsilon, claim.delta)
    note(
        f"calibrating the noise to epsilon {claim.epsilon:g} at delta {claim.delta:g} "
        "..."
    )

    def seen(noise_multiplier: float) -> Ledger:
        return observed_by(
            training.algorithm,
            problem.ledger(noise_multiplier),
            claim.observer or None,
            claim.relation,
        )

    found, _ = noise_multiplier(
        seen, claim.epsilon, claim.delta, claim.relation, settings.account
    )
    return found
