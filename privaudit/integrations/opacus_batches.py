"""Counts what the sums of an Opacus optimizer hold, batch by batch as they were drawn.

Opacus' own account counts steps. A step may sum several batches (``signal_skip_step``,
gradients that pile up), one batch several times, batches of another loader, or parts
that were clipped to another norm. So the loader's sampler is watched for what it draws,
and the rows of gradients that are clipped are held against that by their numbers.

Each draw is a release of its own, for who reads all of them can add them up:

- a step's noise is shared among the draws that it sums, in proportion to their reach;
- a record that is k times in a sum moves it by up to k clip norms;
- a draw that feeds two steps tosses no new coins: as if it were known who is in it, all
  of its releases count without sampling.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from privaudit.release import NoSampling, PoissonSampling, Release

_SAMPLER = "UniformWithReplacementSampler"
# These clip rows that can be counted, to a norm of theirs, and add what they say.
_OPTIMIZERS = ("DPOptimizer", "DPPerLayerOptimizer")


@dataclasses.dataclass(eq=False)
class Draw:
    """A batch that the sampler drew."""

    # size, rate: how many records it has, and each record's chance to be among them
    size: int
    rate: float
    # records of the present pass over it whose gradients have not come yet
    left: int = 0
    clip: float = 0.0  # the largest clip norm of that pass
    before: float = 0.0  # clip norms of its earlier passes in this release, summed
    fed: Release | None = None  # the first release that it was part of
    # whether its releases count as if it were known who is in it
    is_known: bool = False

    @property
    def reach(self) -> float:
        """Largest move of the sum by one record."""
        return self.before + self.clip

    def take(self, rows: int, clip: float) -> None:
        """Count ``rows`` of the present pass, or of a new one if that is over."""
        if not self.left:
            self.before, self.clip, self.left = self.reach, 0.0, self.size
        self.left -= rows
        self.clip = max(self.clip, clip)

    def released(self, noise_multiplier: float) -> list[Release]:
        """Releases to record of a sum that has it; its reach starts anew."""
        release = Release.of_sum(
            norm_bound=self.reach,
            noise_multiplier=noise_multiplier,
            sampling=PoissonSampling(self.rate),
        )
        self.before = self.clip = 0.0
        if self.fed is None:
            self.fed = release
            return [release]
        known = [release] if self.is_known else [self.fed, release]
        self.is_known = True
        return [msgspec.structs.replace(one, sampling=NoSampling()) for one in known]


class Batches:
    """Batches that were drawn, and what of them is in the sum at hand."""

    def __init__(self) -> None:
        self._queue: collections.deque[Draw] = collections.deque()
        self._ahead = False  # whether two were ever drawn before one was used
        self._now: Draw | None = None
        self._summed: list[Draw] = []

    def draw(self, size: int, rate: float) -> None:
        """Count a batch of ``size`` records, each by a coin of ``rate``."""
        self._ahead = self._ahead or bool(self._queue)
        self._queue.append(Draw(size, rate))

    def forget(self) -> None:
        """Give up batches that were drawn and not used."""
        self._queue.clear()

    def begin(self) -> None:
        """Begin a sum: what was in one that was never released is gone with it."""
        for draw in self._summed:
            draw.before, draw.clip, draw.left = 0.0, 0.0, 0
        self._summed = []

    def take(self, rows: int, clip: float) -> None:
        """Count ``rows`` gradients, clipped to ``clip``, of one backward pass.

        Raises ``ValueError`` if the loader drew no such batch.
        """
        draw = self._now
        if draw is None or not draw.left:
            while self._queue and self._queue[0].size < rows:
                self._queue.popleft()  # drawn, and never used
            if self._queue:
                draw = self._queue.popleft()
            elif draw is not None and self._ahead:
                draw = None  # which of them came again nobody can tell
        if draw is None or rows > (draw.left or draw.size):
            raise ValueError(
                f"gradients of {rows:,} records were clipped, and the data loader drew "
                "no such batch: a ledger counts what its loader draws, so give the "
                "loader whose batches are trained on, before the first of them is "
                "taken, and leave each batch whole, one row a record (a batch that is "
                "used again can be counted with num_workers=0 only)"
            )
        draw.take(rows, clip)
        self._now = draw
        if draw not in self._summed:
            self._summed.append(draw)

    def released(self, noise_multiplier: float, norm: float) -> list[Release]:
        """Releases to record of the sum, with noise of this multiple of ``norm``.

        Raises ``ValueError`` if it has parts of batches, or nothing.
        """
        if not self._summed or any(draw.left for draw in self._summed):
            raise ValueError(
                "noise was added to a sum of parts of batches: a ledger counts whole "
                "ones, so train on each batch that the loader draws, as it is, and add "
                "noise after its last part"
            )
        # By reach, so that one multiplier holds for all: sqrt(sum reach^2) in place of
        # the norm. Rounded down, unless nothing was.
        ratio = norm / math.hypot(*(draw.reach for draw in self._summed))
        shared = noise_multiplier * ratio
        if ratio != 1:
            shared = max(0.0, shared * (1 - 2.0**-50))
        found = [one for draw in self._summed for one in draw.released(shared)]
        self._summed = []
        return found


class Watch:
    """Tells ``batches`` of each that a data loader draws.

    Stands in for the ``__iter__`` of its sampler, whoever iterates over that: Python
    looks it up in the class, so that a subclass takes its place for this one object.

    Raises ``ValueError`` if batches are not Poisson sampled.
    """

    def __init__(self, data_loader: Any, batches: Batches) -> None:
        self._sampler = sampler_of(data_loader)
        self._kind = kind = type(self._sampler)
        self._is_open = True
        # Then an empty batch is given as one row of random numbers.
        collate = getattr(data_loader, "collate_fn", None)
        least = int(bool(getattr(collate, "rand_on_empty", False)))

        def iterate(sampler: Any) -> Iterator[Any]:
            batches.forget()  # those that an earlier iterator drew ahead
            for batch in kind.__iter__(sampler):
                if self._is_open:
                    batches.draw(max(len(batch), least), float(sampler.sample_rate))
                yield batch

        self._watched = type(kind.__name__, (kind,), {"__iter__": iterate})
        self._sampler.__class__ = self._watched

    def close(self) -> None:
        """Stop."""
        self._is_open = False
        if type(self._sampler) is self._watched:
            self._sampler.__class__ = self._kind


class Sums:
    """Stands before two methods of an optimizer, and records what they release.

    Parameters
    ----------
    optimizer
        As ``PrivacyEngine.make_private`` gave it; see `check_optimizer`.
    batches
        What is told of each batch that is drawn.
    record
        Called with each release before it is made.
    """

    def __init__(
        self, optimizer: Any, batches: Batches, record: Callable[[Release], object]
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer, self._batches, self._record = optimizer, batches, record
        self._is_hidden = False
        self._clip, self._add = optimizer.clip_and_accumulate, optimizer.add_noise
        optimizer.clip_and_accumulate, optimizer.add_noise = self._clips, self._adds
        self._guard = optimizer.original_optimizer.register_step_pre_hook(self._steps)

    def close(self) -> None:
        """Detach from the optimizer."""
        self._guard.remove()
        own = {"clip_and_accumulate": self._clips, "add_noise": self._adds}
        for name, method in own.items():
            if vars(self.optimizer).get(name) == method:
                delattr(self.optimizer, name)

    def _clips(self) -> None:
        """Count what Opacus is about to clip and sum."""
        optimizer = self.optimizer
        parameter = optimizer.params[0]
        norms = getattr(optimizer, "max_grad_norms", [optimizer.max_grad_norm])
        if parameter.summed_grad is None:
            self._batches.begin()
        known = parameter.grad_sample
        for part in known if isinstance(known, list) else [known]:
            if part is not None:  # else Opacus says what is missing
                self._batches.take(len(part), math.hypot(*map(float, norms)))
        self._clip()

    def _adds(self) -> None:
        """Record the release before there is one."""
        optimizer = self.optimizer
        noise, norm = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm)
        for release in self._batches.released(noise, norm):
            self._record(release)
        self._is_hidden = True
        self._add()

    def _steps(self, *_: Any) -> None:
        """Before the optimizer below Opacus' makes a step."""
        if not self._is_hidden:
            raise ValueError(
                "a step was about to use gradients without noise: call step() of the "
                "optimizer that PrivacyEngine.make_private returned"
            )
        self._is_hidden = False


def check_optimizer(optimizer: Any) -> None:
    """Raise ``ValueError``, with what to do, unless `Sums` knows what it releases."""
    kinds = [kind.__name__ for kind in type(optimizer).__mro__]
    if kinds[0] in _OPTIMIZERS:
        return
    what = "write_run reads the history of its engine, after training"
    if "DPOptimizer" not in kinds:
        what = "give the one that PrivacyEngine.make_private returned"
    elif "AdaClip" in kinds[0]:
        what = "its engine's history does not have the count that is released; use "
        what += "clipping='flat' or 'per_layer'"
    elif "FastGradientClipping" in kinds[0]:
        what = f"use grad_sample_mode='hooks'; or {what}"
    raise ValueError(
        f"what {kinds[0]} clips, sums and adds is not known from its attributes: {what}"
    )


def sampler_of(data_loader: Any) -> Any:
    """The sampler that draws the batches. ``ValueError`` if it is not Poisson."""
    batches = getattr(data_loader, "batch_sampler", None)
    for sampler in (batches, getattr(batches, "sampler", None)):
        if type(sampler).__name__ == _SAMPLER:
            return sampler
    raise ValueError(
        f"the batches of this {type(data_loader).__name__} are not Poisson sampled, so "
        "that no account of Opacus' holds for them: give the one loader that "
        "PrivacyEngine.make_private returned, with poisson_sampling=True"
    )
