"""Muffliato: noise once, then gossip of many rounds, for each step of descent."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from privaudit.task_settings import AtLeastOne
from trainers.algorithms.dsgd import OfParameters
from trainers.algorithms.dsgd import State as Parameters
from trainers.algorithms.family import Family
from trainers.algorithms.setting import Options, Setting
from trainers.network.engine import Gradients


class MuffliatoOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Averaging of nodes between two steps.

    Parameters
    ----------
    gossips
        Rounds of gossip in a step, >= 1.
    accelerated
        Whether gossip is accelerated; only for symmetric weights that stay the same.
    """

    gossips: AtLeastOne = 4
    accelerated: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class State(Parameters):
    """(runs, nodes, dims) each; ``last`` is what theta was a round of gossip ago."""

    last: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Muffliato(OfParameters):
    """theta_i <- theta_i - eta_k G_i(theta_i), then K rounds of gossip on theta.

    Muffliato-SGD (Cyffers, Even, Bellet and Massoulie 2022), where the oracle clips and
    adds noise. Gossip: theta_i <- gamma sum_j w_ij theta_j + (1 - gamma) theta_i', of a
    round before; plain where gamma = 1. W must be doubly stochastic. One step is
    *Muffliato averaging* of noisy vectors: certified as fixed vectors are; more steps
    are not (docs/views.md).
    """

    gossips: int = 1
    gamma: float = 1.0
    by_coordinate: ClassVar[bool] = True

    def init(self, start: Tensor) -> State:
        return State(theta=start, last=start)

    def local(self, state: State, private: Gradients, k: int) -> State:
        if k % self.gossips:
            return state
        theta = state.theta - self.step_size(k) * private.gradient(at=state.theta)
        return State(theta=theta, last=theta)

    def round(
        self, state: State, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> State:
        theta = self.gamma * inbox["theta"] + (1 - self.gamma) * state.last
        return State(theta=theta, last=state.theta)


def acceleration(gap: float) -> float:
    """Gamma for a spectral gap in (0, 1]; 1 would be none.

    >>> acceleration(1.0) < acceleration(0.1) < 2
    True
    """
    return 2 * (1 - math.sqrt(gap * (1 - gap / 4))) / (1 - gap / 2) ** 2


class MuffliatoFamily(Family[MuffliatoOptions]):
    """Steps are fewer than rounds; acceleration is the graph's."""

    def algorithm(self, setting: Setting[MuffliatoOptions]) -> Muffliato:
        """With its graph's gamma; ``ValueError`` where acceleration is for none."""
        gamma = 1.0
        if setting.options.accelerated:
            mixing = setting.mixing
            if mixing.period > 1 or "symmetric" not in mixing.properties:
                raise ValueError(
                    "accelerated gossip is for symmetric weights that stay the same: "
                    "set accelerated=false, or another graph or weights"
                )
            if mixing.spectral_gap > 0:  # else the graph is not connected
                gamma = acceleration(mixing.spectral_gap)
        return self.make(setting.step_sizes, setting.options.gossips, gamma)

    def releases(self, setting: Setting[MuffliatoOptions]) -> int:
        """One a step, that of the last step too if it was not finished."""
        return -(-setting.rounds // setting.options.gossips)
