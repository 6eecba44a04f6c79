"""As `test_mixing`, where a user's whole update is clipped: others' never move."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.tiers import size
from tests.zoo.mixing import WIDTH
from tests.zoo.test_mixing import CASES, CLIP, made
from trainers.data.shares import private_data
from trainers.gradients.choose import differentiator
from trainers.gradients.per_sample import parameter_vector
from trainers.numerics.randomness import Streams
from trainers.oracles.updates import UpdateMechanism, UpdateOracle

USERS = 3  # two records each
RELEASES = size(4, 2)  # what is late wakes in the second


def sums(kind: str, name: str, without: int | None) -> torch.Tensor:
    """Of some releases of one node, (rounds, dims); one user left out."""
    read = kind in ("transform", "data")  # whose draws are of a record's number
    void = slice(0) if without is None else slice(2 * without, 2 * without + 2)
    material = made(kind, name, void if read else slice(0))
    share = material.shares[0]
    users = torch.arange(len(share)) // 2
    share = dataclasses.replace(share, users=users)
    if without is not None and not read:
        share = share.select((users != without).nonzero()[:, 0])
    oracle = UpdateOracle(
        material.data(private_data([share])),
        differentiator(material.module, material.loss, *material.example),
        UpdateMechanism(
            1.0, CLIP, 0.0, local_steps=3, local_step_size=0.5, local_batch=2
        ),
        Streams(0),
    )
    at = parameter_vector(material.module)[None, None]
    users = len(share.users.unique())
    found = [oracle.gradient(at)[0, 0] * users for _ in range(RELEASES)]
    return torch.stack(found).double()


@pytest.mark.sized
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_user_moves_no_more_than_its_own_update(kind, name):
    try:
        made(kind, name)
    except ValueError:
        return  # refused in words
    whole = sums(kind, name, None)
    for without in size(range(USERS), (1,)):
        moved = whole - sums(kind, name, without)
        assert moved.norm(dim=1).max() <= CLIP * (1 + 1e-5)


def test_there_are_records_of_users():
    assert made("model", "state in a plain object").shares[0].inputs.shape[1] == WIDTH
