"""A user's own model and loss: checked, and wrapped for per-record clipping."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from privaudit.files.arguments import public
from privaudit.files.user_code import checked
from trainers.models.start import cross_entropy

Loss = Callable[[Tensor, Tensor], Tensor]  # one number a record: (samples,)

_ROWS = 3  # of a batch that is compared with its records alone


def own_loss(loss: Callable[..., Any] | None, outputs: Tensor, targets: Tensor) -> Loss:
    """A user's loss as one number a record.

    Parameters
    ----------
    loss
        From (outputs, targets) of a batch to a number, which is the mean or the sum of
        the records' own, or to one number a record. None: cross entropy.
    outputs, targets
        Of a few records, (samples, ...), to try it on.

    Returns
    -------
    From (samples, ...) outputs and targets to (samples,).

    Raises
    ------
    ValueError
        If it fails, or is not made of the records' own losses.
    """
    if loss is None:
        _check_classes(outputs, targets)
        loss = functional.cross_entropy
    if not callable(loss):
        raise ValueError(
            f"loss is a function of outputs and targets, got {type(loss).__name__}; "
            "such as torch.nn.functional.mse_loss"
        )
    with checked("the loss fails on a batch of records"):
        together = loss(outputs, targets)
    if not isinstance(together, Tensor) or not together.is_floating_point():
        raise ValueError(
            f"the loss gives {type(together).__name__}, not a tensor of floats"
        )

    def one(output: Tensor, target: Tensor) -> Tensor:
        found = loss(output[None], target[None])
        if found.numel() != 1:
            raise ValueError(
                f"the loss gives {found.numel()} numbers for one record; it must give "
                "one, such as their mean"
            )
        return found.reshape(())

    with checked("the loss fails on one record"):
        alone = torch.stack([one(*pair) for pair in zip(outputs, targets, strict=True)])
    if not alone.isfinite().all():
        raise ValueError(
            "the loss of a record is not finite at the start of training, for "
            f"{outputs.shape[0]} records: check the loss, and the model's parameters"
        )
    candidates = [alone] if together.numel() > 1 else [alone.mean(), alone.sum()]
    if not any(_close(together.reshape(each.shape), each) for each in candidates):
        raise ValueError(
            "the loss of a batch is not made of the losses of its records alone: each "
            "must be a record's own, with nothing shared within the batch (class "
            "weights under a mean are, use reduction='sum')"
        )
    if loss is functional.cross_entropy and outputs.dim() == 2 and targets.dim() == 1:
        return cross_entropy  # the same, faster
    batched = torch.func.vmap(one)
    try:
        if _close(batched(outputs, targets), alone):
            return batched
    except RuntimeError:
        pass  # code that looks at its values: record by record

    def in_turn(outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([one(*pair) for pair in zip(outputs, targets, strict=True)])

    return in_turn


def check_model(module: nn.Module, inputs: Tensor) -> Tensor:
    """What ``module`` says of a few records, (samples, ...), each by itself.

    Raises
    ------
    ValueError
        If it has nothing to train, cannot take the records, mixes them, keeps something
        of them in a buffer, or draws random numbers. What a module keeps in attributes
        of Python's is not looked at.
    """
    if not any(each.requires_grad for each in module.parameters()):
        raise ValueError(
            "the model has no parameters to train: none requires a gradient"
        )
    module = copy.deepcopy(module).train()
    before = [buffer.clone() for buffer in module.buffers()]
    drawn = torch.random.get_rng_state()
    shape = tuple(inputs.shape[1:])
    cannot = f"the model cannot take inputs of shape {shape} and {inputs.dtype}"
    with checked(cannot), torch.no_grad():
        # Unlike each other, so that what mixes them shows.
        if inputs.is_floating_point():
            scales = torch.linspace(0.5, 1.0, len(inputs))
            inputs = inputs * scales.view(-1, *[1] * len(shape))
        together = module(inputs)
        alone = [module(row[None]) for row in inputs]
    if not isinstance(together, Tensor) or len(together) != len(inputs):
        raise ValueError(
            "the model must give one tensor with a row a record, got "
            f"{_told(together)} for {len(inputs)} records"
        )
    if not _close(torch.cat(alone), together):
        raise ValueError(
            "the model mixes the records of a batch: what it says of one depends on "
            "the others, so that clipping bounds nothing; let it treat each alone"
        )
    for (name, buffer), was in zip(module.named_buffers(), before, strict=True):
        if not torch.equal(buffer, was):
            raise ValueError(
                f"the model keeps something of its records in the buffer {name}, from "
                "which it reaches others, so that clipping bounds nothing; take out "
                "what keeps it, such as running statistics or spectral_norm"
            )
    if not torch.equal(drawn, torch.random.get_rng_state()):
        raise ValueError(
            "the model draws random numbers, which depend on how many records were "
            "drawn before; take out what draws them, such as dropout"
        )
    return together


@public
def replace_batch_norm(module: nn.Module, groups: int = 32) -> nn.Module:
    """Copy ``module``, with group normalisation in place of every batch normalisation.

    Batch statistics mix the records of a batch, so that clipping a record's gradient
    does not bound its influence. Group normalisation (Wu and He 2018) reads one record
    alone. Learned scales and shifts are kept; running statistics are dropped, so
    outputs change.

    Parameters
    ----------
    module
        Any module; it is not changed.
    groups
        Largest number of groups of channels. A layer gets the largest number up to
        this that divides its channels. BatchNorm1d always gets one group (a layer
        normalisation), as a channel may be a single number.

    Raises
    ------
    ValueError
        If ``groups`` is less than 1.

    Examples
    --------
    >>> import privaudit as pa, torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3), torch.nn.BatchNorm2d(6))
    >>> pa.replace_batch_norm(net)[1]
    GroupNorm(6, 6, eps=1e-05, affine=True, bias=True)
    """
    if groups < 1:
        raise ValueError(f"groups must be >= 1, got {groups}")
    module = copy.deepcopy(module)
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return _group_norm(module, groups)
    for name, layer in list(module.named_modules()):
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            module.set_submodule(name, _group_norm(layer, groups))
    return module


def _group_norm(layer: nn.modules.batchnorm._BatchNorm, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    if isinstance(layer, nn.BatchNorm1d):
        groups = 1
    parts = next(n for n in range(min(groups, channels), 0, -1) if channels % n == 0)
    made = nn.GroupNorm(parts, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        made.weight, made.bias = layer.weight, layer.bias
    return made


def few(read: Callable[[Tensor], tuple[Tensor, Tensor]], records: int) -> Any:
    """Made-up inputs and targets, `_ROWS` of the shape and kind that records have.

    No value of a record is used: what the data are decides nothing here.
    """
    input, target = (part[0] for part in read(torch.zeros(1, dtype=torch.long)))
    generator = torch.Generator().manual_seed(0)

    def made(like: Tensor) -> Tensor:
        shape = (_ROWS, *like.shape)
        if like.is_floating_point():
            return torch.rand(shape, generator=generator).to(like)
        return like.new_zeros(shape)

    return made(input), made(target)


def _check_classes(outputs: Tensor, targets: Tensor) -> None:
    if targets.is_floating_point() or outputs.dim() < 2:
        raise ValueError(
            "cross entropy, the loss if none is given, takes outputs of shape (samples,"
            f" classes) and integer targets, got {tuple(outputs.shape)} and "
            f"{targets.dtype}; give a loss, such as torch.nn.functional.mse_loss"
        )
    if outputs.shape[2:] != targets.shape[1:]:
        raise ValueError(
            f"outputs of shape {tuple(outputs.shape)} and targets of shape "
            f"{tuple(targets.shape)} do not fit for cross entropy"
        )


def _close(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape:
        return False
    left, right = left.detach().double(), right.detach().double()
    return torch.allclose(left, right, rtol=1e-3, atol=1e-5, equal_nan=True)


def _told(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return type(value).__name__
