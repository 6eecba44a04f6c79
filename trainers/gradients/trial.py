"""Tests a module's book-keeping on two random samples, and its memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainers.gradients.door.traced import Traced, TracedLoss
from trainers.gradients.per_sample import PerSample, trained, without_parameters
from trainers.gradients.spread import Drawn, Spread
from trainers.gradients.stacked.layer import UnknownLayerError

# A module is tried against the reference where that takes at most about this many
# multiplications and parameters: less than a second.
TRIAL_PRODUCTS = 1 << 29
TRIAL_DIMS = 1 << 26
_PART = 1 << 16  # numbers that are compared at once: a vector more is memory


def agrees(
    ours: Any, module: nn.Module, example: Tensor, target: Tensor | None = None
) -> bool:
    """Compare ``ours``, a `trainers.gradients.bookkeeping.BookKeeping` of ``module``,
    with the reference on random samples; False if only outputs could be."""
    generator = torch.Generator().manual_seed(0)
    drawn = Drawn(module)
    few = 1 if ours.dims > TRIAL_DIMS >> 6 else 2
    like, inputs = _samples(few, example, generator, module)
    rows = torch.arange(few, device=like.device)
    with torch.enable_grad():
        products = ours.measure(drawn.spread(rows, few, like), inputs)
    if products > TRIAL_PRODUCTS or ours.dims > TRIAL_DIMS:
        _outputs_agree(ours, module, drawn.spread(rows[:1], 1, like), inputs[:1])
        return False
    # In double precision a maximum is not decided by a rounding; buffers of the
    # module would have to follow.
    # Whose operations have their types.
    traced = isinstance(module, Traced) or isinstance(ours.loss, TracedLoss)
    if (
        example.is_floating_point()
        and not traced
        and not any(
            kept.is_floating_point()
            for kept in (*ours.template.buffers(), *ours.template.parameters())
        )
    ):
        example = example.double()
    replicas = few if products < TRIAL_PRODUCTS >> 4 else 1
    like, inputs = _samples(replicas, example, generator, module)
    at = drawn.whole(replicas, like)
    if target is None:
        target = torch.zeros((), dtype=torch.long, device=example.device)
    elif target.is_floating_point():
        target = target.to(at.dtype)
    targets = target.expand(replicas, 2, *target.shape)
    weights = torch.tensor([[1.0, 0.5], [0.25, 2.0]])[:replicas].to(at)
    seen: list[Tensor] = []

    def weigh(norms: Tensor) -> Tensor:
        seen.append(norms)
        return weights

    # What is left of it, in place: of a large model each vector more is memory.
    result = ours.weighted_sum(at, inputs, targets, weigh, 0.0).to(at.dtype)
    reference = PerSample(module, ours.loss)
    reference.module.to(at.dtype)
    for replica in range(replicas):
        allowed = _allowed(result[replica])
        for sample in range(2):
            here = (replica, sample)
            # One by one: what another sample of the batch does cannot matter.
            gradient = reference.gradient(at[replica], inputs[here], targets[here])
            result[replica].sub_(gradient, alpha=float(weights[here]))
            # In single precision, a norm of millions of numbers loses digits.
            parts = [part.double().norm() for part in gradient.split(_PART)]
            norm = torch.stack(parts).norm().to(gradient)
            _none(seen[0][here] - norm, _allowed(norm))
            del gradient
        _none(result[replica], allowed)
    return True


def _outputs_agree(ours: Any, module: nn.Module, at: Spread, inputs: Tensor) -> None:
    """Compare what two samples give together with what each gives alone.

    A layer has its parameters while it computes; all that a graph has are there.
    """
    together = ours.outputs(at, inputs)[0]
    reference = without_parameters(module)
    parameters = trained(reference)
    layers: dict[str, list[Any]] = {}
    for place in ours.places:
        path = place.full.removesuffix(place.name).rstrip(".")
        layers.setdefault("" if isinstance(module, Traced) else path, []).append(place)
    for path, places in layers.items():
        own = [(parameters[each.full], each) for each in places]

        def fill(*_: Any, own: Any = own) -> None:
            for parameter, place in own:
                found = at.parameter(place.offset, place.shape)
                parameter.data = found.view(place.shape)

        def empty(*_: Any, own: Any = own) -> None:
            for parameter, _ in own:
                parameter.data = parameter.new_zeros(()).expand(parameter.shape)

        layer = reference.get_submodule(path)
        layer.register_forward_pre_hook(fill)
        layer.register_forward_hook(empty)
    with torch.no_grad():
        for sample, output in zip(inputs[0], together, strict=True):
            alone = reference(sample[None])
            _none(output - alone[0], _allowed(alone[0]))


def _samples(
    replicas: int, example: Tensor, generator: torch.Generator, module: nn.Module
) -> tuple[Tensor, Tensor]:
    """A tensor of the type of models, and two samples for each of ``replicas``."""
    like = example.new_empty(0)
    if not example.is_floating_point():
        like = like.to(next(iter(trained(module).values())).dtype)
    else:
        shape = (replicas, 2, *example.shape)
        drawn = torch.randn(shape, generator=generator, dtype=like.dtype)
        return like, drawn.to(example.device)
    # Tokens: the example's own, in another order each time.
    rows = [
        example.flatten()[torch.randperm(example.numel(), generator=generator)]
        for _ in range(2 * replicas)
    ]
    return like, torch.stack(rows).view(replicas, 2, *example.shape)


def _allowed(values: Tensor) -> float:
    size = values.aminmax()
    return torch.finfo(values.dtype).eps ** 0.5 * (
        1e-3 + max(float(size.max), -float(size.min))
    )


def _none(rest: Tensor, allowed: float) -> None:
    for part in rest.flatten().split(_PART):
        if not part.abs().max() <= allowed:
            raise UnknownLayerError("its samples are not independent of each other")
