"""Contract of resampling: the baseline with fresh batches."""

import numpy as np
import pytest
import torch

from privaudit.accounting import account
from tests.trainers.collaborative import (
    CLASSES,
    FEATURES,
    SIZES,
    begin,
    oracle,
    resampled,
)
from trainers.algorithms.collaborative.resampling import Resampling
from trainers.algorithms.collaborative.runner import Collaboration, Collaborative
from trainers.data import Dataset
from trainers.runs import checkpoint


def run(private, start, rounds=12, **more):
    return Collaboration(Collaborative("global"), None).run(
        start, private, rounds, **more
    )


def updates(private, start):
    """The global model after each update."""
    private.begin(start)
    shared = start[:, 0].unflatten(1, (-1, FEATURES))
    found = [shared]
    for turn in range(private.turns):
        action = private.choose(turn)
        for slot in range(len(private._schedule[turn])):
            shared = private.publish(turn, slot, action, shared)
            found.append(shared)
    return found


def test_no_node_exceeds_its_passes():
    mechanism = resampled(rounds=400)
    counts = np.bincount(np.concatenate(mechanism.schedule(SIZES)).astype(int))
    assert counts.tolist() == [5 * (size // 3) for size in SIZES]


def test_what_is_planned_is_what_happens():
    private = oracle(resampled(), kind=Resampling, runs=2)
    run(private, begin(2))
    assert private.ledger == resampled().ledger_of(SIZES, CLASSES)
    bound = account(private.ledger, 1e-3, "replace-one", "rdp")
    assert bound.sampling == "without-replacement"
    with pytest.raises(ValueError, match="account it under replace-one"):
        account(private.ledger, 1e-3, "add-or-remove-one")


def test_noise_is_as_written():
    runs = 3000
    noisy = updates(oracle(resampled(1e4), kind=Resampling, runs=runs), begin(runs))
    flat = [turn for turn in resampled().schedule(SIZES)]
    rounds = [k for k, nodes in enumerate(flat) for _ in nodes]
    for k, one, other in zip(rounds, noisy, noisy[1:], strict=False):
        # So much noise that the gradient, at most 1, is nothing beside it.
        measured = (other - one).std().item() * 3 * (k + 1) ** 0.5
        assert measured == pytest.approx(1e4, rel=5 / (2 * runs * FEATURES) ** 0.5)


def test_a_record_is_in_as_many_batches_as_its_share():
    canary = Dataset(
        torch.full((1, FEATURES), 5.0, dtype=torch.float64), torch.tensor([0])
    )
    runs = 600
    both = [
        updates(
            oracle(resampled(0.0), kind=Resampling, runs=runs, canary=canary, at=at),
            begin(runs),
        )
        for at in (0, 1)
    ]
    nodes = [node for turn in resampled().schedule(SIZES) for node in turn]
    first = nodes.index(0)
    moved = (both[0][first + 1] - both[1][first + 1]).abs().amax((1, 2)) > 1e-12
    rate = 3 / SIZES[0]
    assert moved.double().mean() == pytest.approx(
        rate, abs=5 * (rate * (1 - rate) / runs) ** 0.5
    )
    assert torch.equal(both[0][first], both[1][first])


def test_stopped_and_resumed_to_equal_bits():
    kept = {}

    def keep(done, state):
        kept[done] = checkpoint.pack({"state": state, "oracle": first.state_dict()})

    first = oracle(resampled(), kind=Resampling, runs=2)
    whole = run(first, begin(2), keep=keep)
    content = checkpoint.unpack(kept[5])
    second = oracle(resampled(), kind=Resampling, runs=2)
    second.load_state_dict(content["oracle"])
    example = Collaboration(Collaborative("global"), None).begin(begin(2))
    state = checkpoint.like(example, content["state"])
    assert torch.equal(run(second, begin(2), resume=(5, state)), whole)
    assert second.ledger == first.ledger
