"""Two processes average their models: one asks, the other answers, neither is locked.

A connection a pair: a process's end breaks nothing between others. A sender is never
asked, and a receiver never asks: none wait in a circle (Lian et al. 2018).
"""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.algorithms.asynchronous.real_time import Model

_FOREVER = datetime.timedelta(days=365)


class LineLostError(OSError):
    """The partner has ended, or did not answer in time."""


class Line:
    """Line between a sender and a receiver, at either end."""

    def __init__(
        self,
        store: dist.Store,  # where the two find each other
        # sender, receiver: their numbers
        sender: int,
        receiver: int,
        *,
        at: int,  # which of them this process is
        dims: int,  # of models
        # seconds in which the partner must come, and in which a receiver must answer
        patience: float,
    ) -> None:
        self._end = 0 if at == sender else 1
        self._other = 1 - self._end
        self._patience = datetime.timedelta(seconds=patience)
        self._group: Any  # the stubs have no send and recv
        self._inbox = torch.empty(1 + dims)  # 1 and a model, or 0: no more will come
        try:
            self._group = dist.ProcessGroupGloo(
                dist.PrefixStore(f"line/{sender}/{receiver}", store),
                self._end,
                2,
                self._patience,
            )
        except RuntimeError as error:
            raise LineLostError(str(error).splitlines()[0]) from error

    def ask(self, model: Model) -> None:
        """Average with the receiver; ``model`` stays as it was on `LineLostError`."""

        def swap(own: Tensor) -> Tensor:
            self._send(own)
            return self._receive(self._patience)

        model.average(swap)

    def answer(self, model: Model) -> bool:
        """Wait until the sender asks, and average; False if it never will again."""
        other = self._receive(_FOREVER)
        if self._inbox[0] == 0:
            return False

        def swap(own: Tensor) -> Tensor:
            self._send(own)
            return other

        model.average(swap)
        return True

    def end(self) -> None:
        """Tell the receiver that nothing more will be asked."""
        self._put(torch.zeros_like(self._inbox))

    def _send(self, own: Tensor) -> None:
        self._put(torch.cat((own.new_ones(1), own)))

    def _put(self, content: Tensor) -> None:
        try:
            self._group.send([content], self._other, 0).wait(self._patience)
        except RuntimeError as error:
            raise LineLostError(str(error).splitlines()[0]) from error

    def _receive(self, patience: datetime.timedelta) -> Tensor:
        try:
            self._group.recv([self._inbox], self._other, 0).wait(patience)
        except RuntimeError as error:
            raise LineLostError(str(error).splitlines()[0]) from error
        return self._inbox[1:].clone()
