"""Policies that choose who updates the global model: tables, known beforehand."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from privaudit.files.arguments import Checked
from privaudit.task_settings import Natural, Share

PolicyName = Literal["coin", "deep-q", "always-global", "never"]


def exploration(turn: int, turns: int, last: float = 0.1) -> float:
    """The share of random choices: from 1 down to ``last`` in half of ``turns``."""
    return 1 - (1 - last) * min(1.0, turn / max(1, turns // 2))


@dataclasses.dataclass(frozen=True, slots=True)
class Choices(Checked):
    """Policy of global updates, and its parameters."""

    policy: PolicyName  # "always-global", "never", "coin", or "deep-q"
    # global_first, global_last: the coin: the chance of a global update in the first
    # turn, and from half of all turns on; linear between, as the paper anneals its
    # exploration
    global_first: Share = 0.5
    global_last: Share = 0.05
    # of the coin. Public: the table is the same in all runs and worlds
    coin_seed: Natural = 0

    @property
    def looks(self) -> bool:
        """Return whether choices are made from private losses."""
        return self.policy == "deep-q"

    def table(self, turns: int, nodes: int, classes: int) -> np.ndarray:
        """Global or not, bool, (turns, nodes, classes); ``ValueError`` if private."""
        shape = (turns, nodes, classes)
        if self.policy == "always-global":
            return np.ones(shape, bool)
        if self.policy == "never":
            return np.zeros(shape, bool)
        if self.looks:
            raise ValueError("a deep-Q network's choices are not known beforehand")
        way = np.minimum(1, np.arange(turns) / max(1, turns // 2))
        chance = self.global_first + (self.global_last - self.global_first) * way
        coins = np.random.default_rng([self.coin_seed, turns]).random(shape)
        return coins < chance[:, None, None]
