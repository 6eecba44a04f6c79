"""Frames between parties: a header that is checked before its content is used.

A frame is a header of `HEADER.size` bytes and its content:

    4 bytes      "PVA1"
    1 byte       kind: 1 message, 2 public words (JSON), 3 alive, 4 end, 5 kept, 6 bye
    1 byte       dtype: 0 none, 1 float32, 2 float64, 3 int64, 4 bytes
    1 byte       number of dimensions
    1 byte       0
    8 bytes      round; of an end, who is the cause and why
    32 bytes     name of the message or the topic
    4 x 8 bytes  shape
    8 bytes      length of the content in bytes

Numbers are little-endian. Nothing of a frame is used before its header was checked, and
nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
import math
import struct

import torch
from torch import Tensor

_MAGIC = b"PVA1"
HEADER = struct.Struct("<4sBBBBQ32s4QQ")
MESSAGE, WORDS, ALIVE, END, KEPT, BYE = range(1, 7)
_CODES = {torch.float32: 1, torch.float64: 2, torch.int64: 3, torch.uint8: 4}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """What stands before a frame's content."""

    kind: int
    round: int = 0
    name: str = ""
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    length: int = 0

    @classmethod
    def of(cls, tensor: Tensor, k: int, name: str) -> Header:
        """Of the message ``name`` in round ``k``; ``ValueError`` if it cannot be."""
        if tensor.dtype not in _CODES or tensor.dim() > 4:
            raise ValueError(
                "parties send messages of float32, float64 or int64, (runs, nodes, "
                f"...) with four dimensions at most: {name} is {tensor.dtype}, "
                f"{tuple(tensor.shape)}"
            )
        size = tensor.numel() * tensor.element_size()
        return cls(MESSAGE, k, name[:32], tensor.dtype, tuple(tensor.shape), size)

    def pack(self) -> bytes:
        """As bytes."""
        shape = (*self.shape, *(0,) * (4 - len(self.shape)))
        code = 0 if self.dtype is None else _CODES[self.dtype]
        name = self.name.encode()[:32]
        return HEADER.pack(
            *(_MAGIC, self.kind, code, len(self.shape), 0, self.round, name),
            *(*shape, self.length),
        )

    @classmethod
    def unpack(cls, content: bytes | bytearray) -> Header:
        """What `pack` wrote. ``ValueError`` for anything else."""
        magic, kind, code, dims, zero, k, name, *rest = HEADER.unpack(content)
        *shape, length = rest
        if magic != _MAGIC or zero or not MESSAGE <= kind <= BYE or dims > 4:
            raise ValueError("what is no frame of this program's")
        if code and code not in _DTYPES:
            raise ValueError("a message of unknown dtype")
        if any(shape[dims:]):
            raise ValueError("a shape that contradicts itself")
        dtype = _DTYPES.get(code)
        size = 0 if dtype is None else dtype.itemsize * math.prod(shape[:dims])
        if length != size:
            raise ValueError(
                f"a frame of {length} bytes with a dtype and a shape of {size}"
            )
        try:
            text = name.rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise ValueError("a name that is no text") from None
        if not text.isprintable():
            raise ValueError("a name that is no text")
        return cls(kind, k, text, dtype, tuple(shape[:dims]), length)

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return f"{self.name} of round {self.round}, {kind} {self.shape}"


def words(topic: str, text: bytes) -> bytes:
    """What stands before public words."""
    size = len(text)
    return Header(WORDS, 0, topic, torch.uint8, (size,), size).pack()
