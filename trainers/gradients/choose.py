"""The fastest exact way to sum per-sample gradients of a module."""

from __future__ import annotations

from torch import Tensor, nn

from privaudit.settings import Precision, check_precision
from trainers.gradients.bookkeeping import BookKeeping, UnknownLayerError
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.per_sample import Loss, PerSample


def differentiator(
    module: nn.Module,
    loss: Loss,
    example: Tensor,
    target: Tensor | None = None,
    *,
    compiled: bool = False,
    precision: Precision = "float32",
) -> Differentiator:
    """The fastest exact way to sum per-sample gradients of ``module``.

    ``example`` is one sample's input, ``target`` its target; a class if None.
    ``compiled``: book-keeping under `torch.compile`; ``precision`` "bf16": see
    `trainers.gradients.bfloat16`. ``ValueError`` for a module whose records have no
    gradient of their own (batch statistics), and for bf16 where it cannot be had.
    """
    lower = check_precision(precision, compiled=compiled)
    if any(getattr(one, "alone", False) for one in (module, loss)):
        if lower:
            raise ValueError(
                "bf16 is for models and losses that can be traced, and a record of "
                "these takes a process of its own: use float32"
            )
        return PerSample(module, loss)
    try:
        eager = BookKeeping(module, loss, example, target)
    except UnknownLayerError as error:
        if lower:
            raise ValueError(
                f"bf16 is for models that book-keeping knows, and this is none "
                f"({error}); use float32"
            ) from None
        return PerSample(module, loss, str(error))
    if not lower and getattr(eager.template, "remade", False):
        why = "weights are made of parameters, by book-keeping for each record anew"
        return PerSample(module, loss, why)
    eager.lower = lower
    if not compiled:
        return eager
    if hasattr(module, "constructed"):
        raise ValueError(
            "compiled gradients are for models by name and nn.Sequential of layers "
            "that book-keeping knows by themselves: leave compiled out"
        )
    from trainers.gradients.compiled import (
        Compiled,  # torch's compiler is slow to import
    )

    return Compiled(eager)
