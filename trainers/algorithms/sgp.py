"""Stochastic gradient push, private if its oracle is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from trainers.network.engine import Gradients, Schedule
from trainers.network.push_sum import PushSum


@dataclasses.dataclass(frozen=True, slots=True)
class Sgp:
    """x_i <- sum_j P_ij (x_j - gamma_k G_j(z_j)); w_i <- sum_j P_ij w_j; z = x / w.

    Stochastic gradient push (Assran et al. 2019) with a plain oracle; where it clips
    and adds noise, Dyn-D2P and its variants (Zhu et al., Algorithms 1 to 5). P must be
    column stochastic, and may change and be directed. K rounds are K releases, all of
    them mixed.
    """

    step_size: Schedule

    def init(self, start: Tensor) -> PushSum:
        return PushSum.begin(start)

    def local(self, state: PushSum, private: Gradients, k: int) -> PushSum:
        return state.plus(private.gradient(at=state.z) * -self.step_size(k))

    def messages(self, state: PushSum, k: int) -> dict[str, Tensor]:
        return state.messages()

    def round(
        self, state: PushSum, inbox: Mapping[str, Tensor], private: Gradients, k: int
    ) -> PushSum:
        return PushSum.received(inbox)

    def models(self, state: PushSum) -> Tensor:
        return state.z
