"""Code that cannot be traced: one record a call, with everything put back before it.

A record's gradient is then a function of that record alone if the code keeps nothing
outside the module and what its functions name, which is a condition of the account.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trainers.data.transforms import drawn_from, set_aside
from trainers.gradients.door.kept import Kept
from trainers.gradients.door.operators import seeds_of
from trainers.gradients.door.traced import Bare, door_of, output_of


class Isolated(Bare):
    """``module``, called with one record at a time, each time as it was at first.

    A fresh copy of the module, and global generators at a seed of the record's own,
    for each record; what its code names outside the module is put back.
    """

    alone = True

    def __init__(self, module: nn.Module, loss: Any = None) -> None:
        super().__init__(module)
        own = copy.deepcopy(module)
        vars(self)["_isolated"] = _Own(own, Kept([own, loss]))

    def forward(self, inputs: Tensor, word: int | None = 0) -> Tensor:
        """As `trainers.gradients.door.traced.Traced.forward`."""
        door, mine = door_of(self), vars(self)["_isolated"]
        values = dict(zip(door.trained, Bare.now(self), strict=True))
        seeds = (seeds_of(inputs, word or 0) % 2**62).tolist()
        found = []
        for seed, row in zip(seeds, inputs.split(1), strict=True):
            with mine.kept.put_back(), set_aside():
                drawn_from(seed)
                own = copy.deepcopy(mine.module)
                if word is None:
                    own.eval()
                output = output_of(
                    torch.func.functional_call(own, values, (row.clone(),))
                )
            if not isinstance(output, Tensor) or output.shape[:1] != (1,):
                raise ValueError("the model must give one tensor with a row a record")
            found.append(output)
        return torch.cat(found)


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
        self._own = copy.deepcopy(loss)
        self._kept = Kept([self._own])

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = []
        for output, target in zip(outputs.split(1), targets.split(1), strict=True):
            with self._kept.put_back(), set_aside():
                drawn_from(0)
                found.append(self._one(output, target.clone()))
        return torch.stack(found)

    def _one(self, output: Tensor, target: Tensor) -> Tensor:
        own = copy.deepcopy(self._own)
        if not torch.is_grad_enabled():
            return own(output, target).reshape(())
        try:
            here = output.detach().clone().requires_grad_()
            value = own(here, target).reshape(())
            (slope,) = torch.autograd.grad(
                value, here, allow_unused=True, materialize_grads=True
            )
        except KeyboardInterrupt:
            raise
        except BaseException:
            return (0.0 * output).sum()
        along = (slope * output).sum()
        return along + (value - along).detach()
