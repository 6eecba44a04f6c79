"""A record's transform is of that record alone, whoever else is drawn."""

# ruff: noqa: NPY002

import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn

import privaudit as pa
from tests.tiers import size
from trainers.data import Dataset, PrivateData
from trainers.data.shares import private_data, shares_of
from trainers.data.transforms import Alone, Transformed, check_transform
from trainers.numerics.randomness import Streams


def inputs(size=6):
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(0))


def jittered(row):
    return row + torch.randn(4) + float(np.random.rand()) + random.random()


def data(rows, seed=5):
    shares = [Dataset(rows, torch.zeros(len(rows), dtype=torch.long))]
    found = Transformed(PrivateData.of(shares), jittered)
    found.draws_from(Streams(seed), [3])
    return found


def read(found, index):
    return found.records(torch.tensor([0]), torch.tensor([index]))[0][0]


class TestSound:
    def test_a_record_is_the_same_to_the_bit_in_every_batch(self):
        together = read(data(inputs()), [0, 1, 2, 3, 2])
        alone = read(data(inputs()), [2])
        assert torch.equal(together[2], alone[0])
        assert torch.equal(together[4], alone[0])
        others = inputs()
        others[[0, 1, 3]] *= 1e6
        assert torch.equal(read(data(others), [3, 0, 2])[2], alone[0])

    def test_it_is_drawn_anew_in_each_release_and_by_the_key(self):
        found = data(inputs())
        first = read(found, [2])
        found.release = 1
        assert not torch.equal(first, read(found, [2]))
        assert not torch.equal(first, read(data(inputs(), seed=6), [2]))

    def test_no_generator_of_the_users_moves(self):
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        expected = torch.rand(1), np.random.rand(), random.random()
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        read(data(inputs()), [0, 1])
        check_transform(jittered, inputs())
        assert expected == (torch.rand(1), np.random.rand(), random.random())

    def test_records_stay_as_they_are(self):
        rows = inputs()

        def in_place(row):
            return row.mul_(0)

        found = Transformed(
            PrivateData.of([Dataset(rows, torch.zeros(6, dtype=torch.long))]), in_place
        )
        found.draws_from(Streams(0), [0])
        assert not read(found, [1]).any()
        assert torch.equal(rows, inputs())


COUNT = size(10, 3)  # a process for each is read


def test_its_record_alone_is_in_memory():
    """By strides it would read the whole batch, of which a record is a part."""
    batch = torch.arange(6.0).view(3, 2)
    alone = Alone(
        lambda row: torch.tensor(row.untyped_storage().nbytes()),
        lambda found, row: (found,),
    )
    for (found,) in alone.each(range(3), [0] * 3, batch):
        assert found == batch[0].nbytes


class Flips(torch.utils.data.Dataset):
    """Flips records by the global generators, as an augmenting data set does."""

    example = torch.zeros(2), 0

    def __len__(self):
        return COUNT

    def __getitem__(self, row):
        sign = 1 - 2 * (int(torch.randint(2, ()) + np.random.randint(2)) % 2)
        return torch.tensor([row + 1.0, random.random()]) * sign, row % 2


@pytest.mark.sized
class TestDataset:
    """What a Dataset draws for a record is the record's own."""

    def flips(self, release=0, seed=5):
        found = private_data(shares_of([Flips()]))
        found.draws_from(Streams(seed), [3])
        found.release = release
        return found

    @pytest.mark.full
    def test_a_record_is_the_same_in_every_batch(self):
        together = read(self.flips(), list(range(COUNT)))
        assert torch.equal(read(self.flips(), [4, 3]), together[[4, 3]])
        assert 0 < (together[:, 0] < 0).sum() < COUNT
        assert not torch.equal(
            read(self.flips(release=1), list(range(COUNT))), together
        )
        assert not torch.equal(read(self.flips(seed=6), list(range(COUNT))), together)

    def test_one_record_more_moves_a_noisy_sum_by_its_own_share_alone(self):
        """Under one key: flips of the others stay as they are."""
        moved = []
        for rows in (range(COUNT), range(1, COUNT)):
            whole = read(self.flips(), list(rows))
            moved.append(whole.sum(0))
        alone = read(self.flips(), [0])[0]
        assert torch.allclose(moved[0] - moved[1], alone, atol=1e-4)

    def test_no_generator_of_the_users_moves(self):
        torch.manual_seed(1)
        expected = torch.rand(1)
        torch.manual_seed(1)
        shares_of([Flips()])
        read(self.flips(), [0, 1])
        assert torch.equal(torch.rand(1), expected)

    @pytest.mark.full
    def test_with_a_transform_both_draw_by_release(self):
        found = Transformed(private_data(shares_of([Flips()])), lambda row: row)
        found.draws_from(Streams(5), [3])
        every = list(range(COUNT))
        assert torch.equal(read(found, every), read(self.flips(), every))
        found.release = 1
        assert torch.equal(read(found, every), read(self.flips(release=1), every))


@pytest.mark.sized
class TestOfAUser:
    def shares(self):
        rows = inputs(16)
        return rows, (rows.sum(1) > 0).long()

    def trained(self, transform, **changes):
        how = {
            "nodes": size(2, 1),
            "epsilon": 4,
            "rounds": 2,
            "batch_size": size(4, 2),
            "seed": 0,
        }
        net = nn.Linear(4, 2)
        nn.init.zeros_(net.weight)
        nn.init.zeros_(net.bias)
        how |= {"transform": transform, **changes}
        return pa.train(net, self.shares(), **how)

    def test_it_is_used_and_costs_nothing(self):
        plain, moved = self.trained(None), self.trained(jittered)
        assert plain.ledger.nodes == moved.ledger.nodes
        assert not torch.equal(plain.models[0].weight, moved.models[0].weight)
        same = self.trained(lambda row: row)
        assert torch.equal(plain.models[0].weight, same.models[0].weight)

    @pytest.mark.full
    def test_local_updates_use_it(self):
        plain, moved = (
            self.trained(transform, unit="user") for transform in (None, jittered)
        )
        assert not torch.equal(plain.models[0].weight, moved.models[0].weight)

    def test_an_oracle_uses_it(self):
        found = []
        for transform in (None, lambda row: row * 0):
            oracle = pa.oracle(
                nn.Linear(4, 2),
                self.shares(),
                nodes=2,
                noise_multiplier=1e-3,
                clip_norm=1.0,
                batch_size=4,
                transform=transform,
                seed=0,
            )
            found.append(oracle.gradient(oracle.start)[:, :8])
        assert found[0].norm() > 10 * found[1].norm()

    @pytest.mark.parametrize(
        ("transform", "said"),
        [
            (3, "a function of one record's input, got int"),
            (lambda row: row[:2], r"shape \(2,\) of one of \(4,\)"),
            (lambda row: 1 / 0, "the transform fails on a record"),
        ],
    )
    def test_what_is_wrong_is_said(self, transform, said):
        with pytest.raises(ValueError, match=said):
            self.trained(transform)

    def test_what_it_keeps_ends_with_a_record(self):
        calls, draws = [], np.random.default_rng(0)
        counted = itertools.count()

        def counting(row):
            calls.append(row)
            return row * len(calls) + draws.random() + next(counted)

        one, other = (self.trained(counting).models[0] for _ in "ab")
        assert not calls
        assert next(counted) == 0
        assert torch.equal(one.weight, other.weight)
