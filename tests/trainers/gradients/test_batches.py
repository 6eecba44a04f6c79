"""batches: packed to the left, whatever was drawn."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trainers.gradients.batches import Packed, most
from trainers.numerics.deferred_checks import Watch


def drawn(rows, records, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, records, generator=generator) < 0.4


class TestPacked:
    @given(
        st.integers(1, 5),
        st.integers(1, 20),
        st.integers(0, 10**6),
        st.integers(1, 6),
        st.booleans(),
    )
    def test_holds_what_was_drawn_in_order_and_nothing_else(
        self, rows, records, seed, columns, every
    ):
        batches = drawn(rows, records, seed)
        packed = Packed.of(batches, columns, all_rows=every)
        assert packed.record.shape == packed.taken.shape
        assert packed.record.shape == (len(packed.replica), columns)
        for row, batch in enumerate(batches):
            own = packed.replica == row
            held = packed.record[own][packed.taken[own]]
            assert torch.equal(held, batch.nonzero()[:, 0])
            assert batch[packed.record[own]].all() or not batch.any()
            most = batches.sum(1).max() if every else batch.sum()
            assert own.sum() == math.ceil(most / columns)
        first = packed.replica[:rows].tolist()
        assert packed.each == (first == list(range(rows)))
        full = packed.taken.cumprod(1).sum(1)
        assert torch.equal(packed.taken.sum(1), full)  # packed to the left

    @given(
        st.integers(1, 5),
        st.integers(1, 20),
        st.integers(0, 10**6),
        st.integers(0, 9),
        st.integers(1, 6),
    )
    def test_unseen_batches_are_the_same_batches(
        self, rows, records, seed, more, columns
    ):
        batches = drawn(rows, records, seed)
        seen = Packed.of(batches, columns, all_rows=True)
        watch = Watch(at_once=False)
        unseen = Packed.unseen(
            batches, int(batches.sum(1).max()) + more, watch, columns
        )
        watch.settle()
        count = len(seen.replica)
        assert len(unseen.replica) >= count
        for name in ("replica", "record", "taken"):
            assert torch.equal(getattr(unseen, name)[:count], getattr(seen, name))
        assert unseen.taken.sum() == batches.sum()

    def test_a_batch_that_is_too_large_is_not_cut_in_silence(self):
        watch = Watch(at_once=False)
        Packed.unseen(torch.ones(2, 5, dtype=torch.bool), 4, watch, 2)
        with pytest.raises(ValueError, match="more than 4 records"):
            watch.settle()
        watch.settle()  # told once


class TestMost:
    @given(st.floats(1e-6, 1), st.integers(1, 100_000))
    def test_larger_batches_have_no_chance(self, rate, records):
        width = most(rate, records)
        assert width <= records
        assert stats.binom.sf(width, records, rate) <= 1e-15

    def test_is_a_few_deviations_above_the_mean(self):
        assert 256 + 7 * 16 < most(256 / 6000, 6001) < 256 + 10 * 16
        assert most(1.0, 50) == 50
