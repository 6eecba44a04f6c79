"""A module whose forward pass is the graph of one record, mapped over records.

It has the traced module's parameters and buffers by name, and none of its code.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from privaudit.files.user_code import checked
from trainers.data.transforms import plain
from trainers.gradients.door.operators import OFF, attention, seeds_of
from trainers.gradients.door.trace import BUFFER, trace, undrawn, unfolded
from trainers.gradients.per_sample import trained

_SOON, _MANY = 3, 32  # uses of a shape before it is unfolded, and how many shapes


class Mapped:
    """A graph of one record, mapped over records; kept unfolded by shape."""

    def __init__(self, one: fx.GraphModule) -> None:
        self.one = one
        self._uses: dict[Any, int] = {}
        self._unfolded: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *given: Tensor) -> Any:
        key = (
            torch.is_grad_enabled(),
            *((x.shape, x.stride(), x.dtype, x.device, x.requires_grad) for x in given),
        )
        known = self._unfolded.get(key)
        # Within torch.func's own gradients there is more to map than shapes tell; what
        # autocast casts is in no graph; and who looks at what is saved sees fake ones.
        if (
            torch._C._functorch.peek_interpreter_stack() is not None
            or torch._C._is_any_autocast_enabled()
            or torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
        ):
            known = None
        elif known is None and len(self._uses) < _MANY:
            uses = self._uses[key] = self._uses.get(key, 0) + 1
            if uses == _SOON:
                known = self._unfolded[key] = unfolded(self.one, given)
        return (known or torch.func.vmap(self.one.forward))(*given)


def door_of(module: nn.Module) -> Door:
    """Door of a module that came by it: no name of the user's hides it."""
    return vars(module)["_door"]


def output_of(found: Any) -> Any:
    """The tensor of a model's output: itself, or what is called logits in it."""
    if isinstance(found, Mapping):
        if "logits" in found:
            return found["logits"]
        return next(iter(found.values())) if len(found) == 1 else found
    return getattr(found, "logits", found)


def skeleton(module: nn.Module, made: dict[int, Any] | None = None) -> nn.Module:
    """Modules without code, with the parameters and buffers of ``module``: copies."""
    made = {} if made is None else made
    if id(module) in made:
        return made[id(module)]
    found = made[id(module)] = nn.Module()
    for name, value in module._parameters.items():
        if value is not None and id(value) not in made:
            made[id(value)] = nn.Parameter(plain(value).clone(), value.requires_grad)
        found.register_parameter(name, None if value is None else made[id(value)])
    for name, value in module._buffers.items():
        if value is not None and id(value) not in made:
            made[id(value)] = plain(value).clone()
        kept = name not in module._non_persistent_buffers_set
        found.register_buffer(
            name, None if value is None else made[id(value)], persistent=kept
        )
    for name, child in module._modules.items():
        found.register_module(name, None if child is None else skeleton(child, made))
    found.training = module.training
    return found


@dataclasses.dataclass(eq=False)
class Door:
    """State of a module that came by the door; copies of the module share it."""

    trained: tuple[str, ...]  # the names of the trained parameters
    tokens: int  # the least number of rows that an embedding has; 0 without one
    # of (parameters, input, seed), the input with a first dimension of 1
    graph: fx.GraphModule | None = None
    draws: bool = False  # whether that has dropout

    def __deepcopy__(self, memo: Any) -> Door:
        return self

    def seeds(self, inputs: Tensor, word: int | Tensor | None) -> Tensor:
        """A seed a record, (samples,), of it and ``word``, one or (replicas,)."""
        if self.draws and word is not None:
            if isinstance(word, Tensor) and word.dim():
                word = word.repeat_interleave(len(inputs) // len(word))
            return seeds_of(inputs, word)
        return torch.full((len(inputs),), OFF, device=inputs.device)


class Bare(nn.Module):
    """Parameters and buffers of ``module``, without its code."""

    constructed = False
    alone = False

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        bare = skeleton(module)
        self._parameters, self._buffers = bare._parameters, bare._buffers
        self._modules = bare._modules
        self._non_persistent_buffers_set = bare._non_persistent_buffers_set
        self.training = module.training
        least = min(tokens_of(module), default=0)
        vars(self)["_door"] = Door(tuple(trained(module)), least)

    def now(self) -> list[Tensor]:
        """The trained parameters, or what `torch.func.functional_call` put there."""
        found = []
        for name in door_of(self).trained:
            *path, last = name.split(".")
            module: Any = self
            for step in path:  # a module of the user's may have any name
                module = module._modules[step]
            found.append(module._parameters[last])
        return found


def tokens_of(module: nn.Module) -> list[int]:
    """Number of rows the embeddings of a module have."""
    known: Door | None = vars(module).get("_door")
    if known is not None:
        return [known.tokens] if known.tokens else []
    return [
        layer.num_embeddings
        for layer in module.modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag)
    ]


class Traced(Bare):
    """``module`` as a graph of one record, mapped over the records of a batch.

    ``module``: it is called once here, in a copy, with a fake tensor of one record; not
    where there is a ``graph`` of it already. ``example``: one record's input, of which
    shape, type and device are taken. Raises ``NotTraced`` and ``ValueError`` as
    `trainers.gradients.door.trace.trace`; and ValueError for an output that is no
    tensor of one row.
    """

    constructed = True

    def __init__(
        self, module: nn.Module, example: Tensor, graph: fx.GraphModule | None = None
    ) -> None:
        super().__init__(module)
        door = door_of(self)
        door.graph = self._of(module, example) if graph is None else graph
        door.draws = draws(door.graph)

    def _of(self, module: nn.Module, example: Tensor) -> fx.GraphModule:
        with checked("the model cannot be copied"):
            own = copy.deepcopy(module)
        door = door_of(self)

        def one(parameters: list[Tensor], input: Tensor) -> Tensor:
            values = dict(zip(door.trained, parameters, strict=True))
            found = output_of(torch.func.functional_call(own, values, (input,)))
            if not isinstance(found, Tensor) or found.shape[:1] != (1,):
                raise ValueError(
                    "the model must give one tensor with a row a record, or something "
                    f"with logits, got {_told(found)} for one record"
                )
            return found

        known = {id(each): name for name, each in own.named_parameters()}
        known |= {id(each): BUFFER + name for name, each in own.named_buffers()}
        values = list(trained(own).values())
        with undrawn(own):
            return trace(one, door.trained, values, [example[None]], known)

    @property
    def takes(self) -> tuple[str, ...]:
        """Tensors that the graph has besides parameters; see `trace`."""
        graph = door_of(self).graph
        assert graph is not None
        return graph.meta["takes"]

    def forward(self, inputs: Tensor, word: int | Tensor | None = 0) -> Tensor:
        """Outputs for ``inputs``, (samples, ...), each alone; dropout by ``word``."""
        door = door_of(self)
        assert door.graph is not None
        door.graph.to(inputs.device)
        now = Bare.now(self)
        found = torch.func.vmap(door.graph.forward, (*(None for _ in now), 0, 0))(
            *now, inputs[:, None], door.seeds(inputs, word)
        )
        return found[:, 0]


def drops(module: nn.Module) -> bool:
    """Return whether a module that came by the door has dropout."""
    return isinstance(module, Bare) and (module.alone or door_of(module).draws)


def draws(graph: fx.GraphModule) -> bool:
    """Return whether a graph has dropout."""
    *_, seed = graph.graph.find_nodes(op="placeholder")
    # Attention takes a seed in any case; written out, dropout is operations of torch's.
    return any(
        node.target is not attention or node.kwargs.get("dropout_p")
        for node in seed.users
    )


class TracedLoss:
    """A loss as the graph of one record, mapped over the records of a batch."""

    constructed = True

    def __init__(self, graph: fx.GraphModule) -> None:
        self.graph, self._mapped = graph, Mapped(graph)
        self.takes: tuple[str, ...] = graph.meta["takes"]

    @classmethod
    def of(cls, loss: Callable[..., Any], output: Tensor, target: Tensor) -> TracedLoss:
        """Trace a loss of one record's outputs and targets, (1, ...), to a number."""

        def one(parameters: list[Tensor], output: Tensor, target: Tensor) -> Tensor:
            found = loss(output, target)
            if not isinstance(found, Tensor) or not found.is_floating_point():
                raise ValueError(
                    f"the loss gives {_told(found)}, not a tensor of floats"
                )
            if found.numel() != 1:
                raise ValueError(
                    f"the loss gives {found.numel()} numbers for one record; it must "
                    "give one, such as their mean"
                )
            return found.reshape(())

        like = [output[None].detach().requires_grad_(), target[None]]
        with undrawn(loss):
            return cls(trace(one, [], [], like))

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.graph.to(outputs.device)
        seeds = torch.zeros(len(outputs), dtype=torch.long, device=outputs.device)
        return self._mapped(outputs[:, None], targets[:, None], seeds)


def _told(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return type(value).__name__
