"""The fastest exact way to sum per-sample gradients of a module."""

from __future__ import annotations

from torch import Tensor, nn

from privaudit.settings import Precision, check_precision
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.per_sample import Loss, PerSample
from trainers.gradients.stacked.layer import UnknownLayerError


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
    ``compiled``: on a GPU as one CUDA graph, see `trainers.gradients.graphs`;
    ``precision`` "bf16": see `trainers.gradients.bfloat16`. ``ValueError`` for a module
    whose records have no gradient of their own (batch statistics), and for bf16 or
    graphs where they cannot be had.
    """
    lower = check_precision(precision)
    if any(getattr(one, "alone", False) for one in (module, loss)):
        if lower or compiled:
            raise ValueError(
                f"{'bf16 is' if lower else 'compiled gradients are'} for models and "
                "losses that can be traced, and a record of these takes a process of "
                f"its own: {'use float32' if lower else 'leave compiled out'}"
            )
        return PerSample(module, loss)
    found: BookKeeping | PerSample
    try:
        found = BookKeeping(module, loss, example, target)
    except UnknownLayerError as error:
        if lower:
            raise ValueError(
                f"bf16 is for models that book-keeping knows, and this is none "
                f"({error}); use float32"
            ) from None
        found = PerSample(module, loss, str(error))
    else:
        found.lower = lower
        if not lower and getattr(found.template, "remade", False):
            why = "weights are made of parameters, by book-keeping for each record anew"
            found = PerSample(module, loss, why)
    found.graphs = {} if compiled else None
    return found
