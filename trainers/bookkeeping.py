"""Weighted sums of per-sample gradients without per-sample gradients.

One forward pass over all replicas and samples; one backward pass to the *outputs* of
the layers with parameters. A sample's gradient in a layer is a product of what went in
and of what came back, so its norm follows from the two (Goodfellow 2015; ghost norms,
Li et al. 2022; book-keeping, Bu et al. 2023) and the weighted sum is one batched matrix
product a layer. Here every sample of every replica goes through as one flat batch, and
only the layers with parameters unfold it into (replicas, samples).
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.per_sample import Loss, PerSample, Weigh, check_module


class StackedLayer(nn.Module):
    """A layer whose parameters differ from replica to replica.

    It stands where the original stood. `parameters_now` holds views into the stacked
    vector, by name; ``taken`` and ``given`` are what the last forward pass saw.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names
        self.parameters_now: dict[str, Tensor] = {}
        self.taken: list[Tensor] = []
        self.given: list[Tensor] = []

    def forward(self, flat: Tensor) -> Tensor:  # (replicas * samples, ...)
        replicas = self.parameters_now["weight"].shape[0]
        taken, given = self.compute(flat, replicas)
        if not given.requires_grad:
            given.requires_grad_()
        self.taken.append(taken.detach())
        self.given.append(given)
        return given

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        """What is kept for later, and the layer's output."""
        raise NotImplementedError  # each layer has its own

    def squared_norms(self, taken: Tensor, returned: Tensor) -> Tensor:
        """(replicas * samples,) from what was kept and the output's gradient."""
        raise NotImplementedError  # each layer has its own

    def sums(self, taken: Tensor, returned: Tensor, weights: Tensor) -> dict:
        """Weighted sums of the gradients of each parameter, (replicas, ...)."""
        raise NotImplementedError  # each layer has its own


class StackedLinear(StackedLayer):
    """`torch.nn.Linear` over (samples, features) or (samples, positions, features)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__([name for name, _ in layer.named_parameters()])

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        weight, bias = self.parameters_now["weight"], self.parameters_now.get("bias")
        rows = flat.reshape(replicas, -1, flat.shape[-1])
        if bias is None:
            out = torch.bmm(rows, weight.mT)
        else:
            out = torch.baddbmm(bias[:, None], rows, weight.mT)
        return flat, out.view(*flat.shape[:-1], -1)

    def squared_norms(self, taken: Tensor, returned: Tensor) -> Tensor:
        biased = "bias" in self.names
        if taken.dim() == 2:
            inside = taken.square().sum(-1) + biased
            return inside * returned.square().sum(-1)
        # Several positions share the weights: a sample's gradient is a sum of outer
        # products, whose squared norm is the sum of the product of two Gram matrices.
        taken, returned = taken.flatten(1, -2), returned.flatten(1, -2)
        inside = torch.bmm(taken, taken.mT) + biased
        return (inside * torch.bmm(returned, returned.mT)).sum((1, 2))

    def sums(self, taken: Tensor, returned: Tensor, weights: Tensor) -> dict:
        replicas = weights.shape[0]
        share = weights.reshape(-1, *[1] * (returned.dim() - 1)) * returned
        share = share.view(replicas, -1, share.shape[-1])
        result = {
            "weight": torch.bmm(share.mT, taken.reshape(replicas, -1, taken.shape[-1]))
        }
        if "bias" in self.names:
            result["bias"] = share.sum(1)
        return result


class StackedConv2d(StackedLayer):
    """`torch.nn.Conv2d` without groups and with zero padding, as a matrix product."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__([name for name, _ in layer.named_parameters()])
        self.kernel, self.stride, self.dilation = (
            _pair(size) for size in (layer.kernel_size, layer.stride, layer.dilation)
        )
        self.padding = _pair(layer.padding)

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        weight, bias = self.parameters_now["weight"], self.parameters_now.get("bias")
        patches = self._patches(flat)  # (flat, inputs, places)
        kernel = weight.flatten(2)  # (replicas, channels, inputs)
        samples = flat.shape[0] // replicas
        kernel = kernel.repeat_interleave(samples, 0)
        if bias is None:
            out = torch.bmm(kernel, patches)
        else:
            offset = bias.repeat_interleave(samples, 0)[:, :, None]
            out = torch.baddbmm(offset, kernel, patches)
        return patches, out.view(*out.shape[:2], *self._places(flat))

    def _patches(self, flat: Tensor) -> Tensor:
        if self.dilation != (1, 1):
            return functional.unfold(
                flat, self.kernel, self.dilation, self.padding, self.stride
            )
        # The same by one strided copy: torch's own unfold on the CPU goes sample by
        # sample, which costs half of a step on small images.
        (high, wide), (down, right) = self.kernel, self.stride
        vertical, horizontal = self.padding
        if vertical or horizontal:
            flat = functional.pad(flat, (horizontal, horizontal, vertical, vertical))
        windows = flat.unfold(2, high, down).unfold(3, wide, right)
        return windows.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)

    def _places(self, flat: Tensor) -> list[int]:
        sizes = zip(
            flat.shape[2:],
            self.kernel,
            self.dilation,
            self.padding,
            self.stride,
            strict=True,
        )
        return [
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, dilation, padding, stride in sizes
        ]

    def _per_sample(self, taken: Tensor, returned: Tensor) -> Tensor:
        return torch.bmm(returned, taken.mT)  # (flat, channels, inputs)

    def squared_norms(self, taken: Tensor, returned: Tensor) -> Tensor:
        returned = returned.flatten(2)
        places, channels, inputs = taken.shape[2], returned.shape[1], taken.shape[1]
        if channels * inputs <= 2 * places * places:
            square = self._per_sample(taken, returned).square().sum((1, 2))
        else:
            gram = torch.bmm(taken.mT, taken) * torch.bmm(returned.mT, returned)
            square = gram.sum((1, 2))
        if "bias" in self.names:
            square = square + returned.sum(2).square().sum(1)
        return square

    def sums(self, taken: Tensor, returned: Tensor, weights: Tensor) -> dict:
        replicas, samples = weights.shape
        share = weights.reshape(-1, 1, 1) * returned.flatten(2)
        # (replicas, channels, samples * places) by (replicas, samples * places, inputs)
        left = share.view(replicas, samples, *share.shape[1:]).transpose(1, 2)
        right = taken.view(replicas, samples, *taken.shape[1:]).transpose(1, 2)
        result = {"weight": torch.bmm(left.flatten(2), right.flatten(2).mT)}
        if "bias" in self.names:
            result["bias"] = share.view(replicas, samples, *share.shape[1:]).sum((1, 3))
        return result


def _pair(sizes: Any) -> tuple[int, int]:
    down, right = sizes
    return int(down), int(right)


def _stacked(layer: nn.Module) -> StackedLayer | None:
    """The stacked form of a layer that is known, None for any other."""
    if type(layer) is nn.Linear:
        return StackedLinear(layer)
    if (
        type(layer) is nn.Conv2d
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    ):
        return StackedConv2d(layer)
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    layer: StackedLayer
    name: str  # of the parameter within its layer
    offset: int
    shape: torch.Size


class UnknownLayerError(Exception):
    """The module has parameters outside the layers that book-keeping knows."""


class BookKeeping:
    """As `trainers.per_sample.PerSample`, for modules of linear and convolution layers.

    Raises `UnknownLayerError` for other modules, and for those that use a layer twice
    or mix the samples of a batch: it is tried on two random samples against the
    reference.
    """

    def __init__(self, module: nn.Module, loss: Loss, example: Tensor) -> None:
        check_module(module)
        self.loss = loss
        self.template = copy.deepcopy(module)
        self.places: list[_Place] = []
        self.layers: list[StackedLayer] = []
        offsets: dict[str, tuple[int, torch.Size]] = {}
        self.dims = 0
        self._values = 0
        for name, parameter in module.named_parameters():
            offsets[name] = (self.dims, parameter.shape)
            self.dims += parameter.numel()
        for path, layer in module.named_modules():
            stacked = _stacked(layer)
            if stacked is None:
                continue
            self.layers.append(stacked)
            for name in stacked.names:
                full = f"{path}.{name}" if path else name
                if full not in offsets:
                    raise UnknownLayerError(f"{full} shares its values with another")
                self.places.append(_Place(stacked, name, *offsets.pop(full)))
            if path:
                self.template.set_submodule(path, stacked)
            else:
                self.template = stacked
        if offsets:
            raise UnknownLayerError(f"no book-keeping for {', '.join(offsets)}")
        self._try(PerSample(module, loss), example)

    def _try(self, reference: PerSample, example: Tensor) -> None:
        """Compare with the reference on random samples, two models at once."""
        generator = torch.Generator().manual_seed(0)

        def random(*shape: int) -> Tensor:
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
            return drawn.to(example)

        at = 0.3 * random(2, self.dims)
        inputs = random(2, 2, *example.shape)
        targets = torch.zeros(2, 2, dtype=torch.long, device=example.device)
        seen: list[Tensor] = []

        def weigh(norms: Tensor) -> Tensor:
            seen.append(norms)
            return torch.tensor([[1.0, 0.5], [0.25, 2.0]]).to(norms)

        try:
            ours = self.weighted_sum(at, inputs, targets, weigh)
            theirs = reference.weighted_sum(at, inputs, targets, weigh)
        except (RuntimeError, IndexError, AttributeError, TypeError) as error:
            raise UnknownLayerError(f"it cannot run stacked: {error}") from error
        for left, right in ((ours, theirs), (seen[0], seen[1])):
            if not torch.allclose(left, right, rtol=1e-3, atol=1e-4):
                raise UnknownLayerError("its samples are not independent of each other")

    @property
    def values_per_sample(self) -> int:
        """About how many numbers one sample of a batch keeps alive."""
        return self._values

    def _run(self, at: Tensor, inputs: Tensor) -> Tensor:
        replicas = at.shape[0]
        for layer in self.layers:
            layer.taken, layer.given = [], []
        for place in self.places:
            part = at[:, place.offset : place.offset + place.shape.numel()]
            place.layer.parameters_now[place.name] = part.unflatten(1, place.shape)
        outputs = self.template(inputs.reshape(-1, *inputs.shape[2:]))
        if any(len(layer.given) != 1 for layer in self.layers):
            raise UnknownLayerError("a layer is not used exactly once")
        self._values = 3 * sum(
            (layer.taken[0].numel() + layer.given[0].numel())
            // (replicas * inputs.shape[1])
            for layer in self.layers
        )
        return outputs

    def weighted_sum(
        self, at: Tensor, inputs: Tensor, targets: Tensor, weigh: Weigh
    ) -> Tensor:
        """Sum over the samples of weight times gradient, (replicas, dims).

        Parameters
        ----------
        at
            (replicas, dims)
        inputs, targets
            (replicas, samples, ...)
        weigh
            Called once with the L2 norms, (replicas, samples).
        """
        with torch.enable_grad():
            outputs = self._run(at.detach(), inputs)
            losses = self.loss(outputs, targets.reshape(-1, *targets.shape[2:]))
            returned = torch.autograd.grad(
                losses.sum(), [layer.given[0] for layer in self.layers]
            )
        with torch.no_grad():
            taken = [layer.taken[0] for layer in self.layers]
            squares = [
                layer.squared_norms(inside, back)
                for layer, inside, back in zip(
                    self.layers, taken, returned, strict=True
                )
            ]
            norms = torch.stack(squares).sum(0).sqrt()
            weights = weigh(norms.view(inputs.shape[:2]))
            sums = {
                layer: layer.sums(inside, back, weights)
                for layer, inside, back in zip(
                    self.layers, taken, returned, strict=True
                )
            }
            result = torch.empty_like(at)
            for place in self.places:
                end = place.offset + place.shape.numel()
                part = sums[place.layer][place.name]
                result[:, place.offset : end] = part.flatten(1)
        return result

    def outputs(self, at: Tensor, inputs: Tensor) -> Tensor:
        """What each replica's model says of its inputs, (replicas, samples, ...)."""
        with torch.no_grad():
            return self._run(at, inputs).unflatten(0, inputs.shape[:2])


def differentiator(
    module: nn.Module, loss: Loss, example: Tensor
) -> BookKeeping | PerSample:
    """The fastest exact way to sum per-sample gradients of ``module``.

    ``example`` is one sample's input. Raises ``ValueError`` for a module whose records
    have no gradient of their own (batch statistics).
    """
    try:
        return BookKeeping(module, loss, example)
    except UnknownLayerError:
        return PerSample(module, loss)
