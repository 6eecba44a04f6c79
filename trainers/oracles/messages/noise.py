"""Noise on messages, and the account of one message.

Two units of privacy can be written down.

*node*: which node was asked (Theorem 1 of Zhou, Xue and Chen). Two nodes' messages are
at most the sensitivity S apart.

*record*: one record of one node. What enters a message anew in a round is at most
``bound`` in L1 norm, and so moves by at most twice that; all else in it came by noisy
messages. With clipping of whole batches nothing better is true, and then the figure
covers any number of the node's records at once.

Where S depends on the data, in the clear, no epsilon covers what it gives away: such a
message is written as one without noise.

Where the scale is public, a message is rounded to a grid of step g, a power of two, and
gets exactly rounded noise (`trainers/numerics/noise.md`). Rounding brings two messages
of d numbers apart by d g at most, in L1: sensitivities here are with it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from privaudit.files.arguments import Checked
from privaudit.ledger import Ledger, Recorder
from privaudit.release import (
    NoSampling,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)
from privaudit.results import Unit
from privaudit.task_settings import AtLeastOne, Inside, NotNegative
from trainers.network.mixing import Mixing
from trainers.numerics.noise import SCALES, grid, rounding_l1_up
from trainers.oracles.messages.sensitivities import (
    SENSITIVITIES,
    Certified,
    DataIndependent,
    Paper,
    Perturbation,
    Real,
    SensitivityName,
    Tracker,
    noise_quantile,
)

MOST_SENSITIVITY = 1e30  # beyond it, noise is no number that a model could hold

_BITS = 28  # a scale has 2^28 steps of the grid, or a little more


@dataclasses.dataclass(frozen=True, slots=True)
class MessageNoise(Checked):
    """Mechanism of messages. Raises ``ValueError`` if a number is out of its range."""

    # gamma_n / b: scale of the Laplace noise over the sensitivity; 0 for none
    noise_multiplier: NotNegative
    # one of `trainers.oracles.messages.sensitivities.SENSITIVITIES`
    sensitivity: SensitivityName = "data-independent"
    rounds: int = 1  # how many rounds there will be
    unit: Unit = "record"  # what the ledger is about
    # after every so many rounds the noisy states are set equal all over the network
    sync_interval: AtLeastOne | None = None
    # constant, decay: C' and lambda of equation 22, where it is used
    constant: float = 0.78
    decay: float = 0.55
    # probability that some noise exceeds the bound that a data-independent sensitivity
    # assumes
    failure: Inside = 1e-6
    # of `privaudit.accounting.papers.push_sum_sensitivity.Spread`
    window: AtLeastOne = 16
    # clipping is by sample, batches are of this fixed size, and nothing but messages
    # carries a record from round to round; None: clipping is by batch
    samples: int | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.sensitivity not in SENSITIVITIES:
            raise ValueError(
                f"there is no sensitivity {self.sensitivity!r}; choose one of "
                f"{', '.join(SENSITIVITIES)}"
            )
        Paper(self.constant, self.decay, published=False)  # checks the two

    @property
    def guarantees(self) -> bool:
        """Return whether the noise's scale tells nothing of the data, and is enough."""
        return self.sensitivity == "data-independent" or (
            self.sensitivity == "perturbation" and self.unit == "record"
        )

    @property
    def broadcasts(self) -> bool:
        """Return whether nodes tell each other the scale of the noise, in the clear."""
        return self.sensitivity not in ("data-independent", "perturbation")

    def on_grid(self, sensitivity: float, dims: int) -> tuple[float, float]:
        """Step of the grid, and what rounding adds to ``sensitivity``; or 0, 0."""
        scale = self.noise_multiplier * sensitivity
        if not self.guarantees or not scale > 0:
            return 0.0, 0.0
        step = grid(scale, _BITS)
        more = 2 * rounding_l1_up(step, dims)
        if self.noise_multiplier * (sensitivity + more) > SCALES[1] * step:
            raise ValueError(
                f"{dims:,} numbers with noise of {self.noise_multiplier:g} times the "
                "sensitivity are rounded by more than that in sum: share fewer "
                "parameters, or use less noise"
            )
        return step, more

    def synchronises(self, k: int) -> bool:
        """Return whether all states are equal after round ``k``."""
        return self.sync_interval is not None and (k + 1) % self.sync_interval == 0

    def tracker(self, mixing: Mixing, dims: int) -> Tracker:
        """New tracker of sensitivities, for messages of ``dims`` numbers."""
        match self.sensitivity:
            case "real":
                return Real()
            case "perturbation":
                return Perturbation()
            case "certified":
                return Certified(self.window)
            case "data-independent":
                rounds = max(self.rounds, 1)
                quantile = noise_quantile(dims, mixing.nodes, rounds, self.failure)
                quantile += dims * 2.0**-_BITS  # and what rounding adds
                doubly = "doubly stochastic" in mixing.properties
                return DataIndependent(self.window, quantile, keeps_mean=doubly)
            case name:
                return Paper(self.constant, self.decay, published=name == "published")

    def release(
        self, bound: float, scale: float, population: int, rounding: float = 0.0
    ) -> Release | None:
        """Release to account one message as; None if it needs no account.

        ``bound``: L1 norm of what is new in it; noise is of ``scale`` with
        ``rounding``.
        """
        moved = {"node": scale, "record": 2 * bound + rounding}[self.unit]
        if self.unit == "record" and bound == 0:
            return None  # nothing of a record enters here but by noisy messages
        noise = self.noise_multiplier * scale
        if not self.guarantees or self.noise_multiplier == 0:
            moved, noise = math.inf, 0.0
        elif self.unit == "record" and self.samples is not None:
            share = bound / self.samples + rounding / 2
            return Release.of_sum(
                norm_bound=share,
                noise_multiplier=noise / share,
                sampling=SamplingWithoutReplacement(self.samples, population),
                mechanism="laplace",
            )
        return Release(
            mechanism="laplace",
            norm_bound=moved / 2,
            noise=noise,
            sensitivity=Sensitivity(
                replace_one=moved,
                add_or_remove_one=moved if self.unit == "record" else None,
            ),
            sampling=NoSampling(),
        )

    def recorder(self, nodes: int) -> Recorder:
        """A ledger to be written. A record's account needs no bound on the noise."""
        failure = self.failure if self.unit == "node" and self.guarantees else 0.0
        return Recorder(nodes, unit=self.unit, failure=failure)


def planned_scales(
    noise: MessageNoise, mixing: Mixing, bounds: list[float], dims: int
) -> Iterator[tuple[float, float]]:
    """Scales of noise by round, and how much of each is for rounding.

    For equal public starts; 1 where data decide them.
    """
    ones = np.ones((1, mixing.nodes))
    tracker = noise.tracker(mixing, dims)
    tracker.begin(0 * ones, 0.0, equal=True)
    for k, bound in enumerate(bounds):
        scale, rounding = 1.0, 0.0
        if noise.guarantees:
            try:
                scale = float(tracker.perturbed(np.zeros(0), ones, bound).max())
            except ValueError:  # beyond all doubles
                scale = math.inf
            scale = min(scale, MOST_SENSITIVITY)
            rounding = noise.on_grid(scale, dims)[1]
            scale += rounding
            width = noise.noise_multiplier * scale * np.ones(1)
            ends = noise.synchronises(k)
            tracker.sent(ones, width, mixing.at(k), synchronises=ends)
        yield scale, rounding


def planned(
    noise: MessageNoise,
    mixing: Mixing,
    bounds: list[float],
    dims: int,
    populations: tuple[int, ...],
) -> Ledger:
    """Ledger of a channel if node states start equal and public.

    ``bounds``, one a round, are of what nodes add; messages have ``dims`` numbers.
    """
    recorder = noise.recorder(mixing.nodes)
    scales = planned_scales(noise, mixing, bounds, dims)
    for bound, (scale, rounding) in zip(bounds, scales, strict=True):
        for node, population in enumerate(populations):
            release = noise.release(bound, scale, population, rounding)
            if release is not None:
                recorder.record(node, release)
    return recorder.ledger()
