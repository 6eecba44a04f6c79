"""Names of devices, and small tables kept on them."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from privaudit.settings import check_device_name


def check_device(device: str) -> str:
    """``device`` itself. ``ValueError`` if it is none, or not in this machine."""
    kind, _, number = check_device_name(device).partition(":")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"there is no device {device}: torch sees {torch.cuda.device_count()} "
            "GPUs; use cpu"
        )
    return device


def sent(host: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on ``device``; neither waits for the other."""
    held = host.pin_memory() if device.type == "cuda" else host
    return held.to(device, non_blocking=True)


@functools.lru_cache(maxsize=4096)
def placed(
    values: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.long
) -> Tensor:
    """``values``, (values,), made on the device once, to be read only."""
    return torch.tensor(values, dtype=dtype, device=device)


def follow(module: nn.Module, device: torch.device) -> None:
    """Move ``module`` there, if it has a buffer that is elsewhere."""
    if any(buffer.device != device for buffer in module.buffers()):
        module.to(device)
