"""Noise's first pass as one kernel that Triton compiles: from keys to noisy sums.

The arithmetic of `trainers.numerics.loops` without fused products: equal bits. What is
in doubt is written down for the host (noise.md).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainers.numerics import quantiles
from trainers.numerics.chacha import DOUBLE_ROUNDS, TURNS

_ROUNDS = tl.constexpr(DOUBLE_ROUNDS)
_FIRST, _SECOND, _THIRD, _FOURTH = map(tl.constexpr, TURNS)
_OVER, _UNDER = tl.constexpr(quantiles.OVER), tl.constexpr(quantiles.UNDER)
_DEGREE = tl.constexpr(len(quantiles.OVER))
_LOG, _TERMS = tl.constexpr(quantiles.LOG), tl.constexpr(len(quantiles.LOG))
_LN2, _MOST = tl.constexpr(quantiles.LN2), tl.constexpr(quantiles.MOST)
_UNDER_ROOT_HALF = tl.constexpr(quantiles.UNDER_ROOT_HALF)
_WHOLE = tl.constexpr(2.0**52)  # from which on doubles are whole
_UNIT = tl.constexpr(2.0**-64)
_SIGN = tl.constexpr(-(1 << 63))
_LANES = 128  # blocks of the cipher a program, one a thread
_REGISTERS = 96  # of a thread: five programs fit a multiprocessor, not three


@triton.jit
def _rotated(x, BITS: tl.constexpr):
    return (x << BITS) | (x >> (32 - BITS))


@triton.jit
def _quarter(a, b, c, d):
    a += b
    d = _rotated(d ^ a, _FIRST)
    c += d
    b = _rotated(b ^ c, _SECOND)
    a += b
    d = _rotated(d ^ a, _THIRD)
    c += d
    b = _rotated(b ^ c, _FOURTH)
    return a, b, c, d


@triton.jit
def _start(states, stream, inside, WORD: tl.constexpr):
    word = tl.load(states + 16 * stream + WORD, mask=inside, other=0)
    return word.to(tl.uint32, bitcast=True)


@triton.jit
def _word(low, high):
    return low.to(tl.int64) | (high.to(tl.int64) << 32)


@triton.jit
def _words(states, stream, block, low, high, inside):
    """The eight words of a block in each lane, (lanes, 8) int64."""
    s0 = _start(states, stream, inside, 0)
    s1 = _start(states, stream, inside, 1)
    s2 = _start(states, stream, inside, 2)
    s3 = _start(states, stream, inside, 3)
    s4 = _start(states, stream, inside, 4)
    s5 = _start(states, stream, inside, 5)
    s6 = _start(states, stream, inside, 6)
    s7 = _start(states, stream, inside, 7)
    s8 = _start(states, stream, inside, 8)
    s9 = _start(states, stream, inside, 9)
    s10 = _start(states, stream, inside, 10)
    s11 = _start(states, stream, inside, 11)
    s12 = _start(states, stream, inside, 12) + block.to(tl.uint32)
    s13 = _start(states, stream, inside, 13)
    s14 = _start(states, stream, inside, 14) + low.to(tl.uint32)
    s15 = _start(states, stream, inside, 15) + high.to(tl.uint32)
    a0, a1, a2, a3 = s0, s1, s2, s3
    b0, b1, b2, b3 = s4, s5, s6, s7
    c0, c1, c2, c3 = s8, s9, s10, s11
    d0, d1, d2, d3 = s12, s13, s14, s15
    for _ in range(_ROUNDS):
        a0, b0, c0, d0 = _quarter(a0, b0, c0, d0)
        a1, b1, c1, d1 = _quarter(a1, b1, c1, d1)
        a2, b2, c2, d2 = _quarter(a2, b2, c2, d2)
        a3, b3, c3, d3 = _quarter(a3, b3, c3, d3)
        a0, b1, c2, d3 = _quarter(a0, b1, c2, d3)
        a1, b2, c3, d0 = _quarter(a1, b2, c3, d0)
        a2, b3, c0, d1 = _quarter(a2, b3, c0, d1)
        a3, b0, c1, d2 = _quarter(a3, b0, c1, d2)
    w0, w1 = _word(a0 + s0, a1 + s1), _word(a2 + s2, a3 + s3)
    w2, w3 = _word(b0 + s4, b1 + s5), _word(b2 + s6, b3 + s7)
    w4, w5 = _word(c0 + s8, c1 + s9), _word(c2 + s10, c3 + s11)
    w6, w7 = _word(d0 + s12, d1 + s13), _word(d2 + s14, d3 + s15)
    even = tl.join(tl.join(w0, w4), tl.join(w2, w6))
    odd = tl.join(tl.join(w1, w5), tl.join(w3, w7))
    return tl.reshape(tl.join(even, odd), [w0.shape[0], 8])


@triton.jit
def _with_sign_of(x, y):
    sign = y.to(tl.int64, bitcast=True) & _SIGN
    return (x.to(tl.int64, bitcast=True) | sign).to(tl.float64, bitcast=True)


@triton.jit
def _rint(x):
    size = tl.abs(x)
    whole = tl.where(size < _WHOLE, (size + _WHOLE) - _WHOLE, size)
    return _with_sign_of(whole, x)


@triton.jit
def _log(x):
    bits = x.to(tl.int64, bitcast=True)
    power = (bits - _UNDER_ROOT_HALF) >> 52
    part = (bits - (power << 52)).to(tl.float64, bitcast=True) - 1.0
    s = part / (part + 2.0)
    z = s * s
    total = tl.zeros_like(x)
    for i in tl.static_range(_TERMS):
        total = total * z + _LOG[i]
    return power.to(tl.float64) * _LN2 + s * (z * total + 2.0)


@triton.jit
def _quantile(word, NORMAL: tl.constexpr):
    high = (word ^ (word >> 63)) ^ _MOST
    tail = (high.to(tl.float64) + 0.5) * _UNIT
    if NORMAL:
        w = -_log(tail * 4.0 * (1.0 - tail))
        over = tl.zeros_like(w)
        under = tl.zeros_like(w)
        for i in tl.static_range(_DEGREE):
            over = over * w + _OVER[i]
            under = under * w + _UNDER[i]
        x = (1.0 - tail * 2.0) * over / under
    else:
        x = -_log(tail * 2.0)
    return tl.where(word < 0, -x, x)


@triton.jit
def _double(bits):
    """A double that came as its bits: Triton takes numbers in single precision."""
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


_PLAIN = (
    "low", "high", "rows", "runs", "nodes", "width", "each", "once", "capacity",
    "scale", "half", "limit", "inverse", "step", "most",
)  # fmt: skip


@triton.jit(do_not_specialize=_PLAIN)
def _noise(
    values, found, doubts, states, low, high, rows, runs, nodes, width, each, once,
    capacity, scale, half, limit, inverse, step, most,
    NORMAL: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = lane < rows * each
    row, block = lane // each, lane % each
    words = _words(states, row // once, (row % once) * each + block, low, high, inside)
    position = block.to(tl.int64)[:, None] * 8 + tl.arange(0, 8)[None, :]
    here = inside[:, None] & (position < width)
    start = ((row % runs) * nodes + row // runs).to(tl.int64) * width
    at = start[:, None] + position
    x = _quantile(words, NORMAL)
    scaled = x * _double(scale)
    near = _rint(scaled)
    left = (tl.abs(scaled - near) > _double(half)) | (tl.abs(x) > _double(limit))
    near = tl.where(left, 0.0, near)
    given = tl.load(values + at, mask=here, other=0)
    if values.dtype.element_ty == tl.int64:
        bits = given
        fits = (given > -most) & (given < most)
        made = given + near.to(tl.int64)
    else:
        whole = _rint(given.to(tl.float64) * _double(inverse))
        bits = whole.to(tl.int64, bitcast=True)
        fits = tl.abs(whole) <= _double(most)
        made = ((near + whole) * _double(step)).to(values.dtype.element_ty)
    tl.store(found + at, made, mask=here)
    nothing = tl.zeros_like(words)
    tl.store(doubts + 1 + nothing, nothing + 1, mask=here & (fits == 0))
    left = left & here
    slot = tl.atomic_add(doubts + nothing, nothing + 1, mask=left, sem="relaxed")
    left = left & (slot < capacity)
    place = lane.to(tl.int64)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(doubts + 2 + slot, place, mask=left)
    tl.store(doubts + 2 + capacity + slot, words, mask=left)
    tl.store(doubts + 2 + 2 * capacity + slot, bits, mask=left)


@triton.jit(do_not_specialize=("low", "high", "count", "each"))
def _stream(found, states, low, high, count, each, LANES: tl.constexpr):
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = lane < count
    words = _words(states, lane // each, lane % each, low, high, inside)
    at = lane.to(tl.int64)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(found + at, words, mask=inside[:, None])


def _grid(count: int) -> tuple[int]:
    return (triton.cdiv(count, _LANES),)


def _make_stream(found: Tensor, states: Tensor, plain: list[int]) -> None:
    with torch.cuda.device_of(found):  # on which Triton starts what is compiled
        _stream[_grid(plain[2])](found, states, *plain, LANES=_LANES)


def _make_noise(
    values: Tensor,
    found: Tensor,
    doubts: Tensor,
    states: Tensor,
    plain: list[int],
    normal: bool,
) -> None:
    numbers = dict(zip(_PLAIN, plain, strict=True))
    grid = _grid(numbers["rows"] * numbers["each"])
    with torch.cuda.device_of(found):
        _noise[grid](
            *(values, found, doubts, states, *plain),
            NORMAL=normal,
            LANES=_LANES,
            enable_fp_fusion=False,
            maxnreg=_REGISTERS,
        )


_library = torch.library.Library("privaudit", "IMPL")
_library.impl("stream", _make_stream, "CompositeExplicitAutograd")
_library.impl("noise", _make_noise, "CompositeExplicitAutograd")
