"""Functions between layers, faster on the CPU than torch's own.

Both give what torch gives, to a rounding, and its gradients; on other devices they are
torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# Beyond it mish(x) = x in double precision, and the square of its exponential is still
# far from overflow in single.
_LINEAR = 20.0
_MANY = 16  # window sizes from which torch's loop is the faster one


class _Mish(torch.autograd.Function):
    """x tanh(softplus(x)) and its derivative, by one exponential.

    With e = exp(x) and n = e (e + 2): tanh(log(1 + e)) = n / (n + 2), whose derivative
    is 4 e (e + 1) / (n + 2)^2, without cancellation anywhere.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        bounded = x.clamp(max=_LINEAR)
        e = bounded.exp()
        n = torch.addcmul(e, e, e).add_(e)
        inverse = (n + 2).reciprocal_()
        tanh = n.mul_(inverse)
        if ctx.needs_input_grad[0]:
            slope = torch.addcmul(e, e, e).mul_(inverse).mul_(inverse).mul_(4)
            ctx.save_for_backward(torch.addcmul(tanh, slope, bounded))
        return tanh * x

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

    Each view plays against the winner so far; who won is kept as 0 or 1. The earlier
    one wins a tie, as in torch.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: tuple[int, int], stride: tuple[int, int]
    ) -> Tensor:
        first, *others = _windows(x, kernel, stride)
        best = first.contiguous()
        stays = []
        for other in others:
            challenger = other.contiguous()
            stays.append(best.clone().ge_(challenger))
            best = torch.maximum(best, challenger)
        ctx.save_for_backward(*stays)
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
        first, *others = _windows(result, ctx.kernel, ctx.stride)
        for other, stays in zip(
            reversed(others), reversed(ctx.saved_tensors), strict=True
        ):
            kept = back * stays
            if apart:
                torch.sub(back, kept, out=other)
            else:
                other += back - kept
            back = kept
        if apart:
            first.copy_(back)
        else:
            first += back
        return result, None, None


class QuickMaxPool(nn.Module):
    """`torch.nn.MaxPool2d` without padding, dilation and indices.

    While it is ``traced`` it is torch's own, of which a compiler makes the faster code.
    """

    def __init__(self, kernel: tuple[int, int], stride: tuple[int, int]) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.traced = False

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu" and not self.traced:
            return _MaxPool.apply(x, self.kernel, self.stride)
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


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])
