"""trainers.gradients.clipping: sums over batches, taken in parts."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.problems import random_data, softmax
from trainers.data import PrivateData
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.clip_weights import clip_weights
from trainers.gradients.clipping import (
    WORKING_SET,
    evenly,
    packing,
    summation,
    usual_width,
)
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy
from trainers.numerics.deferred_checks import Watch

CALL = {"batch_size": 4, "memory_limit": 1 << 30}


class TestSummation:
    @given(st.integers(1, 200), st.integers(1, 60))
    def test_parts_are_few_and_even(self, count, most):
        size = evenly(count, most)
        assert 1 <= size <= most
        parts = math.ceil(count / size)
        assert parts == math.ceil(count / most)
        assert size * parts - count < parts

    @given(
        st.integers(1, 2000),
        st.floats(0.5, 300),
        st.integers(1, 300),
        st.integers(1, 5000),
    )
    def test_what_is_packed_fits(self, replicas, batch, most, samples):
        columns = usual_width(min(batch, most), samples, most)
        rows = packing(replicas, batch, most, samples, columns, 1000 * columns)
        assert rows >= 1
        assert columns * rows <= max(samples, columns)

    def test_batches_without_chance_fill_their_calls(self):
        assert packing(6, 40, 40, 10**6, 40, 4000) == 6
        rows = packing(6, 80, 80, 320, 40, 4000)  # two chunks each
        assert 12 % rows == 0

    @given(st.floats(1, 1e4), st.integers(1, 1000))
    def test_usual_batches_are_a_few_parts(self, batch, samples):
        width = usual_width(batch, samples, 10**6)
        assert 1 <= width <= samples
        if samples >= 2 * batch + 50:
            assert batch <= width < batch + 3 * batch**0.5 + 8
        assert width >= samples / 4 or width >= 32 or width >= batch

    @given(st.integers(1, 10**4), st.integers(0, 100))
    def test_a_batch_of_all_records_is_no_wider_than_it_is(self, batch, more):
        width = usual_width(batch, 10**6, batch + more)
        assert batch <= width < batch + more + 8


class TestClippedSum:
    def test_one_replica_at_a_time_is_the_definition(self):
        data = PrivateData.of(random_data())
        exact = PerSample(softmax(), cross_entropy)
        generator = torch.Generator().manual_seed(1)
        at = torch.randn(6, 15, generator=generator, dtype=torch.float64)
        batches = torch.rand(6, data.inputs.shape[1], generator=generator) < 0.5
        sizes = torch.tensor(data.sizes).repeat(2)[:, None]
        batches &= torch.arange(batches.shape[1]) < sizes
        planned = summation(exact, data, at, **CALL)
        got = planned.clipped_sum(at, batches, torch.arange(3), 0.3)
        for row in range(6):
            wanted = torch.zeros(15, dtype=torch.float64)
            for record in batches[row].nonzero()[:, 0]:
                sample = data.inputs[row % 3, record], data.targets[row % 3, record]
                gradient = exact.gradient(at[row], *sample)
                wanted += clip_weights(gradient.norm(), 0.3) * gradient
            torch.testing.assert_close(got[row], wanted)

    @pytest.mark.parametrize("batch_size", [1, 3, 20])
    def test_a_sum_does_not_depend_on_other_replicas_batches(self, batch_size):
        """Not in the last bit, wherever its chunks come to lie."""
        data = PrivateData.of(random_data((40, 30, 20), dtype=torch.float32))
        module = softmax().float()
        way = BookKeeping(module, cross_entropy, data.inputs[0, 0])
        generator = torch.Generator().manual_seed(2)
        at = torch.randn(30, 15, generator=generator)
        planned = summation(way, data, at, batch_size=batch_size, memory_limit=1 << 30)
        assert planned.shape.moves
        sizes = torch.tensor(data.sizes).repeat(10)[:, None]
        there = torch.arange(data.inputs.shape[1]) < sizes

        def drawn():
            rate = batch_size / 30
            return there & (torch.rand(there.shape, generator=generator) < rate)

        first = drawn()
        wanted = planned.clipped_sum(at, first, torch.arange(3), 0.3)
        for _ in range(5):
            kept = torch.rand(30, generator=generator) < 0.5
            batches = first.where(kept[:, None], drawn())
            found = planned.clipped_sum(at, batches, torch.arange(3), 0.3)
            assert torch.equal(found[kept], wanted[kept])

    @pytest.mark.parametrize(("width", "columns"), [(3, 3), (18, 24), (33, 40)])
    def test_batches_that_are_not_seen_take_one_call(self, width, columns):
        """They have the most places anyway: more calls would only cost more."""
        data = PrivateData.of(random_data((40, 30, 20)))
        exact = PerSample(softmax(), cross_entropy)
        at = torch.linspace(-1, 1, 45, dtype=torch.float64).view(3, 15)
        batches = torch.zeros(3, data.inputs.shape[1], dtype=torch.bool)
        batches[0, :width], batches[2, 5:7] = True, True
        how = {"batch_size": 1, "memory_limit": 1 << 30}
        planned = summation(exact, data, at, **how, width=width)
        calls, taken = [], exact.weighted_sum
        exact.weighted_sum = lambda *given: calls.append(1) or taken(*given)
        more = {"watch": Watch(at_once=False), "width": width}
        found = planned.clipped_sum(at, batches, torch.arange(3), 0.3, **more)
        assert planned.shape.columns == columns
        assert len(calls) == 1
        seen = summation(exact, data, at, **how)
        wanted = seen.clipped_sum(at, batches, torch.arange(3), 0.3)
        torch.testing.assert_close(found, wanted)

    def test_more_memory_than_the_cache_changes_no_bit(self):
        data = PrivateData.of(random_data((60, 50)))
        exact = PerSample(softmax(), cross_entropy)
        at = torch.ones(2, 15, dtype=torch.float64)
        batches = torch.arange(61).expand(2, -1) < torch.tensor([[60], [50]])
        one, other = (
            summation(exact, data, at, batch_size=50, memory_limit=limit).clipped_sum(
                at, batches, torch.arange(2), 0.3
            )
            for limit in (WORKING_SET, 1 << 40)
        )
        assert torch.equal(one, other)

    @pytest.mark.parametrize("size", [1, 2, 5, 8, 16])
    def test_batches_of_one_size_fill_all_places(self, size):
        """Four places for a batch of one record would be four times its work."""
        data = PrivateData.of(random_data((40, 30, 20), dtype=torch.float32))
        module = softmax().float()
        way = BookKeeping(module, cross_entropy, data.inputs[0, 0])
        planned = summation(
            way,
            data,
            torch.zeros(30, 15),
            batch_size=size,
            memory_limit=1 << 30,
            varies=False,
        )
        assert planned.shape.columns == size
        assert 30 % planned.rows == 0 or planned.rows >= 30

    def test_empty_batches_sum_to_nothing(self):
        data = PrivateData.of(random_data())
        exact = PerSample(softmax(), cross_entropy)
        at = torch.ones(3, 15, dtype=torch.float64)
        batches = torch.zeros(3, data.inputs.shape[1], dtype=torch.bool)
        planned = summation(exact, data, at, **CALL)
        got = planned.clipped_sum(at, batches, torch.arange(3), 1.0)
        assert not got.any()

    @pytest.mark.parametrize("width", [None, 5])
    def test_records_that_are_not_drawn_are_not_looked_at(self, width):
        """Not even for whether they are numbers: an error would tell of them."""
        shares = random_data((5, 5, 5))
        exact = PerSample(softmax(), cross_entropy)
        at = torch.ones(3, 15, dtype=torch.float64)
        batches = torch.zeros(3, 6, dtype=torch.bool)
        batches[1, 2:4], batches[2, :5] = True, True

        def found():
            watch = Watch(at_once=False)
            nodes, more = torch.arange(3), {"watch": watch, "width": width}
            planned = summation(exact, PrivateData.of(shares), at, **CALL)
            total = planned.clipped_sum(at, batches, nodes, 0.3, **more)
            watch.settle()
            return total

        wanted = found()
        for node, place in ((0, 0), (0, 3), (1, 0), (1, 4)):
            shares[node].inputs[place] = math.nan
        assert torch.equal(found(), wanted)
        shares[1].inputs[3] = math.nan
        assert torch.isfinite(found()).all()
