"""Checks of numbers on a device, read by the host only now and then."""

from __future__ import annotations

import torch
from torch import Tensor


def may_hold(condition: Tensor, watch: Watch | None = None) -> bool:
    """Return whether some of ``condition`` is true, looked at where ``watch`` looks."""
    return not (watch or Watch()).looks(condition) or bool(condition.any())


class Watch:
    """Conditions on tensors: kept on the device, looked at when somebody settles.

    On a CPU, or ``at_once``, one that fails raises as it comes.
    """

    def __init__(self, at_once: bool | None = None) -> None:
        self._at_once = at_once
        self._failed: dict[str, Tensor] = {}
        self._counted: Tensor | int = 0

    def looks(self, tensor: Tensor) -> bool:
        """Return whether the host looks at ``tensor`` at once."""
        return tensor.device.type == "cpu" if self._at_once is None else self._at_once

    def expect(self, holds: Tensor, message: str) -> None:
        """All of ``holds`` is true; else ``ValueError``, now or later."""
        failed = ~holds.all()
        if self.looks(holds):
            if failed:
                raise ValueError(message)
        elif message in self._failed:
            self._failed[message] |= failed
        else:
            self._failed[message] = failed

    def count(self, which: Tensor) -> None:
        """Add to `counted` how many of ``which`` are true."""
        if may_hold(which, self):
            self._counted = which.sum() + self._counted

    @property
    def counted(self) -> int:
        """Number of counted conditions that were true so far."""
        return int(self._counted)

    def settle(self) -> None:
        """Look at all conditions so far. ``ValueError`` if one failed."""
        failed, self._failed = self._failed, {}
        for message, one in failed.items():
            if one:
                raise ValueError(message)


def finite(norms: Tensor, watch: Watch | None = None) -> None:
    """Expect every norm to be finite; ``ValueError``, if not, as ``watch`` says."""
    (watch or Watch(at_once=True)).expect(
        torch.isfinite(norms),
        "a sample's gradient is not finite, so that clipping cannot bound it: "
        "lower the step size, or look for inf and nan in the data",
    )
