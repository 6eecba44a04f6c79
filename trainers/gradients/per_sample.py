"""Weighted sums of per-sample gradients by `torch.func`: slow, and the reference."""

from __future__ import annotations

import copy
import functools
import os
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from trainers.data import forked
from trainers.data.forked import Ended
from trainers.gradients.stacked.layer import explicit_sums, squared_rows
from trainers.numerics.deferred_checks import may_hold
from trainers.numerics.device import follow

Loss = Callable[
    [Tensor, Tensor], Tensor
]  # (samples, ...), (samples, ...) -> (samples,)
Weigh = Callable[[Tensor], Tensor]  # norms (replicas, samples) -> weights, same shape


def check_module(module: nn.Module, *, traced: bool = False) -> None:
    """Raise ``ValueError`` for a module that cannot be trained privately.

    That is one with layers that mix records or draw unseeded numbers, or with
    parameters in which noise would be rounded to a few digits; or any, while hooks or
    modes are set for all of torch. Where it is to be ``traced``, dropout is drawn by a
    key.
    """
    check_hooks()
    for name, held in (*module.named_parameters(), *module.named_buffers()):
        if held.layout is not torch.strided:
            raise ValueError(
                f"{name} of the model is {held.layout}, and only dense tensors are "
                f"copied for each record: give it as {name}.to_dense()"
            )
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ValueError(
                f"parameter {name} has no shape until the model is called: call it "
                "once before, on made-up records"
            )
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"parameter {name} is {parameter.dtype}: gradients would be summed and "
                "noise added in that, whose few digits show what noise should hide; "
                "keep parameters in float32 and use --precision bf16"
            )
    check_statistics(module)
    for name, layer in module.named_modules():
        where = _where(name, layer)
        between = isinstance(layer, nn.RNNBase) and layer.num_layers > 1
        if between and layer.dropout and layer.training:
            raise ValueError(
                f"{where} has dropout between its layers, which is not applied where a "
                "record's gradient is its own; set dropout=0, or stack layers of one "
                "with torch.nn.Dropout between them"
            )
        dropout = isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0
        if dropout and layer.training and not traced:
            raise ValueError(
                f"{where} draws from torch's global generator, so that equal seeds "
                "would not give equal runs; set p=0"
            )


def check_statistics(module: nn.Module) -> None:
    """Raise ``ValueError`` for layers that mix the records of a batch or keep some."""
    for name, layer in module.named_modules():
        where = _where(name, layer)
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and (
            layer.training or not layer.track_running_stats
        ):
            raise ValueError(
                f"{where} uses the statistics of the batch, so that one record moves "
                "the gradients of all others and clipping bounds nothing; use "
                "torch.nn.GroupNorm instead, which privaudit.replace_batch_norm puts "
                "in its place"
            )
        if getattr(layer, "max_norm", None) is not None and isinstance(
            layer, nn.Embedding | nn.EmbeddingBag
        ):
            raise ValueError(
                f"{where} with max_norm writes to its weight as it reads a record, so "
                "that the record reaches others and what is released without noise; "
                "leave max_norm out"
            )
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and (
            layer.track_running_stats
        ):
            raise ValueError(
                f"{where} keeps running statistics of private records that no noise "
                "covers; set track_running_stats=False"
            )


def _where(name: str, layer: nn.Module) -> str:
    return f"layer {name or '(the module itself)'!s}: {type(layer).__name__}"


_HOOKS = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")


def check_hooks() -> None:
    """Raise ``ValueError`` where code of somebody's would see whole batches."""
    library = torch.library
    modes = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    theirs = [
        *(type(mode).__name__ for mode in modes if not _is_torchs(type(mode))),
        *["a hook on saved tensors"] * changes_saved(),
        *_not_torchs(frozenset(library._defs), frozenset(library._impls)),
    ]
    hooked = any(getattr(nn.modules.module, f"_global_{name}") for name in _HOOKS)
    calls = nn.Module.__call__, nn.Module._call_impl, nn.Module._wrapped_call_impl
    if hooked or not all(map(_is_torchs, calls)):
        theirs.append("a hook for all modules")
    if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        raise ValueError(
            "torch.autocast is on, and would round the norms of gradients otherwise "
            "than their sums, so that clipping bounds nothing: leave it to train, "
            'and say precision="bf16" for products in bfloat16'
        )
    if theirs:
        raise ValueError(
            f"{theirs[0]} is set for all of torch, and would see the records of a "
            "batch together, so that clipping bounds nothing; take it away while "
            "training"
        )


def changes_saved() -> bool:
    """Return whether this thread has a hook on saved tensors that is not torch's."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False) or ()
    # A module of torch's may hold anybody's code.
    return not all(type(one) is FunctionType and _is_torchs(one) for one in hooks)


def _is_torchs(code: Any) -> bool:
    return (getattr(code, "__module__", None) or "").partition(".")[0] == "torch"


@functools.lru_cache(1)
def _not_torchs(defined: frozenset[str], coded: frozenset[str]) -> list[str]:
    """ATen's operations that were ``defined``, or ``coded``, by others than torch."""
    found = [name for name in defined if name.startswith("aten::")]
    torchs = re.escape(os.path.dirname(torch.__file__))
    for place in coded:
        space, name, key = place.split("/")
        # Those by Meta have no values, only shapes; torch has a thousand of them.
        if space == "aten" and key != "Meta":
            table = torch._C._dispatch_dump(f"aten::{name}")
            key = key or "CompositeImplicitAutograd"
            if not re.search(f"^{key}\\S*: registered at {torchs}", table, re.M):
                found.append(f"aten::{name}")
    return [f"code of its own for {name}" for name in found]


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require a gradient, by name; the others stay as they are."""
    return {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def parameter_vector(module: nn.Module) -> Tensor:
    """All `trained` parameters as one vector, (dims,), in the module's order."""
    return torch.cat([each.detach().reshape(-1) for each in trained(module).values()])


def parameter_count(module: nn.Module) -> int:
    """Length of `parameter_vector`."""
    return sum(each.numel() for each in trained(module).values())


def parameter_places(module: nn.Module) -> dict[str, range]:
    """Places of the `trained` parameters in `parameter_vector`, by name."""
    places: dict[str, range] = {}
    end = 0
    for name, parameter in trained(module).items():
        places[name] = range(end, end + parameter.numel())
        end += parameter.numel()
    return places


def without_parameters(module: nn.Module) -> nn.Module:
    """A copy, whose `trained` parameters are zeros that take no memory."""
    hollow = {
        id(each): nn.Parameter(each.detach().new_zeros(()).expand(each.shape))
        for each in trained(module).values()
    }
    return copy.deepcopy(module, hollow)


def saying(module: nn.Module, word: int | Tensor | None) -> dict[str, Any]:
    """Arguments that say what a module of the door's draws dropout by."""
    return {"word": word} if hasattr(module, "constructed") else {}


class PerSample:
    """Per-sample gradients of modules that treat samples one by one, by `torch.func`.

    ``why``: why there is no book-keeping; None where nothing was tried. ``alone``:
    whether records go through one by one, each in memory of its own.
    """

    aligned = False
    ways = "written out by torch.func: all"
    positions = length = coarse = 0
    graphs: dict[Any, Any] | None = None
    word: int | Tensor = 0

    def __init__(self, module: nn.Module, loss: Loss, why: str | None = None) -> None:
        check_module(module)
        # A copy: torch.func puts its parameters into the module while it runs, which
        # other threads must not see. Where no code holds them, it has none of its own.
        is_graph = getattr(module, "constructed", False)
        self.module = (without_parameters if is_graph else copy.deepcopy)(module)
        self.loss, self.why = loss, why
        self.alone = any(getattr(one, "alone", False) for one in (module, loss))
        # What vmap takes one by one is right; torch warns that it is slow.
        quiet = getattr(torch._C._functorch, "_set_vmap_fallback_warning_enabled", None)
        if quiet is not None:
            quiet(False)
        self.shapes = {name: p.shape for name, p in trained(module).items()}
        self.dims = sum(shape.numel() for shape in self.shapes.values())
        self.values_per_sample = self.values_alone = 3 * self.dims

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """The module's parameters from (dims,)."""
        parts = vector.split([shape.numel() for shape in self.shapes.values()])
        return {
            name: part.view(shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def _output(
        self, vector: Tensor, samples: Tensor, word: int | Tensor | None
    ) -> Tensor:
        values, how = self.unflatten(vector), saying(self.module, word)
        return torch.func.functional_call(self.module, values, (samples,), how)

    def _loss(
        self, vector: Tensor, sample: Tensor, target: Tensor, word: int | Tensor
    ) -> Tensor:
        return self.loss(self._output(vector, sample[None], word), target[None])[0]

    def gradient(
        self, vector: Tensor, sample: Tensor, target: Tensor, word: int | Tensor = 0
    ) -> Tensor:
        """Gradient of one sample's loss at ``vector``, (dims,); 0 if its code fails."""
        if not self.alone:
            return torch.func.grad(self._loss)(vector, sample, target, word)
        (found,) = self._alone([(vector, sample, target, word)])
        return torch.zeros_like(vector) if isinstance(found, Ended) else found

    def _alone(self, given: Sequence[tuple[Any, ...]]) -> list[Tensor | Ended]:
        """Gradient of each sample's loss, each in a process of its own."""

        def one(vector: Tensor, *rest: Any) -> tuple[Tensor, ...]:
            at = vector.detach().clone().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(
                    self._loss(at, *rest), at, allow_unused=True, materialize_grads=True
                )

        # Once for equal records, as those that fill up a batch are.
        calls: dict[Any, Callable[[], forked.Tensors]] = {}
        keys = []
        for at, *record, word in given:
            parts = [part.cpu() for part in record]
            content = (part.contiguous().numpy().tobytes() for part in parts)
            keys.append((at.data_ptr(), word, *content))
            calls[keys[-1]] = functools.partial(one, at.cpu(), *parts, word)
        made = forked.each(list(calls.values()), [at])
        found = {
            key: each if isinstance(each, Ended) else each[0].to(at.device)
            for key, each in zip(calls, made, strict=True)
        }
        return [found[key] for key in keys]

    def check_alone(self, vector: Tensor, sample: Tensor, target: Tensor) -> None:
        """``ValueError`` if no gradient of a public sample comes from a process."""
        (found,) = self._alone([(vector, sample, target, 0)])
        if isinstance(found, Ended):
            raise ValueError(_why(str(found)))

    def gradients(self, at: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Gradients (replicas, samples, dims) at ``at``, (replicas, dims)."""
        word = self.word
        each = isinstance(word, Tensor)  # a word for each replica
        if not self.alone:
            follow(self.module, at.device)
            of_one = torch.func.vmap(self.gradient, (None, 0, 0, None))
            replicas = torch.func.vmap(of_one, (0, 0, 0, 0 if each else None))
            return replicas(at, inputs, targets, word)
        words = word.tolist() if each else [word] * len(at)
        given = [
            (one, x, y, said)
            for one, said, *rows in zip(at, words, inputs, targets, strict=True)
            for x, y in zip(*rows, strict=True)
        ]
        found = [
            at.new_zeros(at.shape[1]) if isinstance(one, Ended) else one
            for one in self._alone(given)
        ]
        return torch.stack(found).unflatten(0, inputs.shape[:2])

    def rows(self, at: Tensor, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        gradients = self.gradients(at, inputs, targets).flatten(0, 1)
        if self.alone:  # so that their bits are of no place, either
            each = [squared_rows(one.clone()) for one in gradients.split(1)]
            return [gradients, torch.cat(each)]
        return [gradients, squared_rows(gradients)]

    def weighted_sum(
        self,
        at: Tensor,
        inputs: Tensor,
        targets: Tensor,
        weigh: Weigh,
        slack: float = 0.0,
    ) -> Tensor:
        """See `Differentiator`; gradients are written out, and need no ``slack``."""
        gradients, squares = self.rows(at, inputs, targets)
        norms = squares.sqrt()
        lost = ~norms.isfinite()
        if may_hold(lost, getattr(weigh, "watch", None)):
            gradients = gradients.masked_fill(lost[:, None], 0)
        norms = norms.view(inputs.shape[:2])
        weights = weigh(norms).masked_fill(lost.view_as(norms), 0)
        total = torch.empty_like(at, dtype=torch.float64)
        explicit_sums([gradients], weights.double(), [total])
        return total

    def outputs(self, at: Tensor, inputs: Tensor) -> Tensor:
        device = at.device
        if self.alone:  # by one process for all: nothing of them is summed
            at, inputs = at.cpu(), inputs.cpu()
        else:
            follow(self.module, device)

        def every() -> tuple[Tensor]:
            with torch.no_grad():  # not by vmap, which some layers cannot take
                pairs = zip(at, inputs, strict=True)
                return (torch.stack([self._output(*pair, None) for pair in pairs]),)

        return forked.one(every)[0].to(device) if self.alone else every()[0]


def _why(ended: str) -> str:
    """Explain that no gradient came back."""
    if "fork-based multiprocessing" in ended or "CUDA" in ended:
        return (
            "the model cannot be traced, and what runs it instead, a process for each "
            "record, cannot take gradients where this one used a GPU before: begin "
            "anew, with CUDA_VISIBLE_DEVICES='' or without training on a GPU first"
        )
    return f"no gradient of the model comes from a process of its own: {ended}"
