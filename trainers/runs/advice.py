"""Warnings before a training begins, by settings and public sizes, a line each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import msgspec
from msgspec import UNSET

from privaudit.accounting.account import account
from privaudit.ledger import Ledger
from privaudit.results import Claim
from privaudit.task_settings import batches_taken
from trainers.algorithms.family import Noise
from trainers.algorithms.setting import Setting
from trainers.oracles.capabilities import GivesGradients, gives
from trainers.oracles.mechanism import Mechanism
from trainers.runs.training import Training

UNSPENT = 0.05  # share of a budget that may be left
DROWNED = 2.0  # signal to noise
WEAK = 10.0  # epsilon
# Length of all steps together: a model of norm 1 hardly moves, or is thrown about.
MOVES = (0.3, 3e3)
LONGEST = 20.0  # one step
PASSES = 1.0  # expected number of times that a record is drawn


class Released(Protocol):
    """Known facts of a training before it begins: `trainers.runs.problem.Problem`."""

    @property
    def training(self) -> Training: ...

    @property
    def sizes(self) -> tuple[int, ...]: ...  # records of each node

    @property
    def setting(self) -> Setting: ...  # that its mechanism and ledger are made from

    def ledger(self, noise: Noise) -> Ledger: ...  # that it would have


def mechanisms(problem: Released, noise: Noise) -> list[Mechanism]:
    made = problem.training.mechanism(noise, problem.sizes)
    return [made.of(node) for node in range(len(problem.sizes))]


def signal_to_noise(problem: Released, noise: Noise, parameters: int) -> float:
    """Length of all clipped gradients, at most, over that of the noise in them."""
    training, nodes = problem.training, len(problem.sizes)
    signal = spread = 0.0
    for how, size in zip(mechanisms(problem, noise), problem.sizes, strict=True):
        divisor, (_, multiplier) = how.divisor(size), how.at(0)
        signal += how.sampling_rate(size) * size / divisor
        spread += (multiplier / divisor) ** 2
    asked = training.family.releases(problem.setting)
    noise_of_all = math.sqrt(spread * parameters)
    if not noise_of_all:
        return math.inf
    return math.sqrt(asked) * signal / noise_of_all if nodes else 0.0


def advice(
    problem: Released,
    noise: Noise,
    claim: Claim,
    budgets: tuple[float, ...] | None,
    parameters: int,
) -> tuple[str, ...]:
    """Warnings about a private training; ``claim`` is infinite where there is none."""
    training = problem.training
    if not training.family.private:
        return ()
    found = list(_of_budget(problem, noise, claim, budgets))
    if training.unit == "record" and gives(training.family.oracle, GivesGradients):
        found += _of_steps(problem, noise, parameters)
    return tuple(found)


def large_delta(delta: float, units: int, unit: str) -> tuple[str, ...]:
    """Warning of a delta that is one over the number of units, or larger.

    >>> large_delta(1e-5, 1000, "record")
    ()
    >>> large_delta(0.1, 200, "record")[0][:55]
    'delta 0.1 is no less than one over the number of record'
    """
    if delta * units < 1:
        return ()
    return (
        f"delta {delta:g} is no less than one over the number of {unit}s, {units:,}: "
        f"publishing each {unit} in full with probability delta would meet it, about "
        f"{delta * units:,.3g} of them; choose delta well below {1 / units:.1g}",
    )


def _of_budget(
    problem: Released, noise: Noise, claim: Claim, budgets: tuple[float, ...] | None
) -> Iterator[str]:
    training, nodes = problem.training, len(problem.sizes)
    most = max(budgets or (claim.epsilon,))
    if WEAK < most < math.inf:
        yield (
            f"epsilon {most:g} promises little: whoever guesses whether a record was "
            f"there may have odds e^{most:g} times as good; choose 8 or less"
        )
    units = sum(problem.sizes)
    yield from large_delta(claim.delta, units, training.unit)
    plain = claim.observer is UNSET and training.overlap == 1
    if nodes == 1 or not plain or claim.epsilon == math.inf:
        return
    try:
        ledger = problem.ledger(noise)
    except ValueError:
        return  # noise that is no guarantee has none that could be spent
    if len(set(ledger.nodes)) == 1 and budgets is None:
        return  # all spend what the noise was found for
    each = budgets or (claim.epsilon,) * nodes
    spent: dict[object, float] = {}
    left = []
    for node, (entries, own) in enumerate(zip(ledger.nodes, each, strict=True)):
        if entries not in spent:
            alone = msgspec.structs.replace(ledger, nodes=(entries,))
            spent[entries] = account(alone, claim.delta, claim.relation).epsilon
        if spent[entries] < own * (1 - UNSPENT):
            left.append((own - spent[entries], spent[entries], own, node))
    if left:
        _, had, own, node = max(left)
        others = f" (and {len(left) - 1:,} more)" if len(left) > 1 else ""
        rates = training.sampling_rate is UNSET and not training.family.no_rates
        means = []
        if rates and len(set(problem.sizes)) > 1:
            mean = training.expected_batch(problem.sizes) * nodes / units
            means.append(f"sampling_rate={min(1.0, mean):.2g}, the same at all nodes,")
        if not training.family.one_noise and not isinstance(noise, tuple):
            means.append('noise="per-node" (--noise per-node)')
        how = f"; {' or '.join(means)} would spend it" if means else ""
        yield f"node {node} spends {had:.3g} of its budget {own:g}{others}{how}"


def _of_steps(problem: Released, noise: Noise, parameters: int) -> Iterator[str]:
    training, sizes = problem.training, problem.sizes
    hows = mechanisms(problem, noise)
    rates = [how.sampling_rate(size) for how, size in zip(hows, sizes, strict=True)]
    asked = training.family.releases(problem.setting)
    least = min(rates)
    if least * asked < PASSES and batches_taken(training.sampling) is None:
        yield (
            f"a record is drawn {least * asked:.2g} times in all {training.rounds:,} "
            f"rounds: most are never used; sampling_rate={min(1, 3 / asked):.2g} or "
            "more rounds would use them"
        )
    small = [node for node, size in enumerate(sizes) if rates[node] * size < 1]
    if small:
        needed = min(1.0, 1 / sizes[small[0]])
        yield (
            f"a batch of node {small[0]} has {rates[small[0]] * sizes[small[0]]:.2g} "
            "records on average, and else noise alone; set sampling_rate="
            f"{needed:.2g} or more"
        )
    ratio = signal_to_noise(problem, noise, parameters)
    if ratio < DROWNED:
        # With all records in each batch, noise and rounds grow together.
        better = f"at most {max(1, int(parameters * (ratio / DROWNED) ** 2)):,}"
        more = (
            " larger batches (sampling_rate=1 has the largest)," if least < 0.5 else ""
        )
        yield (
            f"noise drowns the signal: all clipped gradients together are {ratio:.2g} "
            f"times as long as their noise, at most; use{more} fewer parameters than "
            f"{parameters:,} ({better} would do), more records or a larger epsilon"
        )
    clip, _ = hows[0].at(0)
    if clip == math.inf or not noise:
        return
    steps = training.step_sizes()
    length = clip * sum(steps(k) for k in range(training.rounds))
    if training.optimiser or training.family.options().__struct_fields__:
        return  # steps are of another length
    longest = clip * max(map(steps, range(training.rounds)))
    if not MOVES[0] <= length <= MOVES[1] or longest > LONGEST:
        how = "hardly moves" if length < MOVES[0] else "is thrown about"
        shorter = min(math.sqrt(MOVES[0] * MOVES[1]) / length, 2 / longest)
        fits = training.step_size * shorter
        yield (
            f"clipping decides how far a model gets: {training.rounds:,} steps of "
            f"step_size {training.step_size:g} times clip_norm {clip:g} are "
            f"{length:.2g} long together, so that it {how}; try step_size={fits:.1g}"
        )
