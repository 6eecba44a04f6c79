"""Federated averaging by gossip: users' local steps, clipped as a whole and noised."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Literal

from msgspec import Meta

from privaudit.task_settings import AtLeastOne, Positive
from trainers.algorithms.dsgd import StepFirst
from trainers.algorithms.family import Family
from trainers.algorithms.mf import MfOptions
from trainers.algorithms.setting import Setting
from trainers.oracles.mechanism import MOST_BAND
from trainers.oracles.updates import UpdateMechanism


class FedavgOptions(MfOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `Fedavg`, whose ``step_size`` is that of local steps.

    Parameters
    ----------
    local_steps
        Steps of each user in a round, on batches of ``batch_size`` of its records, or
        of all if there are no more.
    user_rate
        The chance of a user to be drawn in a round, each by a coin of its own.
    global_step_size
        What noisy mean updates are multiplied by.
    band
        How many releases share noise (docs/factorisation.md); 1: none but by buffers.
    unit
        What is protected: a user.
    """

    local_steps: AtLeastOne = 5
    user_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0
    global_step_size: Positive = 1.0
    band: Annotated[int, Meta(ge=1, le=MOST_BAND)] = 1
    unit: Literal["user"] = "user"


@dataclasses.dataclass(frozen=True, slots=True)
class Fedavg(StepFirst):
    """theta_i <- sum_j w_ij (theta_j - eta G_j(theta_j)), G_j minus a mean update.

    DP-FedAvg (McMahan et al. 2018, Algorithm 1) without a server where the oracle clips
    updates and adds noise, else federated averaging (McMahan et al. 2017): each node is
    a server to its users. On a complete graph all nodes meet at the mean, as with a
    server.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedavgFamily(Family[FedavgOptions]):
    """Step sizes are those of local steps."""

    no_rates: str = "draws users, with the chance that user_rate sets"

    def algorithm(self, setting: Setting[FedavgOptions]) -> Fedavg:
        size = setting.options.global_step_size
        return self.make(lambda k: size)

    def mechanism(
        self, setting: Setting[FedavgOptions], noise_multiplier: float
    ) -> UpdateMechanism:
        options = setting.options
        return UpdateMechanism(
            options.user_rate,
            setting.clip_norm if self.private else math.inf,
            noise_multiplier if self.private else 0.0,
            local_steps=options.local_steps,
            local_step_size=setting.step_sizes,
            local_batch=max(1.0, setting.batch_size),
            **options.noise(self.releases(setting)),
        )
