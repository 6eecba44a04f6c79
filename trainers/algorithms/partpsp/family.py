"""Families PartPSP, SGPDP and PEDFL: options, noise and ledgers."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from privaudit.ledger import Ledger
from privaudit.results import Unit
from privaudit.task_settings import AtLeastOne, Natural, NotNegative
from trainers.algorithms.family import Family
from trainers.algorithms.partpsp.partpsp import PartPsp
from trainers.algorithms.setting import Options, Setting
from trainers.network.engine import Network
from trainers.network.mixing import Mixing
from trainers.oracles.mechanism import SamplingName
from trainers.oracles.messages.dpps import with_synchronisation
from trainers.oracles.messages.noise import MessageNoise, planned
from trainers.oracles.messages.oracle import ClipBy, MessageMechanism, shared_places
from trainers.oracles.messages.sensitivities import SensitivityName


class PartPspOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `PartPsp`.

    Parameters
    ----------
    shared
        Which parameters are shared: the first N layers as ``layers:N``, or patterns of
        parameters' names, ``*`` for all. ``layers:1`` is PartPSP-1 on an MLP,
        ``layers:2`` PartPSP-2, ``*`` SGPDP.
    sensitivity
        By what noise is scaled: data-independent, which alone is a guarantee, real,
        paper, published, certified or perturbation.
    unit
        What the account is about: a record, or a node that was asked.
    sync_interval
        Every so many rounds, noisy states are set equal over the network; 0: never.
    local_step_size
        Step size of the local parameters. None: as the shared ones.
    local_steps
        Steps of a node between two messages.
    clip_by
        In L1 norm, the gradient of the batch (batch) or each sample's.
    sampling
        How batches are drawn.
    constant, decay
        C' and lambda of equation 22.
    failure
        Probability that some noise exceeds the bound that data-independent
        sensitivities assume; taken off delta where the unit is a node.
    window
        How many rounds the bounds keep apart.
    """

    shared: str = "layers:1"
    sensitivity: SensitivityName = "data-independent"
    unit: Unit = "record"
    sync_interval: Natural = 1  # 0: never
    local_step_size: NotNegative | None = None
    local_steps: AtLeastOne = 1
    clip_by: ClipBy = "batch"
    sampling: SamplingName = "without-replacement"
    constant: float = 0.78
    decay: float = 0.55
    failure: float = 1e-6
    window: int = 16

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        self.noise(0.0, 1)  # checks the rest
        MessageMechanism(1.0, clip_by=self.clip_by, sampling=self.sampling)

    @property
    def interval(self) -> int | None:
        return self.sync_interval or None

    def noise(self, multiplier: float, rounds: int, **more: Any) -> MessageNoise:
        same = ("sensitivity", "unit", "constant", "decay", "failure", "window")
        more |= {name: getattr(self, name) for name in same}
        return MessageNoise(
            multiplier, rounds=rounds, sync_interval=self.interval, **more
        )

    def arguments(self, rounds: int) -> dict[str, Any]:
        return {
            "shared": self.shared,
            "sync_interval": self.interval,
            "local_step_size": self.local_step_size,
            "local_steps": self.local_steps,
            "broadcasts": self.noise(0.0, rounds).broadcasts,
        }


class SgpdpOptions(PartPspOptions, frozen=True, kw_only=True):
    """As `PartPspOptions`, but that all parameters are shared."""

    shared: Literal["*"] = "*"  # type: ignore[assignment]


class PedflOptions(SgpdpOptions, frozen=True, kw_only=True):
    """As `SgpdpOptions`, with several steps a message; without synchronisation."""

    sensitivity: SensitivityName = "perturbation"
    sync_interval: int = 0
    local_steps: int = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainMessages(Family[PartPspOptions]):
    """Messages without noise."""

    one_noise: str = "has noise in messages, all by one sensitivity"

    def runner(self, algorithm: PartPsp, mixing: Mixing) -> Network:
        mixing.require(self.needs, type(algorithm).__name__.upper())
        return Network(algorithm, with_synchronisation(mixing, algorithm.sync_interval))

    def mechanism(
        self, setting: Setting[PartPspOptions], noise_multiplier: float
    ) -> MessageMechanism:
        options = setting.options
        return MessageMechanism(
            setting.batch_size,
            sampling=options.sampling,
            rate=setting.sampling_rate,
            messages=MessageNoise(0.0, "real", setting.rounds),
            mixing=with_synchronisation(setting.mixing, options.interval),
        )

    def ledger(
        self, setting: Setting[PartPspOptions], noise_multiplier: float
    ) -> Ledger:
        how = self.mechanism(setting, noise_multiplier)
        if not how.messages.guarantees:
            raise ValueError(
                f"noise by sensitivity={how.messages.sensitivity} is no guarantee for "
                f"a {how.messages.unit}, so that none can be found for a budget: use "
                "data-independent, or give --calibrate paper or --noise-multiplier"
            )
        algorithm = self.algorithm(setting)
        assert how.mixing is not None
        shared = shared_places(setting.places, algorithm.shared)
        bounds = [algorithm.bound(k, setting.clip_norm) for k in range(setting.rounds)]
        return planned(how.messages, how.mixing, bounds, len(shared), setting.sizes)

    def whole(self, setting: Setting[PartPspOptions]) -> str:
        """By ``sensitivity=real``, as noise is scaled by what all nodes hold."""
        if self.private and setting.options.sensitivity == "real":
            return "with sensitivity=real asks what all nodes hold, which none knows"
        return Family.whole(self, setting)

    def stays_home(self, setting: Setting[PartPspOptions]) -> bool:
        """Return whether some parameters are never sent, which no account covers."""
        return setting.options.shared != "*"


class NoisyMessages(PlainMessages):
    """Messages with Laplace noise."""

    def mechanism(
        self, setting: Setting[PartPspOptions], noise_multiplier: float
    ) -> MessageMechanism:
        options = setting.options
        # Nothing of a record stays in a node but in its local parameters.
        alone = options.shared == "*" and options.local_steps == 1
        by_sample = options.clip_by == "sample" and alone
        samples = int(setting.batch_size) if by_sample else None
        return dataclasses.replace(
            PlainMessages.mechanism(self, setting, noise_multiplier),
            clip_norm=setting.clip_norm,
            clip_by=options.clip_by,
            messages=options.noise(noise_multiplier, setting.rounds, samples=samples),
        )

    def paper_noise(
        self, setting: Setting[PartPspOptions], epsilon: float, delta: float
    ) -> float:
        """gamma_n / b with b / gamma_n = ``epsilon``: Theorem 1, of one round."""
        return 1 / epsilon

    def remarks(self, setting: Setting[PartPspOptions]) -> tuple[str, ...]:
        options = setting.options
        said = []
        noise = options.noise(0.0, setting.rounds)
        if noise.broadcasts:
            said.append(
                f"sensitivity={options.sensitivity} is no guarantee: what nodes "
                "broadcast to scale their noise depends on their data, and gives away "
                "the norm of the noise, by which a message tells two candidates apart"
            )
        elif not noise.guarantees:
            said.append(
                f"sensitivity={options.sensitivity} says nothing of which node was "
                "asked: use data-independent, or unit=record"
            )
        if self.stays_home(setting):
            said.append(
                "the account is of what is sent; local parameters are not sent, and "
                "are not protected: do not publish them"
            )
        return tuple(said)
