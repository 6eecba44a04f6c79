"""What a round must do, counted: arithmetic, bytes, and operations that are launched.

On torch's "meta" device, which has shapes and no numbers and takes the way of a GPU
through the code. Bytes are those of every operation's tensors, read and written: what
memory moves if nothing is fused and nothing stays in a cache. Views move nothing, and
what is done on the host is not counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from trainers.numerics.deferred_checks import Watch


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """Peaks as the maker states them: single precision, bfloat16, memory a second.

    ``launch`` is the least time between two kernels that the host starts, in seconds.
    """

    name: str
    flops: float
    bf16_flops: float
    bytes: float
    launch: float


# NVIDIA's data sheets, without sparsity. Single precision without TF32, which may not
# be used where gradients are clipped.
H200 = Device("H200 SXM", 67e12, 989e12, 4.8e12, 5e-6)
H100 = Device("H100 SXM", 67e12, 989e12, 3.35e12, 5e-6)
RTX_2080 = Device("RTX 2080", 10.1e12, 0.0, 0.448e12, 5e-6)


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Of one round."""

    flops: float
    bytes: float
    launches: int

    def floor(self, device: Device) -> float:
        """Seconds below which ``device`` cannot do it: the roofline, unfused."""
        return max(self.flops / device.flops, self.bytes / device.bytes)

    def eager(self, device: Device) -> float:
        """Seconds if the host starts every operation by itself."""
        return max(self.floor(device), self.launches * device.launch)


class _Count(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.flops = self.bytes = self.launches = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        flops = flop_registry.get(function.overloadpacket)
        if flops is not None:
            self.flops += flops(*args, **(kwargs or {}), out_val=result)
        if not (function.is_view or "empty" in function.name()):
            sizes = [
                each.numel() * each.element_size()
                for each in tree_leaves((args, kwargs, result))
                if isinstance(each, torch.Tensor) and each.device.type != "cpu"
            ]
            if sizes:
                self.bytes += sum(sizes)
                self.launches += 1
        return result


def counted(step: Callable[[], object]) -> Work:
    """The work of ``step``."""
    # There is nothing to be looked at, and whoever watches is one of ours.
    with (
        mock.patch.object(Watch, "settle"),
        mock.patch("trainers.oracles.oracle.check_hooks"),
        mock.patch("trainers.gradients.clipping.check_hooks"),
        _Count() as count,
    ):
        step()
    return Work(float(count.flops), float(count.bytes), count.launches)
