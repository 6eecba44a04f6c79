"""Code that cannot be traced: one record a call, in a process that ends with it.

A record's gradient is then a function of that record alone if the code keeps nothing
outside of its process, which is a condition of the account.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from privaudit.files.user_code import checked
from trainers.data import forked
from trainers.data.generators import Generators
from trainers.data.transforms import drawn_from
from trainers.gradients.door.operators import seeds_of
from trainers.gradients.door.traced import Bare, door_of, output_of


class Isolated(Bare):
    """``module``, called with one record at a time, in a process that ends with it.

    Generators are at a seed of the record's; gradients are taken in such a process.
    """

    alone = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        with checked("the model cannot be copied"):
            own = copy.deepcopy(module)
        vars(self)["_isolated"] = _Own(own, Generators(own))

    def forward(self, inputs: Tensor, word: int | None = 0) -> Tensor:
        """As `trainers.gradients.door.traced.Traced.forward`."""
        if forked.inside():
            return self._outputs(inputs, word)
        call = functools.partial(self._outputs, inputs.cpu(), word)
        (found,) = forked.one(lambda: (call(),))
        return found.to(inputs.device)

    def _outputs(self, inputs: Tensor, word: int | None) -> Tensor:
        door, mine = door_of(self), vars(self)["_isolated"]
        values = dict(zip(door.trained, Bare.now(self), strict=True))
        seeds = (seeds_of(inputs, word or 0) % 2**62).tolist()
        found = []
        for seed, row in zip(seeds, inputs.split(1), strict=True):
            # It may take gradients within, as of a potential.
            with _checking(), torch.enable_grad():
                drawn_from(seed)
                mine.generators.begin(seed)
                # A copy, which what goes backward may need as it was left.
                own = copy.deepcopy(mine.module)
                if word is None:
                    own.eval()
                output = output_of(
                    torch.func.functional_call(own, values, (row.clone(),))
                )
            if not isinstance(output, Tensor) or output.shape[:1] != (1,):
                raise ValueError("the model must give one tensor with a row a record")
            found.append(bare(output))
        together = torch.cat(found)
        return together if torch.is_grad_enabled() else together.detach()


@contextlib.contextmanager
def _checking() -> Iterator[None]:
    """Have code of somebody's fail where it would read beyond its memory."""
    with torch.sparse.check_sparse_tensor_invariants(), _Checked():
        yield


class _Checked(TorchDispatchMode):
    """Checks what ends the process if it is out of range: labels of ctc_loss."""

    supports_higher_order_operators = True  # such as torch.cond

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "overloadpacket", None) is torch.ops.aten._ctc_loss:
            labels, lengths = args[1], torch.as_tensor(args[3])
            if labels.dim() > 1:
                labels = labels[torch.arange(labels.shape[1]) < lengths[:, None]]
            labels = labels[: int(lengths.sum())]
            if ((labels < 0) | (labels >= args[0].shape[-1])).any():
                raise IndexError("a label of ctc_loss is no class")
        return func(*args, **kwargs or {})


def bare(tensor: Tensor) -> Tensor:
    """The same, with its gradient, where a subclass would run code of somebody's."""
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(Tensor)


@dataclasses.dataclass(frozen=True, slots=True)
class _Own:
    """The user's module as it was given, and its generators; shared by copies."""

    module: nn.Module
    generators: Generators

    def __deepcopy__(self, memo: Any) -> _Own:
        return self


class IsolatedLoss:
    """A loss, called with one record at a time, as the module of `Isolated` is."""

    alone = True

    def __init__(self, loss: Callable[..., Any]) -> None:
        with checked("the loss cannot be copied"):
            self._own = copy.deepcopy(loss)
        self._generators = Generators(self._own)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if forked.inside():
            return self._values(outputs, targets)
        call = functools.partial(self._values, outputs.cpu(), targets.cpu())
        (found,) = forked.one(lambda: (call(),))
        return found.to(outputs.device)

    def _values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = []
        for output, target in zip(outputs.split(1), targets.split(1), strict=True):
            seed = int(seeds_of(output, 0) % 2**62)
            with _checking():
                drawn_from(seed)
                self._generators.begin(seed)
                found.append(bare(self._own(output, target.clone())).reshape(()))
        return torch.stack(found)
