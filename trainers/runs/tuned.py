"""Ledger of a training that was the best of several tries on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from privaudit.accounting import gdp, noise_multiplier
from privaudit.accounting.tuning import repeat_and_select
from privaudit.files import json as _json
from privaudit.ledger import Entry, Ledger
from privaudit.records import TuningRecord
from privaudit.release import NoSampling, Release
from privaudit.results import Claim, Relation
from privaudit.settings import TrainingSettings
from privaudit.task_settings import laid_over
from trainers.algorithms.family import Noise
from trainers.runs.budget import noise_by_node
from trainers.runs.planning import Sized
from trainers.runs.training import Training, training_from


def changed(training: Training, settings: dict[str, Any]) -> Training:
    """``training`` with other ``settings``, options of its algorithm among them."""
    values = msgspec.to_builtins(training)
    values |= values.pop("options")
    return training_from(laid_over(values, settings), where="a candidate")


def try_ledger(
    training: Training, sizes: tuple[int, ...], noise: Noise, score_noise: float | None
) -> Ledger:
    """Ledger of one try: its training, and the count by which it is judged."""
    # One count of all nodes' records: whoever holds the record, it moves by one.
    return with_counts(Sized(training, sizes).ledger(noise), score_noise)


def count_noise(budgets: Sequence[float], delta: float) -> float:
    """Deviation of counts of records: a third of the budget's mu, 5 % more noise."""
    return 3.0 / min(float(gdp.mu(own, delta)) for own in budgets)


def with_counts(ledger: Ledger, noise: float | None, *, first: bool = False) -> Ledger:
    """``ledger`` with noisy counts of records, a record in one; none without noise."""
    if noise is None:
        return ledger
    count = Entry(
        Release.of_sum(norm_bound=1.0, noise_multiplier=noise, sampling=NoSampling())
    )
    nodes = tuple((count, *own) if first else (*own, count) for own in ledger.nodes)
    return msgspec.structs.replace(ledger, nodes=nodes)


def best_ledger(
    tries: Sequence[Ledger], law: str | float, mean: float, relation: Relation
) -> Ledger:
    """Ledger of the best of ``tries``; by ``law`` "all" each counts, made once."""
    if law == "all":
        return Ledger.composed(tries)
    return repeat_and_select(
        list(tries),
        tries=mean,
        law=law,  # type: ignore[arg-type]  # a name is checked there
        relation=relation,
    )


def tuned_ledger(
    training: Training, tuning: TuningRecord, relation: Relation
) -> Ledger:
    """Ledger of ``training``, the best of the tries that ``tuning`` has."""
    sizes, score = tuning.sizes, tuning.score_noise
    tries = [
        try_ledger(changed(training, one.settings), sizes, one.noise_multiplier, score)
        for one in tuning.candidates
    ]
    return best_ledger(tries, tuning.law, tuning.tries, relation)


def calibrated(
    trainings: Sequence[Training],
    sizes: tuple[int, ...],
    law: str | float,
    mean: float,
    score_noise: float | None,
    claim: Claim,
    settings: TrainingSettings,
) -> tuple[list[Noise], float | None]:
    """Noise of each candidate, and of the count, with which the best meets ``claim``.

    Each has the noise that meets the budget without tries, times the least factor that
    pays for them (of each node, where theirs differ); the count's has the largest.
    """
    known: dict[bytes, Noise] = {}
    for one in trainings:
        if _costs(one) not in known:
            known[_costs(one)] = noise_by_node(Sized(one, sizes), claim, settings)
    alone = [known[_costs(one)] for one in trainings]
    budgets = settings.each_budget or (claim.epsilon,) * len(sizes)
    factors: dict[tuple[float, Any], float] = {}
    each = []

    def tries(factor: float, node: int) -> list[Ledger]:
        score = None if score_noise is None else factor * score_noise
        found = (
            try_ledger(one, sizes, scaled(noise, (factor,) * len(sizes)), score)
            for one, noise in zip(trainings, alone, strict=True)
        )
        return [msgspec.structs.replace(x, nodes=(x.nodes[node],)) for x in found]

    for node, budget in enumerate(budgets):
        kind = budget, tuple(one.nodes for one in tries(1.0, node))
        if kind not in factors:

            def best(factor: float, node: int = node) -> Ledger:
                return best_ledger(tries(factor, node), law, mean, claim.relation)

            factors[kind], _ = noise_multiplier(
                *(best, budget, claim.delta, claim.relation, settings.account),
                tolerance=1e-3,
            )
        each.append(factors[kind])
    most = None if score_noise is None else max(each) * score_noise
    return [scaled(noise, each) for noise in alone], most


def scaled(noise: Noise, factors: Sequence[float]) -> Noise:
    """``noise`` of each node times its factor; the largest where all have one noise.

    >>> scaled((2.0, 3.0), [1.0, 2.0]), scaled(2.0, [1.0, 2.0])
    ((2.0, 6.0), 4.0)
    """
    if isinstance(noise, tuple):
        return tuple(own * by for own, by in zip(noise, factors, strict=True))
    return noise * max(factors)


def _costs(training: Training) -> bytes:
    """Equal for trainings that need the same noise."""
    same = {"step_size": 1.0, "clip_norm": 1.0, "warm_up": 0}
    left = dict.fromkeys(("final_step_size", "schedule", "optimiser"))
    return _json.encode(msgspec.structs.replace(training, **same, **left))
