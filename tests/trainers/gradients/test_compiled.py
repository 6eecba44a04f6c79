"""compiled against bookkeeping, and its oracle's shapes."""

import math

import pytest
import torch
from torch import nn

from tests.trainers.problems import random_data
from trainers.data import PrivateData
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.choose import differentiator
from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.compiled import Compiled
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy, small_cnn
from trainers.numerics.deferred_checks import Watch
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle

# The first compilation on a machine takes tens of seconds.
pytestmark = [
    pytest.mark.full,
    # torch's own compiler says what of itself is old.
    pytest.mark.filterwarnings("default"),
]
ROUNDING = torch.finfo(torch.float32).eps


def samples(dims, shape, replicas=2, count=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        0.3 * torch.randn(replicas, dims, generator=generator),
        torch.randn(replicas, count, *shape, generator=generator),
        torch.randint(0, 3, (replicas, count), generator=generator),
    )


class TestSound:
    def test_equals_the_eager_code(self):
        module, shape = small_cnn(size=8, classes=3, hidden=5), (1, 8, 8)
        fast = differentiator(module, cross_entropy, torch.zeros(shape), compiled=True)
        assert isinstance(fast, Compiled)
        for seed in range(3):
            at, inputs, targets = samples(fast.dims, shape, seed=seed)
            mask = torch.arange(8).expand(2, -1) < torch.tensor([[8], [5 - seed]])
            for bound in (0.5, 2.0, math.inf):
                weigh = ClipTo(bound, mask)
                wanted = fast.eager.weighted_sum(at, inputs, targets, weigh)
                got = fast.weighted_sum(at, inputs, targets, weigh)
                error = (got - wanted).norm() / wanted.norm()
                assert error < 20 * ROUNDING
        assert len(fast._functions) == 2  # with a bound, any bound, and without

    def test_one_sample_is_within_its_bound(self):
        module, shape = small_cnn(size=8, classes=3, hidden=5), (1, 8, 8)
        fast = differentiator(module, cross_entropy, torch.zeros(shape), compiled=True)
        at, inputs, targets = samples(fast.dims, shape)
        for sample in range(8):
            one = torch.arange(8).expand(2, -1) == sample
            got = fast.weighted_sum(at, inputs, targets, ClipTo(0.1, one))
            assert (got.double().norm(dim=1) <= 0.1).all()

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_gradients_that_are_not_finite_count_nothing(self, value):
        module, shape = small_cnn(size=8, classes=3, hidden=5), (1, 8, 8)
        fast = differentiator(module, cross_entropy, torch.zeros(shape), compiled=True)
        at, inputs, targets = samples(fast.dims, shape)
        one = torch.ones(2, 8)
        one[1, 2] = 0
        wanted = fast.weighted_sum(at, inputs, targets, ClipTo(0.5, one))
        inputs[1, 2] = value
        watch = Watch()
        weigh = ClipTo(0.5, torch.ones(2, 8), watch)
        assert torch.equal(fast.weighted_sum(at, inputs, targets, weigh), wanted)
        assert watch.counted == 1
        with pytest.raises(ValueError, match="not finite"):
            fast.weighted_sum(at, inputs, targets, ClipTo(math.inf, torch.ones(2, 8)))

    def test_other_weights_and_other_modules_are_not_compiled(self):
        module = nn.Linear(4, 3)
        fast = differentiator(module, cross_entropy, torch.zeros(4), compiled=True)
        at, inputs, targets = samples(fast.dims, (4,))
        got = fast.weighted_sum(at, inputs, targets, torch.ones_like)
        wanted = fast.eager.weighted_sum(at, inputs, targets, torch.ones_like)
        assert torch.equal(got, wanted)
        assert not fast._functions
        unknown = nn.Sequential(nn.Linear(4, 3), nn.PReLU())
        assert isinstance(
            differentiator(unknown, cross_entropy, torch.zeros(4), compiled=True),
            PerSample,
        )


class TestOracle:
    def test_batches_of_all_sizes_take_few_shapes(self):
        shares = random_data((40, 50), dtype=torch.float32)
        module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        eager = BookKeeping(module, cross_entropy, torch.zeros(4))
        fast = Compiled(eager)
        plain, other = (
            Oracle(
                PrivateData.of(shares),
                way,
                Mechanism(20.0, 0.5, 2.0),
                Streams(3),
                runs=3,
            )
            for way in (eager, fast)
        )
        at = torch.linspace(-1, 1, 6 * eager.dims).view(3, 2, -1)
        for _ in range(10):
            torch.testing.assert_close(
                other.gradient(at), plain.gradient(at), rtol=1e-5, atol=1e-6
            )
        assert len(fast._functions) == 1
        assert plain.ledger == other.ledger
