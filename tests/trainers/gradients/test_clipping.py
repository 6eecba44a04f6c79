"""trainers.gradients.clipping: sums over batches, taken in parts."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.problems import random_data, softmax
from trainers.data import PrivateData
from trainers.gradients.clip_weights import clip_weights
from trainers.gradients.clipping import (
    WORKING_SET,
    plan,
    slices,
    usual_width,
)
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy
from trainers.numerics.deferred_checks import Watch

CALL = {"batch_size": 4, "memory_limit": 1 << 30}


class TestPlan:
    @given(st.integers(1, 200), st.integers(1, 60))
    def test_slices_cover_every_replica_once(self, count, most):
        seen = torch.zeros(count, dtype=torch.long)
        lengths = set()
        for here in slices(count, most):
            seen[here] += 1
            lengths.add(int(seen[here].sum()))
        assert (seen == 1).all()
        assert max(lengths) <= most
        assert len(lengths) <= 2

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
        planned = plan(exact, data, at, **CALL)
        got = planned.clipped_sum(at, batches, torch.arange(3), 0.3)
        for row in range(6):
            wanted = torch.zeros(15, dtype=torch.float64)
            for record in batches[row].nonzero()[:, 0]:
                sample = data.inputs[row % 3, record], data.targets[row % 3, record]
                gradient = exact.gradient(at[row], *sample)
                wanted += clip_weights(gradient.norm(), 0.3) * gradient
            torch.testing.assert_close(got[row], wanted)

    def test_more_memory_than_the_cache_changes_no_bit(self):
        data = PrivateData.of(random_data((60, 50)))
        exact = PerSample(softmax(), cross_entropy)
        at = torch.ones(2, 15, dtype=torch.float64)
        batches = torch.arange(61).expand(2, -1) < torch.tensor([[60], [50]])
        one, other = (
            plan(exact, data, at, batch_size=50, memory_limit=limit).clipped_sum(
                at, batches, torch.arange(2), 0.3
            )
            for limit in (WORKING_SET, 1 << 40)
        )
        assert torch.equal(one, other)

    def test_empty_batches_sum_to_nothing(self):
        data = PrivateData.of(random_data())
        exact = PerSample(softmax(), cross_entropy)
        at = torch.ones(3, 15, dtype=torch.float64)
        batches = torch.zeros(3, data.inputs.shape[1], dtype=torch.bool)
        planned = plan(exact, data, at, **CALL)
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
            planned = plan(exact, PrivateData.of(shares), at, **CALL)
            total = planned.clipped_sum(at, batches, nodes, 0.3, **more)
            watch.settle()
            return total

        wanted = found()
        for node, place in ((0, 0), (0, 3), (1, 0), (1, 4)):
            shares[node].inputs[place] = math.nan
        assert torch.equal(found(), wanted)
        shares[1].inputs[3] = math.nan
        assert torch.isfinite(found()).all()
