"""Clipped sums as CUDA graphs: the kernels of one call, recorded once for each shape.

The host then starts them together. They are those of the code that was recorded, so
that sums are the same bits where that adds in a fixed order, and the same but for the
order of sums elsewhere (`index_add_`), which ``sums.md`` pays for as well.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.door.trace import tracing
from trainers.gradients.per_sample import Weigh
from trainers.gradients.rounding import SLACK
from trainers.gradients.shapes import drawn_inputs
from trainers.gradients.spread import Drawn
from trainers.numerics.deferred_checks import Watch

Sums = tuple[Tensor, Tensor]  # (replicas, dims), and norms (replicas, samples)
_BEFORE = 4  # calls before a record: of the third on, torch traces what it maps


def weighted_sum(
    of: Differentiator,
    at: Tensor,
    inputs: Tensor,
    targets: Tensor,
    weigh: Weigh,
    slack: float,
) -> Tensor:
    """`Differentiator.weighted_sum`, by a graph where ``of`` has ``graphs``.

    That is on a GPU alone, and where ``weigh`` clips. ``ValueError`` for what cannot be
    recorded, or gives other numbers when it is started again: both are tried on random
    records, whatever is given.
    """
    record = RECORDERS.get(at.device.type)
    if of.graphs is None or record is None or not isinstance(weigh, ClipTo):
        return of.weighted_sum(at, inputs, targets, weigh, slack)
    word = of.word
    if not isinstance(word, Tensor):  # which a graph would keep as it is now
        word = torch.full((len(at),), word, device=at.device)
    given = [at, inputs, targets, weigh.mask, weigh.bound_as_tensor, word]
    key: tuple[Any, ...] = (weigh.binds, slack, of.aligned)
    key += (*((one.shape, one.stride(), one.dtype, one.device) for one in given),)
    with torch.cuda.device_of(at):
        if key not in of.graphs:
            with tracing:  # torch records one thread's calls at a time
                of.graphs[key] = _Graph(of, given, weigh.binds, slack, record)
        total, norms = of.graphs[key](given)
    weigh.check(norms)
    return total


@dataclasses.dataclass
class _Weigh:
    """Weights as of `ClipTo`, of tensors, which keep the norms for later."""

    mask: Tensor
    bound: Tensor | None
    norms: Tensor | None = None
    watch: Watch = dataclasses.field(default_factory=lambda: Watch(at_once=False))

    def __call__(self, norms: Tensor) -> Tensor:
        self.norms = norms
        return ClipTo.weights(norms, self.bound) * self.mask


class _Graph:
    """One call of ``of``, and the tensors that it reads whenever it is started."""

    def __init__(
        self,
        of: Differentiator,
        like: list[Tensor],
        binds: bool,
        slack: float,
        record: Callable[[Callable[[], Sums]], tuple[Callable[[], None], Sums]],
    ) -> None:
        at, *rest = like
        # Rows of models begin at lines of memory, see `trainers.gradients.shapes`.
        room = torch.empty_strided(
            at.shape, at.stride(), dtype=at.dtype, device=at.device
        )
        self._given = [room, *(torch.empty_like(one) for one in rest)]
        *held, mask, bound, word = self._given

        def call() -> Sums:
            weigh = _Weigh(mask, bound if binds else None)
            of.word = word
            total = of.weighted_sum(*held, weigh, slack)  # type: ignore[arg-type]
            assert weigh.norms is not None
            return total, weigh.norms

        before = of.word
        try:
            self._draw(of, 1)
            self._start, self._found = record(call)
            self._draw(of, 2)  # what the record has of the first shows
            wanted, norms = call()
        except RuntimeError as error:
            cause = error.__context__ or error  # before the record ended by it
            (why, *_) = str(cause).splitlines() or [type(cause).__name__]
            raise ValueError(
                "compiled gradients are CUDA graphs, and the model's cannot be "
                f"recorded as one ({why}): leave compiled out"
            ) from error
        finally:
            of.word = before
        self._start()
        total, seen = self._found
        taken = (norms.clamp_max(bound) if binds else norms).nansum(1)
        same = torch.allclose(seen, norms, SLACK, 0.0, equal_nan=True)
        if not same or not ((total - wanted).norm(dim=1) <= SLACK * taken).all():
            raise ValueError(
                "compiled gradients are CUDA graphs, and the model's gives other "
                "numbers than its gradients have: leave compiled out"
            )

    def _draw(self, of: Differentiator, seed: int) -> None:
        """Have random models and records, of nobody's data, in the place of what is."""
        generator = torch.Generator().manual_seed(seed)
        at, inputs, targets, mask, bound, word = self._given
        at.copy_(Drawn(of.module, seed).whole(len(at), at))
        there = inputs.shape[0], inputs.shape[1]
        inputs.copy_(drawn_inputs(of.module, inputs[0, 0], there, generator))
        targets.zero_()
        mask.copy_(torch.rand(mask.shape, generator=generator, device="cpu") < 0.7)
        bound.fill_(2.0**-seed)
        word.fill_(seed)

    def __call__(self, given: list[Tensor]) -> Sums:
        for room, now in zip(self._given, given, strict=True):
            room.copy_(now)
        self._start()
        total, norms = self._found
        return total.clone(), norms.clone()  # the next call overwrites them


class _Outside(TorchDispatchMode):
    """Keeps what operations take that none of them made: a graph has its address."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, Any] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for one in tree_leaves((args, kwargs)):
            if isinstance(one, Tensor):
                held = one.untyped_storage()
                if held.data_ptr() not in self._made:
                    self.kept[held.data_ptr()] = held
        found = func(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, Tensor):
                self._made.add(one.untyped_storage().data_ptr())
        return found


@functools.cache
def _side(device: int) -> Any:
    """The stream on which calls of a GPU are recorded."""
    return torch.cuda.Stream(device)


def _by_cuda(call: Callable[[], Sums]) -> tuple[Callable[[], None], Sums]:
    """Record ``call``; returns what starts it again, and where its sums then are."""
    stream, graph = _side(torch.cuda.current_device()), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # as torch asks for, what is made once is made
        for _ in range(_BEFORE - 1):
            call()
        with _Outside() as outside:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        found = call()

    def start(kept: Any = outside.kept) -> None:
        graph.replay()

    return start, found


RECORDERS = {"cuda": _by_cuda}  # by the kind of a device
