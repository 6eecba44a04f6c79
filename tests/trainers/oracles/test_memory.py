"""Batches larger than a chunk: the numbers, the noise, the ledger and the memory."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from tests.tiers import size
from tests.trainers.problems import random_data
from trainers.data import Dataset, PrivateData
from trainers.gradients.bookkeeping import BookKeeping
from trainers.models import cross_entropy, make_model
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle

MODELS = {
    "small-cnn": ((1, 28, 28), {}),
    "shallow-cnn": ((1, 28, 28), {}),
    "tanh-mlp": ((1, 28, 28), {}),
    "vit": ((3, 16, 16), {"depth": 2}),
    "lstm": ((1, 28, 28), {}),
    "resnet18": ((3, 32, 32), {}),
}


def peak(call):
    """The most bytes of tensors that were alive at once during ``call``."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    events = profiler.profiler.kineto_results.events()
    sizes = [event for event in events if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(sizes, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def clipped(norms):
    return 1 / norms.clamp_min(1.0)


class TestMemory:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("name", MODELS)
    def test_the_estimate_is_near_what_is_measured(self, name):
        shape, options = MODELS[name]
        module = make_model(name, shape, 10, **options)
        fast = BookKeeping(module, cross_entropy, torch.zeros(shape))
        generator = torch.Generator().manual_seed(0)
        few, many = (1, 4) if name == "resnet18" else (8, 40)

        def measured(samples):
            at = 0.02 * torch.randn(2, fast.dims, generator=generator)
            inputs = torch.rand(2, samples, *shape, generator=generator)
            targets = torch.zeros(2, samples, dtype=torch.long)
            fast.weighted_sum(at, inputs, targets, clipped)  # once for torch's own
            return peak(lambda: fast.weighted_sum(at, inputs, targets, clipped))

        # What a sample adds, whatever a model costs.
        values = (measured(many) - measured(few)) / (4 * 2 * (many - few))
        assert 0.7 * values < fast.values_per_sample < 2 * values

    @pytest.mark.parametrize("name", ["small-cnn", "shallow-cnn", "tanh-mlp"])
    def test_the_estimate_for_a_sample_a_model(self, name):
        shape = (1, 28, 28)
        fast = BookKeeping(
            make_model(name, shape, 10), cross_entropy, torch.zeros(shape)
        )

        def measured(replicas):
            at = 0.02 * torch.randn(replicas, fast.dims)
            given = torch.rand(replicas, 1, *shape), torch.zeros(replicas, 1).long()
            fast.weighted_sum(at, *given, clipped)
            return peak(lambda: fast.weighted_sum(at, *given, clipped))

        values = (measured(12) - measured(4)) / (4 * 8)
        assert 0.7 * values < fast.values_alone + 4 * fast.dims < 2 * values

    def test_chunks_keep_to_the_limit(self):
        module = make_model("small-cnn", (1, 28, 28), 10)
        example = torch.zeros(1, 28, 28)
        data = Dataset(torch.rand(400, 1, 28, 28), torch.arange(400) % 10)
        data = PrivateData.of([data, data])
        fast = BookKeeping(module, cross_entropy, example)
        at = torch.zeros(1, 2, fast.dims)
        limit = 8 << 20
        private = Oracle(
            data, fast, Mechanism(400.0, 1.0, 1.0), Streams(0), memory_limit=limit
        )
        whole = 800 * fast.values_per_sample * 4
        assert whole > 3 * limit
        private.gradient(at)
        # Beside what samples keep: parameters, sums and noise, and the gathered batch.
        rest = 12 * 2 * fast.dims * 4 + 2 * 400 * 8 * 4
        assert peak(lambda: private.gradient(at)) < 1.3 * limit + rest

    @pytest.mark.parametrize(
        ("runs", "batch", "sampling"),
        [(20, 300.0, "poisson"), (200, 1.0, "without-replacement")],
    )
    def test_samples_per_call_are_bounded(self, runs, batch, sampling):
        seen = []

        class Counting(BookKeeping):
            def weighted_sum(self, at, inputs, targets, weigh, slack=0.0):
                seen.append(inputs.shape[:2].numel())
                return super().weighted_sum(at, inputs, targets, weigh, slack)

        shares = random_data((400, 400), features=100, dtype=torch.float32)
        module = nn.Linear(100, 3)
        fast = Counting(module, cross_entropy, torch.zeros(100))
        seen.clear()  # of its own trial
        private = Oracle(
            PrivateData.of(shares),
            fast,
            Mechanism(batch, 1.0, sampling=sampling),
            Streams(0),
            runs=runs,
            memory_limit=1 << 20,
        )
        private.gradient(torch.zeros(runs, 2, fast.dims))
        sample = fast.values_per_sample + 100
        if batch == 1:  # what its model costs is paid by it alone
            sample += 4 * fast.dims
        allowed = (1 << 20) // 4 // sample
        assert len(seen) > 1
        assert max(seen) <= allowed


class TestOneLot:
    """A virtual batch taken in parts is one batch: one noise draw, one release."""

    def oracles(self, limits, multiplier=2.0):
        shares = random_data((40, 50), dtype=torch.float64)
        example = shares[0].inputs[0]
        module = nn.Sequential(nn.Linear(4, 5), nn.GroupNorm(1, 5), nn.Linear(5, 3))
        for limit in limits:
            private = Oracle(
                PrivateData.of(shares),
                BookKeeping(module.double(), cross_entropy, example),
                Mechanism(30.0, 0.5, multiplier),
                Streams(3),
            )
            private._memory_limit = limit  # below what a caller may ask for
            yield private

    def test_the_same_numbers_and_one_noise(self, monkeypatch):
        draws = []
        draw = Oracle._noisy
        monkeypatch.setattr(
            Oracle, "_noisy", lambda *given: draws.append(1) or draw(*given)
        )
        parts = []
        weighted_sum = BookKeeping.weighted_sum
        monkeypatch.setattr(
            BookKeeping,
            "weighted_sum",
            lambda self, *more: parts.append(1) or weighted_sum(self, *more),
        )
        results = []
        for private in self.oracles((1 << 30, 12_000, 1_000)):
            draws.clear()
            parts.clear()
            at = torch.linspace(-1, 1, 2 * private._differentiator.dims).double()
            given = [private.gradient(at.view(1, 2, -1)) for _ in range(2)]
            assert len(draws) == 2
            assert [entry.count for entry in private.ledger.nodes[0]] == [2]
            results.append((given, len(parts), private.ledger))
        (whole, one, ledger), *others = results
        assert one == 2
        for given, more, theirs in others:
            assert more > 4
            assert theirs == ledger
            for ours, plain in zip(given, whole, strict=True):
                torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
        assert not torch.equal(whole[0], whole[1])

    @pytest.mark.sized
    def test_the_noise_has_the_size_of_one_batch(self):
        # Five parts with a noise draw each would show sqrt(5) times as much.
        (noisy,), (exact,) = (self.oracles((1_000,), z) for z in (4.0, 0.0))
        at = torch.zeros(1, 2, noisy._differentiator.dims, dtype=torch.float64)
        drawn = torch.stack(
            [
                (noisy.gradient(at) - exact.gradient(at)) * 30 / (4 * 0.5)
                for _ in range(size(9, 3))
            ]
        )
        assert drawn.std().item() == pytest.approx(
            1, abs=5 / (2 * drawn.numel()) ** 0.5
        )
