"""Probes of one of our trainers: its oracle, and what it does with the releases."""

from __future__ import annotations

import collections
import math
from collections.abc import Hashable
from typing import Any

import torch

from privaudit.auditing.probes import Check
from privaudit.auditing.probes.releases import WHAT, Probed, counted
from privaudit.auditing.probes.streams import (
    Watched,
    from_elsewhere,
    hidden,
    used_twice,
)
from privaudit.figure_settings import ProbeSettings
from privaudit.ledger import Entry, Ledger
from privaudit.task_settings import batches_taken
from trainers.numerics.randomness import Streams
from trainers.oracles.capabilities import GivesGradients, gives
from trainers.oracles.recording import Messages, Recording, Tape
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import Training

# Small, and a record's chance to be in a batch is about a third.
PROBED: dict[str, Any] = {
    "nodes": 3,
    "digits": (0, 1, 2),
    "train": 300,
    "split": 1.0,
    "model": "softmax",
    "rounds": 8,
    "batch_size": 32.0,
    "clip_norm": 1.0,
    "step_size": 0.1,
}
_NOT_GIVEN = "what is released are messages or models with noise, not gradients"


def probe(training: Training, how: ProbeSettings = ProbeSettings()) -> list[Check]:
    """All checks of the algorithm that ``training`` describes.

    Where an algorithm releases something else than gradients, only what holds for any
    algorithm is looked at, and the other checks say so. `PROBED` are small settings; a
    seed of known generators takes some 30 us to try. ``ValueError`` if the algorithm
    promises nothing.
    """
    if not training.family.private:
        raise ValueError(
            f"{training.algorithm} adds no noise and promises nothing that could be "
            f"probed; use its private form"
        )
    noise_multiplier, seed = how.noise_multiplier, how.seed
    problem = Problem.of(training)
    if not gives_gradients(training):
        skipped = [
            Check(name=name, what=what, skipped=_NOT_GIVEN)
            for name, what in WHAT.items()
        ]
        return [*skipped, *_of_any(problem, noise_multiplier, seed)]
    rate = problem.mechanism(0.0).sampling_rate(min(problem.sizes))
    releases = min(training.rounds, max(4, math.ceil(2 / rate)), 32)
    oracle = Probed(problem, how, releases)
    return [*oracle.checks(), *_of_any(problem, noise_multiplier, seed)]


def gives_gradients(training: Training) -> bool:
    """Return whether what the algorithm's oracle gives out are noisy gradients."""
    return gives(training.family.oracle, GivesGradients)


def _of_any(problem: Problem, noise_multiplier: float, seed: int) -> list[Check]:
    """Checks of a whole run."""
    given = gives_gradients(problem.training)
    first, recording = Messages(), Recording()
    seen = (recording,) if given else ()
    models, ledger = problem.train(
        noise_multiplier, Streams(seed), observers=Observers((first,), seen)
    )
    second = Messages()
    again, _ = problem.train(
        noise_multiplier, Streams(seed), observers=Observers((second,))
    )
    watched = Watched(hidden(seed))
    _, under_key = problem.train(noise_multiplier, watched, runs=2)
    batches = problem.training.sampling
    twice = used_twice(watched.asked, by_epoch=batches_taken(batches) is not None)
    twice += from_elsewhere(watched.asked, under_key, each=given)
    unequal = first.differs_from(second)
    if not torch.equal(models, again):
        unequal.append("the final models")
    found = counted(recording, ledger) if given else []
    found += _planned(problem.ledger(noise_multiplier), ledger)
    return [
        Check(
            name="repeatable",
            what="equal seeds give equal bits, so that comparisons mean something",
            findings=tuple(f"under equal seeds, {one} differs" for one in unequal[:3]),
        ),
        Check(
            name="streams",
            what="noise is drawn by the run's key, and no random word is used twice",
            findings=tuple(twice),
        ),
        Check(
            name="ledger",
            what="what a run releases is what was planned and accounted",
            findings=tuple(found),
        ),
        Check(
            name="nothing else",
            what="all that nodes send can be computed from what was released",
            findings=tuple(_beside(problem, recording, first, models, seed))
            if given
            else (),
            skipped="" if given else _NOT_GIVEN,
        ),
    ]


def _planned(plan: Ledger, ledger: Ledger) -> list[str]:
    """Nodes that released something else, in words; composition knows no order."""
    found = []
    for node, (one, other) in enumerate(zip(plan.nodes, ledger.nodes, strict=True)):
        wanted, written = _amounts(one), _amounts(other)
        if wanted.total() != written.total():
            found.append(
                f"node {node}: {written.total()} releases are in the ledger, "
                f"{wanted.total()} were planned"
            )
        elif wanted != written:
            found.append(f"node {node}: releases are not those that were planned")
    return found


def _amounts(entries: tuple[Entry, ...]) -> collections.Counter[Hashable]:
    """Number of each kind of release, by the pass that it is of."""
    amounts: collections.Counter[Hashable] = collections.Counter()
    for entry in entries:
        amounts[entry.release, entry.disjoint] += entry.count
    return amounts


def _beside(
    problem: Problem,
    recording: Recording,
    first: Messages,
    models: torch.Tensor,
    seed: int,
) -> list[str]:
    """Run again from a tape of the releases, without any data."""
    tape, second = Tape(recording, len(problem.shares)), Messages()
    try:
        again = problem.network.run(
            problem.start(seed), tape, problem.training.rounds, observers=(second,)
        )
    except (AttributeError, StopIteration) as error:
        return [f"something else than a release was asked for: {error!r}"]
    found = [
        f"{one} is no function of the releases" for one in first.differs_from(second)
    ]
    if not torch.equal(models, again):
        found.append("the final models are no function of the releases")
    return found[:3]
