"""Exactly rounded noise on a grid, coins and subsets without bias. Proof: noise.md.

Noise is in steps of a grid, a power of two: round(scale Z) as an integer, Z a standard
normal or Laplace number of infinitely many bits, ``scale`` the deviation in steps. Each
stands on one word of a key stream, and on more of it where that does not decide.

Doubles decide first, with a margin for all their errors (the constants below, argued in
noise.md), by torch, by numba's loops, or on a GPU by Triton's kernel: equal bits. What
they leave is decided by mpmath, from the cumulative probability.
"""

from __future__ import annotations

import dataclasses
import fractions
import functools
import importlib
import math
import struct
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.numerics.chacha import WORDS, kernels, operators
from trainers.numerics.deferred_checks import may_hold
from trainers.numerics.device import sent
from trainers.numerics.keys import PIECE, Key, Piece, Rows, scratch

ERROR = 1e-13  # relative, of torch's erfinv, log and ndtri, and of products by scale
SCALES = (2.0**4, 2.0**30)
STEP_BITS = 20  # a deviation has 2^20 steps or more: rounding is paid with a millionth
MOST = 1 << 52  # of a number on the grid: its double is exact
MAX_SUM = 1 << 62
LATER = 1 << 23  # numbers: as long as it takes to load the loops that are faster
_LOW = (1 << 32) - 1  # half of a word
_HOST = torch.device("cpu")


@dataclasses.dataclass(frozen=True, slots=True)
class Law:
    """A symmetric law of noise, at scale 1."""

    # from u in [-1, 1], uniform, to x / unit, in place
    quantile: Callable[[Tensor], Tensor]
    unit: float  # by what that is multiplied
    limit: float  # up to which |x / unit| the first pass decides
    slack: float  # bound on the first pass's error in x there
    reach: float  # up to which |x| the loops decide, and Triton's kernel
    slip: float  # bound on their error in x there
    far: Callable[[Tensor], Tensor]  # from the upper tail's probability to x >= 0
    density: Callable[[np.ndarray], np.ndarray]  # at x >= 0, in doubles
    # P(X > x) by mpmath, for whatever x, from mpmath itself and x
    tail: Callable[[Any, Any], Any]


def _log_quantile(u: Tensor) -> Tensor:
    far = torch.log1p(u.abs().neg_())  # <= 0
    return torch.copysign(far, u, out=u)


# u, a word as a double, is within 2^-54 + 2^-63 of all that it stands for; 2^-52 is
# allowed for. With density p, x moves by half of that / p(x): largest at the limit.
_SPREAD = 2.0**-53
_MIDDLE, _LOG_LIMIT = 3.0, 5.0
_REACH, _LOG_REACH = 4.5, 10.0
_SLOPE = 1.26  # above tail / p(x): 1 for Laplace, for the normal law at most 1.2534

GAUSSIAN = Law(
    quantile=torch.Tensor.erfinv_,
    unit=math.sqrt(2),
    limit=_MIDDLE / math.sqrt(2),
    slack=ERROR * _MIDDLE + _SPREAD * math.sqrt(2 * math.pi) * math.exp(_MIDDLE**2 / 2),
    reach=_REACH,
    slip=ERROR * _REACH
    + _SLOPE * 2.0**-51
    + 2.0**-64 * math.sqrt(2 * math.pi) * math.exp(_REACH**2 / 2),
    far=lambda tail: torch.special.ndtri(tail).neg_(),
    density=lambda x: np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    tail=lambda mp, x: mp.erfc(x / mp.sqrt(2)) / 2,
)
LAPLACE = Law(
    quantile=_log_quantile,
    unit=1.0,
    limit=_LOG_LIMIT,
    slack=ERROR * _LOG_LIMIT + 2 * _SPREAD * math.exp(_LOG_LIMIT),
    reach=_LOG_REACH,
    slip=ERROR * _LOG_REACH + _SLOPE * 2.0**-51 + 2.0**-63 * math.exp(_LOG_REACH),
    far=lambda tail: torch.log(2 * tail).neg_(),
    density=lambda x: np.exp(-x) / 2,
    tail=lambda mp, x: mp.exp(-x) / 2 if x > 0 else 1 - mp.exp(x) / 2,
)


def grid(deviation: float, bits: int = STEP_BITS) -> float:
    """The step of a grid: a power of two, 2^bits <= deviation / step < 2^(bits + 1)."""
    if not (2.0**-900 <= deviation <= 2.0**900):
        raise ValueError(
            f"noise on a grid needs a deviation in [2^-900, 2^900], got {deviation}"
        )
    if not 4 <= bits <= 29:
        raise ValueError(f"a deviation has 2^4 to 2^29 steps, got 2^{bits}")
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - bits)


def rounding_l2_up(step: float, dims: int, parts: int = 1) -> float:
    """Largest move of a vector by rounding, in L2: sqrt(dims) step / 2 a part."""
    return math.nextafter(
        parts * math.nextafter(math.sqrt(dims), math.inf), math.inf
    ) * (step / 2)


def rounding_l1_up(step: float, dims: int, parts: int = 1) -> float:
    """Largest move of a vector by rounding, in L1: dims step / 2 a part."""
    return parts * dims * (step / 2)


def to_grid(values: Tensor, step: float, parts: int = 1) -> Tensor:
    """``values`` rounded to whole steps, int64.

    ``values``: of any shape. ``step``: a power of two. ``parts``: how many such tensors
    will be added up.
    """
    _check_step(step)
    most = min(MOST, MAX_SUM // parts)
    whole = torch.empty(values.shape, dtype=torch.int64, device=values.device)
    size = PIECE if values.device.type == "cpu" else max(1, values.numel())
    for one, steps in zip(
        values.reshape(-1).split(size), whole.view(-1).split(size), strict=True
    ):
        steps.copy_(_steps(one.to(torch.float64, copy=True), step, most))
    return whole


def from_grid(whole: Tensor, step: float, dtype: torch.dtype) -> Tensor:
    """Whole steps as numbers of ``dtype``: rounds, so only for what is released."""
    return whole.to(dtype).mul_(step)


def add_noise_(sums: Tensor, rows: Rows, scale: float, law: Law = GAUSSIAN) -> Tensor:
    """Add exactly rounded noise to whole steps, in place; returns ``sums``.

    ``sums``: (runs, nodes, dims) int64, in (-2^62, 2^62). ``rows``: streams of that
    shape, each for one ``sums`` only. ``scale``: deviation, or Laplace's scale, in
    steps, in [2^4, 2^30]. ``law``: `GAUSSIAN` or `LAPLACE`.
    """
    if sums.dtype != torch.int64 or tuple(sums.shape) != rows.shape:
        raise ValueError(
            f"sums must be int64 of shape {rows.shape}, got {sums.dtype} of shape "
            f"{tuple(sums.shape)}"
        )
    if _is_fused(sums, law):
        return _fused(sums, sums, 1.0, rows, scale, law)
    low, high = sums.aminmax()
    if not -MAX_SUM < int(low) <= int(high) < MAX_SUM:
        raise _beyond()

    def use(piece: Piece, whole: Tensor, spare: Tensor) -> None:
        sums[piece.where].add_(piece.arranged(spare.view(torch.int64).copy_(whole)))

    def loop(loops: Any, *part: Any) -> None:
        loops.add_noise(sums.numpy(), *part)

    places, whole = _draw(rows, scale, law, sums.device, _first(sums, use, loop))
    if len(whole):
        sums[places] += whole.long()
    return sums


def noisy(
    values: Tensor,
    step: float,
    rows: Rows,
    scale: float,
    law: Law = GAUSSIAN,
    *,
    spent: bool = False,
) -> Tensor:
    """`to_grid`, `add_noise_` and `from_grid` in one, faster: the same bits.

    ``spent``: ``values`` may be overwritten, and are if they are doubles.
    """
    if tuple(values.shape) != rows.shape:
        raise ValueError(
            f"values must be of shape {rows.shape}, got {tuple(values.shape)}"
        )
    _check_step(step)
    if values.dtype not in _TAKEN:
        return noisy(values.double(), step, rows, scale, law).to(values.dtype)
    values = values.detach().contiguous()
    # In place, what is in doubt is whole steps when it is looked at again, in doubles.
    spent &= values.dtype == torch.float64
    found = values if spent else torch.empty_like(values)
    if _is_fused(values, law):
        return _fused(values, found, step, rows, scale, law)

    def use(piece: Piece, whole: Tensor, spare: Tensor) -> None:
        # Flat, with padding of zeros: what is not contiguous takes twice as long.
        piece.padding(spare).zero_()
        piece.arranged(spare).copy_(values[piece.where])
        whole.add_(_steps(spare, step, MOST)).mul_(step)  # exact: both below 2^53
        found[piece.where] = piece.arranged(whole)

    def loop(loops: Any, *part: Any) -> None:
        grid = (1 / step, step, float(MOST))
        if loops.noisy(values.numpy(), found.numpy(), grid, *part):
            raise _too_large(step, MOST)

    places, whole = _draw(rows, scale, law, values.device, _first(values, use, loop))
    if len(whole):
        whole += _steps(values[places].double(), step, MOST)
        found[places] = whole.mul_(step).to(found.dtype)
    return found


def _steps(values: Tensor, step: float, most: int) -> Tensor:
    """Round doubles to whole steps, in place; returns them, checked."""
    steps = values.mul_(1 / step).round_()
    if steps.device.type != "meta" and steps.numel():
        low, high = steps.aminmax()
        if not (-most <= low and high <= most):  # not a number is neither
            raise _too_large(step, most)
    return steps


def _too_large(step: float, most: int) -> ValueError:
    return ValueError(
        f"a sum is not finite or above {most} steps of the grid ({step:g}), so that "
        "adding up could overflow: use a larger step"
    )


def _beyond() -> ValueError:
    return ValueError(
        "a sum is beyond 2^62 steps of the grid, where adding could overflow: use a "
        "larger step"
    )


def _check_scale(scale: float) -> None:
    if not SCALES[0] <= scale <= SCALES[1]:
        raise ValueError(
            f"noise must have 2^4 to 2^30 steps of the grid a deviation, got {scale}"
        )


def _check_step(step: float) -> None:
    if not math.isfinite(step) or math.frexp(step)[0] != 0.5:
        raise ValueError(f"a grid's step must be a power of two, got {step}")


def _is_fused(given: Tensor, law: Law) -> bool:
    """Return whether Triton's kernel takes ``given``, (runs, nodes, dims)."""
    if given.dtype not in _TAKEN or not given.is_contiguous():
        return False

    def right(device: torch.device) -> bool:
        wanted = _noise_of(given.dtype, law, _HOST)
        return torch.equal(_noise_of(given.dtype, law, device).cpu(), wanted)

    return kernels(given.device, (given.dtype, law.unit), right)


def _fused(
    values: Tensor, found: Tensor, step: float, rows: Rows, scale: float, law: Law
) -> Tensor:
    """Write ``values`` with noise to ``found``, by one kernel; the host waits once."""
    _check_scale(scale)
    states, ends = rows.states(values.device)
    runs, nodes, width = rows.shape
    blocks = rows.padded // WORDS
    capacity = runs * nodes * rows.padded // _DOUBTED + 1024
    whole = values.dtype == torch.int64
    most = MAX_SUM if whole else MOST
    doubts = torch.empty(2 + 3 * capacity, dtype=torch.int64, device=values.device)
    doubts[:2].zero_()
    numbers = [*ends, runs * nodes, runs, nodes, width, blocks, rows.alike, capacity]
    reals = [*_margin(scale, law), 1 / step, step]
    reals += [] if whole else [float(most)]
    numbers += struct.unpack(f"<{len(reals)}q", struct.pack(f"<{len(reals)}d", *reals))
    numbers += [most] if whole else []
    operators.noise(values, found, doubts, states, numbers, law is GAUSSIAN)
    host = _waited_for(doubts)
    (count, beyond), columns = host[:2].tolist(), host[2:].view(3, -1)
    if beyond:
        raise _beyond() if whole else _too_large(step, most)
    if count > capacity:
        raise RuntimeError(f"{count} numbers are in doubt, of {values.numel()}")
    number, words, bits = columns[:, :count]
    row, column, position = rows.places(number)
    noise = _second_pass(rows, words, (row, column, position), scale, law)
    if whole:
        made = bits.add_(noise.long())
    else:
        made = noise.add_(bits.view(torch.float64)).mul_(step).to(found.dtype)
    pair = torch.empty(2, count, dtype=torch.int64)
    pair[0] = (row * nodes + column) * width + position
    pair[1].view(found.dtype)[:count] = made
    at, made = sent(pair, found.device)
    found.view(-1).index_put_((at,), made.view(found.dtype)[:count])
    return found


_DOUBTED = 256  # of so many numbers one may be: on average it is one in 450 at most


def _waited_for(given: Tensor) -> Tensor:
    """``given`` on the host, which waits for it; on the meta device zeros."""
    if given.device.type == "meta":
        torch.empty_like(given).copy_(given)  # for whoever counts what is copied
        return torch.zeros(given.shape, dtype=given.dtype)
    host = torch.empty(given.shape, dtype=given.dtype, pin_memory=given.is_cuda)
    host.copy_(given, non_blocking=True)
    if given.is_cuda:
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(given.device))
        done.synchronize()
    return host


def _margin(scale: float, law: Law) -> tuple[float, float, float]:
    """Scale, distance from whole steps and |x| up to which loops and kernel decide."""
    return scale, 0.5 - scale * law.slip, law.reach


_Memory = list[Tensor]  # two of doubles, one of bool, as long as the largest piece
_First = Callable[[Piece, float, Law, _Memory], Tensor]


def _draw(
    rows: Rows, scale: float, law: Law, device: torch.device, first: _First
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Have ``first`` add the noise of each piece; places where it is not decided.

    Noise that is still to be added there comes with them.
    """
    _check_scale(scale)
    kinds = (torch.float64, torch.float64, torch.bool)
    numbers, words = [], []
    with scratch(rows.largest(device), kinds, device) as memory:
        for piece in rows.pieces(device):
            index = first(piece, scale, law, memory)
            numbers.append(index + piece.first)
            words.append(piece.words[index])
    places = rows.places(torch.cat(numbers))
    # They are few, and looked at on the host: small arrays cost least there.
    whole = _second_pass(rows, torch.cat(words).cpu(), places, scale, law)
    return places, whole.to(places[0].device)


def _first(
    given: Tensor,
    use: Callable[[Piece, Tensor, Tensor], None],
    loop: Callable[..., None],
) -> _First:
    """The first pass of all pieces: by numba if it takes ``given``, else by torch.

    ``use`` gets a piece, its noise and a spare, doubles of the same size that may be
    overwritten; ``loop`` what numba's loops ask for. Both leave out noise, which is
    then added 0, where it is not decided.
    """
    loops = _loops.fit(given)

    def by_torch(piece: Piece, scale: float, law: Law, memory: _Memory) -> Tensor:
        near, unsure = _first_pass(piece.words, scale, law, memory)
        piece.padding(unsure).fill_(False)
        index = _true_in(unsure)
        near[index] = 0.0
        use(piece, near, memory[0][: len(near)])
        return index

    def by_numba(piece: Piece, scale: float, law: Law, memory: _Memory) -> Tensor:
        unsure = memory[2][: len(piece.words)]
        arrays = (piece.shaped(one).numpy() for one in (piece.words, unsure))
        start = (piece.rows.start, piece.columns.start, piece.positions.start)
        loop(loops, *arrays, start, _margin(scale, law), law is GAUSSIAN)
        return _true_in(unsure)

    return by_torch if loops is None else by_numba


class _Loops:
    """`trainers.numerics.loops`, where numba is installed, when loading them pays."""

    def __init__(self) -> None:
        self._drawn, self._tried = 0, False
        self._loops: Any = None

    def fit(self, given: Tensor) -> Any:
        """Return the loops if they take ``given``, (runs, nodes, dims); else None."""
        plain = given.device.type == "cpu" and given.is_contiguous()
        if not plain or given.dtype not in _TAKEN:
            return None
        self._drawn += given.numel()
        if self._drawn >= LATER and not self._tried:
            self._tried = True
            self._try()
        return self._loops

    def _try(self) -> None:
        """Have them, if they compile and make the numbers that torch makes."""
        wanted = _some_noise()
        try:
            self._loops = importlib.import_module("trainers.numerics.loops")
            if all(map(torch.equal, _some_noise(), wanted)):
                return
            reason = "they make other numbers than torch"
        except ImportError:  # numba is not installed
            return
        except Exception as error:  # whatever a compiler fails with
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        self._loops = None
        warnings.warn(
            f"numba's loops do not work on this machine ({reason}): noise is drawn by "
            "torch, slower, the same numbers",
            RuntimeWarning,
            stacklevel=2,
        )


_TAKEN = (torch.float32, torch.float64, torch.int64)


def _some_noise() -> list[Tensor]:
    """Noise of all types and laws that the loops take, by what they or torch do."""
    return [
        _noise_of(kind, law, _HOST) for kind in _TAKEN for law in (GAUSSIAN, LAPLACE)
    ]


def _noise_of(kind: torch.dtype, law: Law, device: torch.device) -> Tensor:
    rows = Key.study("loops").rows("noise", nodes=[0], release=0, width=3000)
    if kind == torch.int64:
        sums = torch.full(rows.shape, 7, device=device)
        return add_noise_(sums, rows, 2.0**29.5, law)
    values = torch.full(rows.shape, 0.7, dtype=kind, device=device)
    return noisy(values, 0.5, rows, 2.0**29.5, law)


_loops = _Loops()


def _true_in(chosen: Tensor) -> Tensor:
    """Indices at which a vector of bool is true."""
    if chosen.device.type == "cpu":  # torch's own nonzero takes four times as long
        return torch.from_numpy(np.flatnonzero(chosen.numpy()))
    return chosen.nonzero()[:, 0]


def _first_pass(
    words: Tensor, scale: float, law: Law, memory: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """round(scale x) as doubles, and where that is not sure; both in ``memory``."""
    x, near, unsure = (one[: len(words)] for one in memory)
    law.quantile(x.copy_(words).mul_(2.0**-63))
    beyond = _above(torch.abs(x, out=near), law.limit)
    torch.round(x.mul_(scale * law.unit), out=near)
    unsure.copy_(_above(x.sub_(near).abs_(), 0.5 - scale * law.slack))
    return near, unsure.logical_or_(beyond)


def _above(values: Tensor, bound: float) -> Tensor:
    """Mask of values above ``bound``, in a quarter of torch's own time on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy() > bound)
    return values > bound


def _second_pass(
    rows: Rows, left: Tensor, places: tuple[Tensor, ...], scale: float, law: Law
) -> Tensor:
    """round(scale x) of words at ``places``, by the tail's probability, then mpmath.

    Words that the first pass ``left``, on the host; doubles.
    """
    if not len(left):
        return left.double()
    # A word stands for [w, w + 1) 2^-63: the upper tail is in (high, high + 1] 2^-64,
    # and a negative word's is that of its mirror image.
    words = left.numpy()
    high = (words ^ (words >> 63)) ^ ((1 << 63) - 1)
    tail = (high + 0.5) * 2.0**-64
    far = law.far(torch.from_numpy(tail)).numpy()
    near = far * scale
    whole = np.rint(near)
    margin = ERROR * far + _SLOPE * 2.0**-64 / tail
    unsure = np.abs(near - whole) + scale * margin >= 0.5 - scale * _SLOPE * 2.0**-51
    close = np.flatnonzero(unsure)
    if len(close):
        whole[close], sure = _third_pass(high[close], near[close], scale, law)
        sure &= scale * margin[close] < 0.25
        for one in close[~sure].tolist():
            more = functools.partial(rows.more, *(int(each[one]) for each in places))
            whole[one] = _exactly(int(high[one]), float(far[one]), scale, law, more)
    return torch.from_numpy(np.copysign(whole, words))


def _third_pass(
    high: np.ndarray, near: np.ndarray, scale: float, law: Law
) -> tuple[np.ndarray, np.ndarray]:
    """Integer beside ``near`` that is round(scale x), and where it is sure.

    For scale x within 1/4 of ``near``, and that within 1/4 and a little of half an
    integer: the tail there is all that is asked. It is that at a point of a table, less
    the integral of the density from there, which is small.
    """
    below = np.floor(near)
    border = (below + 0.5) / scale
    number = np.rint(border * _POINTS)
    known = [_tail_at(law, one) for one in number.tolist()]
    gap = (high - np.array(known, dtype=np.int64)) * 2.0**-64
    width = border - number / _POINTS
    places = number / _POINTS + width * _NODES
    area = width * (law.density(places) * _WEIGHTS).sum(0)
    over = gap + area  # how much more the word's tail is than that of the border
    margin = ERROR * (np.abs(gap) + np.abs(area)) + 2.0**-60
    margin += 2.0**-51 * border * law.density(border)
    return below + (over < 0), np.abs(over) > margin


_POINTS = 64  # of the table, a deviation
_NODES = np.array([[0.5 - math.sqrt(0.15)], [0.5], [0.5 + math.sqrt(0.15)]])
_WEIGHTS = np.array([[5], [8], [5]]) / 18  # of Gauss and Legendre


@functools.cache
def _tail_at(law: Law, number: float) -> int:
    """The tail from a point of the table on, in units of 2^-64; below 2^63."""
    import mpmath

    with mpmath.workprec(192):
        tail = law.tail(mpmath, mpmath.mpf(number) / _POINTS)
        return min(int(mpmath.ldexp(tail, 64)), (1 << 63) - 1)


def _exactly(
    high: int, near: float, scale: float, law: Law, more: Callable[[int], int]
) -> int:
    """round(scale x) of the x whose upper tail begins with the 64 bits ``high``.

    It is k just if the tail of x is between those of (k + 1/2) / scale and (k - 1/2) /
    scale. Both ends of the interval are asked, with more bits until they agree.
    """
    import mpmath

    bits, level = 64, 0
    while True:
        with mpmath.workprec(bits + 128):
            unit = mpmath.ldexp(1, -bits)
            low, up = high * unit, (high + 1) * unit
            k = int(mpmath.nint(mpmath.mpf(scale) * near))
            while True:
                ends = []
                for half in (0.5, -0.5):
                    bound = law.tail(mpmath, (k + mpmath.mpf(half)) / scale)
                    error = mpmath.ldexp(bound, -bits - 64)
                    below, above = bound + error < low, bound - error > up
                    ends.append(int(above) - int(below))
                if ends[0] == 1:
                    k += 1
                elif ends[1] == -1:
                    k -= 1
                else:
                    break
        if ends == [-1, 1]:
            return k
        high, bits, level = (high << 512) | more(level), bits + 512, level + 1
        tail = float(fractions.Fraction(2 * high + 1, 2 << bits))
        near = float(law.far(torch.tensor([tail], dtype=torch.float64)))


def coins(rows: Rows, rate: float | fractions.Fraction, device: torch.device) -> Tensor:
    """Independent coins, (runs, nodes, width) bool, of the float ``rate`` exactly."""
    if not 0 <= rate <= 1:
        raise ValueError(f"a rate must be in [0, 1], got {rate}")
    found = torch.empty(rows.shape, dtype=torch.bool, device=device)
    if rate == 1:
        return found.fill_(True)
    # u = (word + 2^63 + rest) / 2^64 < rate; 2^64 rate is whole from rate 2^-11 on.
    scaled = fractions.Fraction(rate) * (1 << 64)
    border = math.floor(scaled) - (1 << 63)
    rest = scaled - math.floor(scaled)
    tied = torch.empty_like(found)
    for piece in rows.pieces(device):
        found[piece.where] = piece.arranged(piece.words < border)
        if rest:
            tied[piece.where] = piece.arranged(piece.words == border)
    if rest and may_hold(tied):
        found |= tied & coins(rows.further(), rest, device)
    return found


def _less(rate: fractions.Fraction, more: Callable[[int], int]) -> bool:
    """Return whether a uniform number of infinitely many bits is less than ``rate``."""
    level = 0
    while rate:
        scaled = rate * (1 << 512)
        whole, word = math.floor(scaled), more(level)
        if word != whole:
            return word < whole
        rate, level = scaled - whole, level + 1
    return False


def subsets(rows: Rows, size: int, device: torch.device) -> Tensor:
    """Uniform subsets of ``size`` places, (runs, nodes, width) bool."""
    if not 0 <= size <= rows.width:
        raise ValueError(f"a subset has 0 to {rows.width} elements, got {size}")
    words = rows.words(device)
    if not size:
        return torch.zeros_like(words, dtype=torch.bool)
    border = words.kthvalue(size, dim=2, keepdim=True).values
    found = words <= border
    if may_hold(found.sum(2) != size):  # equal words at the border: more bits decide
        found, tied = words < border, words == border
        more = rows.further().words(device).masked_fill_(~tied, (1 << 63) - 1)
        last = size - 1 - found.sum(2, keepdim=True)
        found |= tied & (more <= more.sort(2).values.gather(2, last))
    return found


def integers(rows: Rows, below: Tensor) -> Tensor:
    """Independent uniform integers in [0, below), (runs, nodes, width), < 2^31."""
    words = rows.words(_HOST)
    # floor(below u), u = (word + 2^63 + rest) / 2^64, by halves of the word.
    low = (words & _LOW) * below
    total = ((words >> 32) + (1 << 31)) * below + (low >> 32)
    found = total >> 32
    # The bits after the word may make it one more.
    left = (1 << 32) - (low & _LOW)
    near = (total & _LOW == _LOW) & (left < below)
    for run, node, at in near.nonzero().tolist():
        share = fractions.Fraction(int(left[run, node, at]), int(below[at]))
        more = functools.partial(rows.more, run, node, at)
        found[run, node, at] += not _less(share, more)
    return found


def allocations(rows: Rows, batches: int, taken: int) -> list[Tensor]:
    """Draw ``taken`` different batches of ``batches`` for each record, uniformly.

    ``rows`` has ``taken`` words a record. Returns ``taken`` tensors on the host, (runs,
    nodes, records) int64.
    By Floyd's method (Bentley and Floyd 1987): the i-th is uniform among the first
    batches - taken + i, and the last of these if that one is taken already.
    """
    records = rows.width // taken
    last = range(batches - taken, batches)
    below = torch.arange(last.start + 1, batches + 1)
    drawn = integers(rows, below.repeat_interleave(records))
    found: list[Tensor] = []
    for new, most in zip(drawn.split(records, 2), last, strict=True):
        again = torch.zeros_like(new, dtype=torch.bool)
        for old in found:
            again |= new == old
        found.append(new.masked_fill(again, most))
    return found


def permutations(rows: Rows) -> Tensor:
    """Uniform permutations of 0, 1, ..., (runs, nodes, width) int64, on the host."""
    words = rows.words(_HOST)
    ordered, order = words.sort(dim=2)
    if (ordered.diff(dim=2) == 0).any():
        more = rows.further().words(_HOST)
        order = torch.from_numpy(np.lexsort((more.numpy(), words.numpy())))
    return order
