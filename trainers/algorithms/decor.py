"""Gossip with noise that cancels pairwise."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np
from msgspec import Meta

from trainers.algorithms.family import Family
from trainers.algorithms.muffliato import Muffliato
from trainers.algorithms.setting import Options, Setting
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.secrets import PairedMechanism

_MOST = 1000  # sums of noises must be exact in a double, whatever the graph


class DecorOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Noise that pairs of nodes share.

    Parameters
    ----------
    correlated
        Standard deviation of the noise that two neighbours share, and that cancels in
        their sum, over that of a node's own noise; in [0, 1000].
    """

    correlated: Annotated[float, Meta(ge=0, le=_MOST)] = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Decor(Muffliato):
    """theta_i <- sum_j w_ij (theta_j - eta_k (G_j(theta_j) + sum_l s_jl)).

    DECOR (Allouah, Koloskova, El Firdoussi, Jaggi and Guerraoui 2024): s_jl = -s_lj of
    a secret that two neighbours share cancels in the mean, and hides a node from
    whoever does not know it. Claim and ledger are of whoever knows all secrets: a
    node's own noise alone. What each observer learns, its own secrets known: `privaudit
    views`.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecorFamily(Family[DecorOptions]):
    """Neighbours share secrets: all that are ever joined, either way."""

    one_noise: str = "shares noise between nodes, which is as large as their own"

    def algorithm(self, setting: Setting[DecorOptions]) -> Decor:
        """One round of plain gossip a step."""
        return self.make(setting.step_sizes)

    def mechanism(
        self, setting: Setting[DecorOptions], noise_multiplier: float
    ) -> Mechanism:
        plain = super().mechanism(setting, noise_multiplier)
        joined = (setting.mixing.matrices != 0).any(0)
        pairs = np.argwhere(np.triu(joined | joined.T, 1))
        return PairedMechanism(
            **{f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)},
            pairs=tuple((int(one), int(other)) for one, other in pairs),
            shared=setting.options.correlated,
        )
