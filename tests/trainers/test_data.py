"""Contract of trainers.data."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.data import Dataset, class_shares, load_digits, split_by_class


class TestDigits:
    def test_real_images_split_without_overlap(self):
        train, test = load_digits(train=1000)
        assert len(train) == 1000
        assert len(train) + len(test) == 1797
        assert train.inputs.shape[1:] == (1, 8, 8)
        assert 0 <= train.inputs.min() <= train.inputs.max() <= 1
        assert (torch.bincount(train.targets) == 100).all()
        both = torch.cat([train.inputs, test.inputs]).flatten(1)
        assert len(torch.unique(both, dim=0)) == 1797

    def test_classes_follow_the_digits_asked_for(self):
        train, test = load_digits((1, 7), train=21)
        assert torch.bincount(train.targets).tolist() == [11, 10]
        assert set(test.targets.tolist()) == {0, 1}

    def test_seeds(self):
        one, other = load_digits(train=50)[0], load_digits(train=50, seed=1)[0]
        assert torch.equal(one.inputs, load_digits(train=50)[0].inputs)
        assert not torch.equal(one.inputs, other.inputs)

    @pytest.mark.parametrize("train", [9, 1797])
    def test_too_few_or_too_many(self, train):
        with pytest.raises(ValueError, match="use between"):
            load_digits(train=train)


class TestSplit:
    @given(st.integers(1, 30), st.integers(1, 30), st.floats(0, 1))
    def test_every_class_is_dealt_whole(self, nodes, classes, t):
        shares = class_shares(nodes, classes, t)
        np.testing.assert_allclose(shares.sum(0), 1)
        off = shares[(np.arange(classes) % nodes) != np.arange(nodes)[:, None]]
        np.testing.assert_allclose(off, (1 - t) / nodes)

    @settings(max_examples=50)
    @given(st.integers(1, 6), st.floats(0, 1))
    def test_a_partition(self, nodes, t):
        targets = torch.arange(120) % 6
        data = Dataset(torch.arange(120.0)[:, None], targets)
        shares = split_by_class(data, nodes, t)
        together = torch.cat([share.inputs[:, 0] for share in shares])
        assert sorted(together.tolist()) == list(range(120))
        for share in shares:
            assert torch.equal(share.targets, targets[share.inputs[:, 0].long()])

    def test_the_ends(self):
        data = Dataset(torch.zeros(30, 1), torch.arange(30) % 3)
        apart = split_by_class(data, 3, 1.0)
        assert [set(share.targets.tolist()) for share in apart] == [{0}, {1}, {2}]
        even = split_by_class(data, 3, 0.0)
        assert all(len(share) == 10 for share in even)

    def test_a_node_without_records_is_an_error(self):
        data = Dataset(torch.zeros(30, 1), torch.arange(30) % 3)
        with pytest.raises(ValueError, match="node 3 of 4"):
            split_by_class(data, 4, 1.0)
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            split_by_class(data, 2, 1.5)
