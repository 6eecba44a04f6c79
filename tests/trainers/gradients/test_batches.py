"""batches and deferred_checks: batches packed to the left, seen or not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trainers.gradients.batches import Packed, most
from trainers.numerics.deferred_checks import Watch, finite


def drawn(rows, records, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, records, generator=generator) < 0.4


class TestPacked:
    @given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 10**6))
    def test_holds_what_was_drawn_in_order_and_nothing_else(self, rows, records, seed):
        generator = torch.Generator().manual_seed(seed)
        batches = torch.rand(rows, records, generator=generator) < 0.4
        packed = Packed.of(batches)
        assert packed.record.shape == packed.taken.shape
        assert packed.record.shape[1] == batches.sum(1).max()
        for row in range(rows):
            held = packed.record[row][packed.taken[row]]
            assert torch.equal(held, batches[row].nonzero()[:, 0])

    @given(
        st.integers(1, 5), st.integers(1, 20), st.integers(0, 10**6), st.integers(0, 9)
    )
    def test_unseen_batches_are_the_same_batches(self, rows, records, seed, more):
        batches = drawn(rows, records, seed)
        seen = Packed.of(batches)
        width = seen.record.shape[1] + more
        watch = Watch(at_once=False)
        unseen = Packed.unseen(batches, width, watch)
        watch.settle()
        assert unseen.record.shape == unseen.taken.shape == (rows, width)
        wide = torch.cat([seen.record, unseen.record[:, :1].repeat(1, more)], 1)
        assert torch.equal(unseen.record, wide)
        empty = ~batches.any(1)
        assert (batches.gather(1, unseen.record) | empty[:, None]).all()
        assert unseen.taken.sum() == batches.sum()

    def test_a_batch_that_is_too_large_is_not_cut_in_silence(self):
        watch = Watch(at_once=False)
        Packed.unseen(torch.ones(2, 5, dtype=torch.bool), 4, watch)
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


class TestWatch:
    def test_on_a_cpu_it_raises_at_once(self):
        with pytest.raises(ValueError, match="not finite"):
            finite(torch.tensor([1.0, math.nan]), Watch())
        finite(torch.tensor([1.0, 2.0]), Watch())

    def test_else_when_it_is_settled_whatever_came_after(self):
        watch = Watch(at_once=False)
        finite(torch.tensor([math.inf]), watch)
        finite(torch.tensor([1.0]), watch)
        with pytest.raises(ValueError, match="not finite"):
            watch.settle()
        finite(torch.tensor([1.0]), watch)
        watch.settle()
