"""Weighted sums of per-sample gradients without per-sample gradients.

One forward pass over all replicas and samples as one flat batch; one backward pass to
the *outputs* of the layers with parameters. A sample's gradient in a layer is a product
of what went in and of what came back: its norm follows from the two (Goodfellow 2015;
ghost norms, Li et al. 2022; book-keeping, Bu et al. 2023), and the weighted sum is one
batched matrix product a layer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from trainers.gradients.bfloat16 import lowered, raised
from trainers.gradients.door.stacked import StackedCopy, StackedGraph
from trainers.gradients.door.traced import Traced
from trainers.gradients.per_sample import (
    Loss,
    Weigh,
    check_module,
    trained,
    without_parameters,
)
from trainers.gradients.rounding import SLACK
from trainers.gradients.spread import Gathers, Spread
from trainers.gradients.stacked import stacked
from trainers.gradients.stacked.functions import join, quick
from trainers.gradients.stacked.layer import Digest, StackedLayer, UnknownLayerError
from trainers.gradients.trial import agrees
from trainers.numerics.deferred_checks import may_hold
from trainers.numerics.device import follow


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    layer: StackedLayer
    name: str  # of the parameter within its layer
    full: str  # within the module
    offset: int
    shape: torch.Size


class BookKeeping:
    """As `per_sample.PerSample`, for the layers of `trainers.gradients.stacked`.

    Between them may be any code without parameters that treats samples one by one;
    samples stay along the first dimension. ``tried``: whether two samples of a random
    model were compared with the reference; False for modules so large that this would
    take about a second: there only outputs are, of two samples together and of each
    alone. ``lower``: passes run in bfloat16. ``UnknownLayerError`` for other modules,
    and where samples turn out to be not independent.
    """

    lower = False
    positions = length = coarse = 0
    ways = ""
    word: int | Tensor = 0
    graphs: dict[Any, Any] | None = None
    shards: Gathers | None = None  # over which parameters lie, where they do

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        example: Tensor,
        target: Tensor | None = None,
    ) -> None:
        check_module(module)
        self.loss = loss
        self.module = module
        self.places: list[_Place] = []
        self.layers: list[StackedLayer] = []
        # Stacked as all others, so that their bits do not depend on other replicas.
        self.frozen: list[tuple[StackedLayer, nn.Module]] = []
        offsets: dict[str, tuple[int, torch.Size]] = {}
        self.dims = 0
        for name, parameter in trained(module).items():
            offsets[name] = (self.dims, parameter.shape)
            self.dims += parameter.numel()
        if isinstance(module, Traced):
            self.template: nn.Module = StackedGraph(module)
            for layer, names in self.template.layers:
                self.layers.append(layer)
                for name, full in names.items():
                    self.places.append(_Place(layer, name, full, *offsets.pop(full)))
        else:
            self.template = without_parameters(module)
            self._find_layers(module, offsets)
        if offsets:
            raise UnknownLayerError(f"no book-keeping for {', '.join(offsets)}")
        self.values_per_sample = self.values_alone = 0
        self._device: torch.device | None = None  # where the template is
        self.tried = False
        try:
            self.tried = agrees(self, module, example, target)
        except (RuntimeError, IndexError, AttributeError, TypeError) as error:
            raise UnknownLayerError(f"it cannot run stacked: {error}") from error
        finally:
            self._forget()

    def _find_layers(
        self, module: nn.Module, offsets: dict[str, tuple[int, torch.Size]]
    ) -> None:
        """Put layers over stacked parameters in the place of those that are known."""
        for path, layer in module.named_modules():
            known = stacked(layer)
            if not trained(layer) and next(layer.parameters(), None) is not None:
                if known is not None and path:
                    self.frozen.append((known, layer))
                    self.template.set_submodule(path, known)
                continue
            if known is None:
                faster = quick(layer)
                if faster is not None and path:
                    self.template.set_submodule(path, faster)
                continue
            self.layers.append(known)
            for name in known.names:
                full = f"{path}.{name}" if path else name
                if full not in offsets:
                    raise UnknownLayerError(f"{full} shares its values with another")
                self.places.append(_Place(known, name, full, *offsets.pop(full)))
            if path:
                self.template.set_submodule(path, known)
            else:
                self.template = known
        for inner in self.template.modules():
            if getattr(inner, "inplace", False):
                vars(inner)["inplace"] = False  # it would overwrite what is kept
        join(self.template)

    def measure(self, at: Spread, inputs: Tensor) -> int:
        """Run forward, count what stays alive; returns multiplications a sample."""
        self.values_alone, _ = self._kept(at, inputs[:, :1])
        self.values_per_sample, digests = self._kept(at, inputs)
        self.ways = self._ways(digests)
        for digest in digests:
            self.positions = max(self.positions, digest.positions)
            self.length += digest.length
            self.coarse = max(self.coarse, digest.coarse)
        products = 0
        for place in self.places:
            if place.name == "weight":
                fan = place.shape[1:].numel()
                products += fan * sum(one[0].numel() for one in place.layer.given)
        self._forget()
        return products

    def _ways(self, digests: list[Digest]) -> str:
        used = [layer for layer in self.layers if layer.given]
        names: dict[str, list[str]] = {}
        for layer, digest in zip(used, digests, strict=True):
            way = "written out"
            if isinstance(layer, StackedCopy):
                way = "of a copy for each record"
            elif len(digest.made_from) > len(layer.names):
                way = "products taken twice" if digest.twice else "ghost norms"
            (name, *_) = (each.full for each in self.places if each.layer is layer)
            if way != "of a copy for each record":
                name = name.rpartition(".")[0] or name
            names.setdefault(way, []).append(name)
        return "; ".join(f"{way}: {', '.join(each)}" for way, each in names.items())

    def _kept(self, at: Spread, inputs: Tensor) -> tuple[int, list[Digest]]:
        """Number of numbers a sample keeps alive, and the digests, of zeros."""
        kept: dict[int, Tensor] = {}  # by storage: many tensors are views of one

        def keep(tensor: Tensor) -> Tensor | None:
            if at.holds(tensor):
                return None
            kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            self._run(at, inputs, keeps=True)
        for layer in self.layers:
            for tensor in (*layer.taken, *layer.given):
                keep(tensor)
        size = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        kept.clear()  # a circle by way of the graph, which no collector sees
        # What comes back to each layer, what is made of it, and one layer's share in
        # doubles at a time.
        ahead, digests = [], []
        for layer in self.layers:
            if not layer.given:
                continue
            back = [torch.zeros_like(given) for given in layer.given]
            with torch.no_grad():
                digest = layer.digest(layer.taken, back)
            digests.append(digest)
            known = {tensor.data_ptr() for tensor in (*layer.taken, *back)}
            made = [part for part in digest.made_from if part.data_ptr() not in known]
            size += _size(back) + _size(made)
            ahead.append(2 * _size(digest.made_from))
        size += max(ahead, default=0)
        return -(-size // (inputs.shape[:2].numel() * at.dtype.itemsize)), digests

    @property
    def aligned(self) -> bool:
        """Return whether linear layers' rows begin at whole lines of memory."""
        return any(layer.aligned for layer in self.layers)

    @aligned.setter
    def aligned(self, yes: bool) -> None:
        for layer in self.layers:
            layer.aligned = yes

    def _run(self, at: Tensor | Spread, inputs: Tensor, *, keeps: bool) -> Tensor:
        if at.device != self._device:
            follow(self.template, at.device)
            self._device = at.device
        for layer in self.layers:
            layer.taken, layer.given, layer.keeps = [], [], keeps
        if isinstance(at, Spread):
            for layer in self.layers:
                own = {
                    place.name: (place.offset, place.shape)
                    for place in self.places
                    if place.layer is layer
                }
                layer.lent = functools.partial(at.lent, layer, own)
        else:
            for place in self.places:
                part = at[:, place.offset : place.offset + place.shape.numel()]
                place.layer.parameters_now[place.name] = part.unflatten(1, place.shape)
        for layer, own in self.frozen:
            layer.parameters_now = {
                name: value.detach()
                .to(at.device, at.dtype)
                .expand(len(at), *value.shape)
                for name, value in own.named_parameters()
            }
        if isinstance(self.template, StackedGraph):
            self.template.word = self.word if keeps else None
        flat = inputs.reshape(-1, *inputs.shape[2:])
        outputs = self.template(flat)
        for layer in self.layers:
            if any(len(given) != len(flat) for given in layer.given):
                raise UnknownLayerError(
                    "a layer does not see the samples along its first dimension"
                )
        return outputs

    def _forget(self) -> None:
        for layer in self.layers:
            layer.taken, layer.given, layer.parameters_now = [], [], {}
            layer.lent = None
        for layer, _ in self.frozen:
            layer.parameters_now = {}

    def _digests(
        self, at: Tensor | Spread, inputs: Tensor, targets: Tensor
    ) -> list[tuple[StackedLayer, Digest]]:
        """Digest of the samples' gradients in each layer that is used."""
        recalled = at.recalled() if isinstance(at, Spread) else contextlib.nullcontext()
        with torch.enable_grad(), lowered(at.device, self.lower), recalled:
            outputs = self._run(at.detach(), inputs, keeps=True).to(at.dtype)
            losses = self.loss(outputs, targets.reshape(-1, *targets.shape[2:]))
            used = [layer for layer in self.layers if layer.given]
            # What a later layer does not look at comes back as zeros.
            flat = iter(
                torch.autograd.grad(
                    losses.sum(),
                    [given for layer in used for given in layer.given],
                    allow_unused=True,
                    materialize_grads=True,
                )
            )
        with torch.no_grad():
            result = []
            for layer in used:
                back = [next(flat).contiguous() for _ in layer.given]
                returned = raised(back, at.dtype)
                taken = raised(layer.taken, at.dtype)
                result.append((layer, layer.digest(taken, returned)))
        return result

    def rows(self, at: Tensor, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        digests = [digest for _, digest in self._digests(at, inputs, targets)]
        self._forget()
        made_from = [part for digest in digests for part in digest.made_from]
        return [*made_from, *_squares(digests)]

    def weighted_sum(
        self,
        at: Tensor | Spread,
        inputs: Tensor,
        targets: Tensor,
        weigh: Weigh,
        slack: float = SLACK,
    ) -> Tensor:
        """See `trainers.gradients.differentiator.Differentiator.weighted_sum`.

        Where ``at`` lies in shards, sums are added to its total: that is returned.
        """
        digests = self._digests(at, inputs, targets)
        with torch.no_grad():
            square, *terms = _squares([digest for _, digest in digests])
            norms = square.sqrt()
            for each in terms:
                norms = norms.add(each.sqrt(), alpha=slack)
            lost = ~norms.isfinite()
            norms = norms.view(inputs.shape[:2])
            weights = weigh(norms).masked_fill(lost.view_as(norms), 0)
            # Layers that are not used have no sums.
            empty = torch.empty if len(digests) == len(self.layers) else torch.zeros
            result = (
                at.total
                if isinstance(at, Spread)
                else empty(at.shape, dtype=torch.float64, device=at.device)
            )
            purge = may_hold(lost, getattr(weigh, "watch", None))
            weights = weights.double()
            for layer, digest in digests:
                made_from = digest.without(lost) if purge else digest.made_from
                own = [place for place in self.places if place.layer is layer]
                into = [
                    at.room(place.offset, place.shape, torch.float64)
                    if isinstance(at, Spread)
                    else result[:, place.offset : place.offset + place.shape.numel()]
                    for place in own
                ]
                layer.sums(made_from, weights, into)
                for place, sums in zip(own, into, strict=True):
                    if isinstance(at, Spread):
                        at.add(place.offset, sums)
        self._forget()
        return result

    def outputs(self, at: Tensor, inputs: Tensor) -> Tensor:
        models: Tensor | Spread = at
        if self.shards is not None and at.shape[1] < self.dims:
            whose = torch.arange(len(at), device=at.device)
            models = Spread(at, whose, self.dims, self.shards)
        with torch.no_grad():
            outputs = self._run(models, inputs, keeps=False)
        self._forget()
        return outputs.unflatten(0, inputs.shape[:2])


def _squares(digests: list[Digest]) -> list[Tensor]:
    """Over all layers, squared norms, and those of terms if some are not 0."""
    parts = [[digest.square for digest in digests]]
    parts.append([digest.terms for digest in digests if digest.terms is not None])
    return [torch.stack(each).sum(0) for each in parts if each]


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
