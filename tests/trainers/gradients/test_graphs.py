"""graphs against the code that is recorded, by a twin of CUDA's that needs no GPU."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.trainers.problems import random_data
from trainers.data import PrivateData
from trainers.gradients import graphs
from trainers.gradients.choose import differentiator
from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.clipping import Summation
from trainers.gradients.door.traced import Traced
from trainers.gradients.per_sample import PerSample, parameter_vector
from trainers.models import cross_entropy, small_cnn
from trainers.numerics.deferred_checks import Watch
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle


class Recorded(TorchDispatchMode):
    """Operations and their tensors: all else is what it was, as in a CUDA graph."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("the host looks at a number\nwhile it records")
        found = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, found))
        return found

    def start(self):
        with torch._C._AutoDispatchBelowAutograd():
            for func, args, kwargs, before in self.calls:
                found = tree_leaves(func(*args, **kwargs))
                for one, other in zip(tree_leaves(before), found, strict=True):
                    if isinstance(one, Tensor) and one.data_ptr() != other.data_ptr():
                        one.copy_(other)


def record(call):
    for _ in range(graphs._BEFORE):
        call()
    with Recorded() as recorded:
        found = call()
    return recorded.start, found


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setitem(graphs.RECORDERS, "cpu", record)


class Words(nn.Module):
    """Attention over embedded words, a product that is low-rank, and dropout."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 8)
        self.inside = nn.Linear(8, 24)
        self.still = nn.Linear(8, 8).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        self.scale = nn.Parameter(torch.ones(8))
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.words(x)
        parts = self.inside(x).unflatten(-1, (3, 2, 4)).movedim(-3, 0)
        parts = (each.transpose(-3, -2) for each in parts)
        x = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x.transpose(-3, -2).flatten(-2) * self.scale
        x = self.drop(self.still(x) + self.up(self.down(x)))
        return self.head(x.mean(-2))


def words():
    torch.manual_seed(0)
    example = torch.arange(6) % 7, torch.tensor(1)
    return Traced(Words(), example[0]), cross_entropy, example


def convolutions():
    module = small_cnn(size=8, classes=3, hidden=5)
    return module, cross_entropy, (torch.zeros(1, 8, 8), torch.tensor(0))


def merged():
    class Merged(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.randn(24, 1))
            self.other = nn.Parameter(torch.randn(1, 16))

        def forward(self, x):
            return functional.linear(x, self.one @ self.other)

    example = torch.zeros(16), torch.tensor(0)
    return Traced(Merged(), example[0]), cross_entropy, example


def draws(way, example, replicas=2, samples=5):
    """Other models, records, masks, bounds and words at each draw."""
    generator = torch.Generator().manual_seed(5)
    there = (replicas, samples)
    for which in itertools.count():
        at = 0.5 * torch.randn(replicas, way.dims, generator=generator)
        if example[0].is_floating_point():
            inputs = torch.randn(*there, *example[0].shape, generator=generator)
        else:
            inputs = torch.randint(7, (*there, 6), generator=generator)
        targets = torch.randint(3, there, generator=generator)
        mask = torch.rand(there, generator=generator) < 0.8
        word = (which, torch.tensor([which, 3 - which]))[which % 2]
        yield at, inputs, targets, mask, 0.3 + which, word


class TestSound:
    @pytest.mark.parametrize("make", [words, convolutions, merged])
    def test_bits_are_those_of_the_code_that_was_recorded(self, make, recorded):
        module, loss, example = make()
        way = differentiator(module, loss, *example, compiled=True)
        assert isinstance(way, PerSample) == (make is merged)
        for which, given in zip(range(6), draws(way, example), strict=False):
            *call, mask, bound, way.word = given
            word, bound = way.word, math.inf if which == 5 else bound
            weigh = ClipTo(bound, mask, Watch(at_once=False))
            found = graphs.weighted_sum(way, *call, weigh, 2**-16)
            assert torch.equal(found, way.weighted_sum(*call, weigh, 2**-16))
            assert way.word is word
            (*_, last) = way.graphs.values()
            assert found.data_ptr() != last._found[0].data_ptr()
        assert len(way.graphs) == 2  # with any bound, and without

    def test_gradients_that_are_not_finite_count_nothing(self, recorded):
        module, loss, example = convolutions()
        fast = differentiator(module, loss, *example, compiled=True)
        at, inputs, targets, *_ = next(draws(fast, example))
        mask = torch.ones(2, 5)
        mask[1, 2] = 0
        given = at, inputs, targets
        wanted = graphs.weighted_sum(fast, *given, ClipTo(0.5, mask), 0.0)
        inputs[1, 2] = math.inf
        watch = Watch()
        weigh = ClipTo(0.5, torch.ones(2, 5), watch)
        assert torch.equal(graphs.weighted_sum(fast, *given, weigh, 0.0), wanted)
        assert watch.counted == 1
        with pytest.raises(ValueError, match="not finite"):
            graphs.weighted_sum(fast, *given, ClipTo(math.inf, mask + 1), 0.0)

    def test_what_a_graph_would_keep_is_seen_on_random_records(self, recorded):
        """Whatever is read when it is recorded, and not when it is started."""
        module, loss, example = convolutions()
        fast = differentiator(module, loss, *example, compiled=True)
        *given, mask, _, _ = next(draws(fast, example))
        right = fast.weighted_sum

        def kept(at, *rest):
            return right(torch.tensor(at.tolist()), *rest)

        fast.weighted_sum = kept
        with pytest.raises(ValueError, match="other numbers than its gradients have"):
            graphs.weighted_sum(fast, *given, ClipTo(0.5, mask), 0.0)

    def test_what_cannot_be_recorded_is_said(self, recorded):
        module, loss, example = convolutions()
        fast = differentiator(module, loss, *example, compiled=True)
        *given, mask, _, _ = next(draws(fast, example))
        right, fast.word = fast.weighted_sum, 9
        fast.weighted_sum = lambda at, *rest: right(at * at.max().item(), *rest)
        with pytest.raises(ValueError, match=r"\(the host looks at a number\): leave"):
            graphs.weighted_sum(fast, *given, ClipTo(0.5, mask), 0.0)
        assert fast.word == 9

    def test_what_ended_a_record_is_named_and_not_its_end(self, monkeypatch):
        def ends(call):
            try:
                raise RuntimeError("a look")
            finally:
                raise RuntimeError("it was ended before")

        monkeypatch.setitem(graphs.RECORDERS, "cpu", ends)
        module, loss, example = convolutions()
        fast = differentiator(module, loss, *example, compiled=True)
        *given, mask, _, _ = next(draws(fast, example))
        with pytest.raises(ValueError, match=r"recorded as one \(a look\)"):
            graphs.weighted_sum(fast, *given, ClipTo(0.5, mask), 0.0)

    def test_addresses_outside_are_kept(self):
        constant, made = torch.ones(3), torch.zeros(3)
        with graphs._Outside() as outside:
            (made + constant[1:].sum()).add_(1).relu()
        kept = {one.data_ptr() for one in (constant, made)}
        assert kept == {*outside.kept}


class TestChoice:
    def test_without_a_gpu_nothing_is_recorded(self):
        module, loss, example = convolutions()
        fast = differentiator(module, loss, *example, compiled=True)
        plain = differentiator(module, loss, *example)
        *given, mask, _, _ = next(draws(fast, example))
        for way in (fast, plain):
            graphs.weighted_sum(way, *given, ClipTo(0.5, mask), 0.0)
        assert fast.graphs == {}
        assert plain.graphs is None

    def test_other_weights_are_not_recorded(self, recorded):
        module, loss, example = convolutions()
        fast = differentiator(module, loss, *example, compiled=True)
        *given, _, _, _ = next(draws(fast, example))
        found = graphs.weighted_sum(fast, *given, torch.ones_like, 0.0)
        assert torch.equal(found, fast.weighted_sum(*given, torch.ones_like, 0.0))
        assert fast.graphs == {}

    def test_records_in_processes_of_their_own_are_refused(self):
        module, example = nn.Linear(4, 3), torch.zeros(4)
        module.alone = True
        with pytest.raises(ValueError, match="process of its own: leave compiled out"):
            differentiator(module, cross_entropy, example, compiled=True)


class TestOracle:
    def test_batches_of_all_sizes_take_one_graph(self, recorded, monkeypatch):
        """As on a GPU: batches padded to a public width, and no look in between."""
        data = PrivateData.of(random_data((40, 50), dtype=torch.float32))
        module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        example = torch.zeros(4)
        plain, fast = (
            Oracle(
                data,
                differentiator(module, cross_entropy, example, compiled=compiled),
                Mechanism(20.0, 0.5, 2.0),
                Streams(3),
                runs=3,
            )
            for compiled in (False, True)
        )
        for one in (plain, fast):
            one._unseen, one._watch = True, Watch(at_once=False)
        at = torch.linspace(-1, 1, 6 * parameter_vector(module).numel()).view(3, 2, -1)
        widths = set()
        clipped_sum = Summation.clipped_sum

        def seen(self, *given, **how):
            widths.add(how["width"])
            return clipped_sum(self, *given, **how)

        monkeypatch.setattr(Summation, "clipped_sum", seen)
        for _ in range(4):
            assert torch.equal(fast.gradient(at), plain.gradient(at))
        assert len(widths) == len(fast._differentiator.graphs) == 1
        assert plain.ledger == fast.ledger
