"""Takes somebody else's model and loss in: by construction, or else by isolation."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from privaudit.files.user_code import checked
from trainers.data import forked
from trainers.data.generators import GLOBAL, Generators
from trainers.gradients.door import packed
from trainers.gradients.door.isolated import Isolated, IsolatedLoss
from trainers.gradients.door.trace import NotTraced, prepare
from trainers.gradients.door.traced import (
    Bare,
    Traced,
    TracedLoss,
    door_of,
    output_of,
    tokens_of,
)
from trainers.gradients.per_sample import (
    Loss,
    PerSample,
    check_module,
    parameter_vector,
    saying,
    trained,
)
from trainers.gradients.stacked import all_stacked
from trainers.models.independence import is_known
from trainers.models.start import cross_entropy

_ROWS = 3  # of placeholders, with which a batch is compared with its records
_MORE = 16  # also compared: some code mixes where a batch has a few records at least


@dataclasses.dataclass(frozen=True, slots=True)
class Entered:
    """A model and a loss that may be run on private records."""

    module: nn.Module  # with the parameters and buffers of the user's, by their names
    loss: Loss  # from (samples, ...) outputs and targets to (samples,)
    outputs: Tensor  # of a few placeholders, of which the shape is looked at
    # why it is not by construction that a record's gradient is its own, with the place
    # in the source; None where it is
    why_not: str | None = None


def enter(
    module: nn.Module,
    loss: Callable[..., Any] | None,
    input: Tensor,
    target: Tensor,
) -> Entered:
    """Take a model and a loss in: no code of theirs sees a private record, if possible.

    They are called with placeholders alone. ``loss`` goes from (outputs, targets) of a
    batch to the mean or the sum of the records' own, or to one number a record; None:
    cross entropy. Of ``input`` and ``target``, one record's, shape and type are taken.
    ``ValueError`` if the model has nothing to train, mixes records (it would be another
    model when each is alone), keeps something of them in a tensor of its own, or draws
    numbers other than dropout's; if the loss is not made of the records' own; if they
    do not fit the records.
    """
    forked.begin()
    if not any(each.requires_grad for each in module.parameters()):
        raise ValueError(
            "the model has no parameters to train: none requires a gradient"
        )
    where = {each.device for each in (*module.parameters(), *module.buffers())}
    if where != {input.device}:
        names = ", ".join(sorted(map(str, where)))
        raise ValueError(
            f"the model is on {names}, and a record on {input.device}: give it as "
            f'model.to("{input.device}"); device="cuda" trains on a GPU'
        )
    # Of layers that are known, an embedding fails on a token that it has no row for,
    # and some have book-keeping as graphs alone.
    known = is_known(module) and not tokens_of(module) and all_stacked(module)
    check_module(module, traced=not known)
    inputs = placeholders(module, input, _ROWS)
    why_not = None
    with checked("the model cannot be copied"):
        taken: Any = copy.deepcopy(module) if known else module
    if not known:
        try:
            # Here and below by other processes: nothing of a trace stays in this one.
            graph = _public(lambda: _graph(module, inputs[0]))
            taken = Traced(module, inputs[0], graph)
        except NotTraced as error:
            why_not = f"the model could not be traced: {error}"
            taken = Isolated(module)
    shape = tuple(input.shape)
    cannot = f"the model cannot take inputs of shape {shape} and {input.dtype}"
    if target.dim() > input.dim() == 0:
        cannot += (
            f", and targets have shape {tuple(target.shape)}: are they the inputs? A "
            "data set is a pair (inputs, targets)"
        )
    elif not input.is_floating_point() and not tokens_of(module):
        cannot += ", which is for tokens: give floats, such as pixels / 255"
    elif any(one.dtype == torch.float64 for one in module.parameters()):
        cannot += ", as records are held: give model.float()"
    with checked(cannot), torch.no_grad():
        rows = inputs.split(1)
        alone = torch.cat([taken(row, **saying(taken, None)) for row in rows])
        same = known and _close(taken(inputs), alone)
    if not known:
        both = inputs, placeholders(module, input, _MORE)
        same = _public(lambda: all(_same_together(module, taken, x) for x in both))
    if not same:
        more = placeholders(module, input, _MORE)
        raise ValueError(_public(lambda: _unlike(module, taken, more)))
    targets = _targets(target, alone)
    each, why = _loss(loss, alone, targets)
    for one in (taken, each):
        if getattr(one, "alone", False):
            vector = parameter_vector(taken)
            PerSample(taken, each).check_alone(vector, inputs[0], targets[0])
            break
    return Entered(taken, each, alone, why_not or why)


def _graph(module: nn.Module, input: Tensor) -> fx.GraphModule:
    """The model's graph; `NotTraced` if torch's gradient is another, by a hook."""
    taken = Traced(module, input)
    own = module if forked.inside() else copy.deepcopy(module)
    drops = door_of(taken).draws
    if drops:  # as it is without; else each part is in the mode that its owner set
        own.eval()
    row = input[None]

    def theirs() -> Tensor:
        return output_of(own(row.clone()))

    values = [*trained(own).values()], [*trained(taken).values()]
    changed = _changed(theirs, lambda: taken(row, None), *values)
    if changed and drops:  # it may be another model where it is evaluated
        now = Traced(own, input)
        values = values[0], [*trained(now).values()]
        changed = _changed(theirs, lambda: now(row), *values)
    if changed:
        hooked = (name for name, one in trained(own).items() if one._backward_hooks)
        raise NotTraced(changed.format(next(hooked, "a tensor")))
    graph = door_of(taken).graph
    assert graph is not None
    return graph


def _graph_of_loss(
    loss: Callable[..., Any], outputs: Tensor, targets: Tensor
) -> TracedLoss:
    """Trace a loss of one record, as `_graph` does a model."""
    taken = TracedLoss.of(loss, outputs[0], targets[0])
    rows = [outputs[:1].detach().clone().requires_grad_() for _ in range(2)]
    changed = _changed(
        lambda: loss(rows[0] * 1, targets[:1].clone()),
        lambda: taken(rows[1], targets[:1]),
        *(rows[:1], rows[1:]),
    )
    if changed:
        raise NotTraced(changed.format("a tensor"))
    return taken


def _changed(
    theirs: Callable[[], Tensor],
    ours: Callable[[], Tensor],
    values: list[Any],
    own: list[Any],
) -> str:
    """Words for outputs or gradients that differ by more than rounding; none if not.

    What fails here is told of where it is used.
    """
    found, outputs = [], []
    with contextlib.suppress(Exception), torch.enable_grad():
        for call, given in ((theirs, values), (ours, own)):
            outputs.append(output := call())
            weights = torch.linspace(0.5, 1.5, output.numel()).view(output.shape)
            parts = torch.autograd.grad(
                (weights * output).sum(),
                given,
                allow_unused=True,
                materialize_grads=True,
            )
            flat = torch.cat([part.flatten() for part in parts])
            found.append(flat.double().nan_to_num())
        if not _close(outputs[1].reshape(outputs[0].shape), outputs[0]):
            return "called, it gives another output than its operations as traced"
        if (found[0] - found[1]).norm() > 0.01 * found[1].norm():
            return "its gradient is not that of its operations: a hook on {} changes it"
    return ""


def _public(call: Callable[[], Any]) -> Any:
    prepare()
    return forked.public(call, packed)


def placeholders(module: nn.Module, like: Tensor, count: int) -> Tensor:
    """So many made-up inputs, of the shape and type of ``like``: (count, ...).

    Random numbers; tokens are of the smallest of all embeddings.
    """
    shape = (count, *like.shape)
    generator = torch.Generator().manual_seed(0)
    if like.is_floating_point():
        # Unlike each other, so that what mixes them shows.
        scales = torch.linspace(0.5, 1.0, count).view(-1, *[1] * like.dim())
        return (torch.randn(shape, generator=generator) * scales).to(like)
    most = min(tokens_of(module), default=1)
    return torch.randint(0, most, shape, generator=generator).to(like)


def _targets(like: Tensor, outputs: Tensor) -> Tensor:
    """Made-up targets: the first class, then the second; or numbers from 0 to 1."""
    rows = torch.linspace(0, 1, len(outputs), device=like.device)
    if not like.is_floating_point():
        classes = outputs.shape[1] if outputs.dim() > 1 else 2
        rows = (rows > 0) & (classes > 1)
    rows = rows.to(like.dtype).view(-1, *[1] * like.dim())
    return rows.expand(-1, *like.shape).clone()


def _undrawn(
    module: nn.Module, taken: nn.Module, input: Tensor
) -> tuple[nn.Module, nn.Module]:
    """A copy of the module, and what was taken of it, without dropout."""
    own = copy.deepcopy(module)
    if isinstance(taken, Bare) and door_of(taken).draws:
        own.eval()
        taken = Traced(own, input)
    return own, taken


def _same_together(module: nn.Module, taken: nn.Module, inputs: Tensor) -> bool:
    """Return whether the module says the same of a batch as of single records."""
    try:
        own, taken = _undrawn(module, taken, inputs[0])
    except (NotTraced, ValueError):
        return True
    try:
        with torch.no_grad():
            generators = Generators(own, torch.default_generator, *GLOBAL)
            together = output_of(own(inputs.clone()))
            if generators.drew() or not isinstance(together, Tensor):
                return True
            return _close(taken(inputs), together)
    except Exception:  # of one record it works, and that is what it is used for
        return True


def _seen(module: nn.Module, inputs: Tensor) -> list[tuple[str, Tensor]]:
    """Tensors that each part of a module is given and gives, in the order of calls."""
    own, found = copy.deepcopy(module), []

    def see(what: str, value: Any) -> None:
        if isinstance(value, Tensor):
            found.append((what, value.detach().clone()))

    for name, part in own.named_modules():
        a, b = (f"what {name} ({type(part).__name__}) {it}" for it in ("gets", "gives"))
        if name:
            part.register_forward_pre_hook(lambda _, x, a=a: see(a, *x[:1]))
            part.register_forward_hook(lambda _, x, y, b=b: see(b, y))
    own(inputs.clone())
    return found


def _unlike(module: nn.Module, taken: nn.Module, inputs: Tensor) -> str:
    """Words for what the model says otherwise than ``taken``, and where that begins."""
    own, taken = _undrawn(module, taken, inputs[0])
    rows, what = inputs.split(1), "what it says"
    with torch.no_grad():
        called = [output_of(copy.deepcopy(own)(row.clone())) for row in rows]
        if not all(map(_close, map(taken, rows), called)):
            kinds = (
                f"{name} is a {type(one).__name__}, whose code is left behind: make it "
                "a torch.nn.Parameter"
                for name, one in module.named_parameters()
                if type(one) is not nn.Parameter
            )
            why = "it may look at the clock, or at what runs it: let it depend on its"
            return (
                "the model gives another output for a record when it is called than "
                "where its code runs for that record alone, as clipping needs it; "
                + next(kinds, f"{why} input and parameters alone")
            )
        with contextlib.suppress(Exception):  # of calls that are not the same
            seen = (_seen(own, some) for some in (inputs, *rows))
            for (at, value), *each in zip(*seen, strict=True):
                alone = torch.cat([one for _, one in each])
                if len(value) == len(alone) and not _close(alone, value):
                    what = at
                    break
    return (
        f"the model mixes the records of a batch: {what} of one depends on the others, "
        "on those before or on the clock, so that it would be another model where each "
        "is alone, as clipping needs it; let it treat each alone"
    )


def _loss(
    loss: Callable[..., Any] | None, outputs: Tensor, targets: Tensor
) -> tuple[Loss, str | None]:
    """A loss of one number a record, and why it is not by construction."""
    if loss is None:
        _check_classes(outputs, targets)
        loss = functional.cross_entropy
    if not callable(loss):
        raise ValueError(
            f"loss is a function of outputs and targets, got {type(loss).__name__}; "
            "such as torch.nn.functional.mse_loss"
        )
    if isinstance(loss, type):
        raise ValueError(f"loss is a class: make one of it, {loss.__name__}()")
    inside = loss.parameters() if isinstance(loss, nn.Module) else ()
    if any(each.requires_grad for each in inside):
        raise ValueError(
            "the loss has parameters that require a gradient, and only the model's "
            "are trained: put them there, or fix them by loss.requires_grad_(False)"
        )
    classes = targets.dim() == 1 and not targets.is_floating_point()
    if loss is functional.cross_entropy and outputs.dim() == 2 and classes:
        return cross_entropy, None  # the same, faster
    drew, together = _public(lambda: _together(loss, outputs, targets))
    why = None
    taken: Any
    try:
        taken = _public(lambda: _graph_of_loss(loss, outputs, targets))
    except NotTraced as error:
        why = f"the loss could not be traced: {error}"
        taken = IsolatedLoss(loss)
    with checked("the loss fails on one record"):
        alone = taken(outputs, targets)
    candidates = [alone] if together.numel() > 1 else [alone.mean(), alone.sum()]
    if not drew and not any(
        each.numel() == together.numel() and _close(together.reshape(each.shape), each)
        for each in candidates
    ):
        raise ValueError(
            "the loss of a batch is not made of the losses of its records alone: each "
            "must be a record's own, with nothing shared within the batch (class "
            "weights under a mean are, use reduction='sum'; and a record's outputs "
            f"have the shape {tuple(outputs.shape[1:])}, its target has "
            f"{tuple(targets.shape[1:])})"
        )
    return taken, why


def _together(
    loss: Callable[..., Any], outputs: Tensor, targets: Tensor
) -> tuple[bool, Tensor]:
    """Return whether the loss of a batch draws random numbers, and what it is."""
    generators = Generators(loss, torch.default_generator, *GLOBAL)
    with checked("the loss fails on a batch of records"):
        found = loss(outputs, targets)
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise ValueError(
            f"the loss gives {type(found).__name__}, not a tensor of floats"
        )
    return generators.drew(), found.detach()


def _check_classes(outputs: Tensor, targets: Tensor) -> None:
    if targets.is_floating_point() or outputs.dim() < 2:
        raise ValueError(
            "cross entropy, the loss if none is given, takes outputs of shape (samples,"
            f" classes) and integer targets, got {tuple(outputs.shape)} and "
            f"{targets.dtype}; make classes integers, 0, 1, ... (floats may come of a "
            "missing label: leave such records out), or give a loss, such as "
            "torch.nn.functional.mse_loss"
        )
    if outputs.shape[2:] != targets.shape[1:]:
        raise ValueError(
            f"outputs of shape {tuple(outputs.shape)} and targets of shape "
            f"{tuple(targets.shape)} do not fit for cross entropy: a class is one "
            "whole number, as targets[:, 0] or, of one-hot rows, targets.argmax(1)"
        )
    if outputs.shape[1] == 1:
        raise ValueError(
            "the model has one output, of which cross entropy is 0 whatever it says: "
            "give it one output a class, two for yes and no, or give a loss"
        )


def _close(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape:
        return False
    left, right = left.detach().double(), right.detach().double()
    # Sums of large numbers that cancel are as wrong as these are large.
    sizes = right.nan_to_num(0.0, 0.0, 0.0).abs().flatten()
    atol = 1e-5 * float(torch.cat([sizes, sizes.new_ones(1)]).max())
    return torch.allclose(left, right, rtol=1e-3, atol=atol, equal_nan=True)
