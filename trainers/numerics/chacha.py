"""The key stream of ChaCha20 (RFC 8439), on the host and on any device: equal bits.

Words are of 64 bits, eight a block of 512, least significant byte first. On a GPU they
are made by Triton's kernels where that is installed (`trainers.numerics.fused`), and
else by torch. The operators ``privaudit`` are these kernels: they have shapes on the
meta device, which takes the way of a GPU.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from torch import Tensor

from trainers.numerics.device import sent

WORDS = 8  # of a block
MAX_BLOCKS = 1 << 32  # of a key and nonce
DOUBLE_ROUNDS = 10  # columns, then diagonals
TURNS = (16, 12, 8, 7)  # bits that a quarter round rotates by

_ZEROS = memoryview(bytes(1 << 17))


class Keystream:
    """The words of a key of 32 bytes on the host, in turn from wherever `seek` says."""

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
    return sent(torch.from_numpy(host), device)


def state(key: bytes, nonce: bytes, block: int) -> bytes:
    """The cipher's state at a block: 64 bytes."""
    return b"expand 32-byte k" + key + block.to_bytes(4, "little") + nonce


def blocks(states: Tensor, ends: Sequence[int], count: int) -> Tensor:
    """The words of several key streams on their device, (streams, 8 count), int64.

    ``states``: `state` of each stream, (streams, 16) int32. Their last eight bytes are
    zeros. ``ends``: two numbers of 32 bits, what stands there for all streams.
    ``count``: blocks of each.
    """
    if not kernels(states.device, "stream", _some_words):
        return _blocks(states, ends, count)
    found = states.new_empty((len(states), WORDS * count), dtype=torch.int64)
    operators.stream(found, states, [*ends, len(states) * count, count])
    return found


def _blocks(states: Tensor, ends: Sequence[int], count: int) -> Tensor:
    start = states.T[:, :, None].repeat(1, 1, count)  # (16, streams, count)
    start[12] += torch.arange(count, device=states.device).to(torch.int32)  # mod 2^32
    for row, end in zip((14, 15), ends, strict=True):  # no number is sent
        start[row].fill_(end - (end >> 31 << 32))
    a, b, c, d = (start[row : row + 4].clone() for row in range(0, 16, 4))
    for _ in range(DOUBLE_ROUNDS):
        for turn in (1, -1):  # columns, then diagonals
            for left, right in (TURNS[:2], TURNS[2:]):
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


_library = torch.library.Library("privaudit", "DEF")
for _each in (
    "stream(Tensor(a!) found, Tensor states, int[] plain) -> ()",
    "noise(Tensor values, Tensor(a!) found, Tensor(b!) doubts, Tensor states, "
    "int[] plain, bool normal) -> ()",
):
    _library.define(_each)
    _library.impl(_each.partition("(")[0], lambda *given: None, "Meta")
operators = torch.ops.privaudit


def _some_words(device: torch.device) -> bool:
    """Return whether the kernel's words are torch's."""
    given = table(state(bytes(range(32)), bytes(12), 2**32 - 20), device).view(1, 16)
    ends = (2**32 - 3, 5)
    return torch.equal(blocks(given, ends, 150), _blocks(given, ends, 150))


_tried: dict[tuple[object, ...], bool] = {}


def kernels(
    device: torch.device, what: object, right: Callable[[torch.device], bool]
) -> bool:
    """Return whether Triton's kernels are used there, and right in ``what``."""
    if device.type == "meta":
        return True
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    if (device, what) not in _tried:
        _tried[device, what] = True
        try:
            importlib.import_module("trainers.numerics.fused")
            reason = "" if right(device) else "they make other numbers than torch"
        except Exception as error:  # whatever a compiler fails with
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if reason:
            _tried[device, what] = False
            warnings.warn(
                f"Triton's kernels do not work on this machine ({reason}): noise is "
                "drawn by torch, slower, the same numbers",
                RuntimeWarning,
                stacklevel=2,
            )
    return _tried[device, what]
