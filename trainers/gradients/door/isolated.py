"""Code that cannot be traced: one record a call, with everything put back before it.

A record's gradient is then a function of that record alone if the code keeps nothing
outside the module and what its functions name, which is a condition of the account.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from privaudit.files.user_code import checked
from trainers.data.kept import Kept
from trainers.data.transforms import drawn_from, set_aside
from trainers.gradients.door.operators import seeds_of
from trainers.gradients.door.traced import Bare, door_of, output_of


class Isolated(Bare):
    """``module``, called with one record at a time, each time as it was at first.

    With global generators, and those of its own, at a seed of the record's; what it and
    its code reach is put back.
    """

    alone = True

    def __init__(self, module: nn.Module, loss: Any = None) -> None:
        super().__init__(module)
        with checked("the model cannot be copied"):
            own = copy.deepcopy(module)
        vars(self)["_isolated"] = _Own(own, Kept.checked(own, loss))

    @property
    def kept(self) -> Kept:
        """State that its code reaches, as it was at first."""
        return vars(self)["_isolated"].kept

    def forward(self, inputs: Tensor, word: int | None = 0) -> Tensor:
        """As `trainers.gradients.door.traced.Traced.forward`."""
        door, mine = door_of(self), vars(self)["_isolated"]
        values = dict(zip(door.trained, Bare.now(self), strict=True))
        seeds = (seeds_of(inputs, word or 0) % 2**62).tolist()
        found = []
        for seed, row in zip(seeds, inputs.split(1), strict=True):
            # It may take gradients within, as of a potential.
            with mine.kept.put_back(seed), _alone(seed), torch.enable_grad():
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
def _alone(seed: int) -> Iterator[None]:
    """Has code of somebody's draw from ``seed``, and fail where it would crash."""
    with set_aside(), torch.sparse.check_sparse_tensor_invariants(), _Checked():
        drawn_from(seed)
        yield


class _Checked(TorchDispatchMode):
    """Checks what ends the process if it is out of range: labels of ctc_loss."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket is torch.ops.aten._ctc_loss:
            labels, lengths = args[1], torch.as_tensor(args[3])
            if labels.dim() > 1:
                places = torch.arange(labels.shape[1])
                labels = labels[places < lengths[:, None]]
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
    """The user's module as it was given, and what it names; shared by copies."""

    module: nn.Module
    kept: Kept

    def __deepcopy__(self, memo: Any) -> _Own:
        return self


class IsolatedLoss:
    """A loss, called with one record at a time, each time as it was at first.

    So is its gradient, which is taken at once. A record on which either fails has none.
    """

    alone = True

    def __init__(self, loss: Callable[..., Any]) -> None:
        with checked("the loss cannot be copied"):
            self._own = copy.deepcopy(loss)
        self.kept = Kept.checked(self._own)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = []
        for output, target in zip(outputs.split(1), targets.split(1), strict=True):
            with self.kept.put_back(0), _alone(0):
                found.append(self._one(output, target.clone()))
        return torch.stack(found)

    def _one(self, output: Tensor, target: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return bare(self._own(output, target)).reshape(())
        try:
            with torch.enable_grad():
                here = output.detach().clone().requires_grad_()
                value = bare(self._own(here, target)).reshape(())
                (slope,) = torch.autograd.grad(
                    value, here, allow_unused=True, materialize_grads=True
                )
        except KeyboardInterrupt:
            raise
        except BaseException:
            return (0.0 * output).sum()
        along = (slope * output).sum()
        return along + (value - along).detach()
