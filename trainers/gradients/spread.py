"""Parameters that lie in shards: a layer has them while it computes, and no longer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainers.gradients.per_sample import trained
from trainers.gradients.stacked.layer import StackedLayer

_LINE = 64  # bytes
_DRAWN = 65_537  # numbers of a trial's parameter, again and again: no width's multiple


class Gathers(Protocol):
    """Shards of a node's coordinates: `trainers.network.shards.Shards`."""

    def gather(self, own: Tensor, first: int, into: Tensor) -> None:
        """Write coordinates from ``first`` on ``into`` (nodes, some)."""

    def add(
        self, sums: Tensor, first: int, whose: Sequence[Tensor], total: Tensor
    ) -> None:
        """Add each shard's ``sums``, from coordinate ``first`` on, to ``total``."""


class Drawn:
    """Random models for trials, drawn a parameter at a time: a `Gathers` of no shard.

    Activations neither grow nor vanish with depth.
    """

    def __init__(self, module: nn.Module, seed: int = 0) -> None:
        self._seed, self._dims = seed, 0
        self._shapes: dict[int, torch.Size] = {}  # of parameters, by where they begin
        for parameter in trained(module).values():
            self._shapes[self._dims] = parameter.shape
            self._dims += parameter.numel()

    def add(
        self, sums: Tensor, first: int, whose: Sequence[Tensor], total: Tensor
    ) -> None:
        """Refuse: trials have no sums."""
        raise NotImplementedError

    def gather(self, own: Tensor, first: int, into: Tensor) -> None:
        """Draw the parameter that begins at ``first``, (models, numbers)."""
        rest = self._shapes[first][1:]
        fan = rest.numel() if rest else 4
        # torch takes 32 bits of a seed.
        mixed = (first + self._seed * 0x9E3779B1) & 0xFFFFFFFF
        generator = torch.Generator().manual_seed(mixed)
        kind = into.dtype if into.dtype == torch.float64 else torch.float32
        count = into.numel()
        drawn = torch.randn(
            min(count, _DRAWN), generator=generator, dtype=kind, device=generator.device
        )
        drawn = drawn.mul_(fan**-0.5).to(into)
        if count > _DRAWN:
            drawn = drawn.repeat(-(-count // _DRAWN))[:count]
        into.copy_(drawn.view(into.shape))

    def whole(self, models: int, like: Tensor) -> Tensor:
        """So many models, (models, dims), of type and device of ``like``."""
        found = like.new_empty(models, self._dims)
        for first, shape in self._shapes.items():
            self.gather(found, first, found[:, first : first + shape.numel()])
        return found

    def spread(self, rows: Tensor, models: int, like: Tensor) -> Spread:
        """The models that ``rows`` name, none of them whole."""
        return Spread(like.new_empty(models, 0), rows, self._dims, self)


class Spread:
    """Rows of models, (rows, dims), of which this process holds some coordinates.

    ``own``: (nodes, coordinates held here); ``rows``: whose each row is. A row's
    numbers lie as in a whole row that begins at a line of memory, so that their bits
    are the same. ``whose``, ``total``: what `add` adds to what; see `Gathers.add`.
    """

    def __init__(
        self,
        own: Tensor,
        rows: Tensor,
        dims: int,
        shards: Gathers,
        whose: Sequence[Tensor] = (),
        total: Tensor | None = None,
    ) -> None:
        self._total = total
        self.shape = torch.Size((len(rows), dims))
        self.dtype, self.device = own.dtype, own.device
        self._own, self._rows, self._shards, self._whose = own, rows, shards, whose
        self._lent: dict[int, tuple[int, torch.Size]] = {}  # by storage

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def total(self) -> Tensor:
        """Sums so far, (nodes, coordinates held here) doubles."""
        assert self._total is not None
        return self._total

    def detach(self) -> Spread:
        """Itself: nothing is differentiated by it."""
        return self

    def holds(self, tensor: Tensor) -> bool:
        """Return whether ``tensor`` is a parameter that a layer has for a while."""
        return tensor.untyped_storage().data_ptr() in self._lent

    def room(self, first: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Memory for a parameter from coordinate ``first`` on, (rows, numbers)."""
        line = _LINE // dtype.itemsize
        before, count = first % line, shape.numel()
        wide = -(-(before + count) // line) * line
        found = torch.empty(len(self), wide, dtype=dtype, device=self.device)
        return found[:, before : before + count]

    def parameter(self, first: int, shape: torch.Size) -> Tensor:
        """The parameter from coordinate ``first`` on, (rows, numbers)."""
        found = self.room(first, shape, self.dtype)
        if len(self._own) == len(self) == 1:
            self._shards.gather(self._own, first, found)
        else:
            nodes = found.new_empty(len(self._own), found.shape[1])
            self._shards.gather(self._own, first, nodes)
            torch.index_select(nodes, 0, self._rows, out=found)
        return found

    @contextlib.contextmanager
    def lent(
        self, layer: StackedLayer, places: Mapping[str, tuple[int, torch.Size]]
    ) -> Iterator[None]:
        """Have all parameters of ``layer``; afterwards it knows their shapes alone."""
        now = {name: self.parameter(*place) for name, place in places.items()}
        self._lent = {
            now[name].untyped_storage().data_ptr(): place
            for name, place in places.items()
        }
        layer.parameters_now = {
            name: part.unflatten(1, places[name][1]) for name, part in now.items()
        }
        try:
            yield
        finally:
            layer.parameters_now = {
                name: part.to("meta") for name, part in layer.parameters_now.items()
            }
            self._lent = {}

    def recalled(self) -> contextlib.AbstractContextManager[Any]:
        """Parameters that autograd would keep are gathered again on the way back.

        In an order that the graph has: all processes must run the same.
        """

        def pack(tensor: Tensor) -> Any:
            place = self._lent.get(tensor.untyped_storage().data_ptr())
            if place is None:
                return tensor
            return place, tensor.size(), tensor.stride(), tensor.storage_offset()

        def unpack(kept: Any) -> Tensor:
            if isinstance(kept, Tensor):
                return kept
            place, *view = kept
            return torch.as_strided(self.parameter(*place), *view)

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def add(self, first: int, sums: Tensor) -> None:
        """Add ``sums`` of a parameter from coordinate ``first`` on to the totals."""
        self._shards.add(sums, first, self._whose, self.total)
