"""Keys, and streams of words at addresses: no two addresses share a word.

A word stands at (purpose, node, release, run, position), in a row of ``width`` words
for each run. Of a key and run id, the cipher takes

    subkey   BLAKE2b(key; run id, purpose, width, the sum's fingerprint if it has one;
             level 1, 2, ... for further bits of the same words)
    nonce    node (32 bits), release (64 bits)
    block    run * ceil(width / 8) + position // 8; in it, word position % 8

From nonce, block and word follow node, release, run and position, since 0 <= position
< width: within a subkey the layout is injective. The subkey's input has fields of fixed
length, so that different ones are different inputs of a keyed hash (a collision has a
chance below 2^-128). Where a word stands depends neither on how many others are asked
for, nor in which order, nor on process or device.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import operator
import os
import pathlib
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Literal, NoReturn

import numpy as np
import torch
from torch import Tensor

from trainers.numerics.chacha import MAX_BLOCKS, WORDS, Keystream, blocks, state, table

# "own" is drawn for one user by itself, "transform" for one record.
Purpose = Literal["sampling", "noise", "message", "world", "own", "transform", "secret"]
PURPOSES: dict[Purpose, int] = {
    "sampling": 0,
    "noise": 1,
    "message": 2,
    "world": 3,
    "own": 4,
    "transform": 5,
    "secret": 6,
}
MAX_NODES, MAX_RELEASES = 1 << 32, 1 << 64

PIECE = 1 << 17  # words that are worked on at once on a CPU: few calls, near its cache


class Key:
    """Secret source of noise and sampling: 256 bits, and a run's 16 public bytes.

    Made by `secret`, `study` (of a seed) or `load`; never printed, pickled or copied.
    """

    __slots__ = ("__secret", "run", "seed")

    def __init__(
        self, secret: bytes, run: bytes, seed: int | str | None = None
    ) -> None:
        if len(secret) != 32 or len(run) != 16:
            raise ValueError(
                "a key has 32 bytes and a run's id 16, got "
                f"{len(secret)} and {len(run)}"
            )
        self.__secret, self.run, self.seed = bytes(secret), bytes(run), seed

    @classmethod
    def secret(cls) -> Key:
        """A key that nobody knows, from the operating system, and a fresh run id."""
        return cls(os.urandom(32), os.urandom(16))

    @classmethod
    def study(cls, seed: int | str) -> Key:
        """The key of a study: whoever knows ``seed`` knows all its numbers."""
        text = "s" + seed if isinstance(seed, str) else f"i{operator.index(seed)}"
        made = hashlib.blake2b(
            text.encode(), digest_size=48, person=b"privaudit study"
        ).digest()
        return cls(made[:32], made[32:], seed)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Key:
        """The key that `save` wrote."""
        data = pathlib.Path(path).read_bytes()
        if len(data) != 48:
            raise ValueError(f"{path} holds no key: it has {len(data)} bytes, not 48")
        return cls(data[:32], data[32:])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a secret key to a new file that only its owner can read."""
        if self.seed is not None:
            raise ValueError("the key of a study is not kept: its seed is enough")
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(file, "wb") as out:
                out.write(self.__secret + self.run)
        except OSError:
            os.unlink(path)
            raise

    def __repr__(self) -> str:
        return "Key(secret)" if self.seed is None else f"Key(study, seed {self.seed})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a key is neither pickled nor copied: it must stay where it is")

    def derive(self, use: bytes, data: bytes) -> bytes:
        """64 bytes that only who has the key can tell from random ones."""
        made = hashlib.blake2b(data, key=self.__secret, person=use, salt=b"privaudit")
        return made.digest()

    def fingerprints(
        self, sums: Tensor, *numbers: float
    ) -> tuple[tuple[bytes, ...], ...]:
        """A keyed hash of each row's integers and ``numbers``; (runs, nodes, dims)."""
        if sums.dtype != torch.int64:
            raise ValueError(f"sums must be int64, on a grid, got {sums.dtype}")
        key = self.derive(
            b"sums", self.run + struct.pack(f"<{len(numbers)}d", *numbers)
        )
        return tuple(
            tuple(hashlib.blake2b(row, key=key, digest_size=32).digest() for row in run)
            for run in np.ascontiguousarray(sums.cpu().numpy(), "<i8")
        )

    def rows(
        self,
        purpose: Purpose,  # what the words are for
        *,
        nodes: Sequence[int],  # their numbers in the whole network, in [0, 2^32)
        release: int,  # how often the nodes drew for this purpose before, in [0, 2^64)
        width: int,  # words in a row
        # numbers of the independent runs: consecutive, from the first of a block on
        runs: range = range(1),
        # of the sums that noise is for, [run][node]: other sums get other streams
        fingerprints: Sequence[Sequence[bytes]] | None = None,
    ) -> Rows:
        """Streams of ``width`` words for each of ``runs`` and ``nodes``."""
        return Rows(
            self, purpose, tuple(nodes), release, width, runs,
            None if fingerprints is None else tuple(map(tuple, fingerprints)),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Rows:
    """Streams of words at addresses; see `Key.rows`."""

    key: Key
    purpose: Purpose
    nodes: tuple[int, ...]
    release: int
    width: int
    runs: range
    fingerprints: tuple[tuple[bytes, ...], ...] | None = None
    level: int = 0
    # first position, a multiple of 8, and width of the rows that these are a part of
    part: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        _check_in("purpose", self.purpose, tuple(PURPOSES))
        for node in self.nodes:
            _check_in("a node's number", node, range(MAX_NODES))
        if len(set(self.nodes)) < len(self.nodes) or not self.nodes:
            raise ValueError(
                f"nodes must be different, at least one, got {self.nodes}: noise is "
                "never used twice"
            )
        _check_in("a release's number", self.release, range(MAX_RELEASES))
        _check_in("width", self.width, range(1, 1 + WORDS * MAX_BLOCKS))
        if self.runs.step != 1 or self.runs.start < 0 or not self.runs:
            raise ValueError(
                f"runs must be consecutive numbers, at least one, got {self.runs}"
            )
        if self.part is not None and (
            self._first % WORDS
            or not 0 <= self._first <= self._whole - self.width
            or len(self.runs) > 1
        ):
            raise ValueError(
                f"{self.width} words of one run must begin at a multiple of {WORDS} "
                f"and lie within its row, got {self.part}"
            )
        if self.runs.stop * self._padded(self._whole) > WORDS * MAX_BLOCKS:
            raise ValueError(
                f"{self.runs.stop} runs of {self._whole} words are more than the "
                f"{WORDS * MAX_BLOCKS} that one release can have; start runs under "
                "another key"
            )
        marks = self.fingerprints
        if marks is not None and (
            len(marks) != len(self.runs)
            or any(len(one) != len(self.nodes) for one in marks)
            or any(len(mark) != 32 for one in marks for mark in one)
        ):
            raise ValueError(
                "there must be a fingerprint of 32 bytes for each of "
                f"{len(self.runs)} runs and {len(self.nodes)} nodes"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(runs, nodes, width)."""
        return len(self.runs), len(self.nodes), self.width

    @functools.cached_property
    def padded(self) -> int:
        """Words that a row takes: whole blocks."""
        return self._padded(self.width)

    @staticmethod
    def _padded(width: int) -> int:
        return WORDS * -(-width // WORDS)

    @property
    def _first(self) -> int:
        return self.part[0] if self.part else 0

    @property
    def _whole(self) -> int:
        return self.part[1] if self.part else self.width

    def _derive(self, use: bytes, mark: bytes) -> bytes:
        data = struct.pack(
            "<16sBQ?32s",
            self.key.run, PURPOSES[self.purpose], self._whole, bool(mark), mark,
        )  # fmt: skip
        return self.key.derive(use, data)

    @functools.cached_property
    def _plain(self) -> bytes:
        """The subkey of all streams without a fingerprint."""
        return self._derive(self._use, b"")[:32]

    @property
    def _use(self) -> bytes:
        return b"stream%d" % self.level if self.level else b"stream"

    def _mark(self, row: int, column: int) -> bytes:
        return b"" if self.fingerprints is None else self.fingerprints[row][column]

    def _stream(self, row: int, column: int) -> tuple[bytes, bytes, int]:
        """Subkey, nonce and first block of a row."""
        mark = self._mark(row, column)
        subkey = self._derive(self._use, mark)[:32] if mark else self._plain
        nonce = struct.pack("<IQ", self.nodes[column], self.release)
        block = self.runs[row] * self._padded(self._whole) + self._first
        return subkey, nonce, block // WORDS

    @property
    def alike(self) -> int:
        """Consecutive rows of a node that are one stream."""
        return len(self.runs) if self.fingerprints is None else 1

    def states(self, device: torch.device) -> tuple[Tensor, tuple[int, int]]:
        """The cipher's states of all streams, (streams, 16), but for the ends."""
        runs, nodes, _ = self.shape
        data = b""
        for column, row in itertools.product(range(nodes), range(0, runs, self.alike)):
            subkey, nonce, block = self._stream(row, column)
            data += state(subkey, nonce[:4] + bytes(8), block)
        ends = self.release & (1 << 32) - 1, self.release >> 32
        return table(data, device).view(-1, 16), ends

    def pieces(self, device: torch.device) -> Iterator[Piece]:
        """All words, piece by piece. On a CPU each is overwritten by the next."""
        runs, nodes, width = self.shape
        if device.type != "cpu":
            states, ends = self.states(device)
            words = blocks(states, ends, self.alike * self.padded // WORDS)
            yield Piece(self, words.flatten(), range(nodes), range(runs), range(width))
            return
        columns, rows, length = self._layout
        with scratch(self.largest(device), (torch.int64,), device) as (memory,):
            key, stream = b"", None
            for column, row, start in itertools.product(
                range(0, nodes, columns), range(0, runs, rows), range(0, width, length)
            ):
                held = range(column, min(column + columns, nodes))
                taken = range(row, min(row + rows, runs))
                places = range(start, min(start + length, width))
                each = WORDS * -(-len(places) // WORDS)
                words = memory[: len(held) * len(taken) * each]
                at_once = min(len(taken), self.alike)
                parts = words.numpy().reshape(-1, at_once * each)
                streams = itertools.product(held, taken[::at_once])
                for part, (own, first) in zip(parts, streams, strict=True):
                    subkey, nonce, block = self._stream(first, own)
                    if stream is None or subkey != key:
                        key, stream = subkey, Keystream(subkey)
                    stream.seek(nonce, block + start // WORDS)
                    stream.fill(part)
                yield Piece(self, words, held, taken, places)

    @functools.cached_property
    def _layout(self) -> tuple[int, int, int]:
        """Number of nodes, runs and positions a CPU's piece has at most."""
        runs, nodes, _ = self.shape
        columns = min(nodes, max(1, PIECE // (runs * self.padded)))
        rows = -(-runs // -(-runs * self.padded // PIECE))  # pieces of about one size
        return columns, rows, min(self.padded, PIECE)

    def largest(self, device: torch.device) -> int:
        """Words of the largest piece."""
        if device.type == "cpu":
            return math.prod(self._layout)
        return len(self.runs) * len(self.nodes) * self.padded

    def words(self, device: torch.device) -> Tensor:
        """All words, (runs, nodes, width), int64."""
        found = torch.empty(self.shape, dtype=torch.int64, device=device)
        for piece in self.pieces(device):
            found[piece.where] = piece.arranged(piece.words)
        return found

    def further(self) -> Rows:
        """The 64 bits after each word: rows of their own."""
        return dataclasses.replace(self, level=self.level + 1)

    def places(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and position of words counted through (nodes, runs, padded)."""
        rest, runs = numbers // self.padded, len(self.runs)
        return rest % runs, rest // runs, numbers % self.padded

    def more(self, row: int, column: int, position: int, level: int) -> int:
        """512 further bits for a word, at each ``level``, by the keyed hash itself."""
        node, run = self.nodes[column], self.runs[row]
        position += self._first
        place = struct.pack("<IQQQQ", node, self.release, run, position, level)
        subkey = self._derive(b"more", self._mark(row, column))
        return int.from_bytes(hashlib.blake2b(place, key=subkey).digest())


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Some of the words of `Rows`, flat: (nodes, runs, positions padded to blocks)."""

    of: Rows
    words: Tensor
    columns: range
    rows: range
    positions: range

    @property
    def where(self) -> tuple[slice, slice, slice]:
        """Slices of (runs, nodes, width) at which they stand."""
        rows, columns, positions = (
            slice(one.start, one.stop)
            for one in (self.rows, self.columns, self.positions)
        )
        return rows, columns, positions

    def shaped(self, values: Tensor) -> Tensor:
        """Result of ``words``, (nodes, runs, padded), in their shape."""
        return values.view(len(self.columns), len(self.rows), -1)

    def arranged(self, values: Tensor) -> Tensor:
        """Result of ``words``, as it stands there; padding is left out."""
        return self.shaped(values)[..., : len(self.positions)].transpose(0, 1)

    def padding(self, values: Tensor) -> Tensor:
        """Result of words that belong to no position."""
        return self.shaped(values)[..., len(self.positions) :]

    @property
    def first(self) -> int:
        """Its first word's number: a piece is a contiguous part of all words."""
        row = self.columns.start * len(self.of.runs) + self.rows.start
        return row * self.of.padded + self.positions.start


_idle = threading.local()


@contextlib.contextmanager
def scratch(
    size: int, kinds: tuple[torch.dtype, ...], device: torch.device
) -> Iterator[list[Tensor]]:
    """Tensors of ``size`` numbers to write to: on a CPU the same again and again."""
    idle = _idle.__dict__.setdefault("tensors", {}).setdefault(kinds, [])
    cpu = device.type == "cpu"
    held = idle.pop() if cpu and idle else []
    if not held or len(held[0]) < size:
        held = [torch.empty(size, dtype=kind, device=device) for kind in kinds]
    try:
        yield [one[:size] for one in held]
    finally:
        if cpu and size <= 2 * PIECE:
            idle.append(held)


def _check_in(name: str, value: object, allowed: range | tuple[str, ...]) -> None:
    if value not in allowed or isinstance(value, float | bool):
        text = (
            f"in [{allowed.start}, {allowed.stop})"
            if isinstance(allowed, range)
            else f"one of {', '.join(allowed)}"
        )
        raise ValueError(f"{name} must be {text}, got {value!r}")
