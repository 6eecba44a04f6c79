"""Dyn-D2P and its variants: schedules of clip norm and noise, for `Sgp`.

Step k clips to C_k = clip_norm c_k and adds noise of C_k / mu_k, with the budget mu_k =
m_k / z. The shapes c_k and m_k are a variant's; z is the one noise multiplier, which
calibration finds. The first budget, mu_0 or mu_bar of the paper, is 1 / z.

References
----------
Z. Zhu, Y. Huang, X. Wang, S. Ji and J. Xu, "Dyn-D2P: dynamic differentially private
decentralized learning with provable utility guarantee".
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from privaudit.accounting import clt, gdp
from privaudit.schedules import (
    Constant,
    Growing,
    Listed,
    Schedule,
    Shrinking,
    values_of,
)
from trainers.algorithms.family import Family
from trainers.algorithms.setting import Options, Setting
from trainers.oracles.mechanism import Mechanism, SamplingName

Values = NDArray[np.float64]
Ratio = Annotated[float, Meta(ge=1)]


class ConstD2p(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Const-D2P (Algorithm 5), c_k = m_k = 1; and what all variants share.

    Parameters
    ----------
    sampling
        "poisson", each record with probability L/J, as the paper's account assumes; or
        "without-replacement", L records chosen uniformly, as its listing says.
    """

    sampling: SamplingName = "poisson"

    def arguments(self, rounds: int) -> dict[str, Any]:
        """None: all that is set here is the mechanism's."""
        return {}

    @property
    def clips(self) -> Schedule:
        """c_k."""
        return Constant(1.0)

    @property
    def budgets(self) -> Schedule:
        """m_k."""
        return Constant(1.0)

    def relative_noise(self, rounds: int) -> Values:
        """1 / m_k, (rounds,): the noise over the clip norm of each step, for z = 1."""
        return 1 / values_of(self.budgets, rounds)

    def paper_noise(self, mu: float, rate: float, rounds: int) -> float:
        """z for which the paper's account, in the limit, is ``mu``: eqs. 8 and 9."""
        if isinstance(self.budgets, Constant):
            return 1 / clt.constant_budget(mu, rate, rounds)
        return 1 / clt.initial_budget(mu, self.budgets, rate, rounds)


class DynCD2p(ConstD2p, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dyn[C]-D2P (Algorithm 3): c_k = rho_c^(-k/K), m_k = 1.

    Parameters
    ----------
    rho_c
        By what factor the clip norm shrinks over the rounds, >= 1; the
        paper gives its inverse.
    """

    rho_c: Ratio = 2.0

    @property
    def clips(self) -> Schedule:
        return Shrinking(1.0, self.rho_c)


class DynMuD2p(ConstD2p, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dyn[mu]-D2P (Algorithm 4): c_k = 1, m_k = rho_mu^(k/K).

    Parameters
    ----------
    rho_mu
        By what factor the privacy budget of a round grows over the rounds, >= 1; the
        paper gives its inverse.
    """

    rho_mu: Ratio = 2.0

    @property
    def budgets(self) -> Schedule:
        return Growing(1.0, self.rho_mu)


class DynD2p(DynCD2p, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dyn-D2P (Algorithm 1): c_k = rho_c^(-k/K), m_k = rho_mu^(k/K).

    Parameters
    ----------
    rho_mu
        By what factor the privacy budget of a round grows over the rounds, >= 1; the
        paper gives its inverse.
    """

    rho_mu: Ratio = 2.0
    budgets = DynMuD2p.budgets


class GeneralD2p(ConstD2p, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The general form (Algorithm 2): any clip norms, and any noise.

    Step k clips to clip_norm clip_schedule_k, and adds noise of standard deviation z
    clip_norm noise_schedule_k: z is sigma~ of eq. 10 where clip_norm is 1.

    Parameters
    ----------
    clip_schedule, noise_schedule
        A schedule as in `privaudit.schedules`, a table with its ``type``; or the path
        of a CSV file with a column of that name, one row a step.
    """

    clip_schedule: Schedule | str = Constant(1.0)
    noise_schedule: Schedule | str = Constant(1.0)

    def __post_init__(self) -> None:
        _ = self.clips, self._noise

    @property
    def clips(self) -> Schedule:
        return _read(self.clip_schedule, "clip_schedule")

    @property
    def _noise(self) -> Schedule:
        return _read(self.noise_schedule, "noise_schedule")

    def relative_noise(self, rounds: int) -> Values:
        return values_of(self._noise, rounds) / values_of(self.clips, rounds)

    def paper_noise(self, mu: float, rate: float, rounds: int) -> float:
        """Eq. 10. ``ValueError`` where its proof does not hold."""
        return clt.noise_scale(mu, self.clips, self._noise, rate, rounds)


class Pushed(Family[ConstD2p]):
    """Stochastic gradient push with clip norms and noise on a schedule."""

    def mechanism(
        self, setting: Setting[ConstD2p], noise_multiplier: float
    ) -> Mechanism:
        """Mechanism of step k: clip_norm c_k, and noise of z / m_k clip norms."""
        options = setting.options
        clips, noise = _values(options, setting.rounds)
        clip, z = setting.clip_norm, noise_multiplier
        return Mechanism(
            setting.batch_size,
            clip_norm=_function([clip * value for value in clips]),
            noise_multiplier=_function([z * value for value in noise]),
            sampling=options.sampling,
            rate=setting.sampling_rate,
        )

    def paper_noise(
        self, setting: Setting[ConstD2p], epsilon: float, delta: float
    ) -> float:
        """z by the paper's account: mu_tot of eq. 4, then eq. 8, 9 or 10.

        The sampling rate is L/J, of the smallest node, as if sampling were Poisson. An
        account in the limit, and no bound: the certified one tells what it really is.
        """
        mechanism = self.mechanism(setting, 0.0)
        rate = max(mechanism.sampling_rate(size) for size in setting.sizes)
        mu = float(gdp.mu(epsilon, delta))
        return setting.options.paper_noise(mu, rate, setting.rounds)


def _function(values: list[float]) -> float | Callable[[int], float]:
    """The value of each step; a number where they are all the same."""
    return values[0] if len(set(values)) == 1 else values.__getitem__


@functools.lru_cache(maxsize=64)
def _values(options: ConstD2p, rounds: int) -> tuple[list[float], list[float]]:
    clips = values_of(options.clips, rounds)
    return clips.tolist(), options.relative_noise(rounds).tolist()


def _read(schedule: Schedule | str, column: str) -> Schedule:
    if not isinstance(schedule, str):
        return schedule
    try:
        return Listed.from_csv(pathlib.Path(schedule), column)
    except OSError as error:
        raise ValueError(
            f"{column} is a schedule or a CSV file; {schedule} cannot be read: "
            f"{error.strerror}"
        ) from None
