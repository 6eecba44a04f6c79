"""What a record can move a sum by, for the program as it computes: sums.md."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.tiers import examples, size
from tests.trainers.gradients.test_bookkeeping import KNOWN
from trainers.data import Dataset, PrivateData
from trainers.gradients import shapes
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.choose import differentiator
from trainers.gradients.per_sample import PerSample, parameter_vector
from trainers.gradients.rounding import SLACK, Rounding, gamma
from trainers.gradients.stacked import layer, linear
from trainers.gradients.stacked.layer import (
    OVER,
    PIECE,
    products,
    squared_products,
    squared_rows,
)
from trainers.models import cross_entropy
from trainers.numerics import noise
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle

CLASS = torch.zeros(1, dtype=torch.long)


class Sums(Oracle):
    """An oracle of given batches, which shows the integers before the noise."""

    def _batches(self, nodes):
        return self.batches.view(1, 1, -1).clone()

    def _noisy(self, total, nodes, deviation, step):
        self.shown = noise.to_grid(total, step)[0, 0].tolist()
        self.step = step
        return total


class Mean(nn.Module):
    """The mean over positions or places of a layer, and a linear one."""

    def __init__(self, layer, outputs):
        super().__init__()
        self.inside, self.outside = layer, nn.Linear(outputs, 3)

    def forward(self, x):
        y = self.inside(x)
        return self.outside(y.mean((2, 3)) if y.dim() == 4 else y.mean(1))


def share_of(way, inputs, targets, clip, batches, at=None):
    """How far the record in one of two ``batches`` moves the sum, over ``clip``."""
    private = Sums(
        PrivateData.of([Dataset(inputs, targets)]),
        way,
        Mechanism(float(len(inputs)), clip, 1.0),
        Streams(0),
    )
    at = parameter_vector(way.module) if at is None else at
    shown = []
    for batch in batches:
        # No canary: the last row is nobody's.
        private.batches = torch.cat([batch, torch.zeros(1, dtype=torch.bool)])
        private.gradient(at.to(inputs.dtype).view(1, 1, -1))
        shown.append(private.shown)
    square = sum((one - other) ** 2 for one, other in zip(*shown, strict=True))
    # The norm that the ledger states, and exact numbers.
    bound = private.ledger.nodes[0][0].release.norm_bound
    assert bound == clip
    assert Fraction(private.step) ** 2 * square <= Fraction(bound) ** 2
    return private.step * math.sqrt(square) / bound


def with_and_without(records, place=0):
    all_of_them = torch.ones(records, dtype=torch.bool)
    return all_of_them, all_of_them & (torch.arange(records) != place)


def random_sample(shape, samples, generator, dtype):
    return torch.randn(samples, *shape, generator=generator).to(dtype)


class TestCancel:
    """Positions that cancel: their sum is nothing, and what they take away is not."""

    @pytest.mark.sampled(8)
    @pytest.mark.parametrize("outputs", [8, 64])  # written out, and not
    @pytest.mark.parametrize("size", [1.0, 1e2, 1e4, 1e6])
    def test_a_record_whose_gradient_is_nothing_in_front(self, size, outputs):
        """It moves nothing; in single precision it moved .03 clip norms."""
        generator = torch.Generator().manual_seed(1)
        module = Mean(nn.Linear(784, outputs, bias=False), outputs)
        module.outside.register_parameter("bias", None)
        way = BookKeeping(module, cross_entropy, torch.zeros(128, 784))
        half = torch.randn(97, 64, 784, generator=generator)
        inputs = size * torch.cat([half, -half], 1)
        inputs[0] = 0
        targets = torch.arange(97) % 3
        share = share_of(way, inputs, targets, 1.0, with_and_without(97))
        assert share <= 1e-4

    @pytest.mark.parametrize("kind", ["linear", "convolution", "attention"])
    @pytest.mark.parametrize("size", [1e4, 1e8, 1e12])
    def test_one_of_plus_and_minus(self, kind, size):
        generator = torch.Generator().manual_seed(0)
        if kind == "convolution":
            shape, module = (3, 8, 8), Mean(nn.Conv2d(3, 400, 1, bias=False), 400)
            first, last = (0, slice(None), 2, 2), (0, slice(None), -3, -3)
        else:
            shape = (16, 4)
            inside = nn.Linear(4, 4, bias=False)
            if kind == "attention":
                inside = nn.Sequential(nn.LayerNorm(4), inside, nn.Linear(4, 4))
            module = Mean(inside, 4)
            first, last = (0, 0), (0, -1)
        way = differentiator(module, cross_entropy, torch.zeros(shape))
        inputs = torch.rand(33, *shape, generator=generator)
        inputs[0] = 0
        inputs[first], inputs[last] = size, -size
        targets = torch.zeros(33, dtype=torch.long)
        for clip in (1e-3, 0.01, 1.0):
            share_of(way, inputs, targets, clip, with_and_without(33))

    def test_equal_tokens(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(5, 6)
                self.scales = torch.tensor([1e6, -1e6 * (1 + 1e-6), 1.0])

            def forward(self, tokens):
                return (self.table(tokens) * self.scales[:, None]).sum(1)

        inputs = torch.randint(0, 5, (60, 3))
        inputs[:, 1] = inputs[:, 0]
        way = BookKeeping(Words(), cross_entropy, inputs[0])
        at = parameter_vector(way.module) * 1e-6
        private = with_and_without(60)
        # Tokens are integers; parameters are not.
        share = _tokens(way, inputs, torch.zeros(60, dtype=torch.long), private, at)
        assert 0 < share <= 1

    def test_terms_that_cancel_are_clipped_by_their_sizes(self):
        """A gradient of half the clip norm, made of terms of a million."""

        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.inside = nn.Linear(64, 64, bias=False)

            def forward(self, x):
                return self.inside(x).sum(1)

        way = BookKeeping(
            Sum(),
            lambda outputs, targets: (outputs * targets).sum(1),
            torch.zeros(4, 64),
            torch.zeros(64),
        )
        assert way.positions == 4
        inputs, targets = torch.zeros(9, 4, 64), torch.zeros(9, 64)
        targets[:, 0] = 1.0
        inputs[0, :2, 1], inputs[0, 1, 2] = torch.tensor([1e6, -1e6]), 0.5
        share = share_of(way, inputs, targets, 1.0, with_and_without(9))
        # Sizes add up to 2e6: at least SLACK of them is in the norm.
        assert 0 < share <= 0.5 / (SLACK * 2e6)


def _tokens(way, inputs, targets, batches, at):
    private = Sums(
        PrivateData.of([Dataset(inputs, targets)]),
        way,
        Mechanism(float(len(inputs)), 1.0, 1.0),
        Streams(0),
    )
    shown = []
    for batch in batches:
        private.batches = torch.cat([batch, torch.zeros(1, dtype=torch.bool)])
        private.gradient(at.view(1, 1, -1))
        shown.append(private.shown)
    square = sum((one - other) ** 2 for one, other in zip(*shown, strict=True))
    return private.step * math.sqrt(square)


class TestTwice:
    """Products over many positions, which are taken for a norm and again for a sum."""

    @pytest.fixture
    def way(self, monkeypatch):
        monkeypatch.setattr(layer, "CACHED", 1 << 14)  # several strips
        monkeypatch.setattr(layer, "_LONG", 40)
        module = Mean(nn.Linear(280, 290), 290)
        way = BookKeeping(module, cross_entropy, torch.zeros(40, 280))
        assert way.ways.startswith("products taken twice: inside;")
        return way

    def test_sums_are_of_what_the_norms_are_of(self, way):
        generator = torch.Generator().manual_seed(0)
        at = parameter_vector(way.module).repeat(2, 1)
        at[1] *= 0.5
        inputs = torch.randn(2, 3, 40, 280, generator=generator)
        inputs[1, 2, 0, 0] = math.inf  # counts nothing
        targets = torch.arange(6).view(2, 3) % 3
        weights = torch.rand(2, 3, generator=generator, dtype=torch.float64)
        seen = []

        def weigh(norms, weights=weights):
            seen.append(norms.clone())
            return weights

        total = way.weighted_sum(at, inputs, targets, weigh, 0.0)
        (norms,) = seen
        reference = PerSample(way.module.double(), cross_entropy)
        inputs[1, 2] = 0
        each = reference.gradients(at.double(), inputs.double(), targets)
        each[1, 2] = 0
        wanted = (each * weights[:, :, None]).sum(1)
        assert (total - wanted).abs().max() <= 1e-6 * wanted.abs().max()
        assert not norms[1, 2].isfinite()
        # Of a single record the sum is the gradient of which the norm was taken.
        for place in ((0, 0), (0, 2), (1, 1)):
            alone = torch.zeros_like(weights)
            alone[place] = 1.0
            found = way.weighted_sum(
                at, inputs, targets, lambda norms, alone=alone: alone
            )
            norm = found[place[0]].norm()
            assert -1e-12 * norm <= norms[place] - norm <= 2.0**-17 * norm

    @pytest.mark.parametrize("sign", [0, 1, -1])
    def test_a_record_moves_no_more_than_is_stated(self, way, monkeypatch, sign):
        """Nor if the sum's product is rounded otherwise than the norm's."""

        def rounded(left, right):
            sizes = products(left.abs(), right.abs())
            error = sign * gamma(len(left), 2.0**-24)
            for (rows, found), (_, most) in zip(
                products(left, right), sizes, strict=True
            ):
                yield rows, found.double() + error * found.sign() * most

        monkeypatch.setattr(layer, "products", rounded)
        with torch.no_grad():  # most of a gradient is of these products
            way.module.outside.weight *= 100
        generator = torch.Generator().manual_seed(0)
        half = torch.randn(5, 20, 280, generator=generator)
        inputs = torch.cat([half, -half], 1)
        inputs[0, 0] = 1.0
        targets = torch.arange(5) % 3
        share = share_of(way, inputs, targets, 1e-3, with_and_without(5))
        assert share >= 0.99

    def test_products_that_know_their_place_are_found_out(self, way, monkeypatch):
        calls = []

        def placed(left, right):
            calls.append(0)
            for rows, found in products(left, right):
                found[7, 9] *= 1 + 2.0**-23 * (len(calls) % 2)
                yield rows, found

        monkeypatch.setattr(linear, "products", placed)
        at = parameter_vector(way.module)[None]
        data = PrivateData.of([Dataset(torch.zeros(1, 40, 280), CLASS)])
        assert shapes.shape_for(way, at, data, 4).columns == 1


class TestKinks:
    @pytest.mark.parametrize("features", [650, 37, 90])
    @pytest.mark.parametrize("records", [9, 65, 201])
    def test_a_record_in_front_flips_no_relu(self, features, records):
        """Of rows that begin elsewhere, last bits differ, and so the sign of 0.

        All inputs are the same and labels alternate, so that the record which is taken
        away changes who of the two has which signs.
        """
        generator = torch.Generator().manual_seed(features)
        module = nn.Sequential(nn.Linear(features, 10), nn.ReLU(), nn.Linear(10, 3))
        inputs = torch.randn(1, features, generator=generator).repeat(records, 1)
        way = BookKeeping(module, cross_entropy, inputs[0])
        with torch.no_grad():
            for _ in range(20):  # until places are on both sides of the kink
                bias, weight = module[0].bias, module[0].weight
                found = torch.baddbmm(bias[None, None], inputs[None], weight.mT[None])
                bias -= (found[0].amax(0) + found[0].amin(0)) / 2
        targets = torch.arange(records) % 2
        at = parameter_vector(module)
        for clip in (1e-2, 1e3):
            share_of(way, inputs, targets, clip, with_and_without(records), at)


class TestNotFinite:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
    def test_a_record_adds_nothing(self, bad):
        generator = torch.Generator().manual_seed(0)
        module = Mean(nn.Linear(4, 5), 5)
        inputs = torch.randn(20, 6, 4, generator=generator)
        inputs[0, 2, 1] = bad
        for way in (
            BookKeeping(module, cross_entropy, torch.zeros(6, 4)),
            PerSample(module, cross_entropy),
        ):
            targets = torch.zeros(20, dtype=torch.long)
            share = share_of(way, inputs, targets, 0.1, with_and_without(20))
            assert share <= (1 if math.isfinite(bad) else 0)


@pytest.mark.parametrize("name", KNOWN)
class TestAllLayers:
    @pytest.mark.sampled(4)
    @examples(6)
    @given(data=st.data())
    def test_a_record_moves_no_more_than_is_stated(self, name, data):
        module, shape = KNOWN[name]
        dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
        tokens = any(isinstance(layer, nn.Embedding) for layer in module.modules())
        if tokens:
            dtype = torch.float32
        module = module.to(dtype)
        seed = data.draw(st.integers(0, 10**6))
        generator = torch.Generator().manual_seed(seed)
        records = data.draw(st.sampled_from([1, 2, 5, 9, 33, 64]))
        if tokens:
            inputs = torch.randint(0, 5, (records, *shape), generator=generator)
        else:
            scale = data.draw(st.sampled_from([1e-3, 1.0, 1e3, 1e6]))
            inputs = scale * random_sample(shape, records, generator, dtype)
        targets = torch.randint(0, 3, (records,), generator=generator)
        precision = "float32"
        if dtype == torch.float32:
            precision = data.draw(st.sampled_from(["float32", "bf16"]))
        way = differentiator(module, cross_entropy, inputs[0], precision=precision)
        batch = torch.rand(records, generator=generator) < data.draw(st.floats(0, 1))
        place = data.draw(st.integers(0, records - 1))
        batch[place] = True
        other = batch & (torch.arange(records) != place)
        clip = data.draw(st.sampled_from([1e-12, 1e-3, 1.0, 1e6]))
        at = random_sample((way.dims,), 1, generator, dtype)[0]
        if tokens:
            share = _tokens(way, inputs, targets, (batch, other), at)
        else:
            share = share_of(way, inputs, targets, clip, (batch, other), at)
        assert share <= 1

    @pytest.mark.sampled(58)
    @pytest.mark.parametrize("samples", [(1, 8), (3, 20), (4, 8)])
    def test_what_was_tried_holds_for_other_records(self, name, samples):
        module, shape = KNOWN[name]
        module = module.float()
        tokens = any(isinstance(layer, nn.Embedding) for layer in module.modules())
        inputs = torch.zeros(1, *shape, dtype=torch.long if tokens else torch.float32)
        data = PrivateData.of([Dataset(inputs, CLASS)])
        way = BookKeeping(module, cross_entropy, inputs[0])
        at = torch.zeros(samples[0], way.dims)
        for found in (
            shapes.shape_for(way, at, data, samples[1]),
            shapes.known_or_found(way, at, data, samples[1], moves=True),
        ):
            if found is not None:
                way.aligned = found.aligned
                for seed in range(1, 9):
                    assert shapes.holds(way, at, (inputs[0], CLASS[0]), found, seed)


class TestNorms:
    @pytest.mark.parametrize("size", [1.0, 2.0**-70, 2.0**-140, 2.0**60])
    @pytest.mark.parametrize("numbers", [130, 128 * 40 + 3])
    def test_written_ones_are_no_less_than_is_true(self, size, numbers):
        """Where most squares are lost beside the first, or all of them underflow."""
        rows = torch.full((3, numbers), 2.0**-12.5)
        rows[:, ::128] = 1.0
        rows[0] = torch.rand(numbers, generator=torch.Generator().manual_seed(1))
        rows = rows * size
        squares = squared_rows(rows)
        for square, row in zip(squares.tolist(), rows.tolist(), strict=True):
            wanted = sum(Fraction(x) ** 2 for x in row)
            assert square >= wanted
            lost = numbers * Fraction(2) ** -126
            assert square <= (wanted + lost) * (1 + Fraction(2) ** -15)

    def test_pieces_are_paid_for(self):
        """Whatever order one is added up in, and its root."""
        one = gamma(PIECE + 2, 2.0**-24) / 2 + 2.0**-24
        assert (1 - one) ** 2 * OVER >= 1 + 2.0**-25

    @given(st.integers(0, 10**6), st.sampled_from([4, 64, 511, 512, 513, 700]))
    def test_they_are_no_less_than_is_true(self, seed, positions):
        """Of products that cancel to the last bits, and all sizes of numbers."""
        generator = torch.Generator().manual_seed(seed)
        half = torch.randn(2, positions // 2, 5, generator=generator)
        size = 2.0 ** torch.randint(-70, 40, (2, 1, 1), generator=generator)
        left = size * half[..., :2].repeat(1, 2, 1)
        right = torch.cat([half[..., 2:], -half[..., 2:]], 1)
        right = right + 1e-7 * torch.randn(right.shape, generator=generator)
        found = squared_products(left, right)
        # Wide enough that the Gram matrices are not what is taken.
        assert found.coarse == (positions // 2 * 2 if positions < 514 else 0)
        paid = Rounding.of(
            found.positions, found.length, 8, 100, coarse=found.coarse
        ).slack
        norms = found.square.sqrt() + paid * found.terms.sqrt()
        for norm, one, other in zip(norms, left, right, strict=True):
            columns = [[Fraction(x) for x in row] for row in one.mT.tolist()]
            rows = [[Fraction(x) for x in row] for row in other.mT.tolist()]
            square = sum(
                sum(a * b for a, b in zip(column, row, strict=True)) ** 2
                for column in columns
                for row in rows
            )
            assert (Fraction(norm.item()) * (1 + Fraction(1, 2**24))) ** 2 >= square


class TestShapes:
    def test_rows_that_begin_elsewhere_are_found_out(self):
        """650 x 10 was measured to depend on the place; whole lines do not."""
        module = nn.Linear(650, 10)
        way = BookKeeping(module, cross_entropy, torch.zeros(650))
        at, example = torch.zeros(2, way.dims), (torch.zeros(650), CLASS[0])
        data = PrivateData.of([Dataset(torch.zeros(1, 650), CLASS)])
        found = shapes.shape_for(way, at, data, 48)
        assert found.columns > 1
        way.aligned = found.aligned
        for seed in range(20):
            assert shapes.holds(way, at, example, found, seed)

    def test_samples_that_see_each_other_get_a_call_each(self):
        class Sees(PerSample):
            def rows(self, at, inputs, targets):
                rows, squares = super().rows(at, inputs, targets)
                return [rows + 1e-7 * rows.mean(0), squares]

        way = Sees(nn.Linear(4, 3), cross_entropy)
        data = PrivateData.of([Dataset(torch.zeros(1, 4), CLASS)])
        found = shapes.shape_for(way, torch.zeros(1, way.dims), data, 16)
        assert found.columns == 1

    def test_replicas_that_know_their_row_do_not_move(self):
        class Knows(PerSample):
            def rows(self, at, inputs, targets):
                rows, squares = super().rows(at, inputs, targets)
                which = torch.arange(len(at)).repeat_interleave(inputs.shape[1])
                return [rows * (1 + 1e-6 * which[:, None]), squares]

        data = PrivateData.of([Dataset(torch.zeros(1, 4), CLASS)])
        for kind, moves in ((PerSample, True), (Knows, False)):
            way = kind(nn.Linear(4, 3), cross_entropy)
            at = torch.zeros(4, way.dims)
            for columns in (1, 8):
                found = shapes.known_or_found(way, at, data, columns, moves=True)
                assert (found is not None) == moves
                assert shapes.shape_for(way, at, data, columns).columns == columns

    def test_norms_that_see_each_other_are_found_out(self):
        class Sees(PerSample):
            def rows(self, at, inputs, targets):
                rows, squares = super().rows(at, inputs, targets)
                return [rows, squares * (1 + 1e-12 * squares.mean())]

        way = Sees(nn.Linear(4, 3), cross_entropy)
        data = PrivateData.of([Dataset(torch.zeros(1, 4), CLASS)])
        found = shapes.shape_for(way, torch.zeros(1, way.dims), data, 16)
        assert found.columns == 1

    @pytest.mark.parametrize("name", KNOWN)
    def test_all_norms_are_looked_at(self, name):
        """The first of the last that are looked at gives the norm without slack."""
        module, shape = KNOWN[name]
        module = module.float()
        tokens = any(isinstance(layer, nn.Embedding) for layer in module.modules())
        inputs = torch.zeros(1, 3, *shape, dtype=torch.long if tokens else None)
        way = BookKeeping(module, cross_entropy, inputs[0, 0])
        at = parameter_vector(module)[None]
        seen = []

        def weigh(norms):
            seen.append(norms.flatten())
            return torch.zeros_like(norms)

        targets = torch.zeros(1, 3, dtype=torch.long)
        way.weighted_sum(at, inputs, targets, weigh, 0.0)
        shown = way.rows(at, inputs, targets)
        assert any(
            part.shape == (3,) and torch.equal(part.sqrt(), seen[0])
            for part in shown[-2:]
        )

    @given(
        st.sets(st.integers(1, 2000), max_size=4),
        st.integers(1, 300),
        st.integers(1, 16),
    )
    def test_each_thread_has_whole_vectors(self, counts, columns, threads):
        for shape in shapes.candidates(counts, columns, threads):
            places = shape.columns + shape.spare_columns
            assert shape.columns <= columns
            assert 0 <= shape.threads < max(2, threads)
            assert shape.columns == 1 or all(
                shapes.whole_vectors(each * places, shape.threads or threads)
                for each in counts
            )
        assert shape.columns == 1

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("threads", [1, 2, 3])
    @pytest.mark.parametrize("name", ["silu", "gelu", "softplus", "mish"])
    def test_a_function_has_equal_bits_where_vectors_are_whole(self, threads, name):
        """Where they are not, most functions differ in a thread's last numbers."""
        function, differs = getattr(torch.nn.functional, name), set()
        with shapes.Shape(1, threads=threads).in_threads():
            for count in (1013, 65_600, 70_001):
                for value in torch.linspace(-6, 6, 60):
                    found = function(value.repeat(count))
                    if not (found == found[0]).all():
                        differs.add(count)
        assert not any(shapes.whole_vectors(count, threads) for count in differs)
        plain = torch.backends.cpu.get_cpu_capability() == "DEFAULT"  # no vectors
        assert differs or name == "gelu" or plain

    @pytest.mark.sampled(2)
    @pytest.mark.sized
    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_equal_records_have_equal_bits_whatever_the_threads(self, threads):
        width, places = 1025, 64
        module = nn.Sequential(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, 2))
        data = PrivateData.of([Dataset(torch.zeros(1, 4), CLASS)])
        way = BookKeeping(module, cross_entropy, torch.zeros(4))
        at = parameter_vector(module)[None]
        with shapes.Shape(1, threads=threads).in_threads():
            shape = shapes.shape_for(way, at, data, places)
            there = shape.columns + shape.spare_columns
            with shape.in_threads():
                for _ in range(size(20, 5)):
                    one = torch.randn(4).expand(1, there, 4)
                    classes = torch.zeros(1, there, dtype=torch.long)
                    for part in way.rows(
                        shapes.lined(at, torch.zeros(1).long()), one, classes
                    ):
                        assert torch.equal(part, part[:1].expand_as(part))
            assert torch.get_num_threads() == threads


class TestRounding:
    @given(st.integers(1, 10**9))
    def test_gamma_is_no_less_than_it_is(self, additions):
        product = Fraction(additions, 2**53)
        assert Fraction(gamma(additions)) >= product / (1 - product)

    @given(
        st.integers(0, 2000),
        st.integers(0, 10**5),
        st.integers(1, 400),
        st.integers(1, 10**5),
    )
    def test_both_errors_are_paid(self, positions, length, columns, records):
        paid = Rounding.of(positions, length, columns, records)
        error = gamma(columns * max(1, positions) + records) * records
        if positions:
            assert paid.slack >= max(SLACK, math.sqrt(gamma(length)))
            assert paid.share >= 2 * error * (1 + 1 / paid.slack)
        else:
            assert paid.slack == 0
            assert paid.share >= 2 * error

    @given(st.integers(1, 512), st.integers(1, 10**5))
    def test_single_precision_is_paid(self, positions, length):
        paid = Rounding.of(positions, length, 8, 100, coarse=positions)
        product = Fraction(positions, 2**24)
        single = product / (1 - product)
        assert Fraction(paid.slack) >= single + Fraction(math.sqrt(gamma(length)))
        assert paid.slack <= 2.0**-14

    def test_what_is_paid_is_little(self):
        assert Rounding.of(0, 0, 304, 6000) == Rounding(0.0, 2.0**-20)
        paid = Rounding.of(784, 5000, 304, 6000)
        assert paid.slack <= 1e-3
        assert paid.share <= 1e-3

    def test_too_many_records_are_refused(self):
        with pytest.raises(ValueError, match="too long for double precision"):
            Rounding.of(10**6, 1, 1000, 10**9)


def test_only_squares_are_powers_that_differ_nowhere_in_a_vector():
    for power, counts in ((2, set()), (3, {7}), (2.5, {7})):
        with shapes._Elementwise() as seen:
            torch.ones(7) ** power
        assert seen.counts == counts
