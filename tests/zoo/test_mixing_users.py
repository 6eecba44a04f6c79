"""As `test_mixing`, where a user's whole update is clipped: others' never move."""

from __future__ import annotations

import pytest
import torch

from tests.zoo.mixing import LOSSES, MODELS, WIDTH
from tests.zoo.test_mixing import CLIP, made
from trainers.data.shares import private_data
from trainers.gradients.choose import differentiator
from trainers.gradients.per_sample import parameter_vector
from trainers.numerics.randomness import Streams
from trainers.oracles.updates import UpdateMechanism, UpdateOracle

ALL = [*(("model", name) for name in MODELS), *(("loss", name) for name in LOSSES)]
USERS = 3  # two records each


def sums(kind: str, name: str, without: int | None) -> torch.Tensor:
    """Of some releases of one node, (rounds, dims); one user left out."""
    material = made(kind, name)
    shares = []
    for share in material.shares[:1]:
        users = torch.arange(len(share)) // 2
        if without is not None:
            # The same number of users, one of whom has nothing to say.
            kept = users != without
            share = type(share)(share.inputs[kept], share.targets[kept], users[kept])
        else:
            share = type(share)(share.inputs, share.targets, users)
        shares.append(share)
    oracle = UpdateOracle(
        private_data(shares),
        differentiator(material.module, material.loss, *material.example),
        UpdateMechanism(
            1.0, CLIP, 0.0, local_steps=3, local_step_size=0.5, local_batch=2
        ),
        Streams(0),
    )
    at = parameter_vector(material.module)[None, None]
    found = [
        oracle.gradient(at)[0, 0] * len(shares[0].users.unique()) for _ in range(4)
    ]
    return torch.stack(found).double()


@pytest.mark.sampled(70)
@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_user_moves_no_more_than_its_own_update(kind, name):
    try:
        made(kind, name)
    except ValueError:
        return  # refused in words
    whole = sums(kind, name, None)
    for without in range(USERS):
        moved = whole - sums(kind, name, without)
        assert moved.norm(dim=1).max() <= CLIP * (1 + 1e-5)


def test_there_are_records_of_users():
    assert made("model", "state in a plain object").shares[0].inputs.shape[1] == WIDTH
