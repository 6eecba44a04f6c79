"""Functions between layers, on the CPU faster than torch's own, equal to a rounding."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.utils import _pair

# Beyond it mish(x) = x in double precision, and the square of its exponential is still
# far from overflow in single.
_LINEAR = 20.0
_MANY = 16  # window sizes from which torch's loop is the faster one


def _mish(x: Tensor) -> tuple[Tensor, Tensor]:
    """x tanh(softplus(x)) and its derivative, by one exponential.

    With e = exp(x) and n = e (e + 2): tanh(log(1 + e)) = n / (n + 2), whose derivative
    is 4 e (e + 1) / (n + 2)^2, without cancellation anywhere.
    """
    bounded = x.clamp(max=_LINEAR)
    e = bounded.exp()
    n = torch.addcmul(e, e, e).add_(e)
    inverse = (n + 2).reciprocal_()
    tanh = n.mul_(inverse)
    slope = torch.addcmul(e, e, e).mul_(inverse).mul_(inverse).mul_(4)
    return tanh * x, torch.addcmul(tanh, slope, bounded)


class _Mish(torch.autograd.Function):
    """`_mish`, as autograd has it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        value, slope = _mish(x)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> Tensor:  # pyrefly: ignore[bad-override]
        (slope,) = ctx.saved_tensors
        return back * slope


class QuickMish(nn.Module):
    """`torch.nn.Mish`: seven times as fast with its backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return _Mish.apply(x) if x.device.type == "cpu" else functional.mish(x)


class _MaxPool(torch.autograd.Function):
    """The maximum of strided views, one a place of the window, in the window's order.

    The first of equal ones gets the gradient, as in torch. With ``mish``, of that of
    each: it falls, then rises, so that it is largest where its argument is the largest
    or the least, and is taken at these two alone.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        mish: bool,
    ) -> Tensor:
        parts = [each.contiguous() for each in _windows(x, kernel, stride)]
        best = at = functools.reduce(torch.maximum, parts)
        slope = ()
        if mish:
            low = functools.reduce(torch.minimum, parts)
            (best, rising), (other, falling) = _mish(at), _mish(low)
            # 0 or 1, between which this is either: a third of the time of `where`.
            falls = torch.gt(other, best, out=torch.empty_like(best))
            best, at = torch.maximum(best, other), torch.lerp(at, low, falls)
            slope = (torch.lerp(rising, falling, falls),)
        ctx.save_for_backward(at, *parts, *slope)
        ctx.shape, ctx.kernel, ctx.stride = x.shape, kernel, stride
        return best

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> Any:  # pyrefly: ignore[bad-override]
        # Windows side by side are written to once, those that overlap are added to.
        apart = ctx.kernel == ctx.stride
        covers = apart and all(
            size % each == 0
            for size, each in zip(ctx.shape[-2:], ctx.kernel, strict=True)
        )
        result = (back.new_empty if covers else back.new_zeros)(ctx.shape)
        windows = _windows(result, ctx.kernel, ctx.stride)
        at, *parts = ctx.saved_tensors
        left = back * parts.pop() if len(parts) > len(windows) else back
        for window, part in zip(windows[:-1], parts, strict=False):
            kept = torch.ne(part, at, out=torch.empty_like(at)).mul_(left)
            if apart:
                torch.sub(left, kept, out=window)
            else:
                window += left - kept
            left = kept
        if apart:
            windows[-1].copy_(left)
        else:
            windows[-1] += left
        return result, None, None, None


class QuickMaxPool(nn.Module):
    """`torch.nn.MaxPool2d` without padding and dilation."""

    def __init__(self, kernel: tuple[int, int], stride: tuple[int, int]) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.mish = False

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu":
            return _MaxPool.apply(x, self.kernel, self.stride, self.mish)
        x = functional.mish(x) if self.mish else x
        return functional.max_pool2d(x, self.kernel, self.stride)


def _windows(
    x: Tensor, kernel: tuple[int, int], stride: tuple[int, int]
) -> list[Tensor]:
    """For each place in a window, what all windows have there: views of ``x``."""
    (tall, wide), (down, right) = kernel, stride
    high = (x.shape[-2] - tall) // down * down + 1
    long = (x.shape[-1] - wide) // right * right + 1
    return [
        x[..., row : row + high : down, column : column + long : right]
        for row in range(tall)
        for column in range(wide)
    ]


def quick(module: nn.Module) -> nn.Module | None:
    """The quick form of a module without parameters, None if it has none."""
    if type(module) is nn.Mish:
        return QuickMish()
    if type(module) is not nn.MaxPool2d:
        return None
    kernel, stride = _pair(module.kernel_size), _pair(module.stride)
    plain = _pair(module.padding) == (0, 0) and _pair(module.dilation) == (1, 1)
    if not plain or module.ceil_mode or module.return_indices:
        return None
    return QuickMaxPool(kernel, stride) if kernel[0] * kernel[1] < _MANY else None


def join(template: nn.Module) -> None:
    """Leave a Mish right before a pooling to the pooling, in place."""
    for inner in template.modules():
        if type(inner) is not nn.Sequential:
            continue
        for (name, one), (_, other) in itertools.pairwise(list(inner._modules.items())):
            if isinstance(one, QuickMish) and isinstance(other, QuickMaxPool):
                other.mish = True
                inner.set_submodule(name, nn.Identity())
