"""The generator of version 0.1.0, as a bug: whatever the seed, a stream of 32 bits.

An exhaustive search finds it (SECURITY.md, advisory 1). Nothing else may use it.
"""

import hashlib

import torch

BITS = 32


def generator_seed(seed, node, *, bits=BITS):
    """What a node's noise came from, in 2^bits: 2^32 of them in 0.1.0."""
    index = node << 3 | 1  # block 0, the purpose "noise"
    left, right = index >> 16, index & 0xFFFF
    for turn in range(4):
        digest = hashlib.blake2b(f"{seed}/{turn}/{right}".encode(), digest_size=2)
        left, right = right, left ^ int.from_bytes(digest.digest())
    return (left << 16 | right) % (1 << bits)


def generator(seed, node, *, bits=BITS):
    """The generator of a node's noise, at its beginning."""
    return torch.Generator().manual_seed(generator_seed(seed, node, bits=bits))


def standard_normal(shape, generator):
    """Noise as 0.1.0 drew it, in doubles."""
    return torch.empty(shape, dtype=torch.float64).normal_(generator=generator)
