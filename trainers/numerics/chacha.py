"""The key stream of ChaCha20 (RFC 8439), on the host and on any device: equal bits.

Words are of 64 bits, eight a block of 512, least significant byte first.
"""

from __future__ import annotations

import functools
import sys

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from torch import Tensor

WORDS = 8  # of a block
MAX_BLOCKS = 1 << 32  # of a key and nonce

_ZEROS = memoryview(bytes(1 << 17))


class Keystream:
    """The words of a key on the host, one after the other from wherever `seek` says.

    Parameters
    ----------
    key
        32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
        self._context: CipherContext = cipher.encryptor()

    def seek(self, nonce: bytes, block: int) -> None:
        """Go to a block, in [0, 2^32), of a nonce, 12 bytes."""
        self._context.reset_nonce(block.to_bytes(4, "little") + nonce)

    def fill(self, words: np.ndarray) -> None:
        """Write the next words, whole blocks, into ``words``, contiguous int64."""
        data = words.view(np.uint8).data
        for start in range(0, len(data), len(_ZEROS)):
            part = data[start : start + len(_ZEROS)]
            self._context.update_into(_ZEROS[: len(part)], part)
        if sys.byteorder == "big":
            words.byteswap(inplace=True)


@functools.lru_cache(maxsize=64)
def table(data: bytes, device: torch.device) -> Tensor:
    """``data`` as int32, least significant byte first: sent to a device only once."""
    host = np.frombuffer(data, "<u4").astype(np.uint32).view(np.int32)
    return torch.from_numpy(host).to(device)


def blocks(keys: Tensor, nonces: Tensor, firsts: Tensor, count: int) -> Tensor:
    """The words of several key streams by torch alone, (streams, 8 count), int64.

    Parameters
    ----------
    keys, nonces, firsts
        int32 of the streams: (streams, 8), (streams, 3), and first blocks (streams, 1).
    count
        Blocks of each.
    """
    device = keys.device
    constants = table(b"expand 32-byte k", device).expand(len(keys), 4)
    state = torch.cat([constants, keys, firsts, nonces], 1)
    start = state.T[:, :, None].repeat(1, 1, count)  # (16, streams, count)
    start[12] += torch.arange(count, device=device).to(torch.int32)  # mod 2^32
    a, b, c, d = (start[row : row + 4].clone() for row in range(0, 16, 4))
    for _ in range(10):
        for turn in (1, -1):  # columns, then diagonals
            for left, right in ((16, 12), (8, 7)):
                a += b
                d = _rotated(d ^ a, left)
                c += d
                b = _rotated(b ^ c, right)
            b, c, d = b.roll(-turn, 0), c.roll(2, 0), d.roll(turn, 0)
    mixed = torch.cat([a, b, c, d]).add_(start)
    return mixed.permute(1, 2, 0).contiguous().flatten(1).view(torch.int64)


def _rotated(x: Tensor, bits: int) -> Tensor:
    """Each 32-bit number of ``x`` rotated to the left; ``x`` is overwritten."""
    low = (x >> (32 - bits)).bitwise_and_((1 << bits) - 1)  # >> repeats the sign
    return x.bitwise_left_shift_(bits).bitwise_or_(low)
