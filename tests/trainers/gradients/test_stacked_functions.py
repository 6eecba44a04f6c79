"""trainers.gradients.stacked.functions against torch's own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.tiers import examples
from trainers.gradients.stacked.functions import join, quick

WINDOWS = [(2, 2), (2, 1), (3, 2), ((1, 3), (2, 1)), ((3, 2), (1, 3))]


def both(ours, theirs, x):
    """Values and gradients, with a gradient that differs from place to place."""
    for function in (ours, theirs):
        leaf = x.clone().requires_grad_()
        values = function(leaf)
        back = torch.linspace(-1, 2, values.numel(), dtype=x.dtype)
        (slope,) = torch.autograd.grad(values, leaf, back.view(values.shape))
        yield values.detach(), slope


class TestMish:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_equals_torch(self, dtype):
        x = torch.cat(
            [
                torch.linspace(-40, 40, 4001, dtype=dtype),
                torch.tensor([-1e4, -1e-30, 0.0, 1e-30, 1e4, 1e30], dtype=dtype),
            ]
        )
        (ours, slope), (theirs, wanted) = both(quick(nn.Mish()), nn.Mish(), x)
        tiny = 8 * torch.finfo(dtype).eps
        # Torch rounds the logarithm where e^x is small: an absolute error.
        torch.testing.assert_close(ours, theirs, rtol=tiny, atol=tiny)
        torch.testing.assert_close(slope, wanted, rtol=tiny, atol=4 * tiny)

    def test_far_below_zero_it_keeps_its_digits(self):
        x = torch.tensor([-30.0, -60.0])
        wanted = x.double() * torch.log1p(x.double().exp()).tanh()
        got = quick(nn.Mish())(x).double()
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0)

    def test_what_is_not_finite_stays_so(self):
        values = quick(nn.Mish())(torch.tensor([float("nan"), float("inf")]))
        assert not values.isfinite().any()


class TestMishBeforeMaxPool:
    @examples(30)
    @given(st.integers(0, 10**6), st.integers(3, 9), st.integers(3, 9))
    @pytest.mark.parametrize("window", WINDOWS, ids=str)
    def test_equals_torch(self, window, seed, high, wide):
        generator = torch.Generator().manual_seed(seed)
        # On both sides of the least value, at -1.19; many ties.
        x = torch.randint(-4, 3, (2, 3, high, wide), generator=generator).double()
        theirs = nn.Sequential(nn.Mish(), nn.MaxPool2d(*window))
        joined = nn.Sequential(*map(quick, theirs))
        join(joined)
        assert type(joined[0]) is nn.Identity
        (ours, slope), (values, wanted) = both(joined, theirs, x)
        torch.testing.assert_close(ours, values, rtol=1e-13, atol=1e-15)
        torch.testing.assert_close(slope, wanted, rtol=1e-13, atol=1e-14)

    def test_nan_is_not_hidden(self):
        joined = nn.Sequential(quick(nn.Mish()), quick(nn.MaxPool2d(2)))
        join(joined)
        assert joined(torch.tensor([[[[0.0, 1.0], [float("nan"), 2.0]]]])).isnan().all()

    def test_only_what_a_sequence_runs_right_after_is_joined(self):
        for layers in (
            [nn.Mish(), nn.Identity(), nn.MaxPool2d(2)],
            [nn.MaxPool2d(2), nn.Mish()],
        ):
            sequence = nn.Sequential(*(quick(one) or one for one in layers))
            before = list(sequence)
            join(sequence)
            assert list(sequence) == before


class TestMaxPool:
    @examples(30)
    @given(st.integers(0, 10**6), st.integers(3, 9), st.integers(3, 9))
    @pytest.mark.parametrize("window", WINDOWS, ids=str)
    def test_equals_torch_bit_for_bit(self, window, seed, high, wide):
        generator = torch.Generator().manual_seed(seed)
        # Small whole numbers: many ties.
        x = torch.randint(-2, 3, (2, 3, high, wide), generator=generator).double()
        theirs = nn.MaxPool2d(*window)
        (ours, slope), (values, wanted) = both(quick(theirs), theirs, x)
        assert torch.equal(ours, values)
        torch.testing.assert_close(slope, wanted, rtol=0, atol=1e-15)

    def test_derivative_is_that_of_the_function(self):
        x = torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(quick(nn.MaxPool2d(3, 1)), (x,))

    @pytest.mark.parametrize(
        "module",
        [
            nn.MaxPool2d(3, padding=1),
            nn.MaxPool2d(2, dilation=2),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.MaxPool2d(2, return_indices=True),
            nn.MaxPool2d(4),
            nn.ReLU(),
            nn.AvgPool2d(2),
        ],
        ids=str,
    )
    def test_others_are_left_to_torch(self, module):
        assert quick(module) is None

    def test_nan_is_not_hidden(self):
        x = torch.zeros(1, 1, 2, 2)
        for place in range(4):
            bad = x.flatten().index_fill(0, torch.tensor(place), float("nan"))
            assert quick(nn.MaxPool2d(2))(bad.view(x.shape)).isnan().all()
