"""Small collaborative problems, and probes for what can be wrong with their privacy.

As in `tests.trainers.checks`: what they find, in sentences; else nothing.
"""

import math

import torch

from tests.trainers.problems import random_data
from trainers.algorithms.collaborative.logistic import Constants, gradient
from trainers.algorithms.collaborative.one_pass import OnePass
from trainers.algorithms.collaborative.oracle import Participants
from trainers.algorithms.collaborative.policies import Choices
from trainers.algorithms.collaborative.resampling import Resampled
from trainers.data import Dataset, PrivateData
from trainers.numerics.randomness import Streams

FEATURES, CLASSES = 4, 3
SIZES = (13, 8, 14)  # 6, 4 and 7 batches of two


def one_pass(policy="coin", *, noise=2.0, step=lambda k: 0.3, lam=0.0, **more):
    settings = {"batch_size": 2.0, "rounds": 100, **more}
    return OnePass(
        clip_norm=1.0,
        noise_multiplier=noise,
        sampling="without-replacement",
        step_size=step,
        constants=Constants(lam),
        choices=Choices(policy, 0.5, 0.5),
        **settings,
    )


def oracle(
    mechanism=None, *, kind=Participants, shares=None, runs=1, seed=0, canary=None, at=1
):
    """An oracle; with a canary, ``at`` says whether it stands in its record's place."""
    planted = None if canary is None else torch.full((runs,), bool(at))
    return kind(
        PrivateData.of(
            shares or random_data(SIZES, FEATURES, CLASSES),
            canary=canary,
            replaces=True,
        ),
        None,
        mechanism or one_pass(),
        Streams(seed),
        runs=runs,
        planted=planted,
    )


def begin(runs=1, nodes=3, scale=1.0, seed=0):
    """Start of all nodes, (runs, nodes, dims)."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(
        1, 1, CLASSES * FEATURES, generator=generator, dtype=torch.float64
    )
    return scale * start.repeat(runs, nodes, 1)


def publications(private, start, turns=None):
    """Each global update: (turn, node, action, what it gave, the same without noise).

    Everything as the runner has it.
    """
    private.begin(start)
    shared = start[:, 0].unflatten(1, (-1, private.features))
    found = []
    for turn in range(private.turns if turns is None else turns):
        action = private.choose(turn)
        private.locally(turn, action)
        for node in range(private.nodes):
            here = action[:, node]
            if not here.any():
                shared = private.publish(turn, node, action, shared)
                continue
            rows, own = private._batch(turn, [node])
            step = private.mechanism.step_size(turn)
            down = gradient(shared, rows[:, 0], own[:, 0], private.mechanism.constants)
            exact = (shared + private.local_models[:, node]) / 2 - step * down
            exact = torch.where(here[..., None], exact, shared)
            shared = private.publish(turn, node, action, shared)
            found.append((turn, node, here, shared, exact))
    return found


def noise_is_as_written(kind=Participants, mechanism=None, runs=4000):
    """Each update's noise, in units of each batch that it releases, is written."""
    mechanism = mechanism or one_pass()
    private = oracle(mechanism, kind=kind, runs=runs)
    found = []
    measured = [[[] for _ in range(CLASSES)] for _ in range(private.nodes)]
    first = {}
    for turn, node, here, gave, exact in publications(private, begin(runs)):
        for number in range(CLASSES):
            if not here[0, number]:
                continue
            deviation = (gave - exact)[:, number].std().item()
            for batch in range(first.get((node, number), 0), turn + 1):
                unit = mechanism.step_size(batch) / mechanism.batch_size
                measured[node][number].append(deviation / unit)
            first[node, number] = turn + 1
    for node, entries in enumerate(private.ledger.nodes):
        for number in range(CLASSES):
            written = sorted(
                e.release.noise
                for e in entries
                if e.disjoint == number
                for _ in range(e.count)
            )
            seen = sorted(measured[node][number])
            if len(seen) != len(written):
                found.append(
                    f"node {node}, class {number}: {len(seen)} batches were released, "
                    f"{len(written)} are written"
                )
            slack = 5 / math.sqrt(2 * runs * FEATURES)
            found += [
                f"node {node}, class {number}: noise of {one:.4g} was measured, "
                f"{other:.4g} is in the ledger"
                for one, other in zip(seen, written, strict=False)
                if abs(one / other - 1) > slack
            ]
    return found


def noise_is_fresh(kind=Participants, runs=2000):
    """No two classes, nodes or turns share their noise."""
    private = oracle(one_pass("always-global"), kind=kind, runs=runs)
    rows = {
        (turn, node, number): (gave - exact)[:, number].flatten()
        for turn, node, _, gave, exact in publications(private, begin(runs))
        for number in range(CLASSES)
    }
    names, table = list(rows), torch.stack(list(rows.values()))
    related = (torch.corrcoef(table) - torch.eye(len(table))).abs()
    worst = int(related.argmax())
    if related.flatten()[worst] <= 6 / math.sqrt(table.shape[1]):
        return []
    one, other = names[worst // len(names)], names[worst % len(names)]
    return [f"noise of {one} and {other} (turn, node, class) is related"]


def a_record_enters_one_batch(kind=Participants, runs=20):
    """Replacing one record moves what its own node releases in one turn, no more.

    Both worlds are held at equal models before every update, so that what differs is
    what the update itself takes of the record.
    """
    row = torch.full((1, FEATURES), 5.0, dtype=torch.float64)
    canary = Dataset(row, torch.tensor([0]))
    worlds = [
        oracle(one_pass("always-global"), kind=kind, runs=runs, canary=canary, at=at)
        for at in (0, 1)
    ]
    start = begin(runs)
    for world in worlds:
        world.begin(start)
    shared = start[:, 0].unflatten(1, (-1, FEATURES))
    times = torch.zeros(runs)
    for turn in range(worlds[0].turns):
        for world in worlds:
            action = world.choose(turn)
            world.locally(turn, action)
        for node in range(3):
            worlds[1]._local = worlds[0]._local.clone()
            left, right = (
                world.publish(turn, node, action, shared) for world in worlds
            )
            moved = (left - right).abs().amax((1, 2)) > 1e-12
            times += moved
            if node and moved.any():
                return [f"a record of node 0 was in a batch of node {node}"]
            shared = left
    if times.max() > 1:
        return [f"a record was in {int(times.max())} batches of one pass"]
    return [] if times.max() == 1 else ["no record was ever used"]


def resampled(noise=2.0, **more):
    """The baseline's mechanism."""
    settings = {"batch_size": 3.0, "rounds": 12, **more}
    return Resampled(
        clip_norm=1.0,
        noise_multiplier=noise,
        sampling="without-replacement",
        step_size=lambda k: 1.0,
        choices=Choices("always-global"),
        **settings,
    )
