"""Gradients in bfloat16, clipped and summed in double precision.

What must hold is that each record adds at most C to the sum, and that what it adds
depends on no other record. *Which* vector stands for a record's gradient is free: a
coarser one costs accuracy, never privacy. So:

1. Forward and backward pass run under torch's autocast. They give activations a and
   output gradients b, many of which are bfloat16 numbers. A sample's go in and come out
   row by row; nothing of another sample enters.
2. Those very numbers become single precision, which is exact: a bfloat16 number is a
   float32 number. From here on a record's gradient g *is* the one of a and b, in each
   layer sum_t b_t a_t'.
3. Norm and weighted sum are both made from these a and b, or from a vector that is
   written out of them once, outside of autocast, as without bf16: what rounding does
   there is shown and paid for in ``sums.md``.
4. Noise is added on a grid, as always.

Two ways to lose this. Norms from one rounding and sums from another: a weight that is
right to float32 for g is wrong by up to 2^-8 for what g was rounded to; a compiler that
fuses does so, keeping what it has in registers for the norm and rounding what it
stores. And products of float32 numbers that the library computes from rounded ones
(TF32 on GPUs, which is cuDNN's default; bfloat16 where
`torch.set_float32_matmul_precision` allows): see `exact_products`, which holds without
bf16 as well.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor


def lowered(device: torch.device, lower: bool) -> contextlib.AbstractContextManager:
    """A context in which products are taken in bfloat16, if ``lower``."""
    if not lower:
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def raised(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The same numbers as ``dtype``, where they are fractions; indices as they are."""
    return [
        tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors
    ]


def exact_products() -> None:
    """Have float32 numbers' products taken in float32, in all the process, for good.

    And cuDNN add up in a fixed order: else no shape has bits that are a record's own.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    convolutions = getattr(torch.backends.mkldnn, "conv", None)
    if convolutions is not None:  # since torch 2.9
        convolutions.fp32_precision = "ieee"
