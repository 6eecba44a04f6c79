"""A round does not wait for an accelerator: no number of it is looked at by the host.

There need be none to see that: operations that would make it wait are known by name.
"""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainers.contract import CASES
from tests.trainers.numerics.test_device import watched  # noqa: F401  # a fixture
from tests.trainers.planted import FloatNoise
from tests.trainers.problems import random_data
from trainers.data import PrivateData
from trainers.gradients.bookkeeping import BookKeeping
from trainers.models import cross_entropy
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle
from trainers.oracles.sampler import Sampler

# Their results' sizes or values are for the host.
WAIT = {
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::is_nonzero",
    "aten::item",
    "aten::masked_select",
    "aten::nonzero",
    "aten::unique_dim",
    "aten::_unique2",
    "aten::repeat_interleave.Tensor",
}


class Waits(TorchDispatchMode):
    """The names of operations that look at numbers, as they are done."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name()
        indices = args[1] if name.startswith("aten::index") and len(args) > 1 else ()
        masks = isinstance(indices, (list, tuple)) and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for index in indices
        )
        if name in WAIT or masks:
            self.seen.append(name)
        return function(*args, **kwargs or {})


class DrawnBatches(Sampler):
    """Batches by torch's random numbers."""

    def _uniform(self, nodes, index, records):
        generator = torch.Generator().manual_seed(100 * nodes[0] + index)
        return torch.rand(self.runs, len(nodes), records, generator=generator)

    def coins(self, nodes, index, records, rate):
        return self._uniform(nodes, index, records) < rate

    def subsets(self, nodes, index, records, size):
        uniform = self._uniform(nodes, index, records)
        return (
            torch.zeros_like(uniform).scatter_(2, uniform.topk(size, 2).indices, 1) > 0
        )


class Drawn(FloatNoise):
    """Random numbers from torch: those of a key are looked at, see below."""

    def _draw_noise(self, like, nodes):
        generator = torch.Generator().manual_seed(self._releases[nodes[0]])
        return torch.randn(like.shape, generator=generator, dtype=like.dtype)

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self._sampler.__class__ = DrawnBatches


def oracle(unseen, sampling="poisson", runs=2, kind=Drawn):
    module = nn.Sequential(nn.Linear(4, 5), nn.GroupNorm(1, 5), nn.Linear(5, 3))
    shares = random_data((40, 50, 45))
    private = kind(
        PrivateData.of(shares),
        BookKeeping(module.double(), cross_entropy, shares[0].inputs[0]),
        Mechanism(20.0, 0.5, 2.0, sampling),
        Streams(3),
        runs=runs,
    )
    # As it is set where data are on an accelerator.
    private._unseen = unseen
    private._watch._at_once = not unseen
    return private


def begin(private, runs=2):
    dims = private._differentiator.dims
    values = torch.linspace(-1, 1, runs * 3 * dims, dtype=torch.float64)
    return values.view(runs, 3, dims)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.family.oracle is Oracle], ids=str
)
class TestRounds:
    @pytest.mark.sampled(6)
    def test_look_at_no_number(self, case):
        private, network = oracle(True), case.network()
        start = begin(private)
        network.run(start, private, 1)
        with Waits() as waits:
            network.run(start, private, 3)
        assert waits.seen == []
        private.settle()

    @pytest.mark.sampled(6)
    def test_are_the_rounds_that_look(self, case):
        seen, unseen = oracle(False), oracle(True)
        one, other = (
            case.network().run(begin(private), private, 3) for private in (seen, unseen)
        )
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
        assert seen.ledger == unseen.ledger


def test_the_list_finds_what_a_cpu_does():
    private = oracle(False)
    with Waits() as waits:
        private.gradient(begin(private))
    assert {"aten::nonzero", "aten::_local_scalar_dense"} <= set(waits.seen)


def test_noise_and_batches_look_a_few_times_a_release(monkeypatch):
    """Whether a draw is in doubt, and whether a sum fits: not once a number."""
    private = oracle(True, kind=Oracle)
    at = begin(private)
    private.gradient(at)  # tries a shape, once
    with Waits() as waits:
        private.gradient(at)
    assert len(waits.seen) <= 12


def test_fixed_batches_are_not_looked_at_either():
    private = oracle(True, "without-replacement")
    at = begin(private)
    private.gradient(at)
    with Waits() as waits:
        private.gradient(at)
    assert waits.seen == []


def test_what_failed_is_told_before_anything_is_used():
    private = oracle(True)
    at = begin(private)
    at[1, 2] = float("nan")
    private.gradient(at)
    with pytest.raises(ValueError, match="not finite"):
        _ = private.ledger
