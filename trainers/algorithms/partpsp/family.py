"""What PartPSP, SGPDP and PEDFL are registered with: options, noise and ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from privaudit.ledger import Ledger
from privaudit.results import Unit
from trainers.algorithms.entry import Options
from trainers.algorithms.partpsp.partpsp import PartPsp
from trainers.gradients.per_sample import parameter_places
from trainers.network.engine import Network
from trainers.network.mixing import Mixing, Property
from trainers.oracles.messages.dpps import NEEDS, with_synchronisation
from trainers.oracles.messages.noise import MessageNoise, planned
from trainers.oracles.messages.oracle import ClipBy, MessageMechanism, shared_places
from trainers.oracles.messages.sensitivities import SensitivityName
from trainers.oracles.oracle import SamplingName

if TYPE_CHECKING:
    from trainers.runs.problem import Problem
    from trainers.runs.training import Training


class PartPspOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `PartPsp`.

    Parameters
    ----------
    shared
        Which parameters are shared: `trainers.oracles.messages.oracle.shared_places`.
        ``layers:1`` is PartPSP-1 on an MLP, ``layers:2`` PartPSP-2, ``*`` SGPDP.
    sensitivity
        By what noise is scaled: `trainers.oracles.messages.sensitivities`. Only
        data-independent is a guarantee.
    unit
        What the account is about: a record, or a node that was asked.
    sync_interval
        Every so many rounds, noisy states are set equal over the network; 0: never.
    local_step_size
        Of the local parameters; None: as the shared ones.
    local_steps
        Steps of a node between two messages.
    clip_by
        In L1 norm, the gradient of the lot (batch) or each sample's.
    sampling
        How lots are drawn.
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
    sync_interval: int = 1
    local_step_size: float | None = None
    local_steps: int = 1
    clip_by: ClipBy = "batch"
    sampling: SamplingName = "without-replacement"
    constant: float = 0.78
    decay: float = 0.55
    failure: float = 1e-6
    window: int = 16

    def __post_init__(self) -> None:
        if self.sync_interval < 0:
            raise ValueError(
                f"sync_interval must be >= 0 (0: never), got {self.sync_interval}"
            )
        if self.local_steps < 1:
            raise ValueError(f"local_steps must be >= 1, got {self.local_steps}")
        if self.local_step_size is not None and not self.local_step_size >= 0:
            raise ValueError(
                f"local_step_size must be >= 0, got {self.local_step_size}"
            )
        self.noise(0.0, 1)  # checks the rest
        MessageMechanism(1.0, clip_by=self.clip_by, sampling=self.sampling)

    @property
    def interval(self) -> int | None:
        """None: never."""
        return self.sync_interval or None

    def noise(self, multiplier: float, rounds: int, **more: Any) -> MessageNoise:
        """The noise of messages."""
        return MessageNoise(
            multiplier,
            sensitivity=self.sensitivity,
            rounds=rounds,
            unit=self.unit,
            sync_interval=self.interval,
            constant=self.constant,
            decay=self.decay,
            failure=self.failure,
            window=self.window,
            **more,
        )

    def arguments(self, rounds: int) -> dict[str, Any]:
        """What `PartPsp` is made with."""
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
    """As `SgpdpOptions`, with several steps between messages and no synchronisation.

    Without it, data-independent sensitivities grow from round to round.
    """

    sensitivity: SensitivityName = "perturbation"
    sync_interval: int = 0
    local_steps: int = 2


class OneProcess(Network):
    """All nodes in one process: a channel asks how far apart they are."""


def network(
    algorithm: Any, mixing: Mixing, needs: tuple[Property, ...] = NEEDS
) -> OneProcess:
    """A `PartPsp` on a graph, with rounds of synchronisation in between."""
    mixing.require(needs, type(algorithm).__name__.upper())
    return OneProcess(algorithm, with_synchronisation(mixing, algorithm.sync_interval))


def mechanism(training: Training, noise_multiplier: float) -> MessageMechanism:
    """Lots, clipping and noise by the training's options; no more if not private."""
    options = training.algorithm_options()
    assert isinstance(options, PartPspOptions)
    mixing = with_synchronisation(training.mixing(), options.interval)
    if not training.entry.private:
        noise = MessageNoise(0.0, "real", training.rounds)
        return MessageMechanism(
            training.lot_size, sampling=options.sampling, messages=noise, mixing=mixing
        )
    # Nothing of a record stays in a node but in its local parameters.
    alone = options.shared == "*" and options.local_steps == 1
    by_sample = options.clip_by == "sample" and alone
    return MessageMechanism(
        training.lot_size,
        training.clip_norm,
        sampling=options.sampling,
        clip_by=options.clip_by,
        messages=options.noise(
            noise_multiplier,
            training.rounds,
            samples=int(training.lot_size) if by_sample else None,
        ),
        mixing=mixing,
    )


def ledger(problem: Problem, noise_multiplier: float) -> Ledger:
    """What a run would send. Raises ``ValueError`` if its noise guarantees nothing."""
    training = problem.training
    how = mechanism(training, noise_multiplier)
    if not how.messages.guarantees:
        raise ValueError(
            f"noise by sensitivity={how.messages.sensitivity} is no guarantee for a "
            f"{how.messages.unit}, so that none can be found for a budget: use "
            "data-independent, or give --calibrate paper or --noise-multiplier"
        )
    algorithm = problem.network.algorithm
    assert isinstance(algorithm, PartPsp)
    assert how.mixing is not None
    shared = shared_places(parameter_places(problem.module), algorithm.shared)
    bounds = [algorithm.bound(k, training.clip_norm) for k in range(training.rounds)]
    return planned(how.messages, how.mixing, bounds, len(shared), problem.sizes)


def paper_noise(problem: Problem, epsilon: float, delta: float) -> float:
    """gamma_n / b with b / gamma_n = ``epsilon``: Theorem 1, of one round."""
    return 1 / epsilon


def keeps_parameters(training: Training) -> bool:
    """Whether some are never sent: no account covers a model that has them."""
    options = training.algorithm_options()
    assert isinstance(options, PartPspOptions)
    return options.shared != "*"


def remarks(training: Training) -> tuple[str, ...]:
    """What an account of messages leaves out."""
    options = training.algorithm_options()
    assert isinstance(options, PartPspOptions)
    said = []
    noise = options.noise(0.0, training.rounds)
    if noise.broadcasts:
        said.append(
            f"sensitivity={options.sensitivity} is no guarantee: what nodes broadcast "
            "to scale their noise depends on their data, and gives away the norm of "
            "the noise, by which a message tells two candidates apart"
        )
    elif not noise.guarantees:
        said.append(
            f"sensitivity={options.sensitivity} says nothing of which node was asked: "
            "use data-independent, or unit=record"
        )
    if keeps_parameters(training):
        said.append(
            "the account is of what is sent; local parameters are not sent, and are "
            "not protected: do not publish them"
        )
    return tuple(said)
