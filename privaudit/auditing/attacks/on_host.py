"""Copies to the host what an observer sees on another device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from torch import Tensor

from privaudit.auditing.attacks.contract import Watcher
from trainers.network.engine import Observer
from trainers.oracles.oracle import ReleaseObserver


@dataclasses.dataclass(frozen=True, slots=True)
class _Messages:
    to: Observer

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        self.to.messages(k, {name: each.cpu() for name, each in sent.items()})


@dataclasses.dataclass(frozen=True, slots=True)
class _Releases:
    to: ReleaseObserver

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        self.to.release(index, at.cpu(), gradient.cpu(), nodes)


@dataclasses.dataclass(frozen=True, slots=True)
class OnHost:
    """Stands before ``watcher``, which calculates on the host, in doubles."""

    watcher: Watcher

    @property
    def observers(self) -> tuple[Observer, ...]:
        """As the watcher's."""
        return tuple(map(_Messages, self.watcher.observers))

    @property
    def release_observers(self) -> tuple[ReleaseObserver, ...]:
        """As the watcher's."""
        return tuple(map(_Releases, self.watcher.release_observers))

    def after_round(self, done: int, models: Tensor) -> None:
        """Show the models, (runs, nodes, dims), if the watcher looks at them."""
        if type(self.watcher).after_round is not Watcher.after_round:
            self.watcher.after_round(done, models.cpu())
