"""A crafted gradient goes through the same sampling, clip, noise and ledger."""

import math

import pytest
import torch

from tests.tiers import size
from tests.trainers.problems import oracle, random_data, softmax, start
from trainers.data import Dataset, PrivateData
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle

DIMS = 15
DIRECTION = torch.nn.functional.normalize(
    torch.arange(1.0, DIMS + 1, dtype=torch.float64), dim=0
)
RECORD = Dataset(torch.full((1, 4), 3.0, dtype=torch.float64), torch.tensor([0]))


def crafted(mechanism, runs, planted, *, direction=DIRECTION, replaces=False):
    """An oracle with a crafted canary at node 0."""
    data = PrivateData.of(
        random_data(), canary=RECORD, replaces=replaces, direction=direction
    )
    return Oracle(
        data,
        PerSample(softmax(), cross_entropy),
        mechanism,
        Streams(0, 0),
        runs=runs,
        planted=planted,
    )


class TestSound:
    @pytest.mark.sized
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
    def test_its_norm_is_the_clip_and_it_comes_at_the_sampling_rate(self, scale):
        runs, mechanism = size(4000, 1000), Mechanism(batch_size=3.0, clip_norm=0.5)
        at = start(DIMS, runs=1).expand(runs, -1, -1)
        with_it = crafted(
            mechanism, runs, torch.ones(runs) > 0, direction=scale * DIRECTION
        )
        without = crafted(mechanism, runs, torch.ones(runs) < 0)
        moved = 3.0 * (with_it.gradient(at) - without.gradient(at))
        assert moved[:, 1:].abs().max() == 0  # other nodes know nothing of it
        norms = moved[:, 0].norm(dim=1)
        drawn = norms > 1e-9
        assert norms.max() <= 0.5 * (1 + 1e-12)
        assert torch.allclose(norms[drawn], torch.tensor(0.5, dtype=norms.dtype))
        assert torch.allclose(
            moved[:, 0][drawn], 0.5 * DIRECTION.expand(int(drawn.sum()), -1)
        )
        rate = 3 / 7
        assert abs(float(drawn.double().mean()) - rate) < 5 * math.sqrt(
            rate * (1 - rate) / runs
        )

    def test_its_coins_are_those_of_an_ordinary_canary(self):
        runs, mechanism = 500, Mechanism(batch_size=3.0, clip_norm=0.5)
        planted = torch.arange(runs) % 3 > 0
        at = start(DIMS, runs=1).expand(runs, -1, -1)
        plain = oracle(mechanism, runs=runs, canary=RECORD, planted=planted)
        none = oracle(mechanism, runs=runs, canary=RECORD, planted=planted & False)
        ordinary = (plain.gradient(at) - none.gradient(at))[:, 0].norm(dim=1) > 1e-9
        found = crafted(mechanism, runs, planted)
        empty = crafted(mechanism, runs, planted & False)
        drawn = (found.gradient(at) - empty.gradient(at))[:, 0].norm(dim=1) > 1e-9
        assert torch.equal(drawn, ordinary)
        assert not drawn[~planted].any()

    def test_the_ledger_knows_nothing_of_it(self):
        mechanism = Mechanism(batch_size=3.0, clip_norm=0.5, noise_multiplier=2.0)
        found = crafted(mechanism, 2, torch.tensor([True, False]))
        plain = oracle(mechanism, runs=2)
        for private in (found, plain):
            private.gradient(start(DIMS, runs=2))
        assert found.ledger == plain.ledger

    def test_in_a_records_place_the_other_world_has_its_opposite(self):
        runs = 400
        mechanism = Mechanism(
            batch_size=3.0, clip_norm=0.5, sampling="without-replacement"
        )
        at = start(DIMS, runs=1).expand(runs, -1, -1)
        with_it = crafted(mechanism, runs, torch.ones(runs) > 0, replaces=True)
        without = crafted(mechanism, runs, torch.ones(runs) < 0, replaces=True)
        moved = 3.0 * (with_it.gradient(at) - without.gradient(at))[:, 0]
        drawn = moved.norm(dim=1) > 1e-9
        # Twice the clip: all of the sensitivity under replace-one.
        assert torch.allclose(
            moved[drawn], 2 * 0.5 * DIRECTION.expand(int(drawn.sum()), -1)
        )
        assert 0.3 < float(drawn.double().mean()) < 0.56  # 3 of 7
