"""Batches are the streams', whoever else asks at the same time."""

from unittest import mock

import pytest
import torch

from trainers.data import Dataset, PrivateData
from trainers.numerics import noise
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism
from trainers.oracles.sampler import Sampler

SIZES = (20, 7, 20, 9, 20)


def sampler(sampling, sizes=SIZES):
    shares = [Dataset(torch.zeros(n, 2), torch.zeros(n).long()) for n in sizes]
    mechanism = Mechanism(4, 1.0, 1.0, sampling=sampling)
    return Sampler(PrivateData.of(shares), mechanism, Streams(3), runs=6)


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
class TestNodesTogether:
    def test_they_draw_what_each_draws_alone(self, sampling):
        draws = sampler(sampling)
        together = draws.batches([4, 0, 1], 5)
        alone = [draws.batches([node], 5) for node in (4, 0, 1)]
        assert torch.equal(together, torch.cat(alone, 1))
        assert not torch.equal(together[:, 0], together[:, 1])

    def test_nodes_of_equal_size_are_one_call(self, sampling):
        """Calls cost more than coins, and a network has thousands of nodes."""
        name = "coins" if sampling == "poisson" else "subsets"
        with mock.patch.object(noise, name, wraps=getattr(noise, name)) as draw:
            sampler(sampling).batches(range(5), 0)
            assert draw.call_count == 3
            sampler(sampling, (20,) * 50).batches(range(50), 0)
            assert draw.call_count == 4
