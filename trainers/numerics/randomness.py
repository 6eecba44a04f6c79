"""One random generator for each (seed, node, purpose, block of runs).

Numbers then depend neither on how many blocks of runs are computed together nor on
which process a node lives in.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import Literal

import torch

Purpose = Literal["sampling", "noise", "start", "world", "data", "message", "clock"]

# The torch CPU generator ignores the high half of a 64-bit seed, so two hashed seeds
# may give one stream, that is, the same noise twice. A seed is therefore 32 bits that
# hold block, node and purpose side by side, mixed by a permutation that the user's seed
# keys: injective for every user seed.
_PURPOSES: dict[Purpose, int] = {
    "sampling": 0,
    "noise": 1,
    "start": 2,
    "world": 3,
    "data": 4,
    "message": 5,
    "clock": 6,
}
_PURPOSE_BITS, _NODE_BITS, _BLOCK_BITS = 3, 12, 17
MAX_NODES = 1 << _NODE_BITS
MAX_BLOCKS = 1 << _BLOCK_BITS
_DRAWN = 1 << 14  # numbers of a block, a multiple of 16


def generator_seed(seed: int, *, node: int, purpose: Purpose, block: int) -> int:
    """A seed in [0, 2^32), different for all (node, purpose, block) under one ``seed``.

    Parameters
    ----------
    seed
        The user's, any integer >= 0.
    node
        In [0, 4096).
    purpose
        What the numbers are for.
    block
        In [0, 131072): which block of runs.

    Raises
    ------
    ValueError
        If a number is out of its range.
    """
    if seed < 0:
        raise ValueError(f"a seed must be >= 0, got {seed}")
    if not 0 <= node < MAX_NODES:
        raise ValueError(f"a node's number must be in [0, {MAX_NODES}), got {node}")
    if not 0 <= block < MAX_BLOCKS:
        raise ValueError(
            f"a block's number must be in [0, {MAX_BLOCKS}), got {block}; "
            "larger blocks of runs need fewer of them"
        )
    index = (block << (_NODE_BITS + _PURPOSE_BITS)) | (node << _PURPOSE_BITS)
    return _permute(seed, index | _PURPOSES[purpose])


def _permute(key: int, index: int) -> int:
    """A Feistel network over 32 bits: a bijection whatever its round function is."""
    left, right = index >> 16, index & 0xFFFF
    for turn in range(4):
        digest = hashlib.blake2b(f"{key}/{turn}/{right}".encode(), digest_size=2)
        left, right = right, left ^ int.from_bytes(digest.digest())
    return (left << 16) | right


@dataclasses.dataclass(frozen=True, slots=True)
class Streams:
    """The generators of one block of runs.

    Parameters
    ----------
    seed
        The user's.
    block
        Which block.
    device
        Where the numbers are made. CPU and GPU generators give different numbers.
    """

    seed: int
    block: int = 0
    device: str = "cpu"

    def generator(self, purpose: Purpose, node: int = 0) -> torch.Generator:
        """A fresh generator at the beginning of its stream."""
        number = generator_seed(self.seed, node=node, purpose=purpose, block=self.block)
        return torch.Generator(device=self.device).manual_seed(number)


def standard_normal(
    shape: tuple[int, ...],
    generator: torch.Generator,
    device: torch.device,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Standard normal numbers, drawn in doubles and rounded to ``dtype``.

    Float normals have no tail beyond 5.8 standard deviations. On a CPU many are drawn
    block by block, which are the same numbers: torch takes its stream in sixteens, and
    only the end of a call is another one if its size is no multiple. What stays in the
    cache is drawn a fifth faster, and the doubles are never all there.
    """
    count = math.prod(shape)
    if device.type != "cpu" or count < 2 * _DRAWN:
        draw = torch.empty(shape, dtype=torch.float64, device=device)
        return draw.normal_(generator=generator).to(dtype)
    result = torch.empty(shape, dtype=dtype)
    flat, draw = result.view(-1), torch.empty(2 * _DRAWN, dtype=torch.float64)
    start = 0
    while start < count:
        size = _DRAWN if count - start >= 2 * _DRAWN else count - start
        flat[start : start + size] = draw[:size].normal_(generator=generator)
        start += size
    return result
