"""The noise of a run that meets a claim."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET

from privaudit.accounting import noise_multiplier
from privaudit.accounting.views import observed_by
from privaudit.ledger import Ledger
from privaudit.results import Claim
from privaudit.settings import AccountSettings, Calibration, TrainingSettings
from trainers.algorithms.family import HasPaperNoise, Noise
from trainers.runs.advice import Released
from trainers.runs.training import Training


def check_noise(training: Training, noise_multiplier: float | None) -> None:
    """``ValueError`` for noise that the algorithm would not add."""
    if noise_multiplier is not None and not training.family.private:
        raise ValueError(
            f"{training.algorithm} adds no noise: leave noise_multiplier out, or use "
            "its private form"
        )


def noise_of(
    problem: Released,
    claim: Claim,
    settings: AccountSettings,
    calibrate: Calibration = "certified",
    note: Callable[[str], None] = lambda message: None,
) -> float:
    """The noise multiplier of a run: as given, or the least that meets ``claim``.

    ``calibrate`` "paper": by the account of the algorithm's own paper.
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
        ledger, observer = problem.ledger(noise_multiplier), claim.observer or None
        return observed_by(training.algorithm, ledger, observer, claim.relation)

    found, _ = noise_multiplier(
        seen, claim.epsilon, claim.delta, claim.relation, settings.account
    )
    return found


def noise_by_node(
    problem: Released,
    claim: Claim,
    settings: TrainingSettings,
    note: Callable[[str], None] = lambda message: None,
) -> Noise:
    """`noise_of`, of nodes that have budgets, or are to have noise, of their own.

    With ``settings.noise`` "one", the most of these; ``ValueError`` where all need one.
    """
    training, nodes = problem.training, len(problem.sizes)
    budgets, account = settings.each_budget, settings.account
    by = settings.noise or ("one" if budgets is None else "per-node")
    if not training.family.private or (budgets is None and by == "one"):
        return noise_of(problem, claim, settings, settings.calibrate, note)
    if settings.calibrate == "paper":
        raise ValueError(
            "papers' accounts have one noise for all nodes: leave noise and budgets by "
            "node out, or calibrate=paper"
        )
    if budgets is None:
        budgets = (claim.epsilon,) * nodes
    note("calibrating the noise of each node ...")
    if len(budgets) != nodes:
        raise ValueError(
            f"{len(budgets)} budgets are given for {nodes} nodes: give one for each"
        )
    if claim.observer is not UNSET or training.overlap > 1:
        raise ValueError(
            "noise and budgets by node are for a record at one node and an observer of "
            "all releases: leave observer and overlap out"
        )
    if why := training.family.one_noise:
        raise ValueError(
            f"{training.algorithm} {why}: leave noise and budgets by node out"
        )
    found: dict[tuple[float, int], float] = {}
    for node, kind in enumerate(zip(budgets, problem.sizes, strict=True)):
        if kind in found:
            continue

        def own(noise_multiplier: float, node: int = node) -> Ledger:
            whole = problem.ledger(noise_multiplier)
            return msgspec.structs.replace(whole, nodes=(whole.nodes[node],))

        found[kind], _ = noise_multiplier(
            own, kind[0], claim.delta, claim.relation, account
        )
    each = tuple(found[kind] for kind in zip(budgets, problem.sizes, strict=True))
    return each if by == "per-node" else max(each)
